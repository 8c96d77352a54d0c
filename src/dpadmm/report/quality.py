"""How good a model is, on the page of its run: figures of a released histogram."""

from __future__ import annotations

from typing import Final

from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ClassFigures, ModelFigures
from dpadmm.privacy.figures import pair
from dpadmm.report.document import Block, Section, Words
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import LinePlot, Series
from dpadmm.report.tables import Cell, Table
from dpadmm.run.classifier import HELD_OUT, PUBLIC, Quality
from dpadmm.run.record import RecordedRun

__all__ = ["quality_answer", "quality_section"]

# The words of the section.
_QUALITY: Final = "How good it is"
_ANSWER: Final = "{figures} ({level} interval), {about}."
_FIGURE_WORDS: Final = "{name} {figure}"
_WORDS: Final = (
    "Evaluated {about}. One histogram was released, of true class by score; every figure here "
    "follows from it. Intervals ({level}) cover both which rows happened to be evaluated on and "
    "the noise; each holds by itself, not all of them at once."
)
_ON_HELD_OUT: Final = (
    "on {rows} rows kept out of training, for {spent}-differential privacy in an account of "
    "their own: for a person the larger of what the training and evaluations spent counts"
)
_ON_TRAINED: Final = (
    "on the {rows} rows that were trained on, which is optimistic, for {spent}-differential "
    "privacy, which adds to what the training spent on them"
)
_IF_SECRET: Final = "what would be, were the noise secret, {spent}"
_ON_PUBLIC: Final = "exactly, on {rows} public rows, for nothing"
_PERCENT: Final = "{value}% [{low}, {high}]"
_NOT_DETERMINED: Final = "not determined"
_FIGURES: Final = "Figures, with {level} intervals"
_FIGURES_NOTE: Final = (
    "Not determined: the noise is too large for the rows that the figure is a share of. "
    "Probabilities (Brier score, calibration) are those fitted to this histogram."
)
_FIGURE: Final = "figure"
_ESTIMATE: Final = "estimate"
_LOW: Final = "from"
_HIGH: Final = "to"
_OF_CLASS: Final = "{figure} of {name}"
_ROC: Final = "ROC curve"
_ROC_X: Final = "false alarms, % of the first class"
_ROC_Y: Final = "found, % of the second class"
_ROC_LINE: Final = "this model"
_CHANCE: Final = "by chance"
_ROC_CAPTION: Final = (
    "What each threshold finds of the second class, against its false alarms; the band is the "
    "interval of what is found."
)
_CALIBRATION: Final = "Calibration"
_CALIBRATION_X: Final = "probability, %"
_CALIBRATION_Y: Final = "rows of the class, %"
_CALIBRATED: Final = "as it should be"
_CALIBRATION_CAPTION: Final = (
    "Of the rows whose probability is so large, so many are of the class; the band is the interval."
)
_CONFUSION: Final = "True class (rows) by predicted class (columns), % of all rows"
_TRUE: Final = "true"
_THRESHOLD: Final = "{name} is predicted where the score is above {threshold}."

# Curves that a drawing of several classes still tells apart.
_MOST_CURVES: Final = 6


def quality_answer(run: RecordedRun) -> list[tuple[str, str]]:
    """Question and answer, where the model was evaluated."""
    if run.quality is None:
        return []
    evaluation = run.quality.evaluation()
    accuracy = _FIGURE_WORDS.format(
        name=evaluation.accuracy.name, figure=_percent(evaluation.accuracy)
    )
    words = _ANSWER.format(
        figures=accuracy, level=f"{100 * evaluation.confidence:g}%", about=_about(run.quality)
    )
    return [(_QUALITY, words)]


def quality_section(run: RecordedRun) -> list[Section]:
    """Figures with intervals, the ROC curve, calibration, confusion; nothing without them."""
    if run.quality is None:
        return []
    evaluation, classes = run.quality.evaluation(), run.classes
    level = f"{100 * evaluation.confidence:g}%"
    words = _WORDS.format(about=_about(run.quality), level=level)
    blocks: list[Block] = [Words(words), _figures(evaluation, classes, level)]
    if evaluation.decision is not None:
        blocks.append(_roc(evaluation))
    blocks.append(_calibration(evaluation, classes))
    blocks.append(_confusion(evaluation, classes, run.quality.threshold))
    return [Section(_QUALITY, tuple(blocks))]


def _about(quality: Quality) -> str:
    rows = f"{quality.histogram.rows:,}"
    if quality.about == PUBLIC or quality.privacy is None:
        return _ON_PUBLIC.format(rows=rows)
    spent = pair(quality.privacy.epsilon, quality.privacy.delta)
    if quality.privacy.simulated:
        spent = _IF_SECRET.format(spent=spent)
    words = _ON_HELD_OUT if quality.about == HELD_OUT else _ON_TRAINED
    return words.format(rows=rows, spent=spent)


def _percent(figure: Estimate) -> str:
    if figure.value is None:
        return _NOT_DETERMINED
    value = min(max(figure.value, 0.0), 1.0)
    return _PERCENT.format(
        value=f"{100 * value:.1f}", low=f"{100 * figure.low:.1f}", high=f"{100 * figure.high:.1f}"
    )


def _figures(evaluation: ModelFigures, classes: tuple[str, ...], level: str) -> Table:
    rows: list[tuple[Cell, ...]] = [_row(figure) for figure in evaluation.estimates]
    if evaluation.decision is None:
        for each in evaluation.classes:
            name = shown_name(classes[each.code], 40)
            rows += [_row(figure, name) for figure in each.estimates]
    columns = (_FIGURE, _ESTIMATE, _LOW, _HIGH)
    return Table(_FIGURES.format(level=level), columns, tuple(rows), _FIGURES_NOTE)


def _row(figure: Estimate, of: str = "") -> tuple[Cell, ...]:
    name = _OF_CLASS.format(figure=figure.name, name=of) if of else figure.name
    if figure.value is None:
        return (name, _NOT_DETERMINED, None, None)
    return (name, round(min(max(figure.value, 0.0), 1.0), 4), figure.low, figure.high)


def _roc(evaluation: ModelFigures) -> LinePlot:
    """From the strictest threshold to none, through every edge of the histogram."""
    points = [(0.0, 0.0, 0.0, 0.0)]
    for decision in reversed(evaluation.curve):
        alarms, found = decision.specificity, decision.sensitivity
        if alarms.value is None or found.value is None:
            continue
        across = 1 - min(max(alarms.value, 0.0), 1.0)
        up = min(max(found.value, 0.0), 1.0)
        points.append((across, up, min(found.low, up), max(found.high, up)))
    points.append((1.0, 1.0, 1.0, 1.0))
    points.sort()
    scaled = (tuple(100 * value for value in each) for each in zip(*points, strict=True))
    alarmed, detected, low, high = scaled
    chance = Series(_CHANCE, (0.0, 100.0), (0.0, 100.0), dashed=True)
    line = Series(_ROC_LINE, alarmed, detected, low, high)
    return LinePlot(_ROC, _ROC_X, _ROC_Y, (line, chance), caption=_ROC_CAPTION)


def _calibration(evaluation: ModelFigures, classes: tuple[str, ...]) -> LinePlot:
    """What share of rows is of a class, where the probability says so much."""
    lines = [
        line
        for each in evaluation.classes[:_MOST_CURVES]
        if (line := _calibration_line(each, classes)).x
    ]
    right = Series(_CALIBRATED, (0.0, 100.0), (0.0, 100.0), dashed=True)
    return LinePlot(
        _CALIBRATION,
        _CALIBRATION_X,
        _CALIBRATION_Y,
        (*lines, right),
        caption=_CALIBRATION_CAPTION,
    )


def _calibration_line(figures: ClassFigures, classes: tuple[str, ...]) -> Series:
    points = []
    for part in figures.calibration:
        seen = part.observed
        if seen.value is not None:
            value = min(max(seen.value, 0.0), 1.0)
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
        note = _THRESHOLD.format(name=names[1], threshold=f"{threshold:.4g}")
    return Table(_CONFUSION, (_TRUE, *names), rows, note)
