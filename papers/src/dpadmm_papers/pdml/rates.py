r"""Theorems 1 and 2: the terms of order 1/t, measured.

.. math:: \widetilde J(\bar w(t)) - \widetilde J(\tilde w^*) = O(1/t),\qquad
          \bar w_i(t) = \frac1t\sum_{k=1}^t w_i(k)

is what (31) bounds with the noise of phase 2 and (36) without it, apart from the terms of few rows
and of randomised labels, which do not depend on t. Theorem 1 rests on condition (25), which no
graph here meets; (31) does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpadmm.experiments.jobs import Result, TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.problem.site import build_topology
from dpadmm_papers.experiment import Conclusion, Setting, ours
from dpadmm_papers.pdml.scheme import ADULT, CITATION, Kind, adult_cell, adult_variant
from dpadmm_papers.pdml.theory import spectrum
from dpadmm_papers.preparations import ReportedProblem
from dpadmm_papers.rates import RateExperiment, rate_conclusions


class Theorems1And2(RateExperiment):
    """Theorems 1 and 2: the rate O(1/t)."""

    name: ClassVar[str] = "pdml-rate"
    citation: ClassVar[str] = CITATION
    part: ClassVar[str] = "Theorems 1 and 2"
    title: ClassVar[str] = "How fast the objective of averaged classifiers falls, beside its bound"
    shown: ClassVar[str] = "objective of the averages above its minimum"
    length: ClassVar[tuple[str, str]] = ("t", "rounds")
    seconds: ClassVar[float] = 10.0
    settings: ClassVar[Mapping[str, Setting]] = ADULT | {
        "rounds followed": ours(200, "a tenfold of t shows the slope"),
        "draws": ours(10, "of eta and of the noise, for one draw of the labels"),
        "lengths": ours((10, 100), "of runs that each keep to the row epsilon"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = rate_conclusions(
        "The terms of the primal variable perturbation decrease at the rate of O(1/t): the "
        "modified algorithm preserves the convergence speed of ADMM (V-C, V-D).",
        "The bounds (31) and, without phase 2, the first term of (36).",
    )

    def _job(self, kind: Kind, rounds: int) -> TrainingJob:
        """A variant on labels that were reported once, with draws of eta and the noise."""
        variant = adult_variant(self.settings, kind)
        job = adult_cell(self.settings, variant)
        assert isinstance(job.problem, NamedProblem)
        given = replace(
            job.parameters,
            rounds=rounds,
            algorithm_options={
                **job.parameters.algorithm_options,
                "labels_already_randomized": True,
            },
        )
        reported = ReportedProblem(job.problem, variant.label_epsilon, self["seed"] % 2**32)
        return replace(
            job, problem=reported, parameters=given, runs=self["draws"], repeats=1, finals=()
        )

    def followed(self) -> dict[str, TrainingJob]:
        """Phase 1 alone, and both phases with the paper's noise."""
        rounds = self["rounds followed"]
        return {
            "phase 1 alone": self._job("phase 1", rounds),
            "both phases, published": self._job("published", rounds),
        }

    def swept(self) -> dict[str, dict[int, TrainingJob]]:
        """The proven noise, by the number of rounds."""
        jobs = {rounds: self._job("proven", rounds) for rounds in self["lengths"]}
        return {"proven, row epsilon 1": jobs}

    def bound(self, name: str, looks: tuple[int, ...], result: Result) -> Array:
        """(31) with r(0) = 0 and w(0) = 0; without phase 2 its last term is 0."""
        servers, penalty = self["servers"], result.facts["penalty"]
        topology = build_topology(self["graph"], servers)
        graph = spectrum(topology)
        start = float(topology.degrees.sum()) * float(np.mean(result.values["norm"] ** 2))
        variance = 0.0
        if name != "phase 1 alone":
            features = result.facts["data"]["features"]
            variance = servers * features * self["initial noise"] ** 2 / (1 - self["rho"])
        ratio = graph.plus_max**2 / (2 * graph.minus_max**2) + graph.minus_max
        return np.array([penalty / rounds * (start + ratio * variance) for rounds in looks])
