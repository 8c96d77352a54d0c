"""What Figs. 3 and 4 share: Adult at ten servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dpadmm.experiments.experiment import Setting, ours, paper
from dpadmm.experiments.job import TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm_papers.pdml.scheme import SHARED, Kind, Variant

__all__ = ["ADULT", "adult_cell", "adult_variant"]

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
    values = {
        "label_epsilon": settings["epsilon"].value,
        "bound": settings["R"].value if kind in ("published", "proven") else 0.0,
        "decay": settings["rho"].value,
        "initial_noise": settings["initial noise"].value,
        "row_epsilon": settings["row epsilon"].value,
        "regularization": settings["a"].value,
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
