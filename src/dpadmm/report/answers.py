"""The top of a run's report: what may not be overlooked, and the answers in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpadmm.privacy.figures import AtMost, Given, pair
from dpadmm.privacy.odds import Odds
from dpadmm.privacy.rounding import exp_up
from dpadmm.report import texts
from dpadmm.report.document import Banner, Tile
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import GuessPlot
from dpadmm.report.quality import quality_answer
from dpadmm.run.classifier import EVALUATED_LATER
from dpadmm.run.record import RecordedRun

__all__ = ["answers", "banners", "guesses", "learnt", "over_budget", "riskiest", "tiles"]

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
            "Had one person's rows at one party been others, nothing that they see of the run "
            f"{likely} That rests on the noise of the honest parties: where more parties work "
            "together, nothing but the line If all others collude holds."
        )
    else:
        words = (
            f"To the people of {whose}: {private} Had one person's rows been others, nothing that "
            f"the other parties or anybody else sees of the run {likely}"
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
