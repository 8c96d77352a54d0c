"""How good a model is, on the page of its run: figures of a released histogram."""

from __future__ import annotations

from typing import Final

from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ClassFigures, ModelFigures
from dpadmm.privacy.figures import pair
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import Block, Section, Words
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import LinePlot, Series
from dpadmm.report.tables import Cell, Table
from dpadmm.run.classifier import HELD_OUT, PUBLIC, Quality
from dpadmm.run.record import RecordedRun

__all__ = ["quality_answer", "quality_section"]

_QUALITY: Final = "How good it is"
_NOT_DETERMINED: Final = "not determined"

# Curves that a drawing of several classes still tells apart.
_MOST_CURVES: Final = 6


def quality_answer(run: RecordedRun) -> list[tuple[str, str]]:
    """Question and answer, where the model was evaluated."""
    if run.quality is None:
        return []
    evaluation = run.quality.evaluation()
    accuracy, level = evaluation.accuracy, f"{100 * evaluation.confidence:g}%"
    found = f"{accuracy.name.capitalize()} {_percent(accuracy)} ({level} interval)"
    return [(_QUALITY, f"{found}, {_about(run.quality, run.privacy)}.")]


def quality_section(run: RecordedRun) -> list[Section]:
    """Figures with intervals, the ROC curve, calibration, confusion; nothing without them."""
    if run.quality is None:
        return []
    evaluation, classes = run.quality.evaluation(), run.classes
    level = f"{100 * evaluation.confidence:g}%"
    words = (
        f"Evaluated {_about(run.quality, run.privacy)}. One histogram was released, of true class "
        f"by score; every figure here follows from it. Intervals ({level}) cover both which "
        "rows happened to be evaluated on and the noise; each holds by itself, not "
        "all of them at once."
    )
    blocks: list[Block] = [Words(words), _figures(evaluation, classes, level)]
    if evaluation.decision is not None:
        blocks.append(_roc(evaluation))
    blocks.append(_calibration(evaluation, classes))
    blocks.append(_confusion(evaluation, classes, run.quality.threshold))
    return [Section(_QUALITY, tuple(blocks))]


def _about(quality: Quality, trained: PrivacyStatement) -> str:
    rows = f"{quality.histogram.rows:,}"
    if quality.about == PUBLIC or quality.privacy is None:
        return f"exactly, on {rows} public rows, for nothing"
    spent = pair(quality.privacy.epsilon, quality.privacy.delta)
    if quality.privacy.simulated:
        spent = f"what would be, were the noise secret, {spent}"
    if quality.about == HELD_OUT:
        counts = "the larger of what the training and evaluations spent counts"
        if quality.adds_to(trained):
            counts = "with rows among both what the training and evaluations spent adds up"
        return (
            f"on {rows} rows kept out of training, for {spent}-differential privacy in an account "
            f"of their own: for a person {counts}"
        )
    return (
        f"on the {rows} rows that were trained on, which is optimistic, for {spent}-differential "
        "privacy, which adds to what the training spent on them"
    )


def _percent(figure: Estimate) -> str:
    if figure.value is None:
        return _NOT_DETERMINED
    return f"{100 * figure.share:.1f}% [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def _figures(evaluation: ModelFigures, classes: tuple[str, ...], level: str) -> Table:
    rows: list[tuple[Cell, ...]] = [_row(figure) for figure in evaluation.estimates]
    if evaluation.decision is None:
        for each in evaluation.classes:
            name = shown_name(classes[each.code], 40)
            rows += [_row(figure, name) for figure in each.estimates]
    notes = ["Probabilities (Brier score, calibration) are those fitted to this histogram."]
    if any(_NOT_DETERMINED in row for row in rows):
        notes.insert(
            0, "Not determined: the noise is too large for the rows that the figure is a share of."
        )
    columns = ("figure", "estimate", "from", "to")
    return Table(f"Figures, with {level} intervals", columns, tuple(rows), " ".join(notes))


def _row(figure: Estimate, of: str = "") -> tuple[Cell, ...]:
    name = f"{figure.name} of {of}" if of else figure.name
    if figure.value is None:
        return (name, _NOT_DETERMINED, None, None)
    return (name, round(figure.share, 4), figure.low, figure.high)


def _roc(evaluation: ModelFigures) -> LinePlot:
    """From the strictest threshold to none, through every edge of the histogram."""
    points = [(0.0, 0.0, 0.0, 0.0)]
    for decision in reversed(evaluation.curve):
        alarms, found = decision.specificity, decision.sensitivity
        if alarms.value is None or found.value is None:
            continue
        up = found.share
        points.append((1 - alarms.share, up, min(found.low, up), max(found.high, up)))
    points.append((1.0, 1.0, 1.0, 1.0))
    points.sort()
    scaled = (tuple(100 * value for value in each) for each in zip(*points, strict=True))
    alarmed, detected, low, high = scaled
    chance = Series("by chance", (0.0, 100.0), (0.0, 100.0), dashed=True)
    line = Series("this model", alarmed, detected, low, high)
    return LinePlot(
        "ROC curve",
        "false alarms, % of the first class",
        "found, % of the second class",
        (line, chance),
        "What each threshold finds of the second class, against its false alarms; the band is the "
        "interval of what is found.",
    )


def _calibration(evaluation: ModelFigures, classes: tuple[str, ...]) -> LinePlot:
    """What share of rows is of a class, where the probability says so much."""
    lines = [
        line
        for each in evaluation.classes[:_MOST_CURVES]
        if (line := _calibration_line(each, classes)).x
    ]
    right = Series("as it should be", (0.0, 100.0), (0.0, 100.0), dashed=True)
    return LinePlot(
        "Calibration",
        "probability, %",
        "rows of the class, %",
        (*lines, right),
        "Of the rows whose probability is so large, so many are of the class; the band is the "
        "interval.",
    )


def _calibration_line(figures: ClassFigures, classes: tuple[str, ...]) -> Series:
    points = []
    for part in figures.calibration:
        seen = part.observed
        if seen.value is not None:
            value = seen.share
            points.append((part.probability, value, min(seen.low, value), max(seen.high, value)))
    points.sort()
    scaled = [tuple(100 * value for value in point) for point in points]
    x, y, low, high = zip(*scaled, strict=True) if scaled else ((), (), (), ())
    return Series(shown_name(classes[figures.code], 40), x, y, low, high)


def _confusion(evaluation: ModelFigures, classes: tuple[str, ...], threshold: float) -> Table:
    names = tuple(shown_name(name, 40) for name in classes)
    rows = tuple(
        (names[true], *(_percent(figure) for figure in line))
        for true, line in enumerate(evaluation.confusion)
    )
    note = ""
    if evaluation.decision is not None:
        note = f"{names[1]} is predicted where the score is above {threshold:.4g}."
    return Table(
        "True class (rows) by predicted class (columns), % of all rows",
        ("true", *names),
        rows,
        note,
    )
