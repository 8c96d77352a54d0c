"""Reports of several runs side by side, and of a run that was refused."""

from __future__ import annotations

from collections.abc import Sequence

from dpadmm.privacy.figures import AtMost
from dpadmm.report import texts
from dpadmm.report.answers import banners, learnt, over_budget, riskiest
from dpadmm.report.document import Banner, Block, Code, Report, Section, Words
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import LinePlot, Series
from dpadmm.report.run import configuration_section, configuration_text, course, parties_section
from dpadmm.report.tables import Table, delta_text
from dpadmm.run.config import RunConfig
from dpadmm.run.record import RecordedRun
from dpadmm.version import __version__

__all__ = ["refusal_report", "runs_report"]


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
    words = texts.RUNS_SUM.format(epsilon=AtMost(epsilon), delta=delta_text(delta))
    return words + (texts.RUNS_SUM_SHARED if any(run.privacy.alone for _, run in named) else "")


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
