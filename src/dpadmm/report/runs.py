"""Reports of several runs side by side, and of a run that was refused."""

from __future__ import annotations

from collections.abc import Sequence

from dpadmm.privacy.figures import AtMost, pair
from dpadmm.privacy.gaussian import sum_up
from dpadmm.report import texts
from dpadmm.report.answers import banners, learnt, over_budget, riskiest
from dpadmm.report.document import (
    Banner,
    Block,
    Code,
    LinePlot,
    Report,
    Section,
    Series,
    Table,
    Words,
)
from dpadmm.report.markup import shown_name
from dpadmm.report.run import (
    apart_over_rounds,
    configuration_section,
    configuration_text,
    course,
    parties_section,
)
from dpadmm.run.config import RunConfig
from dpadmm.run.record import RecordedRun
from dpadmm.version import __version__

_RUNS_COLUMNS = (
    "run",
    "algorithm",
    "parties",
    "rounds",
    "epsilon",
    "delta",
    "attacker right at most, %",
    "calibration",
    "simulated",
    "remarks",
)


def refusal_report(config: RunConfig, reason: str, when: str, *, started: bool) -> Report:
    """Say what was asked for and why it was refused; ``started``: rounds may have been sent."""
    run = config.run
    words = (
        "The run did not start: no row was read, no message was sent, and no ledger was charged "
        "more than before."
    )
    if started:
        words = (
            "A ledger stopped the run, as another run used up the budget meanwhile. The round "
            "that did not fit was not sent; earlier rounds were, and stay charged."
        )
    asked = (
        f"epsilon = {run.epsilon} at delta = {run.delta}, {run.rounds} rounds of {run.algorithm}"
    )
    return Report(
        title="Refused: a run over budget",
        subtitle=f"{run.algorithm}, {run.rounds} rounds, refused {when}, dpadmm {__version__}",
        banners=(Banner("danger", "OVER BUDGET: REFUSED.", words),),
        answers=(
            # As it was printed: it may begin with the name of a parameter.
            ("Why", reason),
            ("What was asked for", asked),
            (texts.LEARNT, "No model was written." if started else "Nothing."),
            (
                "What can be done",
                "Ask for a smaller epsilon, or let the owner of the data decide on another "
                "policy. dpadmm account tells what a run would cost.",
            ),
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
        Section("Side by side", (_runs_table(named), *_runs_plots(named))),
        *(_own_section(name, run) for name, run in named),
    ]
    return Report(
        title=f"{len(named)} runs side by side",
        subtitle=f"Made by dpadmm {__version__}",
        banners=_worst(named),
        answers=(
            *((shown_name(name, 40), _in_short(run)) for name, run in named),
            ("Together", _together(named)),
        ),
        sections=tuple(sections),
    )


def _worst(named: Sequence[tuple[str, RecordedRun]]) -> tuple[Banner, ...]:
    """Return all warnings of all runs, with the names of those they are about."""
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
            epsilon=AtMost(privacy.epsilon), delta=AtMost(privacy.delta)
        )
    return f"{learnt(run)} Guaranteed: {guarantee}."


def _together(named: Sequence[tuple[str, RecordedRun]]) -> str:
    """Basic composition, for people who are in all runs; nothing where one protects nobody."""
    if len({run.privacy.adjacency for _, run in named}) > 1:
        return texts.RUNS_NO_SUM.format(reason="they differ in what is replaced")
    for name, run in named:
        reason = None
        if run.privacy.simulated:
            reason = "{name} is a simulation"
        elif not run.private:
            reason = "{name} guarantees nothing"
        if reason is not None:
            shown = reason.format(name=shown_name(name, 40))
            return texts.RUNS_NO_SUM.format(reason=shown)
    epsilon = sum_up(run.privacy.epsilon for _, run in named)
    delta = sum_up(run.privacy.delta for _, run in named)
    words = (
        "If these runs are about the same people, their guarantees add up: in total "
        f"{pair(epsilon, delta)}-differential privacy by basic composition. A "
        "ledger composes them more tightly."
    )
    if any(run.privacy.alone for _, run in named):
        words += " That holds against those only against whom each of these runs holds: "
        words += "some share noise."
    return words


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
    return Table("The runs", _RUNS_COLUMNS, tuple(rows))


def _runs_plots(named: Sequence[tuple[str, RecordedRun]]) -> list[LinePlot]:
    spent, apart, moved = [], [], []
    for name, run in named[:_MOST_LINES]:
        courses = [course for course in run.epsilon_after_rounds.values() if course]
        if run.private and courses:
            largest = max(courses, key=lambda course: course[-1])
            spent.append(course(name, [AtMost(value) for value in largest]))
        if differences := apart_over_rounds(run):
            apart.append(course(name, differences))
        if run.history.change:
            moved.append(course(name, run.history.change))
    wanted: list[tuple[str, str, list[Series], bool]] = [
        ("Epsilon of the weakest party over the rounds", texts.EPSILON, spent, False),
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
