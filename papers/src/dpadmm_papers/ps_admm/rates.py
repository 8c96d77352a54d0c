r"""Theorems 3 and 4: criterion (9) over the number of iterations, beside the bound (10).

.. math:: \mathbb E\Bigl[P(\hat u) - P(u^*) + \sum_i\tau_i\|\hat x_i - \hat z\|\Bigr]
          \le \frac{A}{K} + B K,\qquad
          A = \sum_i\Bigl(\frac{\mu_f}{4}\|x_i^0 - x^*\|^2 + \frac\rho2\|z^0 - z^*\|^2
          + \frac{1}{2\rho}(\|\lambda_i^0\|^2 + \tau_i^2)\Bigr)

with averages over the iterations. In the paper's experiment :math:`\mu_f = 0`, so that no step
meets the theorem's conditions (:func:`~dpadmm_papers.ps_admm.theory.largest_step`): its right-hand
side is put beside what is measured all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from dpadmm.experiments.jobs import Result, TrainingJob, seed_of
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.problem.losses import get_loss
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import Conclusion, Finding, Setting, ours
from dpadmm_papers.ps_admm.setting import CITATION, CONTROLS, PS, SETTINGS, control, parameters
from dpadmm_papers.ps_admm.theory import convergence_bound, noise_growth, privacy_noise
from dpadmm_papers.rates import RateExperiment, rate_conclusions
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import all_above

#: Runs of more iterations than this are fewer.
_LONG: Final = 1000


class Theorems3And4(RateExperiment):
    """Theorems 3 and 4: the rate, and the best number of iterations."""

    name: ClassVar[str] = "ps-admm-rate"
    citation: ClassVar[str] = CITATION
    part: ClassVar[str] = "Theorems 3 and 4"
    title: ClassVar[str] = "Criterion (9) over the number of iterations, beside its bound"
    shown: ClassVar[str] = "criterion (9)"
    seconds: ClassVar[float] = 180.0
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "tau": ours(1.0, "any positive number will do in (9)"),
        "iterations followed": ours(300, "of the algorithm without noise"),
        "iterations followed, noise": ours(
            200, "with the sigma that Theorem 2 has for K = 50 and epsilon = 0.5"
        ),
        "lengths": ours(
            {
                "published": {0.1: (5, 100, 300, 1000), 0.5: (30, 300, 1000, 3000)},
                "proven": {0.1: (5, 100, 300, 1000, 3000), 0.5: (30, 300, 1000, 3000, 10000)},
            },
            "of runs that each keep to one epsilon, by noise and budget: noise grows as "
            "sqrt(K) / epsilon, so that the best K of the larger budget, and of the smaller proven "
            "noise, lies further out. Each grid goes on until the criterion rises again",
        ),
        "runs of the longest": ours(4, "they take long, and noise is large there"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        *rate_conclusions(
            "The first term of (10) falls as 1/K: without noise the expected suboptimality does. "
            "(Theorem 3 is for strongly convex losses; that of the paper's experiment, looked at "
            "here, is not.)",
            "The right-hand side of (10), with N, G and c, which it drops, kept, and mu_f = 0.",
            size="criterion (9), with the magnitude of its first part",
        ),
        Conclusion(
            "best K",
            "As K grows the first term in (10) decreases and the second increases: criterion (9) "
            "is least at an optimal K (Theorem 4).",
            "At one epsilon the least mean is neither at the fewest nor at the most iterations "
            "tried, and the 97.5% intervals of criterion (9) at both ends minus that least one lie "
            "above 0. Not decided if it is at the most: it may lie beyond.",
        ),
    )

    def _cell(self, name: str, what: TrainingParameters, rounds: int) -> TrainingJob:
        problem = NamedProblem(self["data"], self["parties"], 0, self["test share"])
        given = replace(what, rounds=rounds)
        long = rounds > _LONG
        runs = self["runs of the longest"] if long else self["runs"]
        return TrainingJob(problem, given, runs=runs, seed=seed_of(f"ps-admm rate, {name}"))

    def followed(self) -> dict[str, TrainingJob]:
        """Algorithm 1 as printed and repaired, and Algorithm 2 with one sigma."""
        found = {
            name: self._cell(name, control(self, calibration), self["iterations followed"])
            for calibration, name in CONTROLS.items()
        }
        rounds = self["iterations followed, noise"]
        # Theorem 2: sigma^2 ~ K / epsilon^2.
        epsilon = max(self["budgets"]) * math.sqrt(rounds / self["K"])
        name = "PS-ADMM as published, one sigma"
        found[name] = self._cell(name, parameters(self, PS["published"], epsilon), rounds)
        return found

    def swept(self) -> dict[str, dict[int, TrainingJob]]:
        """Both calibrations at the smallest and the largest budget."""
        found = {}
        for calibration, kind in PS.items():
            for epsilon in self["budgets elsewhere"]:
                what = parameters(self, kind, epsilon)
                name = f"{calibration}, claimed or proven epsilon {Given(epsilon)}"
                found[name] = {
                    rounds: self._cell(f"{name}, {rounds}", what, rounds)
                    for rounds in self["lengths"][calibration][epsilon]
                }
        return found

    def has_order(self, name: str) -> bool:
        """The claim is about the term that noise has no part in."""
        return name in CONTROLS.values()

    def quantity(self, result: Result) -> Array:
        """Criterion (9)."""
        return result.values["excess"] + self["tau"] * result.values["apart"]

    def size(self, result: Result) -> Array:
        """Criterion (9), whose tau is the weight of the distance."""
        values = result.values
        return np.asarray(np.abs(values["excess"]) + self["tau"] * values["apart"])

    def bound(self, name: str, looks: tuple[int, ...], result: Result) -> Array:
        """(10), for a start in 0."""
        parties, rho = self["parties"], self["rho"]
        start = parties * (rho / 2 * float(np.mean(result.values["norm"] ** 2)))
        start += parties * self["tau"] ** 2 / (2 * rho)
        growth = 0.0
        if name not in CONTROLS.values():
            data = result.facts["data"]
            smoothness = get_loss(self["loss"]).curvature_bound + rho
            sigma = privacy_noise(
                max(data["rows"]), self["K"], self["S"], max(self["budgets"]), self["delta"]
            )
            growth = noise_growth(
                self["eta v_L"] / smoothness,
                smoothness,
                data["features"],
                sigma,
                parties=parties,
                repaired=False,
            )
        # With one sigma the second term does not grow with K.
        return np.array([convergence_bound(start, rounds, growth / rounds) for rounds in looks])

    def judge_swept(self, name: str, values: Mapping[int, Array]) -> Finding:
        """Whether a number of iterations between the ends is best."""
        lengths = sorted(values)
        least = min(values, key=lambda rounds: float(values[rounds].mean()))
        ends = [rounds for rounds in (lengths[0], lengths[-1]) if rounds != least]
        gaps = {f"K = {end}": difference(values[end], values[least]) for end in ends}
        verdict, number = all_above(gaps, ".3g")
        rests_on = [f"{name}, K {rounds}" for rounds in (*ends, least)]
        means = ", ".join(f"K = {rounds}: {values[rounds].mean():.3g}" for rounds in lengths)
        if least == lengths[-1]:
            # It may lie beyond: more iterations would decide, not more runs, of which those that
            # are followed have none.
            verdict, rests_on = "not decided", list(self.followed())
        elif least == lengths[0]:
            verdict = "does not stand"
        words = f"Least at K = {least}; above it: {number} Means: {means}."
        return Finding.judged("best K", name, verdict, words, rests_on=rests_on)
