"""How good a model is, on the page of its run: figures of a released histogram."""

from __future__ import annotations

from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ClassFigures, ModelFigures
from dpadmm.privacy.figures import pair
from dpadmm.report import quality_texts as texts
from dpadmm.report.document import Block, Section, Words
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import LinePlot, Series
from dpadmm.report.tables import Cell, Table
from dpadmm.run.quality import HELD_OUT, PUBLIC, Quality
from dpadmm.run.record import RecordedRun

__all__ = ["quality_answer", "quality_section"]

# Curves that a drawing of several classes still tells apart.
_MOST_CURVES = 6


def quality_answer(run: RecordedRun) -> list[tuple[str, str]]:
    """Question and answer, where the model was evaluated."""
    if run.quality is None:
        return []
    evaluation = run.quality.evaluation()
    accuracy = texts.FIGURE_WORDS.format(
        name=evaluation.accuracy.name, figure=_percent(evaluation.accuracy)
    )
    words = texts.ANSWER.format(
        figures=accuracy, level=f"{100 * evaluation.confidence:g}%", about=_about(run.quality)
    )
    return [(texts.QUALITY, words)]


def quality_section(run: RecordedRun) -> list[Section]:
    """Figures with intervals, the ROC curve, calibration, confusion; nothing without them."""
    if run.quality is None:
        return []
    evaluation, classes = run.quality.evaluation(), run.classes
    level = f"{100 * evaluation.confidence:g}%"
    words = texts.WORDS.format(about=_about(run.quality), level=level)
    blocks: list[Block] = [Words(words), _figures(evaluation, classes, level)]
    if evaluation.decision is not None:
        blocks.append(_roc(evaluation))
    blocks.append(_calibration(evaluation, classes))
    blocks.append(_confusion(evaluation, classes, run.quality.threshold))
    return [Section(texts.QUALITY, tuple(blocks))]


def _about(quality: Quality) -> str:
    rows = f"{quality.histogram.rows:,}"
    if quality.about == PUBLIC or quality.privacy is None:
        return texts.ON_PUBLIC.format(rows=rows)
    spent = pair(quality.privacy.epsilon, quality.privacy.delta)
    if quality.privacy.simulated:
        spent = texts.IF_SECRET.format(spent=spent)
    words = texts.ON_HELD_OUT if quality.about == HELD_OUT else texts.ON_TRAINED
    return words.format(rows=rows, spent=spent)


def _percent(figure: Estimate) -> str:
    if figure.value is None:
        return texts.NOT_DETERMINED
    value = min(max(figure.value, 0.0), 1.0)
    return texts.PERCENT.format(
        value=f"{100 * value:.1f}", low=f"{100 * figure.low:.1f}", high=f"{100 * figure.high:.1f}"
    )


def _figures(evaluation: ModelFigures, classes: tuple[str, ...], level: str) -> Table:
    rows: list[tuple[Cell, ...]] = [_row(figure) for figure in evaluation.estimates]
    if evaluation.decision is None:
        for each in evaluation.classes:
            name = shown_name(classes[each.code], 40)
            rows += [_row(figure, name) for figure in each.estimates]
    columns = (texts.FIGURE, texts.ESTIMATE, texts.LOW, texts.HIGH)
    return Table(texts.FIGURES.format(level=level), columns, tuple(rows), texts.FIGURES_NOTE)


def _row(figure: Estimate, of: str = "") -> tuple[Cell, ...]:
    name = texts.OF_CLASS.format(figure=figure.name, name=of) if of else figure.name
    if figure.value is None:
        return (name, texts.NOT_DETERMINED, None, None)
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
    chance = Series(texts.CHANCE, (0.0, 100.0), (0.0, 100.0), dashed=True)
    line = Series(texts.ROC_LINE, alarmed, detected, low, high)
    return LinePlot(texts.ROC, texts.ROC_X, texts.ROC_Y, (line, chance), caption=texts.ROC_CAPTION)


def _calibration(evaluation: ModelFigures, classes: tuple[str, ...]) -> LinePlot:
    """What share of rows is of a class, where the probability says so much."""
    lines = [
        line
        for each in evaluation.classes[:_MOST_CURVES]
        if (line := _calibration_line(each, classes)).x
    ]
    right = Series(texts.CALIBRATED, (0.0, 100.0), (0.0, 100.0), dashed=True)
    return LinePlot(
        texts.CALIBRATION,
        texts.CALIBRATION_X,
        texts.CALIBRATION_Y,
        (*lines, right),
        caption=texts.CALIBRATION_CAPTION,
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
        note = texts.THRESHOLD.format(name=names[1], threshold=f"{threshold:.4g}")
    return Table(texts.CONFUSION, (texts.TRUE, *names), rows, note)
