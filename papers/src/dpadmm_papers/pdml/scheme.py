"""The scheme in its variants, the settings that all parts share, and what is computed of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from dpadmm.experiments.jobs import Result, TrainingJob, seed_of
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import Setting, ours, paper

CITATION: Final = "Wang, Ishii, Du, Cheng, Chen, IEEE Transactions on Signal Processing 2020"

#: Settings that the figures and the table share.
SHARED: Final[dict[str, Setting]] = {
    "servers": paper(10, "VI-A 3"),
    "links": paper(13, "VI-A 3: a connected random graph with 13 links"),
    "graph": ours("random", "a random tree and links at random up to 13; which one is not stated"),
    "loss": paper("logistic", "VI-A 2"),
    "regulariser": paper("a/(2n) |w|^2 at each of the n servers", "VI-A 2"),
    "a": ours(1.0, "not stated; the simplest value, and a grid is shown"),
    "penalty": ours(
        0.1, "beta, not stated; without noise it reaches the optimum to about 0.1% in these rounds"
    ),
    "rounds": ours(100, "not stated"),
    "initial noise": ours(1.0, "V_i, not stated; the simplest value, and Fig. 3 has a grid"),
    "distribution of eta": ours(
        "uniform in [-R, R] in every coordinate", "the paper: bounded, of arbitrary distribution"
    ),
    "noise without phase 2": ours(
        1e-9, "stands for none: where phase 2 is left out nothing is claimed for rows"
    ),
    "row epsilon": ours(
        1.0,
        "of the proven calibration: the paper's (eps_p, delta_p) of phase 2 have no values; a grid "
        "is shown",
    ),
    "row delta": ours(1e-5, "below one over the rows of a server"),
    "seed": ours(
        seed_of("pdml"),
        "every variant has the same draws of split, labels and noise, so that variants are "
        "compared draw by draw",
    ),
}

#: The choice of ours that the verdicts of both figures were varied over.
CONSTANT: Final = "a"

Kind = Literal["reference", "phase 1", "published", "proven", "package"]


@dataclass(frozen=True)
class Variant:
    """One way to train.

    Attributes
    ----------
    kind
        "reference": ADMM on the true labels, without noise. "phase 1": randomised labels and the
        corrected loss, phase 2 left out. "published" and "proven": both phases. "package": proven,
        with phase 2 as this package sets it by default (``penalty="auto"``, no decay, no eta).
    label_epsilon, bound, decay
        epsilon, R and rho.
    initial_noise
        V, of the published calibration.
    row_epsilon
        Of the proven calibration.
    regularization
        a.
    penalty
        beta; that of the settings where none is given.
    """

    kind: Kind
    label_epsilon: float = 0.4
    bound: float = 0.0
    decay: float = 0.8
    initial_noise: float = 1.0
    row_epsilon: float = 1.0
    regularization: float = 1.0
    penalty: float | None = None

    @property
    def label(self) -> str:
        """A name for people; different variants have different ones."""
        words = [self.kind, f"a {self.regularization:g}"]
        if self.kind != "reference":
            words.append(f"epsilon {Given(self.label_epsilon)}")
        if self.kind in ("published", "proven"):
            words += [f"R {self.bound:g}", f"rho {self.decay:g}"]
        if self.kind == "published":
            words.append(f"V {self.initial_noise:g}")
        if self.kind in ("proven", "package"):
            words.append(f"row epsilon {Given(self.row_epsilon)}")
        return ", ".join(words)

    @property
    def calibration(self) -> str:
        """For curves: dashed where the noise is the paper's."""
        return {"published": "published", "proven": "proven", "package": "proven"}.get(
            self.kind, ""
        )

    @property
    def output(self) -> str:
        """Which model counts: as in the paper the last, by this package's default the tail."""
        return "tail" if self.kind == "package" else "last"

    def parameters(self, settings: Mapping[str, Setting], scale: float = 1.0) -> TrainingParameters:
        """What to train with, on rows that were divided by ``scale``."""

        def value(name: str) -> Any:
            return settings[name].value

        private = self.kind != "reference"
        penalty = value("penalty") if self.penalty is None else self.penalty
        options: dict[str, Any] = {"label_epsilon": self.label_epsilon} if private else {}
        if self.kind in ("published", "proven"):
            options |= {"objective_noise_bound": self.bound / scale, "decay": self.decay}
        if self.kind == "published":
            options["initial_noise"] = self.initial_noise * scale
        elif self.kind == "phase 1":
            options["initial_noise"] = value("noise without phase 2") * scale
        return TrainingParameters(
            algorithm="pdml" if private else "admm",
            topology=value("graph"),
            rounds=value("rounds"),
            penalty="auto" if self.kind == "package" else penalty / scale**2,
            regularization=self.regularization / scale**2,
            party_weight="equal",
            loss=value("loss"),
            epsilon=self.row_epsilon,
            delta=value("row delta"),
            calibration="published" if self.kind in ("phase 1", "published") else "proven",
            rows_per_person=1,
            algorithm_options=options,
        )


def final_risk(result: Result, variant: Variant, servers: int) -> Array:
    r"""The paper's objective (1), on the true labels, of the models at the end; one per draw.

    .. math:: J = \sum_i \Bigl[\frac1{m_i}\sum_j l(y_{ij} w_i\cdot x_{ij}) + \frac{a}{2n}|w_i|^2
        \Bigr]
    """
    loss, square = (
        result.final(name, variant.output) for name in ("average loss", "average squared norm")
    )
    return servers * loss + variant.regularization / 2 * square


def risk_course(result: Result, variant: Variant, servers: int) -> Array:
    """The same after every round, ``(rounds, draws)``."""
    square = result.course("average squared norm")
    return servers * result.course("average loss") + variant.regularization / 2 * square


def convergence_round(course: Array, share: float) -> Array:
    """First round after which a course stays within ``share`` of its last value; one per draw."""
    outside = np.abs(course - course[-1]) > share * np.abs(course[-1])
    rounds = np.arange(1, len(course) + 1)[:, None]
    return np.asarray(np.where(outside, rounds, 0).max(axis=0) + 1, dtype=np.float64)


#: What the cells of :func:`guarantee_row` are.
GUARANTEE_COLUMNS: Final = (
    "variant",
    "the paper's claim",
    "proven epsilon of a row",
    "delta",
    "label, its own server",
    "label, other servers: proven (epsilon, delta)",
)


def guarantee_row(name: str, result: Result) -> tuple[Any, ...]:
    """What a variant claims and what is proven for its noise: a row for a table."""
    privacy = result.facts["privacy"]
    epsilon = privacy["epsilon"]
    details = privacy["details"]
    return (
        name,
        privacy["claim"] or "no claim of the paper",
        "no finite epsilon" if epsilon == "infinite" else AtMost(epsilon),
        AtMost(privacy["delta"]),
        details.get("Label against its own server", "none").split(" of each label")[0],
        details.get("Label against other parties", "none").split("-differential")[0],
    )


_MEASURES: Final = ("average loss", "average squared norm")

#: Settings of both figures.
ADULT: Final[dict[str, Setting]] = SHARED | {
    "data": paper("adult", "VI-A 1: 45,222 rows, 105 columns, norm at most 1"),
    "encoding": ours(
        "one-hot by a public schema, numeric columns in [0, 1], and a constant column",
        "the paper has unary encoding and 105 columns; how numbers are scaled is not stated",
    ),
    "rows per server": paper(4500, "VI-A 3"),
    "rows held back": ours(222, "those that are left; nothing is judged by them here"),
    "classifier of a server": ours(
        "its message", "what it sends, noise included; w_i before the noise leaves no server"
    ),
    "a": ours(
        0.01,
        "not stated. By a rule: of the powers of ten the largest with which the reference, ADMM on "
        "the true labels, gets at least five points more of its rows right than the larger class "
        "has. With a = 1 it learns nothing; that is the variant",
    ),
    "penalty": ours(
        {0.01: 0.01, 0.1: 0.1, 1.0: 0.1, 10.0: 0.1},
        "beta by a, not stated: of 0.1, 0.01, ... the largest with which the reference comes "
        "within 0.1% of its optimum in these rounds",
    ),
    "other a": ours((1.0,), "every verdict is varied over it"),
    "epsilon": ours(0.4, "of the labels; not stated. The smaller of Table I's"),
    "R": paper(1.0, "VI-B"),
    "rho": paper(0.8, "Fig. 4(a); not stated for Fig. 3"),
    "draws": ours(
        10, "not stated; each deals out the rows, randomises the labels and draws the noise anew"
    ),
    "larger class": ours(
        0.752, "its share of the rows: what a classifier that knows nothing gets right"
    ),
    "settled": ours(
        0.01, "a course has converged once it stays within this share of its last value"
    ),
}


def adult_variant(settings: Mapping[str, Setting], kind: Kind, **others: float) -> Variant:
    """A variant with the settings' values where none is given."""
    a = others.get("regularization", settings["a"].value)
    values = {
        "label_epsilon": settings["epsilon"].value,
        "bound": settings["R"].value if kind in ("published", "proven") else 0.0,
        "decay": settings["rho"].value,
        "initial_noise": settings["initial noise"].value,
        "row_epsilon": settings["row epsilon"].value,
        "regularization": a,
        "penalty": settings["penalty"].value[a],
    }
    return Variant(kind, **(values | others))


def adult_cell(
    settings: Mapping[str, Setting], variant: Variant, *, course: bool = False
) -> TrainingJob:
    """Train a variant on Adult, and follow the risk and the distances where a course is wanted."""
    problem = NamedProblem(
        settings["data"].value,
        settings["servers"].value,
        settings["rows per server"].value,
        settings["rows held back"].value,
    )
    return TrainingJob(
        problem,
        variant.parameters(settings),
        runs=1,
        seed=settings["seed"].value,
        courses=(*_MEASURES, "largest distance", "distance of norms") if course else (),
        finals=(*_MEASURES, "training accuracy"),
        repeats=settings["draws"].value,
        epsilon_course=course,
    )
