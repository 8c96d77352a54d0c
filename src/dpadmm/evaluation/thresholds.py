"""A threshold for two classes, from the sensitivity or specificity that is wanted.

Edges are tried in a fixed order, from the one that serves the wish best, as long as they reach it;
the last that does is taken, so that the other figure is as good as it can be. A lucky edge beyond
one that fails is never taken. For the same reason ``sure=True`` holds in spite of the choice: a
fixed sequence of tests, each at its own level, errs no more often than one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.evaluation.intervals import Estimate, normal_quantile
from dpadmm.evaluation.metrics import ThresholdFigures, decision_at

__all__ = ["check_wish", "choose_threshold"]


def choose_threshold(
    histogram: NoisyHistogram,
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    sure: bool = False,
    confidence: float = 0.95,
) -> ThresholdFigures:
    """The threshold that reaches a wanted figure, and all figures there.

    Parameters
    ----------
    histogram
        Of two classes.
    sensitivity, specificity
        What is wanted, one of them: a number between 0 and 1.
    sure
        The lower end of the interval must reach it, not only the estimate: the figure is then
        truly reached with the confidence ``(1 + confidence) / 2``.
    confidence
        Of each interval by itself.

    Raises
    ------
    ParameterError
        If no edge reaches it.
    """
    name, wanted = check_wish(sensitivity, specificity)
    if histogram.grid.classes != 2:
        raise ParameterError(
            f"a threshold must be for 2 classes; the histogram has {histogram.grid.classes}: the "
            "class of the largest score is predicted."
        )
    z = normal_quantile(confidence)
    edges: Iterable[float] = histogram.grid.edges
    # Low thresholds find every row of the second class, high ones none of the first.
    ordered = edges if name == "sensitivity" else reversed(histogram.grid.edges)
    chosen: ThresholdFigures | None = None
    first: ThresholdFigures | None = None
    for edge in ordered:
        decision = decision_at(histogram, edge, z)
        first = first or decision
        if not _reaches(getattr(decision, name), wanted, sure=sure):
            break
        chosen = decision
    if chosen is None:
        raise _refusal(name, wanted, first, sure=sure)
    return chosen


def check_wish(sensitivity: float | None, specificity: float | None) -> tuple[str, float]:
    """Which of the two is wished for, and how much of it; or a refusal."""
    if (sensitivity is None) == (specificity is None):
        raise ParameterError(
            "sensitivity or specificity must be given, one of them; got "
            f"{'neither' if sensitivity is None else 'both'}: a threshold trades one for the other."
        )
    name = "specificity" if sensitivity is None else "sensitivity"
    wanted = specificity if sensitivity is None else sensitivity
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 < wanted < 1:
        raise ParameterError(
            f"{name} must be a number between 0 and 1; got {wanted!r}: give 0.9, say."
        )
    return name, float(wanted)


def _reaches(figure: Estimate, wanted: float, *, sure: bool) -> bool:
    return figure.value is not None and (figure.low if sure else figure.value) >= wanted


def _refusal(
    name: str, wanted: float, first: ThresholdFigures | None, *, sure: bool
) -> ParameterError:
    best: Estimate | None = None if first is None else getattr(first, name)
    if best is None or best.value is None:
        return ParameterError(
            f"{name} must be determined to be wished for; it is not, because of "
            f"{'no rows' if best is None else best.reason}: evaluate more rows or spend more."
        )
    reached = best.low if sure else best.value
    end = "surely " if sure else ""
    return ParameterError(
        f"{name} must be one that a threshold {end}reaches; got {wanted:g}, and the first one "
        f"tried reaches {reached:.3f}: wish for less"
        + (", leave out sure, or evaluate more rows." if sure else ", or evaluate more rows.")
    )
