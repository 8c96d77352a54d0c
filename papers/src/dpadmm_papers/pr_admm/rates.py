r"""Theorems 5 and 6: how fast the objective of averaged iterates falls.

.. math:: \mathbb E[f(\hat x^K) - f(x^*)] = O(1/K),\qquad \hat x^K = \frac1K\sum_{k=1}^K x^k

for a first variance that does not depend on K. By Theorems 3 and 4 a fixed total epsilon makes it
grow: with the periodic decay by :math:`R_P^{-K/K_p}`, with the iteration-based one by
:math:`K^3`. So the rate is looked at twice: of runs that are followed with a first variance that is
chosen, and of runs of other lengths that each keep to one epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpadmm.experiments.jobs import Result, TrainingJob
from dpadmm.plain import Array
from dpadmm.problem.site import build_topology
from dpadmm_papers.experiment import Conclusion, Setting, ours
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    NON_PRIVATE,
    PERIODIC,
    PROPOSED,
    READING,
    Section5,
)
from dpadmm_papers.pr_admm.theory import (
    convergence_bound,
    deviation_bound,
    iteration_total,
    noise_accumulated,
    periodic_total_printed,
    zcdp_epsilon,
)
from dpadmm_papers.rates import RateExperiment, rate_conclusions


class Theorems5And6(RateExperiment, Section5):
    """Theorems 5 and 6: the rate O(1/K), measured."""

    name: ClassVar[str] = "pr-admm-rate"
    part: ClassVar[str] = "Theorems 5 and 6"
    title: ClassVar[str] = "How fast the objective of averaged iterates falls, beside its bound"
    shown: ClassVar[str] = "objective of the averages above its minimum"
    seconds: ClassVar[float] = 30.0
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "iterations followed": ours(
            10000,
            "without noise, the most that a run may have: from about 300 on the objective is below "
            "its minimum, and a tenfold of K after that shows the slope",
        ),
        "iterations followed, noise": ours(200, "longer ones only add rounds without noise"),
        "first standard deviation": ours(0.1, "of the runs that are followed with noise"),
        "lengths": ours((10, 50, 200), "of runs that each keep to epsilon = 10"),
        "V_1 and V_2": ours(
            "of the optimum, and of slopes of at most 1",
            "Lemma 4's bounds on x and on the gradient, of all agents stacked",
        ),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = rate_conclusions(
        "The averaged function value approaches the minimum with a rate of O(1/K), as without "
        "privacy (Remark 1).",
        "The bounds of Theorems 5 and 6, with the norm of the proof (L_+/2).",
        choices=(READING,),
    )

    def followed(self) -> dict[str, TrainingJob]:
        """Without noise in every reading; with noise of a chosen size."""
        found = {}
        for regime in self.regimes:
            job = self.training(NON_PRIVATE, "proven", regime, self["epsilon of Figs. 2 to 4"])
            rounds = self["iterations followed"]
            name = f"without noise, {regime.words}"
            found[name] = replace(job, parameters=replace(job.parameters, rounds=rounds))
        for who in PROPOSED:
            found[f"{who}, noise of a chosen size, {self.regimes[0].words}"] = self.noisy(who)
        return found

    def noise_of(self, name: str) -> str:
        """Runs without noise are variants of one another."""
        return "without noise" if name.startswith("without noise") else name

    def varied_run(self, name: str) -> dict[str, str]:
        """The regime of a run without noise."""
        found = {f"without noise, {each.words}": each for each in self.regimes}
        regime = found.get(name, self.regimes[0])
        return {word: str(value) for word, value in self.choice_of(regime).items()}

    def noisy(self, who: str) -> TrainingJob:
        """A published run whose epsilon, by Lemma 5, gives the chosen first deviation."""
        rounds, regime = self["iterations followed, noise"], self.regimes[0]
        total = (
            periodic_total_printed(rounds, self["R_P"], self["K_p"])
            if who == PERIODIC
            else iteration_total(rounds, self["R_T"])
        )
        degrees = build_topology(self["graph"], self["agents"]).degrees
        sensitivity = 1 / (regime.penalty * float(degrees.min()))
        ratio = sensitivity / self["first standard deviation"]
        epsilon = zcdp_epsilon(total * ratio**2 / 2, self["delta"])
        job = self.training(who, "published", regime, epsilon)
        return replace(job, parameters=replace(job.parameters, rounds=rounds))

    def swept(self) -> dict[str, dict[int, TrainingJob]]:
        """Both schedules, runs of every length at the epsilon of Fig. 4."""
        regime, epsilon = self.regimes[0], self["epsilon of Figs. 2 to 4"]
        found: dict[str, dict[int, TrainingJob]] = {}
        for calibration in CALIBRATIONS:
            for who in PROPOSED:
                job = self.training(who, calibration, regime, epsilon)
                found[f"{calibration}, {who}, {regime.words}"] = {
                    rounds: replace(job, parameters=replace(job.parameters, rounds=rounds))
                    for rounds in self["lengths"]
                }
        return found

    def bound(self, name: str, looks: tuple[int, ...], result: Result) -> Array:
        """Theorems 5 and 6 from x^0 = 0, with Lemma 4's U-hat; without noise its part is 0."""
        topology = build_topology(self["graph"], self["agents"])
        penalty, agents = result.facts["penalty"], self["agents"]
        norm = float(result.values["norm"].mean())
        optimum = np.array([norm])
        noisy = "noise of a chosen size" in name
        variance = agents * self["first standard deviation"] ** 2 if noisy else 0.0
        schedule = "periodic" if name.startswith(PERIODIC) else "iteration"
        decay = self["R_P"] if schedule == "periodic" else self["R_T"]
        stacked = math.sqrt(agents)
        bounds = [
            convergence_bound(
                topology,
                penalty,
                rounds,
                first=np.zeros((agents, 1)),
                optimum=optimum,
                deviation=deviation_bound(topology, penalty, stacked * norm, stacked),
                first_variances=variance * self.problem.load().features,
                accumulated=noise_accumulated(schedule, rounds, decay, self["K_p"]),
            )
            for rounds in looks
        ]
        return np.array(bounds)
