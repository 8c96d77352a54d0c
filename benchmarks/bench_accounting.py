"""Cost of accounting and calibration, as ratios measured in one run.

Run with ``python benchmarks/bench_accounting.py``; :func:`main` returns (name, measured, target).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import gaussian_sigma, objective_sigma
from dpadmm.privacy.events import GaussianRelease, PureRelease, SubsampledGaussian
from dpadmm.privacy.gaussian import gaussian_epsilon

DELTA = 1e-5


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the best time of one call: what the machine can do undisturbed."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def gaussian_accounting() -> float:
    """Return the cost of 10,000 different rounds over that of a sum and one root search."""
    ratios = np.random.default_rng(0).uniform(0.5, 2, 10_000) / 100
    events = [GaussianRelease(ratio, 1.0) for ratio in ratios.tolist()]
    squares = ratios**2
    ours = seconds(lambda: epsilon_spent(events, DELTA), 20)
    least = seconds(lambda: gaussian_epsilon(np.sqrt(np.sum(squares)), DELTA), 50)
    return ours / least


def calibration_over_parties(sigma: Callable[[np.ndarray, np.ndarray], object]) -> float:
    """Return the cost of calibrating 1,000 parties over that of one; all budgets differ."""
    random = np.random.default_rng(1)
    epsilons, sensitivities = random.uniform(0.5, 5, 1000), random.uniform(0.01, 0.1, 1000)
    many = seconds(lambda: sigma(epsilons, sensitivities), 20)
    one = seconds(lambda: sigma(epsilons[:1], sensitivities[:1]), 50)
    return many / one


def pure_composition() -> float:
    """Return the seconds that 5,000 pure releases take, all of them different."""
    levels = np.random.default_rng(2).uniform(0.005, 0.02, 5000)
    events = [PureRelease(level) for level in levels.tolist()]
    return seconds(lambda: epsilon_spent(events, DELTA), 1)


def subsampled_composition() -> float:
    """Return the seconds that 10,000 subsampled steps take."""
    event = SubsampledGaussian(20, 6838, 1.0, 0.8)
    return seconds(lambda: epsilon_spent([(event, 10_000)], DELTA), 1)


def main() -> list[tuple[str, float, float]]:
    ratios = np.ones(50)
    # Import the numerical composition's library before anything is timed.
    epsilon_spent([PureRelease(0.1), PureRelease(0.2)], DELTA)
    rows = [
        ("10,000 Gaussian rounds / (sum + root search)", gaussian_accounting(), 20.0),
        (
            "1,000 parties / one, output noise",
            calibration_over_parties(lambda e, s: gaussian_sigma(e, DELTA, s, ratios)),
            10.0,
        ),
        (
            "1,000 parties / one, objective noise",
            calibration_over_parties(lambda e, s: objective_sigma(e, DELTA, s, s / 100, ratios)),
            10.0,
        ),
        ("5,000 different pure releases, seconds", pure_composition(), 5.0),
        ("10,000 subsampled steps, seconds", subsampled_composition(), 5.0),
    ]
    for name, measured, target in rows:
        verdict = "ok" if measured <= target else "MISSED"
        print(f"{name:48s} {measured:9.3f}  target {target:5.1f}  {verdict}")
    return rows


if __name__ == "__main__":
    main()
