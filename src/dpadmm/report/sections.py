"""The sections of a run's page: quality, what parties spent, the graph, weights, configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import tomli_w

from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ClassFigures, ModelFigures
from dpadmm.privacy.accountant import Odds
from dpadmm.privacy.figures import AtLeast, AtMost, Given, pair
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import (
    CONFIGURATION,
    Bar,
    BarPlot,
    Block,
    Cell,
    Code,
    Facts,
    GraphPlot,
    LinePlot,
    Section,
    Series,
    Table,
    Words,
    shown_name,
)
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES
from dpadmm.run.classifier import HELD_OUT, PUBLIC, Quality
from dpadmm.run.result import Learnt, LedgerCheck, RecordedRun

# Titles and labels that pages of one run and of several share.
AGREEMENT: Final = ("Agreement of the parties", "largest distance of a message from the mean")
MOVEMENT: Final = ("Movement of the mean", "distance since the round before")
EPSILON_SPENT: Final = "epsilon spent"
RUN_FILE: Final = "run.toml"
_GRAPH: Final = "Who talked to whom"
_WEIGHTS: Final = "The classifier"


_LEDGER_COLUMNS = (
    "party",
    "data set",
    "runs",
    "epsilon spent",
    "of policy",
    "policy's delta",
    "budget left",
    "check",
)
_UNITS_COLUMNS = ("feature", "weight", "of")
_UNITS_ERRORS = ("error of noise", "noise alone?")
_FACTS_OF_RUN = (
    ("run", "run_sha256"),
    ("schema", "schema_sha256"),
    ("model file", "model_sha256"),
    ("ended", "ended"),
    ("dpadmm", "dpadmm"),
    ("Python", "python"),
    ("NumPy", "numpy"),
)
# What keeps a page small and a drawing readable; the record has everything.
_MOST_ROWS = 500
_MOST_POINTS = 300
_MOST_COURSES = 6
_MOST_BARS = 12
# A part of the way that a model moved below which a difference is rounding.
_ROUNDING = 1e-9
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


def quality_words(run: RecordedRun) -> str:
    """How good the model is, and how certain that is, for a headline."""
    if run.quality is None:
        return "Nobody has evaluated the model"
    evaluation = run.quality.evaluation()
    kind = {HELD_OUT: "held-out rows", PUBLIC: "public rows"}.get(
        run.quality.about, "rows that it was trained on"
    )
    return (
        f"The model gets {_percent(evaluation.accuracy)} of {evaluation.rows:,} {kind} right "
        f"({100 * evaluation.confidence:g}% interval)"
    )


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
            f"on {rows} held-out rows, for {spent}-differential privacy in an account "
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


def riskiest(run: RecordedRun) -> Odds:
    """The odds at the party where they are best for an attacker.

    That need not be the party with the largest epsilon: another may have a larger delta.
    """
    # Odds grow with epsilon and with delta: a party that another exceeds in both need not be asked.
    largest: dict[str, float] = {}
    candidates = []
    for each in sorted(run.privacy.parties.values(), key=lambda each: (-each.epsilon, -each.delta)):
        if each.delta > largest.get(each.accountant, -1.0):
            largest[each.accountant] = each.delta
            candidates.append(each.odds)
    return max(candidates, key=lambda odds: odds.right)


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
    """Return a table, or a list of them, without entries that are empty or unknown to TOML."""
    if isinstance(value, Mapping):
        return {
            key: _without_nothing(item) for key, item in value.items() if item not in ({}, None)
        }
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


def parties_section(run: RecordedRun) -> Section:
    """What each party spent, what is left, who is the weakest, whether the ledgers hold."""
    weakest = "All parties have the same guarantee."
    if run.weakest:
        names = ", ".join(shown_name(name) for name in run.weakest[:3])
        epsilon = f"{AtMost(run.privacy.epsilon):4}"
        weakest = f"The weakest guarantee is that of {names}: epsilon = {epsilon}."
    words = (
        f"The guarantee of a party rests on its own noise alone. {weakest} Epsilons of different "
        "parties are never added: they are about different people."
    )
    if run.privacy.alone:
        words = (
            f"The guarantees hold against {run.privacy.adversary}. {weakest} Each is about people "
            "with rows at that party alone: a person with rows at several costs the sum of their "
            "mu."
        )
    blocks: list[Block] = [Words(words), _party_table(run)]
    blocks += [plot for plot in (_rounds_plot(run), _spent_plot(run)) if plot]
    blocks.append(_ledger_table(run) if run.ledger_checks else Words("No ledger was charged."))
    return Section("What each party spent", tuple(blocks))


def _party_table(run: RecordedRun) -> Table:
    degrees = _degrees(run)
    notes, shown = [], list(run.parties)
    if len(shown) > _MOST_ROWS:
        have = f"the record has all {len(shown)}"
        notes.append(f"The {_MOST_ROWS} parties with the weakest guarantees; {have}.")
        shown.sort(key=lambda party: -run.privacy.parties[party.name].epsilon)
    theorems = {guarantee.theorem for guarantee in run.privacy.parties.values()}
    several = len(theorems) > 1
    if not several:
        notes.append(f"Theorem: {theorems.pop()}.")
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
        "party",
        "rows",
        "neighbours",
        "epsilon spent",
        "budget",
        "delta",
        "attacker right at most, %",
        *(("theorem",) if several else ()),
    )
    return Table("Parties", columns, tuple(rows), " ".join(notes))


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
    """Return which points to draw: all, or evenly chosen ones with the last."""
    step = -(-count // _MOST_POINTS)
    return np.unique(np.append(np.arange(0, count, step), count - 1))


def course(name: str, values: Sequence[float]) -> Series:
    """A line over the rounds."""
    places = thinned(len(values)).tolist()
    return Series(name, tuple(p + 1 for p in places), tuple(values[p] for p in places))


def _thinned_note(count: int) -> str:
    step = -(-count // _MOST_POINTS)
    return f" Every {step}th round is drawn; the record has all." if step > 1 else ""


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
    if any(len(spent) > run.rounds for spent in shared):
        note = f" The last is with the histogram that was released after them.{note}"
    if any(len(set(spent)) < len(spent) / 2 for spent in shared):
        note += " Where it rises in steps, each round has the epsilon of the step's last one."
    if len(shared) > _MOST_COURSES:
        note += f" Of {len(shared)} different courses the {_MOST_COURSES} highest are drawn."
    lines = []
    for spent in highest:
        first, *others = shared[spent]
        name = f"{shown_name(first, 20)} and {len(others)} more alike"
        lines.append(course(name if others else first, [AtMost(value) for value in spent]))
    budgets = {run.budget(name) for name in run.names}
    limits = [("budget", Given(budget)) for budget in budgets if budget is not None]
    return LinePlot(
        "Budget spent over the rounds",
        "round",
        EPSILON_SPENT,
        tuple(lines),
        caption=f"Epsilon after each round, at the delta of the party.{note}",
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
        "Spent of the budget of this run",
        "party",
        "epsilon spent",
        bars,
        caption="What was spent, inside what the configuration allows this run.",
        of_label="budget",
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
        "Finding a person, against false alarms",
        "false alarms, % of the innocent cases",
        "found, % of the true cases, at most",
        (Series("bound of this run", percent, found), Series("by chance", percent, percent)),
        caption=(
            "Whatever test is used: the share of true cases it finds, against the share "
            f"of cases it raises a false alarm for. {odds.theorem[:1].upper() + odds.theorem[1:]}."
        ),
    )
    words = (
        "The bound holds for every test, whoever runs it and whatever else is known. It is about "
        "one person of the party with the weakest guarantee."
    )
    if run.privacy.alone:
        words = (
            "The bound holds for every test of those whom the line Against whom names, whatever "
            "else they know but the noise of the honest parties. It is about one person of the "
            "party with the weakest guarantee, with rows at no other."
        )
    return [Section("What an attacker could find out", (Words(words), plot), narrow=True)]


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
        left = f"{AtLeast(100 * account.left / account.limit):3} %"
        policy = account.policy
        spent = (
            AtMost(account.spent_epsilon),
            Given(policy["epsilon"]),
            Given(policy["delta"]),
            left,
        )
        rows.append((name, str(account.dataset["name"]), len(account.runs), *spent, *apart, words))
    rows = rows[:_MOST_ROWS]
    *columns, checked = _LEDGER_COLUMNS
    columns += ["epsilon spent if all others collude"] if alone else []
    return Table(
        "Ledgers: the budget of each data set over all its runs",
        (*columns, checked),
        tuple(rows),
        "An older copy put in a ledger's place would pass the check: compare its "
        "head with one noted elsewhere. The heads are in the configuration section.",
    )


def _check_words(check: LedgerCheck) -> str:
    when = "when this page was made" if check.when == "now" else "at the end of the run"
    if check.error is None:
        return f"consistent, {when}: every hash, message and cost worked out again"
    return f"FAILED, {when}: {check.error}"


def graph_section(run: RecordedRun) -> Section:
    """The parties drawn with their links."""
    topology = run.topology
    if topology is None:
        return Section(_GRAPH, (Words("The record of this run does not say."),))
    links = len(run.everybody) if topology.server else len(topology.edges)
    if len(run.everybody) > MOST_PARTIES or links > MOST_LINKS:
        words = f"{len(run.everybody)} parties with {links} links: too many to draw."
        return Section(_GRAPH, (Words(words),))
    plot = GraphPlot(
        "The parties and their links",
        tuple(party.name for party in run.everybody),
        tuple(party.rows for party in run.everybody),
        topology.edges,
        topology.server,
        "The area of a circle follows the party's rows."
        + (" The weakest guarantee is dashed." if run.weakest else ""),
        frozenset(run.weakest),
    )
    return Section(_GRAPH, (plot,), narrow=True)


def convergence_section(run: RecordedRun) -> Section:
    """How the parties came to agree, from messages alone."""
    apart = apart_over_rounds(run)
    words = "What is drawn here is a function of the messages alone: nothing was computed from "
    words += "rows in any other way."
    if run.history.disagreement and not apart and len(run.everybody) > 1:
        words = f"All parties have the same model in every round. {words}"
    lines = (
        (*AGREEMENT, apart),
        (*MOVEMENT, run.history.change),
    )
    plots = [
        LinePlot(
            title,
            "round",
            label,
            (course(label, values),),
            caption=_thinned_note(len(values)).strip(),
            log_y=True,
        )
        for title, label, values in lines
        if values
    ]
    return Section("Agreement and convergence", (Words(words), *plots))


def apart_over_rounds(run: RecordedRun) -> tuple[float, ...]:
    """How far the parties' models are apart; nothing where that is rounding alone."""
    apart, moved = run.history.disagreement, run.history.change
    return apart if max(apart, default=0.0) > _ROUNDING * max(moved, default=1.0) else ()


def weights_section(run: RecordedRun) -> list[Section]:
    """The classifier that was released; nothing if it was not recorded."""
    if run.learnt is not None and run.learnt.frequencies is not None:
        words = (
            f"The {run.features} weights that were released belong to random Fourier "
            "features: cosines and sines of all columns together. None of them says "
            "what a column does, so none is shown; the model file has them all."
        )
        return [Section(_WEIGHTS, (Words(words),), narrow=True)]
    if run.learnt is None or not run.learnt.weights:
        return []
    error = run.learnt.noise_error
    words = (
        "The weights that were released. The noise of privacy is in them: a small "
        "weight may be noise alone, and no weight tells about one person."
    )
    if error is not None:
        words += (
            " Noise alone gives every weight of an encoded feature a standard error of "
            f"about {error:.3g}, by public facts and, of dp-gd, by what was released. "
            "Whiskers reach two standard errors to each side; weights within two of zero are grey. "
            "Where rows pull weights back more than that shows, the error is smaller than stated."
        )
    elif run.private:
        words += " How far noise alone moves them is not known for this run."
    towards = dict.fromkeys(weight.towards for weight in run.learnt.weights)
    plots = [_weights_plot(run, name, error) for name in list(towards)[:_MOST_COURSES]]
    tables = [] if run.learnt.intercepts is None else [_units_table(run.learnt)]
    blocks: tuple[Block, ...] = (Words(words), *plots, *tables)
    return [Section(_WEIGHTS, blocks, narrow=len(plots) == 1)]


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
        f"Largest weights: towards {shown_name(towards, 40)}",
        "feature",
        "weight of the encoded feature",
        tuple(
            Bar(each.feature, each.weight, low=low, high=high)
            for each, (low, high) in zip(shown, around, strict=True)
        ),
        f"The {len(shown)} largest of {run.features}.",
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
        of = "being so" if each.unit is None else "one unit"
        row: tuple[Cell, ...] = (each.feature, each.weight * unit, of)
        if error is not None:
            noise = _may_be_noise(each.weight, error)
            row = (*row, error * unit, "yes" if noise else "no")
        rows.append((*row, each.towards) if several else row)
    nothing = () if error is None else (None, None)
    for towards, intercept in (learnt.intercepts or {}).items():
        row = ("intercept", intercept, None, *nothing)
        rows.append((*row, towards) if several else row)
    columns = (*_UNITS_COLUMNS, *(() if error is None else _UNITS_ERRORS))
    columns += ("towards",) if several else ()
    return Table(
        "Weights in the units of the columns",
        columns,
        tuple(rows),
        "The score of a row is the sum of weight times value over its columns, and "
        "the intercept; it is above zero where the row is predicted to be of that "
        "class (of several, the class with the highest). Values outside the bounds "
        "of the schema count as the nearer bound.",
    )


def configuration_section(run: RecordedRun) -> Section:
    """The configuration, its origin, and the command that repeats the run."""
    facts = [(head, getattr(run, field)) for head, field in _FACTS_OF_RUN]
    facts = [(head, str(value)) for head, value in facts if value]
    # Records of older versions have the time of private runs, too, which depends on rows.
    if run.seconds is not None and not run.private:
        facts.append(("seconds", f"{run.seconds:g}"))
    for name, check in run.ledger_checks.items():
        if check.account is not None:
            head = f"head of the ledger of {shown_name(name, 40)}"
            facts.append((head, check.account.head))
    command, words, title = run.command or "", [], "Configuration"
    if run.federation is not None:
        command = "dpadmm node --config node.toml"
        words.append("At every node, with the run that was agreed on.")
    elif not command:
        command, title = "dpadmm train run.toml", RUN_FILE
        words.append(
            "Save this as run.toml beside the files that it names (they are recorded without "
            "folders)."
        )
    if run.privacy.simulated:
        words.append("The noise is simulated, so that the same numbers come out.")
    elif run.ledgers:
        words.append(
            "The ledgers have this run: it is repeated from them, and nothing is spent. Under "
            "another run_id it is another run, with noise drawn anew, and spends once more."
        )
    elif run.private:
        words.append(
            "Noise is drawn anew, so that the numbers differ, and the budget of the rows is spent "
            "once more."
        )
    return Section(
        CONFIGURATION,
        (
            Code("Run it again", command),
            *([Words(" ".join(words))] if words else []),
            Code(title, configuration_text(run.config)),
            Facts(tuple(facts)),
        ),
        narrow=True,
    )
