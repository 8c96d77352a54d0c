"""Pages of runs, from their records: headlines, banners, and answers in words.

:func:`run_report` makes the page of one run, :func:`runs_report` that of several side by side, and
:func:`refusal_report` that of a run over budget. What stands below the answers is in
:mod:`dpadmm.report.sections`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpadmm.privacy.figures import AtMost, Given, pair
from dpadmm.privacy.gaussian import exp_up, sum_up
from dpadmm.report.document import (
    CONFIGURATION,
    PUBLISHED,
    SIMULATION,
    Banner,
    Block,
    Code,
    GuessPlot,
    LinePlot,
    Report,
    Section,
    Series,
    Table,
    Tile,
    Words,
    shown_name,
)
from dpadmm.report.sections import (
    AGREEMENT,
    EPSILON_SPENT,
    MOVEMENT,
    RUN_FILE,
    apart_over_rounds,
    attacker_section,
    configuration_section,
    configuration_text,
    convergence_section,
    course,
    graph_section,
    parties_section,
    quality_answer,
    quality_section,
    quality_words,
    riskiest,
    weights_section,
)
from dpadmm.run.classifier import EVALUATED_LATER
from dpadmm.run.config import RunConfig
from dpadmm.run.result import RecordedRun
from dpadmm.version import __version__

# Spending is worked out with rounding errors far below this.
_ROUNDING = 1e-9
_ON_GRAPHS = {
    "ring": "on a ring",
    "path": "on a path",
    "star": "on a star (the first is the hub)",
    "complete": "each with all others",
    "grid": "on a grid",
    "random": "on a random graph",
}
_MOST_NAMES = 6
_MOST_COLUMNS = 5
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
_MOST_LINES = 6


def run_report(run: RecordedRun, *, more: Sequence[Section] = ()) -> Report:
    """The report of a run; ``more`` sections come first."""
    shown = f"Run {run.run_sha256[:12]} of {run.algorithm}"
    if run.command:
        shown = f"{run.algorithm} by the command: {run.command}"
    subtitle = f"{shown}, ended {_moment(run.ended)}, dpadmm {run.dpadmm}"
    what = f"A run of {run.algorithm}"
    if run.learnt is not None:
        what = f"Predicting {shown_name(run.learnt.label, 40)}"
    sections = [*more, *quality_section(run), parties_section(run), *attacker_section(run)]
    sections.append(graph_section(run))
    sections += [convergence_section(run), *weights_section(run), configuration_section(run)]
    return Report(
        title=f"{what}: what was learnt, what is guaranteed",
        headline=run_headline(run),
        subtitle=subtitle,
        banners=banners(run),
        tiles=tiles(run),
        answers=answers(run),
        picture=guesses(run),
        sections=tuple(sections),
    )


def _moment(ended: str) -> str:
    """Date and minute of a time as records have it."""
    return ended.replace("T", " ")[:16] + " UTC" if ended.endswith("+00:00") else ended


def banners(run: RecordedRun) -> tuple[Banner, ...]:
    """The worst first."""
    return (*_dangers(run), *_cautions(run))


def _dangers(run: RecordedRun) -> Iterator[Banner]:
    privacy = run.privacy
    if over := over_budget(run):
        words = f"More was spent than was allowed: {'; '.join(over)}."
        yield Banner("danger", "OVER BUDGET.", words)
    for name, check in run.ledger_checks.items():
        if check.error is not None:
            words = f"{shown_name(name)}: {check.error}"
            yield Banner("danger", "LEDGER CHECK FAILED.", words)
    if privacy.simulated:
        words = "Its data and its messages are for trying things out."
        if run.private:
            words = (
                "The noise of this run can be drawn again: it protects nobody. Its figures are "
                "what the same run would guarantee with secret noise."
            )
        yield Banner("danger", SIMULATION, words)
    if not run.private:
        words = (
            f"No finite epsilon is proven for this run of {run.algorithm}. Treat its messages as "
            "rows."
        )
        yield Banner("danger", "NO PRIVACY GUARANTEE.", words)


def _cautions(run: RecordedRun) -> Iterator[Banner]:
    privacy = run.privacy
    if privacy.calibration == "published":
        claim = privacy.claim or "no figure."
        claim = claim if claim.endswith(".") else f"{claim}."
        words = (
            f"The noise is set as the paper prints it. The paper claims: {claim} That is "
            f"not proven. What is proven for this run: {_proven(run)}."
        )
        yield Banner("caution", PUBLISHED, words)
    if not privacy.reviewed:
        words = (
            f"The algorithm {run.algorithm} comes from outside; its theorem is its author's word."
        )
        yield Banner("caution", "THEOREM NOT REVIEWED.", words)
    yield from _losses(run)
    for sentence in privacy.caveats:
        if sentence.startswith(EVALUATED_LATER):
            yield Banner("caution", "MORE WAS SPENT.", sentence)
    for sentence in run.warnings:
        yield Banner("caution", "Warning.", sentence)
    if run.private and not privacy.simulated and not run.ledger_checks:
        yield Banner(
            "info",
            "Not counted.",
            "This run was charged to no ledger, so nothing adds up what other runs "
            "spent on the same rows.",
        )


def _losses(run: RecordedRun) -> Iterator[Banner]:
    """What a node says about others that did not return."""
    federation = run.federation
    if federation is None:
        return
    if federation.went_on_without:
        names = ", ".join(shown_name(name) for name in federation.went_on_without)
        yield Banner(
            "caution",
            "WENT ON WITHOUT A NODE.",
            f"The others went on without {names}, within their own budgets. What was "
            "sent to a lost node stays with it and stays spent.",
        )
    if federation.lost is not None:
        words = (
            "A node was lost, and this one ended with the model of round "
            f"{federation.rounds_complete} of {run.rounds}. Rely on what all of its rounds would "
            "spend: what was spent so far was decided by who was lost, and when."
        )
        yield Banner("caution", "ENDED EARLY.", words)


def over_budget(run: RecordedRun) -> list[str]:
    """Parties that spent more than the configuration or their ledger's policy allows, in words."""
    found = []
    for name in run.names:
        spent, budget = run.privacy.parties[name].epsilon, run.budget(name)
        if budget is not None and spent > budget * (1 + _ROUNDING):
            found.append(f"{shown_name(name)} spent epsilon = {AtMost(spent)} of {Given(budget)}")
        check = run.ledger_checks.get(name)
        if check is not None and check.account is not None:
            spent, policy = check.account.spent_epsilon, float(check.account.policy["epsilon"])
            if spent > policy * (1 + _ROUNDING):
                has = f"epsilon = {AtMost(spent)} of {Given(policy)}"
                found.append(f"the ledger of {shown_name(name)} has {has}")
    return found[:_MOST_NAMES]


def tiles(run: RecordedRun) -> tuple[Tile, ...]:
    """The figures that are seen at once."""
    privacy = run.privacy
    epsilon = f"{AtMost(privacy.epsilon):4}" if run.private else "none"
    delta = str(AtMost(privacy.delta)) if run.private else "none"
    which = "if noise is secret" if privacy.simulated else "the largest"
    return (
        Tile(epsilon, f"epsilon, {which}"),
        Tile(delta, "delta"),
        Tile(f"{_guess_plot(run).of_hundred} of 100", "right guesses, at most"),
        Tile(f"{len(run.everybody):,}", "parties"),
        Tile(f"{sum(party.rows for party in run.everybody):,}", "rows, none shared"),
        Tile(f"{run.rounds:,}", "rounds"),
    )


def run_headline(run: RecordedRun) -> str:
    """How good, how certain, what it cost, and what that does not cover."""
    if not run.private:
        return f"{quality_words(run)}. The run has no privacy guarantee."
    spent = pair(run.privacy.epsilon, run.privacy.delta)
    people = "a person" if run.privacy.rows_per_person > 1 else "a row"
    cost = f"It cost {people} of one party {spent}-differential privacy at most"
    if run.privacy.simulated:
        cost = f"With secret noise it would have cost {people} of one party {spent} at most"
    return f"{quality_words(run)}. {cost}; whoever has rows at several parties pays at each."


def answers(run: RecordedRun) -> tuple[tuple[str, str], ...]:
    """Question and answer, in the order in which people ask."""
    privacy = run.privacy
    pairs = [
        ("Who took part", _who(run)),
        ("What was learnt", learnt(run)),
        *quality_answer(run),
        ("What is guaranteed", _guaranteed(run)),
        *(("What to know before relying on it", caveat) for caveat in privacy.caveats),
    ]
    if run.private:
        how = f"Accountant: {privacy.accountant}. Calibration: {privacy.calibration}."
        not_covered = list(privacy.not_covered)
        if not run.ledger_checks:
            not_covered.append("other runs on the same rows (no ledger counts them)")
        pairs += [
            ("When a person's data change", _sentence(privacy.adjacency)),
            ("Against whom", _sentence(privacy.adversary)),
            ("By which theorem", _sentence(f"{privacy.theorem}. {how}")),
            ("What is not covered", _sentence("; ".join(not_covered))),
        ]
    # They may be long; what everybody asks is seen without scrolling.
    pairs += [(heading, _sentence(words)) for heading, words in privacy.details]
    real = f"Not a simulation. {privacy.noise[:1].upper() + privacy.noise[1:]}."
    simulated = f"A simulation. The noise is {privacy.noise}."
    pairs.append(("Simulation or not", simulated if privacy.simulated else real))
    return tuple(pairs)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _who(run: RecordedRun) -> str:
    names = [
        f"{shown_name(party.name, 40)} ({party.rows:,} rows)"
        for party in run.everybody[:_MOST_NAMES]
    ]
    if len(run.everybody) > _MOST_NAMES:
        names.append(f"and {len(run.everybody) - _MOST_NAMES} more")
    topology = run.topology
    if topology is None:
        how = "on a graph that was not recorded"
    elif topology.server:
        how = "around a server that holds no rows"
    else:
        how = _ON_GRAPHS.get(topology.name, "on a graph of their own")
    return f"{len(run.everybody)} parties, {how}: {', '.join(names)}."


def learnt(run: RecordedRun) -> str:
    """What the model tells apart, from what."""
    label = "the class"
    columns = f"{run.features} features"
    if run.learnt is not None:
        label = shown_name(run.learnt.label, 40)
    if run.learnt is not None and run.learnt.columns:
        names = ", ".join(_few(run.learnt.columns, _MOST_COLUMNS))
        count = len(run.learnt.columns)
        columns = f"the column {names}" if count == 1 else f"{count} columns ({names})"
        columns += f", encoded as {run.features} features"
    if run.learnt is not None and run.learnt.frequencies is not None:
        columns += f", the cosines and sines of {run.learnt.frequencies} random frequencies"
    loss = run.config.get("run", {}).get("loss", "logistic")
    classes = " or ".join(_few(run.classes, _MOST_NAMES))
    return (
        f"A linear classifier ({loss} loss) that predicts {label} ({classes}) from {columns}, by "
        f"{run.rounds} rounds of {run.algorithm}."
    )


def _few(names: Sequence[str], most: int) -> list[str]:
    """The first names, and how many more there are."""
    shown = [shown_name(name, 30) for name in names[:most]]
    return shown + [f"and {len(names) - most} more"] * (len(names) > most)


def _guaranteed(run: RecordedRun) -> str:
    privacy = run.privacy
    if not run.private:
        return (
            f"Nothing. No finite epsilon is proven for this run of {run.algorithm}: its "
            "messages may reveal rows."
        )
    # The record of a node is about its own rows; the others state their own.
    whose = shown_name(run.names[0], 40) if len(run.names) == 1 else "each party"
    private = (
        f"{pair(privacy.epsilon, privacy.delta)}-differential privacy, in total over the whole run."
    )
    factor = f"{AtMost(exp_up(privacy.epsilon)):3}" if privacy.epsilon < 700 else "any number of"
    likely = f"would have become more than {factor} times as likely, plus {AtMost(privacy.delta)}."
    if privacy.simulated:
        words = (
            "To nobody, since the noise can be drawn again. With secret noise it would be, to the "
            f"people of {whose}: {private}"
        )
    elif privacy.alone:
        words = (
            f"To the people of {whose}, against those whom the line Against whom names: {private} "
            "If one person's rows at one party had been different, nothing that they see of the "
            f"run {likely} That rests on the noise of the honest parties: where more parties work "
            "together, nothing but the line If all others collude holds."
        )
    else:
        words = (
            f"To the people of {whose}: {private} If one person's rows had been "
            f"different, nothing that the other parties or anybody else sees of the run {likely}"
        )
    if run.weakest:
        best = min(run.names, key=lambda name: privacy.parties[name].epsilon)
        least, most = AtMost(privacy.parties[best].epsilon), AtMost(privacy.epsilon)
        ends = f"{least:4} ({shown_name(best, 40)}) to {most:4} ({shown_name(run.weakest[0], 40)})"
        words += f" The parties' epsilons go from {ends}."
    return words


def guesses(run: RecordedRun) -> GuessPlot:
    """A hundred guesses about a person of the weakest party."""
    if not run.private:
        return _guess_plot(
            run,
            "An attacker knows every other row and two candidates for this person's. Nothing "
            "bounds how many guesses are right.",
        )
    odds = riskiest(run)
    before = "If the noise were secret: " if run.privacy.simulated else ""
    who, seen = "An attacker", "every message of the run is seen"
    if run.privacy.alone:
        who = "An attacker of those whom the line Against whom names"
        seen = "the sum of all messages is seen in every round"
    return _guess_plot(
        run,
        f"{before}{who} knows every other row and two candidates for this person's, a fair coin "
        f"chose one, and {seen}. Of 100 such guesses {_guess_plot(run).of_hundred} are right at "
        f"most. Theorem: {odds.theorem}.",
    )


def _guess_plot(run: RecordedRun, caption: str = "") -> GuessPlot:
    seen = "the sums of messages" if run.privacy.alone else "all messages"
    return GuessPlot(
        "What that means: guessing about one person", riskiest(run).right, caption, seen
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
            ("What was learnt", "No model was written." if started else "Nothing."),
            (
                "What can be done",
                "Ask for a smaller epsilon, or let the owner of the data decide on another "
                "policy. dpadmm account tells what a run would cost.",
            ),
        ),
        sections=(
            Section(
                CONFIGURATION,
                (Code(RUN_FILE, configuration_text(config.plain())),),
            ),
        ),
    )


def runs_report(named: Sequence[tuple[str, RecordedRun]]) -> Report:
    """Compare runs; each comes with the name under which it is shown."""
    sections = [
        Section("Side by side", (_runs_table(named), *_runs_plots(named))),
        *(_own_section(name, run) for name, run in named),
    ]
    return Report(
        title=f"{len(named)} runs side by side",
        subtitle=f"Made by dpadmm {__version__}",
        headline=_together(named),
        banners=_worst(named),
        answers=tuple((shown_name(name, 40), _in_short(run)) for name, run in named),
        sections=tuple(sections),
    )


def _worst(named: Sequence[tuple[str, RecordedRun]]) -> tuple[Banner, ...]:
    """Return all warnings of all runs, with the names of those they are about."""
    about: dict[tuple[str, str], list[str]] = {}
    for name, run in named:
        for banner in banners(run):
            if banner.tone != "info" and banner.heading != "Warning.":
                about.setdefault((banner.tone, banner.heading), []).append(shown_name(name, 40))
    kinds = sorted(about, key=lambda kind: kind[0] != "danger")
    return tuple(
        Banner("danger" if tone == "danger" else "caution", heading, f"{', '.join(names)}.")
        for (tone, heading), names in ((kind, about[kind]) for kind in kinds)
    )


def _in_short(run: RecordedRun) -> str:
    return f"{learnt(run)} Guaranteed: {_proven(run)}."


def _proven(run: RecordedRun) -> str:
    if not run.private:
        return "no finite epsilon"
    return f"epsilon = {AtMost(run.privacy.epsilon)} at delta = {AtMost(run.privacy.delta)}"


def _together(named: Sequence[tuple[str, RecordedRun]]) -> str:
    """Basic composition, for people who are in all runs; nothing where one protects nobody."""
    nothing = [
        f"{shown_name(name, 40)} "
        + ("is a simulation" if run.privacy.simulated else "guarantees nothing")
        for name, run in named
        if run.privacy.simulated or not run.private
    ]
    if len({run.privacy.adjacency for _, run in named}) > 1:
        nothing = ["they differ in what is replaced"]
    if nothing:
        return f"No total is guaranteed to people who are in all of these runs: {nothing[0]}."
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
                "yes" if privacy.simulated else "no",
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
        ("Epsilon of the weakest party over the rounds", EPSILON_SPENT, spent, False),
        (*AGREEMENT, apart, True),
        (*MOVEMENT, moved, True),
    ]
    return [
        LinePlot(title, "round", label, tuple(lines), log_y=log, from_zero=not log)
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
