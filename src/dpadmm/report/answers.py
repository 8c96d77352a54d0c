"""The top of a run's report: what may not be overlooked, and the answers in words.

**Quality.** How good a model is, on the page of its run: figures of a released histogram.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ClassFigures, ModelFigures
from dpadmm.privacy.composition import Odds
from dpadmm.privacy.figures import AtMost, Given, pair
from dpadmm.privacy.gaussian import exp_up
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report import texts
from dpadmm.report.document import (
    Banner,
    Block,
    Cell,
    GuessPlot,
    LinePlot,
    Section,
    Series,
    Table,
    Tile,
    Words,
)
from dpadmm.report.markup import shown_name
from dpadmm.run.classifier import EVALUATED_LATER, HELD_OUT, PUBLIC, Quality
from dpadmm.run.record import RecordedRun

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
# Spending is worked out with rounding errors far below this.
_ROUNDING = 1e-9


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


def banners(run: RecordedRun) -> tuple[Banner, ...]:
    """The worst first."""
    found = list(_dangers(run)) + list(_cautions(run))
    return tuple(found)


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
        yield Banner("danger", texts.SIMULATION, words)
    if not run.private:
        words = (
            f"No finite epsilon is proven for this run of {run.algorithm}. Treat its messages as "
            "rows."
        )
        yield Banner("danger", "NO PRIVACY GUARANTEE.", words)


def _cautions(run: RecordedRun) -> Iterator[Banner]:
    privacy = run.privacy
    if privacy.calibration == "published":
        proven = texts.PROVEN_NOTHING
        if run.private:
            epsilon, delta = AtMost(privacy.epsilon), AtMost(privacy.delta)
            proven = texts.PROVEN_PAIR.format(epsilon=epsilon, delta=delta)
        claim = privacy.claim or "no figure."
        claim = claim if claim.endswith(".") else f"{claim}."
        words = (
            f"The noise is set as the paper prints it. The paper claims: {claim} That is "
            f"not proven. What is proven for this run: {proven}."
        )
        yield Banner("caution", texts.PUBLISHED, words)
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
        yield Banner("caution", texts.WARNING, sentence)
    if run.private and not privacy.simulated and not run.ledger_checks:
        yield Banner(
            "info",
            "Not counted.",
            "This run was charged to no ledger, so nothing adds up what other runs "
            "spent on the same rows.",
        )


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
    epsilon = f"{AtMost(privacy.epsilon):4}" if run.private else texts.NONE
    delta = str(AtMost(privacy.delta)) if run.private else texts.NONE
    which = "if noise is secret" if privacy.simulated else "the largest"
    return (
        Tile(epsilon, f"epsilon, {which}"),
        Tile(delta, "delta"),
        Tile(f"{_guess_plot(run).of_hundred} of 100", "right guesses, at most"),
        Tile(f"{len(run.everybody):,}", "parties"),
        Tile(f"{sum(party.rows for party in run.everybody):,}", "rows, none shared"),
        Tile(f"{run.rounds:,}", "rounds"),
    )


def answers(run: RecordedRun) -> tuple[tuple[str, str], ...]:
    """Question and answer, in the order in which people ask."""
    privacy = run.privacy
    pairs = [
        ("Who took part", _who(run)),
        (texts.LEARNT, learnt(run)),
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
        names.append(texts.WHO_MORE.format(count=len(run.everybody) - _MOST_NAMES))
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
    return shown + [texts.WHO_MORE.format(count=len(names) - most)] * (len(names) > most)


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
    seen = "the sums of messages" if run.privacy.alone else texts.GUESS_SEEN
    return GuessPlot(
        "What that means: guessing about one person", riskiest(run).right, caption, seen
    )
