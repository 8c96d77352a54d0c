"""Reports of a comparison, an experiment, several runs, and of a run that was refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report import texts
from dpadmm.report.answers import banners, learnt, over_budget, riskiest
from dpadmm.report.document import (
    Banner,
    Block,
    Cell,
    Code,
    Facts,
    Report,
    Section,
    Table,
    Words,
    delta_text,
)
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import LinePlot, Series
from dpadmm.report.records import Epsilon, RecordedRun
from dpadmm.report.run import configuration_section, configuration_text, course, parties_section
from dpadmm.run.config import RunConfig
from dpadmm.version import __version__

__all__ = [
    "MANIFEST",
    "ComparisonManifest",
    "Curve",
    "Meaning",
    "Panel",
    "Part",
    "TableData",
    "comparison_report",
    "folder_report",
    "meaning_facts",
    "meaning_tables",
    "panel_block",
    "refusal_report",
    "runs_report",
]


class Part(BaseModel):
    """A part of a manifest."""

    # Manifests of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Curve(Part):
    """Points, perhaps with a band; x may be words."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    calibration: str = ""


class Panel(Part):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_scale: str = "linear"
    y_scale: str = "linear"
    note: str = ""


class TableData(Part):
    """Columns and rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Meaning(Part):
    """What epsilons mean: pairs of a heading and its words, and tables by title."""

    facts: tuple[tuple[str, str], ...]
    tables: dict[str, TableData]


def meaning_facts(meaning: Meaning) -> tuple[tuple[str, str], ...]:
    """What all epsilons share, as sentences."""
    return tuple((heading, f"{words[:1].upper()}{words[1:]}.") for heading, words in meaning.facts)


def meaning_tables(meaning: Meaning) -> tuple[Table, ...]:
    """What the epsilons rest on, and what papers claim."""
    return tuple(Table(title, each.columns, each.rows) for title, each in meaning.tables.items())


def panel_block(panel: Panel) -> Block:
    """Lines over numbers; over words, a table."""
    numeric = all(not isinstance(value, str) for curve in panel.curves for value in curve.x)
    names = [_name(curve) for curve in panel.curves]
    if not numeric:
        rows = [
            (name, value, *point)
            for name, curve in zip(names, panel.curves, strict=True)
            for value, *point in zip(
                curve.x,
                curve.y,
                curve.low or (None,) * len(curve.x),
                curve.high or (None,) * len(curve.x),
                strict=True,
            )
        ]
        columns = (texts.SERIES, panel.x_label, panel.y_label, texts.LOW, texts.HIGH)
        return Table(panel.title, columns, tuple(rows), panel.note)
    return LinePlot(
        panel.title,
        panel.x_label,
        panel.y_label,
        tuple(
            Series(name, tuple(float(x) for x in curve.x), curve.y, curve.low, curve.high)
            for name, curve in zip(names, panel.curves, strict=True)
        ),
        caption=panel.note,
        log_x=panel.x_scale == "log",
        log_y=panel.y_scale == "log",
    )


def _name(curve: Curve) -> str:
    return f"{curve.label} ({curve.calibration})" if curve.calibration else curve.label


_MOST_NAMES = 12


class _Interval(Part):
    mean: float | None
    low: float | None
    high: float | None


class _Line(Part):
    who: str
    calibration: str
    topology: str
    epsilon: Epsilon
    provable_epsilon: float | str
    theorem: str | None
    mark: str
    refused: str | None
    figures: dict[str, _Interval]


class _Compared(Part):
    measured: tuple[str, ...]


class ComparisonManifest(Part):
    """What ``dpadmm compare`` found."""

    kind: Literal["comparison"]
    dpadmm: str
    command: str
    notice: str
    intervals: str
    data: dict[str, Any]
    stand_ins: tuple[str, ...] = ()
    comparison: _Compared
    lines: tuple[_Line, ...]
    meaning: Meaning
    panels: tuple[Panel, ...]


def comparison_report(manifest: ComparisonManifest) -> Report:
    """Privacy-utility curves, and the table of everything that was compared."""
    banners = [Banner("danger", texts.SIMULATION, manifest.notice)]
    if any(line.calibration == "published" for line in manifest.lines):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    if manifest.stand_ins:
        banners.append(Banner("caution", texts.STAND_IN, f"{'; '.join(manifest.stand_ins)}."))
    plots = tuple(panel_block(panel) for panel in manifest.panels)
    dataset = shown_name(str(manifest.data.get("dataset", texts.OWN_FILES)))
    return Report(
        title=texts.COMPARISON_TITLE.format(data=dataset),
        subtitle=texts.COMPARISON_SUBTITLE.format(version=manifest.dpadmm),
        banners=tuple(banners),
        answers=_compared_answers(manifest, dataset),
        sections=(
            Section(texts.COMPARISON_CURVES, plots),
            Section(texts.COMPARISON_TABLE, (_compared_table(manifest),)),
            Section(texts.MEANING, meaning_tables(manifest.meaning)),
            Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest.command),)),
        ),
    )


def _compared_answers(manifest: ComparisonManifest, dataset: str) -> tuple[tuple[str, str], ...]:
    source = str(manifest.data.get("source", ""))
    who = list(dict.fromkeys(shown_name(line.who, 40) for line in manifest.lines))
    intervals = manifest.intervals[:1].upper() + manifest.intervals[1:]
    return (
        (texts.COMPARED, f"{', '.join(who)}."),
        (texts.COMPARED_ON, f"{dataset}: {source}" if source else dataset),
        *_best(manifest),
        (texts.INTERVALS, f"{intervals}."),
        *meaning_facts(manifest.meaning),
    )


def _best(manifest: ComparisonManifest) -> list[tuple[str, str]]:
    """What was reached at each budget, by the first measure."""
    if not manifest.comparison.measured:
        return []
    measure = manifest.comparison.measured[0]
    found: dict[float, list[str]] = {}
    for line in manifest.lines:
        figure = line.figures.get(measure)
        if figure is not None and figure.mean is not None:
            name = shown_name(line.who, 40)
            if line.calibration == "published":
                name = texts.COMPARISON_PUBLISHED.format(name=name)
            where = f" ({line.topology})" if line.topology else ""
            found.setdefault(line.epsilon, []).append(f"{name}{where} {figure.mean:.4g}")
    return [
        (
            f"{measure.capitalize()}, "
            + (
                texts.NO_NOISE
                if math.isinf(epsilon)
                else texts.AT_EPSILON.format(epsilon=Given(epsilon))
            ),
            ", ".join(words[:_MOST_NAMES]),
        )
        for epsilon, words in found.items()
    ]


def _compared_table(manifest: ComparisonManifest) -> Table:
    measured = manifest.comparison.measured
    sides = [f"{name}{side}" for name in measured for side in texts.INTERVAL_SIDES]
    rows = []
    for line in manifest.lines:
        proven: Cell = line.provable_epsilon
        if isinstance(proven, float):
            proven = f"{AtMost(proven):4}"
        cells: list[Cell] = [line.who, line.topology, line.calibration]
        cells += [texts.NONE if math.isinf(line.epsilon) else Given(line.epsilon), proven]
        cells += [f"{line.mark} {line.theorem or ''}".strip()]
        for name in measured:
            figure = line.figures.get(name)
            cells += [None] * 3 if figure is None else [figure.mean, figure.low, figure.high]
        rows.append((*cells, line.refused))
    columns = (*texts.COMPARISON_COLUMNS, *sides, texts.REFUSED_COLUMN)
    return Table(texts.COMPARISON_TABLE, columns, tuple(rows))


#: The name of the file in a folder.
MANIFEST: Final = "manifest.json"


class _Conclusion(Part):
    name: str
    claim: str
    criterion: str


class _Finding(Part):
    conclusion: str
    calibration: str
    verdict: str
    number: str


class _Setting(Part):
    value: Any
    source: str
    why: str = ""


class _Experiment(Part):
    kind: Literal["experiment"]
    dpadmm: str
    command: str
    citation: str
    part: str
    title: str
    stand_ins: tuple[str, ...] = ()
    settings: dict[str, _Setting]
    conclusions: tuple[_Conclusion, ...]
    findings: tuple[_Finding, ...]
    meaning: Meaning
    tables: dict[str, TableData] = Field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()


def folder_report(folder: Path) -> Report:
    """Read a folder's manifest and make its page."""
    path = folder / MANIFEST
    try:
        content = read_json(path)
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "comparison":
            return comparison_report(ComparisonManifest.model_validate(content))
        return _of_experiment(_Experiment.model_validate(content))
    except FileRefusal as error:
        raise ParameterError(f"manifest must be readable JSON; got {path}: {error}.") from None
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in finding["loc"]) or "the whole"
        raise ParameterError(
            f"{path} must be a manifest of dpadmm; at {place}: {finding['msg']}."
        ) from None


def _of_experiment(manifest: _Experiment) -> Report:
    banners = [Banner("danger", texts.SIMULATION, texts.COMPARISON_SIMULATED)]
    if manifest.stand_ins:
        banners.append(Banner("caution", texts.STAND_IN, "; ".join(manifest.stand_ins)))
    if any(finding.calibration == "published" for finding in manifest.findings):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    criteria = {each.name: each for each in manifest.conclusions}
    verdicts = Table(
        texts.VERDICTS,
        (texts.CONCLUSION, texts.CALIBRATION, texts.VERDICT, texts.NUMBER, texts.CRITERION),
        tuple(
            (
                criteria[each.conclusion].claim,
                each.calibration or texts.NO_NOISE,
                each.verdict,
                each.number,
                criteria[each.conclusion].criterion,
            )
            for each in manifest.findings
        ),
    )
    settings = Table(
        texts.SETTINGS,
        (texts.SETTING, texts.VALUE, texts.SOURCE, texts.WHY),
        tuple(
            (name, _text(each.value), each.source, each.why)
            for name, each in manifest.settings.items()
        ),
    )
    figures: list[Block] = [panel_block(panel) for panel in manifest.panels]
    tables: list[Block] = [
        Table(title, table.columns, table.rows) for title, table in manifest.tables.items()
    ]
    meaning = manifest.meaning
    remarks: list[Block] = [Words(text) for text in manifest.remarks]
    return Report(
        title=f"{manifest.part}: {manifest.title}",
        subtitle=texts.EXPERIMENT_SUBTITLE.format(version=manifest.dpadmm),
        banners=tuple(banners),
        answers=((texts.PAPER, manifest.citation), *_experiment_answers(manifest)),
        sections=tuple(
            section
            for section in (
                Section(texts.VERDICTS, (verdicts, *remarks)),
                Section(texts.MEANING, (Facts(meaning_facts(meaning)), *meaning_tables(meaning))),
                Section(texts.FIGURES, tuple(figures)),
                Section(texts.TABLES, tuple(tables)),
                Section(texts.SETTINGS, (settings,)),
                Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest.command),)),
            )
            if section.blocks
        ),
    )


def _experiment_answers(manifest: _Experiment) -> list[tuple[str, str]]:
    """How many conclusions stand, by calibration."""
    found: dict[str, list[str]] = {}
    for each in manifest.findings:
        found.setdefault(each.calibration or texts.NO_NOISE, []).append(each.verdict)
    return [
        (
            calibration,
            ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)),
        )
        for calibration, verdicts in found.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)


def refusal_report(config: RunConfig, reason: str, when: str, *, started: bool) -> Report:
    """Say what was asked for and why it was refused; ``started``: rounds may have been sent."""
    run = config.run
    words = texts.STOPPED_WORDS if started else texts.REFUSED_WORDS
    asked = texts.REFUSED_ASKED_WORDS.format(
        epsilon=run.epsilon, delta=run.delta, rounds=run.rounds, algorithm=run.algorithm
    )
    return Report(
        title=texts.REFUSED_TITLE,
        subtitle=texts.REFUSED_SUBTITLE.format(
            algorithm=run.algorithm, rounds=run.rounds, when=when, version=__version__
        ),
        banners=(Banner("danger", texts.REFUSED, words),),
        answers=(
            (texts.REFUSED_WHY, reason[:1].upper() + reason[1:]),
            (texts.REFUSED_ASKED, asked),
            (texts.LEARNT, texts.STOPPED_LEARNT if started else texts.REFUSED_LEARNT),
            (texts.REFUSED_NEXT, texts.REFUSED_NEXT_WORDS),
        ),
        sections=(
            Section(
                texts.CONFIGURATION,
                (Code(texts.CONFIGURATION_CODE, configuration_text(config.plain())),),
            ),
        ),
    )


_MOST_LINES = 6


def runs_report(named: Sequence[tuple[str, RecordedRun]]) -> Report:
    """Compare runs; each comes with the name under which it is shown."""
    sections = [
        Section(texts.RUNS_BESIDE, (_runs_table(named), *_runs_plots(named))),
        *(_own_section(name, run) for name, run in named),
    ]
    return Report(
        title=texts.RUNS_TITLE.format(count=len(named)),
        subtitle=texts.RUNS_SUBTITLE.format(version=__version__),
        banners=_worst(named),
        answers=(
            *((shown_name(name, 40), _in_short(run)) for name, run in named),
            (texts.RUNS_TOGETHER, _together(named)),
        ),
        sections=tuple(sections),
    )


def _worst(named: Sequence[tuple[str, RecordedRun]]) -> tuple[Banner, ...]:
    """Everything of any run that nobody may overlook, with the names of those it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for name, run in named:
        for banner in banners(run):
            if banner.tone != "info" and banner.heading != texts.WARNING:
                about.setdefault((banner.tone, banner.heading), []).append(shown_name(name, 40))
    kinds = sorted(about, key=lambda kind: kind[0] != "danger")
    return tuple(
        Banner("danger" if tone == "danger" else "caution", heading, f"{', '.join(names)}.")
        for (tone, heading), names in ((kind, about[kind]) for kind in kinds)
    )


def _in_short(run: RecordedRun) -> str:
    privacy = run.privacy
    guarantee = texts.PROVEN_NOTHING
    if run.private:
        guarantee = texts.PROVEN_PAIR.format(
            epsilon=AtMost(privacy.epsilon), delta=delta_text(privacy.delta)
        )
    return f"{learnt(run)} {texts.SHORT_GUARANTEE.format(guarantee=guarantee)}"


def _together(named: Sequence[tuple[str, RecordedRun]]) -> str:
    """Basic composition, for people who are in all runs; nothing where one protects nobody."""
    if len({run.privacy.adjacency for _, run in named}) > 1:
        return texts.RUNS_NO_SUM.format(reason=texts.RUNS_REASON_ADJACENCY)
    for name, run in named:
        reason = None
        if run.privacy.simulated:
            reason = texts.RUNS_REASON_SIMULATED
        elif not run.private:
            reason = texts.RUNS_REASON_NOTHING
        if reason is not None:
            shown = reason.format(name=shown_name(name, 40))
            return texts.RUNS_NO_SUM.format(reason=shown)
    epsilon = sum(run.privacy.epsilon for _, run in named)
    delta = sum(run.privacy.delta for _, run in named)
    return texts.RUNS_SUM.format(epsilon=AtMost(epsilon), delta=delta_text(delta))


def _runs_table(named: Sequence[tuple[str, RecordedRun]]) -> Table:
    rows = []
    for name, run in named:
        privacy = run.privacy
        rows.append(
            (
                name,
                run.algorithm,
                len(run.parties),
                run.rounds,
                AtMost(privacy.epsilon),
                AtMost(privacy.delta),
                AtMost(100 * riskiest(run).right),
                privacy.calibration,
                texts.YES if privacy.simulated else texts.NO,
                "; ".join(over_budget(run)),
            )
        )
    return Table(texts.RUNS_TABLE, texts.RUNS_COLUMNS, tuple(rows))


def _runs_plots(named: Sequence[tuple[str, RecordedRun]]) -> list[LinePlot]:
    spent, apart, moved = [], [], []
    for name, run in named[:_MOST_LINES]:
        courses = [course for course in run.epsilon_after_rounds.values() if course]
        if run.private and courses:
            largest = max(courses, key=lambda course: course[-1])
            spent.append(course(name, [AtMost(value) for value in largest]))
        if run.history.disagreement:
            apart.append(course(name, run.history.disagreement))
        if run.history.change:
            moved.append(course(name, run.history.change))
    wanted: list[tuple[str, str, list[Series], bool]] = [
        (texts.RUNS_SPENT, texts.EPSILON, spent, False),
        (texts.DISAGREEMENT, texts.DISAGREEMENT_Y, apart, True),
        (texts.CHANGE, texts.CHANGE_Y, moved, True),
    ]
    return [
        LinePlot(title, texts.ROUND, label, tuple(lines), log_y=log, from_zero=not log)
        for title, label, lines, log in wanted
        if lines
    ]


def _own_section(name: str, run: RecordedRun) -> Section:
    blocks: list[Block] = list(banners(run))
    blocks.append(Words(learnt(run)))
    # Drawings are side by side above; here are the parties, the ledgers and the configuration.
    for section in (parties_section(run), configuration_section(run)):
        blocks += [block for block in section.blocks if not isinstance(block, LinePlot)]
    return Section(shown_name(name, 40), tuple(blocks))
