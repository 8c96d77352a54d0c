r"""What the experiments of the R-ADMM paper share: its problem, its constants, its noise.

The paper's objective has a factor C = 1750 before the loss. It is absorbed: with
:math:`\rho/C,\ \eta/C,\ \gamma/C` and noise of rate :math:`C\alpha` the iterates are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dpadmm.experiments.experiment import Setting, ours, paper, seed_of
from dpadmm.experiments.job import Result, TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.problem.topologies import build_topology
from dpadmm.run.parameters import TrainingParameters
from dpadmm_papers.r_admm.theory import privacy_loss

__all__ = [
    "CALIBRATIONS",
    "CITATION",
    "COMMON",
    "GAUSSIAN",
    "Setup",
    "error_of",
    "loss_of",
    "setup_of",
]

CITATION: Final = (
    'X. Zhang, M. M. Khalili, M. Liu, "Recycled ADMM: improving the privacy and accuracy of '
    'distributed algorithms", IEEE TIFS 2020'
)
#: Proven calibration with Gaussian noise in the objective instead of the paper's.
GAUSSIAN: Final = "proven, with Gaussian noise"
CALIBRATIONS: Final = ("published", "proven", GAUSSIAN)

#: Settings of every experiment on the noise of R-ADMM.
COMMON: Final[Mapping[str, Setting]] = {
    "data": paper("adult", "section VIII; pre-processing as in its reference [22]"),
    "encoding": ours(
        "a public schema, 105 columns, rows scaled down to norm 1",
        "the paper has 105 columns too but does not print them",
    ),
    "parties": paper(5, "captions of Figs. 1 and 5"),
    "rows": paper(8000, "40,000 training rows, distributed evenly"),
    "test rows": ours(5222, "what is left of the 45,222 complete rows; the paper says 5,223"),
    "loss": paper("logistic", "section VIII.A"),
    "noise": paper("exp-norm", "Algorithm 3: density exp(-alpha ||epsilon||)"),
    "C": paper(1750, "caption of Fig. 2"),
    "rho": paper(0.22, "section VIII.B.1"),
    "iterations": paper(50, "Figs. 4 and 5"),
    "runs": paper(10, "section VIII.B.1; 60 where 10 do not decide"),
    "gamma": paper(0.5, "section VIII.B.1"),
    "start": ours("zero at every party", "the paper starts from random values it does not state"),
    "graph": ours(
        2,
        "seed of a random connected graph of 6 links, the first in which nobody has a single "
        "neighbour; the paper's graph is random too, and not printed",
    ),
    "residual": ours(
        1e-3,
        "of a local solve, as a part of what one row moves the gradient by; the paper assumes "
        "exact minimisers. The noise that covers it is a tenth of the other or less",
    ),
    "delta": ours(1e-5, "the paper has pure differential privacy, which no real solver gives"),
}


def setup_of(settings: Mapping[str, Setting]) -> Setup:
    """The problem that settings describe."""
    told = {name: setting.value for name, setting in settings.items()}
    problem = NamedProblem(told["data"], told["parties"], told["rows"], told["test rows"])
    edges = build_topology("random", told["parties"], seed=told["graph"]).edges
    return Setup(
        problem=problem,
        edges=edges,
        loss=told["loss"],
        noise=told["noise"],
        scale=float(told["C"]),
        rho=told["rho"],
        rounds=told["iterations"],
        runs=told["runs"],
        gamma=told["gamma"],
        delta=told["delta"],
        residual=told["residual"],
    )


@dataclass(frozen=True)
class Setup:
    """The paper's problem and how its algorithms are run on it.

    Attributes
    ----------
    problem, edges
        The rows, and the links between the parties.
    loss, noise
        By name; noise of the paper's density.
    scale
        C.
    rho, gamma
        As in the paper, before C is absorbed.
    rounds, runs
        Iterations and repeated runs.
    delta
        Of proven runs, and of what is proven of published ones.
    residual
        Of a local solve, as a part of what one row moves the gradient by.
    """

    problem: NamedProblem
    edges: tuple[tuple[int, int], ...]
    loss: str
    noise: str
    scale: float
    rho: float
    rounds: int
    runs: int
    gamma: float
    delta: float
    residual: float

    @property
    def degrees(self) -> Array:
        """V_i."""
        return build_topology(self.edges, self.problem.parties).degrees

    def on(self, graph: str) -> Setup:
        """The same problem on another graph."""
        return replace(self, edges=build_topology(graph, self.problem.parties).edges)

    def total(self, alpha: float) -> float:
        """Eq. (32) for R-ADMM with the penalty 1: the total that all runs at alpha are held to."""
        return max(self.totals([alpha] * self.problem.parties).values())

    def totals(self, alphas: Sequence[float]) -> dict[str, float]:
        """Eq. (32) for R-ADMM with the penalty 1, of each party with a noise of its own."""
        alone = [
            privacy_loss(
                np.full(-(-self.rounds // 2), self.rho / self.problem.parties + 2 * degree),
                alpha,
                self.problem.rows_per_party,
                weight=self.scale,
            ).published
            for degree, alpha in zip(self.degrees, alphas, strict=True)
        ]
        return _table(alone)

    def parameters(
        self,
        algorithm: str,
        *,
        growth: float = 1.0,
        rounds: int | None = None,
        penalties: Sequence[float] = (),
        **others: Any,
    ) -> TrainingParameters:
        r"""Parameters with C absorbed.

        The penalty is the paper's: 1, or :math:`q^k` in the k-th iteration that uses the rows;
        times ``penalties`` of each party.
        """
        return TrainingParameters(
            algorithm,
            topology=self.edges,
            rounds=rounds or self.rounds,
            penalty=_table([growth * each / self.scale for each in penalties])
            if penalties
            else growth / self.scale,
            regularization=self.rho / self.scale,
            party_weight="equal",
            loss=self.loss,
            tolerance=self.residual * 2 / self.problem.rows_per_party,
            delta=self.delta,
            rows_per_person=1,
            **others,
        )

    def recycled(
        self,
        alpha: float,
        calibration: str,
        *,
        growth: float = 1.0,
        gamma: float | None = None,
        noise: Sequence[float] = (),
        penalties: Sequence[float] = (),
    ) -> TrainingJob:
        """R-ADMM, or MR-ADMM where the penalty grows.

        Published noise has the rate alpha. Proven noise meets the total that eq. (32) claims for
        R-ADMM with that rate. ``noise`` and ``penalties`` of each party multiply them.
        """
        options: dict[str, Any] = {"gamma": (self.gamma if gamma is None else gamma) / self.scale}
        algorithm = "r-admm"
        if growth > 1:
            algorithm, options["penalty_growth"] = "mr-admm", growth
        if calibration == "published":
            rates = _table([alpha * each * self.scale for each in noise])
            options["noise_rate"] = rates or alpha * self.scale
        return self._cell(
            algorithm, alpha, calibration, growth, options, noise=noise, penalties=penalties
        )

    def rival(
        self,
        algorithm: str,
        alpha: float,
        calibration: str,
        *,
        growth: float = 1.0,
        dual_step: float = 1.0,
        rounds: int | None = None,
        noise: Sequence[float] = (),
        penalties: Sequence[float] = (),
    ) -> TrainingJob:
        """``dvp`` or ``m-admm`` at the total that eq. (32) claims for R-ADMM at alpha.

        ``m-admm`` without growth is conventional ADMM with noise in its objective. With ``noise``
        every party has the total of R-ADMM with alpha times its own.
        """
        options: dict[str, Any] = {}
        if algorithm == "m-admm":
            options = {"penalty_growth": growth, "dual_step": dual_step / self.scale}
        return self._cell(algorithm, alpha, calibration, growth, options, rounds, noise, penalties)

    def plain(self) -> TrainingJob:
        """Conventional ADMM without noise."""
        return TrainingJob(
            self.problem,
            self.parameters("admm"),
            runs=1,
            courses=("average loss",),
            finals=("test accuracy",),
        )

    def _cell(
        self,
        algorithm: str,
        alpha: float,
        calibration: str,
        growth: float,
        options: dict[str, Any],
        rounds: int | None = None,
        noise: Sequence[float] = (),
        penalties: Sequence[float] = (),
    ) -> TrainingJob:
        options = {**options, "noise": "gaussian" if calibration == GAUSSIAN else self.noise}
        parameters = self.parameters(
            algorithm,
            growth=growth,
            rounds=rounds,
            penalties=penalties,
            # A claim of just this size must not be refused for a rounding error; rates that are
            # given are only held to it, and unequal penalties may cost a little more.
            epsilon={
                name: total * (1.05 if "noise_rate" in options else 1 + 1e-9)
                for name, total in self.totals([alpha * each for each in noise]).items()
            }
            if noise
            else self.total(alpha) * (1 + 1e-9),
            calibration="published" if calibration == "published" else "proven",
            algorithm_options=options,
        )
        # The same run in two figures is one cell: its seed follows from what it does.
        told = (algorithm, alpha, calibration, sorted(options.items()), rounds, self.edges)
        label = " ".join(map(str, (*told, noise, penalties) if noise or penalties else told))
        return TrainingJob(
            self.problem,
            parameters,
            runs=self.runs,
            seed=seed_of(label),
            courses=("average loss",),
            finals=("test accuracy",),
            # What is proven of published noise is followed over the iterations.
            epsilon_course=calibration == "published",
        )


def _table(values: Sequence[float]) -> dict[str, float]:
    """A number for each party, by its name."""
    return {f"party {party}": float(value) for party, value in enumerate(values)}


def loss_of(result: Result) -> Array:
    """The average loss after the last iteration, one number per run."""
    return result.course("average loss")[-1]


def error_of(result: Result) -> Array:
    """The share of test rows that the mean classifier of the last iteration gets wrong."""
    return 1 - result.final("test accuracy")
