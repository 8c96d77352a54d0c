"""Cost of an audit, as a ratio to the cost of drawing its samples.

Run with ``python benchmarks/bench_audit.py``; :func:`main` returns (name, measured, target).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dpadmm.audit.cases import audit_case, gaussian_case
from dpadmm.privacy.noise import SimulatedNoise

SAMPLES = 1_000_000


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the best time of one call: what the machine can do undisturbed."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def gaussian_audit() -> float:
    """Return the cost of a whole audit, its draws included, over that of the draws alone."""
    case = gaussian_case(1.0, 1e-5)

    def draw() -> None:
        for t in range(2):
            SimulatedNoise(0).generator(0, 0, t, "output").standard_normal(SAMPLES)

    audited = seconds(lambda: audit_case(case, samples=SAMPLES), 7)
    return audited / seconds(draw, 7)


def main() -> list[tuple[str, float, float]]:
    rows = [("audit of a Gaussian release, 1e6 samples / drawing them", gaussian_audit(), 3.0)]
    for name, measured, target in rows:
        verdict = "ok" if measured <= target else "MISSED"
        print(f"{name:56s} {measured:9.3f}  target {target:5.1f}  {verdict}")
    return rows


if __name__ == "__main__":
    main()
