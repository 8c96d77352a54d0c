"""The report of one run, from its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tomli_w

from dpadmm.privacy.figures import AtLeast, AtMost, Given
from dpadmm.report import texts
from dpadmm.report.answers import answers, banners, guesses, riskiest, tiles
from dpadmm.report.document import Block, Code, Facts, Report, Section, Words
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import Bar, BarPlot, GraphPlot, LinePlot, Series
from dpadmm.report.quality import quality_section
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES
from dpadmm.report.tables import Cell, Table
from dpadmm.run.record import Learnt, LedgerCheck, RecordedRun

__all__ = ["configuration_text", "course", "run_report", "thinned"]


def configuration_text(config: Mapping[str, Any]) -> str:
    """The text of a ``run.toml``, without what was left out."""
    return tomli_w.dumps(
        {
            key: _without_nothing(value)
            for key, value in config.items()
            if value not in ({}, [], None)
        }
    )


def _without_nothing(value: Any) -> Any:
    """A table or a list of them, without entries that TOML has no word for or that say nothing."""
    if isinstance(value, Mapping):
        return {
            key: _without_nothing(item) for key, item in value.items() if item not in ({}, None)
        }
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


# What keeps a page small and a drawing readable; the record has everything.
_MOST_ROWS = 500
_MOST_POINTS = 300
_MOST_COURSES = 6
_MOST_BARS = 12


def run_report(run: RecordedRun, *, more: Sequence[Section] = ()) -> Report:
    """The report of a run; ``more`` sections come first."""
    by = texts.RUN_BY_COMMAND if run.command else texts.RUN_BY_HASH
    shown = by.format(run=run.run_sha256[:12], algorithm=run.algorithm, command=run.command)
    subtitle = texts.RUN_SUBTITLE.format(run=shown, ended=_moment(run.ended), version=run.dpadmm)
    what = texts.RUN_OF.format(algorithm=run.algorithm)
    if run.learnt is not None:
        what = texts.PREDICTING.format(label=shown_name(run.learnt.label, 40))
    sections = [*more, *quality_section(run), parties_section(run), *attacker_section(run)]
    sections.append(graph_section(run))
    sections += [convergence_section(run), *weights_section(run), configuration_section(run)]
    return Report(
        title=texts.RUN_TITLE.format(what=what),
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


def parties_section(run: RecordedRun) -> Section:
    """What each party spent, what is left, who is the weakest, whether the ledgers hold."""
    weakest = texts.ALL_EQUAL
    if run.weakest:
        weakest = texts.WEAKEST.format(
            name=", ".join(shown_name(name) for name in run.weakest[:3]),
            epsilon=f"{AtMost(run.privacy.epsilon):4}",
        )
    words = texts.PARTIES_WORDS_SHARED if run.privacy.alone else texts.PARTIES_WORDS
    words = words.format(weakest=weakest, adversary=run.privacy.adversary)
    blocks: list[Block] = [Words(words), _party_table(run)]
    blocks += [plot for plot in (_rounds_plot(run), _spent_plot(run)) if plot]
    blocks.append(_ledger_table(run) if run.ledger_checks else Words(texts.NO_LEDGERS))
    return Section(texts.PARTIES, tuple(blocks))


def _party_table(run: RecordedRun) -> Table:
    degrees = _degrees(run)
    notes, shown = [], list(run.parties)
    if len(shown) > _MOST_ROWS:
        notes.append(texts.MORE_PARTIES.format(shown=_MOST_ROWS, all=len(shown)))
        shown.sort(key=lambda party: -run.privacy.parties[party.name].epsilon)
    theorems = {guarantee.theorem for guarantee in run.privacy.parties.values()}
    several = len(theorems) > 1
    if not several:
        notes.append(texts.THEOREM_OF_ALL.format(theorem=theorems.pop()))
    rows = []
    for party in shown[:_MOST_ROWS]:
        guarantee = run.privacy.parties[party.name]
        rows.append(
            (
                party.name,
                party.rows,
                degrees.get(party.name),
                AtMost(guarantee.epsilon),
                _given(run.budget(party.name)),
                AtMost(guarantee.delta),
                AtMost(100 * guarantee.odds.right),
                *((guarantee.theorem,) if several else ()),
            )
        )
    columns = (
        texts.PARTY,
        texts.ROWS,
        texts.DEGREE,
        texts.EPSILON,
        texts.BUDGET,
        texts.DELTA,
        texts.GUESSES,
        *((texts.THEOREM,) if several else ()),
    )
    return Table(texts.PARTIES_TABLE, columns, tuple(rows), " ".join(notes))


def _given(budget: float | None) -> Given | None:
    return None if budget is None else Given(budget)


def _degrees(run: RecordedRun) -> dict[str, int]:
    if run.topology is None:
        return {}
    if run.topology.server:
        return dict.fromkeys(run.names, 1)
    ends = Counter(end for edge in run.topology.edges for end in edge)
    return {name: ends[place] for place, name in enumerate(party.name for party in run.everybody)}


def thinned(count: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The places of so many points that are drawn: all, or evenly chosen ones with the last."""
    step = -(-count // _MOST_POINTS)
    return np.unique(np.append(np.arange(0, count, step), count - 1))


def course(name: str, values: Sequence[float]) -> Series:
    """A line over the rounds."""
    places = thinned(len(values)).tolist()
    return Series(name, tuple(p + 1 for p in places), tuple(values[p] for p in places))


def _thinned_note(count: int) -> str:
    step = -(-count // _MOST_POINTS)
    return texts.ROUNDS_THINNED.format(step=step) if step > 1 else ""


def _rounds_plot(run: RecordedRun) -> LinePlot | None:
    """Parties often share a course, which is then drawn once."""
    if not run.private or not run.epsilon_after_rounds:
        return None
    shared: dict[tuple[float, ...], list[str]] = {}
    for name, spent in run.epsilon_after_rounds.items():
        if spent:
            shared.setdefault(spent, []).append(name)
    highest = sorted(shared, key=lambda spent: -spent[-1])[:_MOST_COURSES]
    note = _thinned_note(run.rounds)
    if len(shared) > _MOST_COURSES:
        note += texts.ROUNDS_MORE.format(all=len(shared), shown=_MOST_COURSES)
    lines = []
    for spent in highest:
        first, *others = shared[spent]
        name = texts.ROUNDS_SAME.format(name=shown_name(first, 20), count=len(others))
        lines.append(course(name if others else first, [AtMost(value) for value in spent]))
    budgets = {run.budget(name) for name in run.names}
    limits = [(texts.BUDGET, Given(budget)) for budget in budgets if budget is not None]
    return LinePlot(
        texts.ROUNDS_PLOT,
        texts.ROUND,
        texts.EPSILON,
        tuple(lines),
        caption=texts.ROUNDS_CAPTION.format(note=note),
        from_zero=True,
        limits=tuple(limits) if len(limits) == 1 else (),
    )


def _spent_plot(run: RecordedRun) -> BarPlot | None:
    spent = [(name, run.privacy.parties[name].epsilon, run.budget(name)) for name in run.names]
    if not run.private or all(budget is None for _, _, budget in spent):
        return None
    spent.sort(key=lambda entry: -entry[1])
    bars = tuple(Bar(name, AtMost(epsilon), _given(of)) for name, epsilon, of in spent[:_MOST_BARS])
    return BarPlot(
        texts.SPENT_PLOT,
        texts.PARTY,
        texts.EPSILON,
        bars,
        caption=texts.SPENT_CAPTION,
        of_label=texts.BUDGET,
        marked=frozenset(run.weakest),
    )


def attacker_section(run: RecordedRun) -> list[Section]:
    """How many people a test finds, at most, for its false alarms."""
    if not run.private:
        return []
    odds = riskiest(run)
    alarms = np.array([0, 0.1, 0.5, 1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100]) / 100
    percent = tuple((100 * alarms).tolist())
    found = tuple(AtMost(value) for value in (100 * odds.detections(alarms)).tolist())
    plot = LinePlot(
        texts.TESTS_TITLE,
        texts.TESTS_X,
        texts.TESTS_Y,
        (Series(texts.TESTS_LINE, percent, found), Series(texts.TESTS_CHANCE, percent, percent)),
        caption=texts.TESTS_CAPTION.format(theorem=odds.theorem[:1].upper() + odds.theorem[1:]),
    )
    words = texts.ATTACKER_WORDS_SHARED if run.privacy.alone else texts.ATTACKER_WORDS
    return [Section(texts.ATTACKER, (Words(words), plot), narrow=True)]


def _ledger_table(run: RecordedRun) -> Table:
    rows: list[tuple[Cell, ...]] = []
    alone = {
        name: check.account.spent_epsilon_alone
        for name, check in run.ledger_checks.items()
        if check.account is not None and check.account.spent_epsilon_alone is not None
    }
    for name, check in run.ledger_checks.items():
        account, words = check.account, _check_words(check)
        # A column of its own where any data set was charged for noise that parties share.
        apart = ((AtMost(alone[name]) if name in alone else None),) if alone else ()
        if account is None:
            rows.append((name, *(None,) * 6, *apart, words))
            continue
        left = texts.PERCENT.format(share=f"{AtLeast(100 * account.left / account.limit):3}")
        policy = account.policy
        spent = (
            AtMost(account.spent_epsilon),
            Given(policy["epsilon"]),
            Given(policy["delta"]),
            left,
        )
        rows.append((name, str(account.dataset["name"]), len(account.runs), *spent, *apart, words))
    rows = rows[:_MOST_ROWS]
    *columns, checked = texts.LEDGER_COLUMNS
    columns += [texts.LEDGER_ALONE] if alone else []
    return Table(texts.LEDGERS_TABLE, (*columns, checked), tuple(rows), texts.LEDGER_NOTE)


def _check_words(check: LedgerCheck) -> str:
    when = texts.LEDGER_NOW if check.when == "now" else texts.LEDGER_AT_END
    if check.error is None:
        return texts.LEDGER_GOOD.format(when=when)
    return texts.LEDGER_BAD.format(when=when, reason=check.error)


def graph_section(run: RecordedRun) -> Section:
    """The parties drawn with their links."""
    topology = run.topology
    if topology is None:
        return Section(texts.GRAPH, (Words(texts.NOT_RECORDED),))
    links = len(run.everybody) if topology.server else len(topology.edges)
    if len(run.everybody) > MOST_PARTIES or links > MOST_LINKS:
        words = texts.GRAPH_TOO_LARGE.format(parties=len(run.everybody), links=links)
        return Section(texts.GRAPH, (Words(words),))
    plot = GraphPlot(
        texts.GRAPH_TITLE,
        tuple(party.name for party in run.everybody),
        tuple(party.rows for party in run.everybody),
        topology.edges,
        topology.server,
        texts.GRAPH_CAPTION.format(weakest=texts.GRAPH_WEAKEST if run.weakest else ""),
        frozenset(run.weakest),
    )
    return Section(texts.GRAPH, (plot,), narrow=True)


def convergence_section(run: RecordedRun) -> Section:
    """How the parties came to agree, from messages alone."""
    lines = (
        (texts.DISAGREEMENT, texts.DISAGREEMENT_Y, run.history.disagreement),
        (texts.CHANGE, texts.CHANGE_Y, run.history.change),
    )
    plots = [
        LinePlot(
            title,
            texts.ROUND,
            label,
            (course(label, values),),
            caption=_thinned_note(len(values)).strip(),
            log_y=True,
        )
        for title, label, values in lines
        if values
    ]
    return Section(texts.CONVERGENCE, (Words(texts.CONVERGENCE_WORDS), *plots))


def weights_section(run: RecordedRun) -> list[Section]:
    """The classifier that was released; nothing if it was not recorded."""
    if run.learnt is not None and run.learnt.frequencies is not None:
        words = texts.WEIGHTS_FOURIER.format(features=run.features)
        return [Section(texts.WEIGHTS, (Words(words),), narrow=True)]
    if run.learnt is None or not run.learnt.weights:
        return []
    error = run.learnt.noise_error
    words = texts.WEIGHTS_WORDS
    if error is not None:
        words += texts.WEIGHTS_ERROR.format(error=f"{error:.3g}")
    elif run.private:
        words += texts.WEIGHTS_NO_ERROR
    towards = dict.fromkeys(weight.towards for weight in run.learnt.weights)
    plots = [_weights_plot(run, name, error) for name in list(towards)[:_MOST_COURSES]]
    tables = [] if run.learnt.intercepts is None else [_units_table(run.learnt)]
    blocks: tuple[Block, ...] = (Words(words), *plots, *tables)
    return [Section(texts.WEIGHTS, blocks, narrow=len(plots) == 1)]


def _weights_plot(run: RecordedRun, towards: str, error: float | None) -> BarPlot:
    """The largest weights of encoded features, which have the same range and can be compared."""
    assert run.learnt is not None
    weights = [weight for weight in run.learnt.weights if weight.towards == towards]
    weights.sort(key=lambda weight: -abs(weight.weight))
    shown = weights[:_MOST_BARS]
    around = [
        (None, None) if error is None else (each.weight - 2 * error, each.weight + 2 * error)
        for each in shown
    ]
    return BarPlot(
        texts.WEIGHTS_TITLE.format(towards=shown_name(towards, 40)),
        texts.FEATURE,
        texts.WEIGHTS_VALUE,
        tuple(
            Bar(each.feature, each.weight, low=low, high=high)
            for each, (low, high) in zip(shown, around, strict=True)
        ),
        texts.WEIGHTS_CAPTION.format(shown=len(shown), all=run.features),
        faint=frozenset(each.feature for each in shown if _may_be_noise(each.weight, error)),
    )


def _may_be_noise(weight: float, error: float | None) -> bool:
    return error is not None and abs(weight) <= 2 * error


def _units_table(learnt: Learnt) -> Table:
    """The same weights for cells as they stand in a file."""
    error, rows = learnt.noise_error, list[tuple[Cell, ...]]()
    # Of two classes all weights speak for one, which the plot names.
    several = len({each.towards for each in learnt.weights}) > 1
    for each in learnt.weights:
        if each.unit is None and each.feature == "constant":
            continue  # It is part of the intercept.
        unit = 1.0 if each.unit is None else each.unit
        of = texts.OF_LEVEL if each.unit is None else texts.OF_UNIT
        row: tuple[Cell, ...] = (each.feature, each.weight * unit, of)
        if error is not None:
            noise = _may_be_noise(each.weight, error)
            row = (*row, error * unit, texts.YES if noise else texts.NO)
        rows.append((*row, each.towards) if several else row)
    nothing = () if error is None else (None, None)
    for towards, intercept in (learnt.intercepts or {}).items():
        row = (texts.INTERCEPT, intercept, None, *nothing)
        rows.append((*row, towards) if several else row)
    columns = (*texts.UNITS_COLUMNS, *(() if error is None else texts.UNITS_ERRORS))
    columns += (texts.UNITS_TOWARDS,) if several else ()
    return Table(texts.UNITS_TABLE, columns, tuple(rows), texts.UNITS_NOTE)


def configuration_section(run: RecordedRun) -> Section:
    """What it was told, where it came from, and the command that repeats it."""
    facts = [(head, getattr(run, field)) for head, field in texts.FACTS_OF_RUN]
    facts = [(head, str(value)) for head, value in facts if value]
    # Records of older versions have the time of private runs, too, which depends on rows.
    if run.seconds is not None and not run.private:
        facts.append((texts.SECONDS, f"{run.seconds:g}"))
    for name, check in run.ledger_checks.items():
        if check.account is not None:
            head = texts.LEDGER_HEAD.format(name=shown_name(name, 40))
            facts.append((head, check.account.head))
    again = texts.REPRODUCE_SAME if run.privacy.simulated else texts.REPRODUCE_OTHER
    where = "" if run.command else f"{texts.REPRODUCE_WHERE} "
    title = texts.CONFIGURATION_WORD if run.command else texts.CONFIGURATION_CODE
    return Section(
        texts.CONFIGURATION,
        (
            Code(texts.REPRODUCE, run.command or texts.TRAIN_COMMAND.format(version=run.dpadmm)),
            Words(f"{where}{again}"),
            Code(title, configuration_text(run.config)),
            Facts(tuple(facts)),
        ),
        narrow=True,
    )
