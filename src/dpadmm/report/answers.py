"""The top of a run's report: what may not be overlooked, and the answers in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.odds import Odds
from dpadmm.report import texts
from dpadmm.report.document import Banner, Tile
from dpadmm.report.markup import shown_name
from dpadmm.report.plots import GuessPlot
from dpadmm.report.quality import quality_answer
from dpadmm.report.tables import delta_text
from dpadmm.run.record import RecordedRun

__all__ = ["answers", "banners", "guesses", "learnt", "over_budget", "riskiest", "tiles"]

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
        yield Banner("caution", texts.WENT_ON, texts.WENT_ON_WORDS.format(names=names))
    if federation.lost is not None:
        words = texts.ENDED_EARLY_WORDS.format(done=federation.rounds_complete, rounds=run.rounds)
        yield Banner("caution", texts.ENDED_EARLY, words)


def _dangers(run: RecordedRun) -> Iterator[Banner]:
    privacy = run.privacy
    if over := over_budget(run):
        words = texts.OVER_BUDGET_WORDS.format(parties="; ".join(over))
        yield Banner("danger", texts.OVER_BUDGET, words)
    for name, check in run.ledger_checks.items():
        if check.error is not None:
            words = texts.LEDGER_FAILED_WORDS.format(name=shown_name(name), reason=check.error)
            yield Banner("danger", texts.LEDGER_FAILED, words)
    if privacy.simulated:
        words = texts.SIMULATION_WORDS if run.private else texts.SIMULATION_NOTHING
        yield Banner("danger", texts.SIMULATION, words)
    if not run.private:
        words = texts.NO_GUARANTEE_WORDS.format(algorithm=run.algorithm)
        yield Banner("danger", texts.NO_GUARANTEE, words)


def _cautions(run: RecordedRun) -> Iterator[Banner]:
    privacy = run.privacy
    if privacy.calibration == "published":
        proven = texts.PROVEN_NOTHING
        if run.private:
            epsilon, delta = AtMost(privacy.epsilon), delta_text(privacy.delta)
            proven = texts.PROVEN_PAIR.format(epsilon=epsilon, delta=delta)
        claim = privacy.claim or texts.PUBLISHED_NO_CLAIM
        claim = claim if claim.endswith(".") else f"{claim}."
        words = texts.PUBLISHED_WORDS.format(claim=claim, proven=proven)
        yield Banner("caution", texts.PUBLISHED, words)
    if not privacy.reviewed:
        words = texts.NOT_REVIEWED_WORDS.format(algorithm=run.algorithm)
        yield Banner("caution", texts.NOT_REVIEWED, words)
    yield from _losses(run)
    for sentence in run.warnings:
        yield Banner("caution", texts.WARNING, sentence)
    if run.private and not privacy.simulated and not run.ledger_checks:
        yield Banner("info", texts.NOT_COUNTED, texts.NOT_COUNTED_WORDS)


def over_budget(run: RecordedRun) -> list[str]:
    """Parties that spent more than the configuration or their ledger's policy allows, in words."""
    found = []
    for name in run.names:
        spent, budget = run.privacy.parties[name].epsilon, run.budget(name)
        if budget is not None and spent > budget * (1 + _ROUNDING):
            found.append(
                texts.OVER_BUDGET_PARTY.format(
                    name=shown_name(name), spent=AtMost(spent), budget=Given(budget)
                )
            )
        check = run.ledger_checks.get(name)
        if check is not None and check.account is not None:
            spent, policy = check.account.spent_epsilon, float(check.account.policy["epsilon"])
            if spent > policy * (1 + _ROUNDING):
                found.append(
                    texts.LEDGER_OVER_PARTY.format(
                        name=shown_name(name), spent=AtMost(spent), budget=Given(policy)
                    )
                )
    return found[:_MOST_NAMES]


def tiles(run: RecordedRun) -> tuple[Tile, ...]:
    """The figures that are seen at once."""
    privacy = run.privacy
    epsilon = f"{AtMost(privacy.epsilon):4}" if run.private else texts.NONE
    delta = delta_text(privacy.delta) if run.private else texts.NONE
    right = texts.OF_HUNDRED.format(right=_guess_plot(run, "").of_hundred)
    return (
        Tile(epsilon, texts.TILE_EPSILON_SIMULATED if privacy.simulated else texts.TILE_EPSILON),
        Tile(delta, texts.TILE_DELTA),
        Tile(right, texts.TILE_RIGHT),
        Tile(f"{len(run.everybody):,}", texts.TILE_PARTIES),
        Tile(f"{sum(party.rows for party in run.everybody):,}", texts.TILE_ROWS),
        Tile(f"{run.rounds:,}", texts.TILE_ROUNDS),
    )


def answers(run: RecordedRun) -> tuple[tuple[str, str], ...]:
    """Question and answer, in the order in which people ask."""
    privacy = run.privacy
    pairs = [
        (texts.WHO, _who(run)),
        (texts.LEARNT, learnt(run)),
        *quality_answer(run),
        (texts.GUARANTEED, _guaranteed(run)),
        *((texts.CAVEAT, caveat) for caveat in privacy.caveats),
    ]
    if run.private:
        because = texts.BECAUSE_WORDS.format(
            theorem=privacy.theorem,
            accountant=privacy.accountant,
            calibration=privacy.calibration,
        )
        not_covered = list(privacy.not_covered)
        if not run.ledger_checks:
            not_covered.append(texts.NO_LEDGER_COVERED)
        pairs += [
            (texts.WHEN, _sentence(privacy.adjacency)),
            (texts.AGAINST, _sentence(privacy.adversary)),
            (texts.BECAUSE, _sentence(because)),
            (texts.NOT_COVERED, _sentence("; ".join(not_covered))),
        ]
    # They may be long; what everybody asks is seen without scrolling.
    pairs += [(heading, _sentence(words)) for heading, words in privacy.details]
    real = texts.REAL_WORDS.format(noise=privacy.noise[:1].upper() + privacy.noise[1:])
    simulated = texts.SIMULATED_WORDS.format(noise=privacy.noise)
    pairs.append((texts.REAL_OR_NOT, simulated if privacy.simulated else real))
    return tuple(pairs)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _who(run: RecordedRun) -> str:
    names = [
        texts.NAME_AND_ROWS.format(name=shown_name(party.name, 40), rows=party.rows)
        for party in run.everybody[:_MOST_NAMES]
    ]
    if len(run.everybody) > _MOST_NAMES:
        names.append(texts.WHO_MORE.format(count=len(run.everybody) - _MOST_NAMES))
    topology = run.topology
    if topology is None:
        how = texts.ON_UNKNOWN
    elif topology.server:
        how = texts.ON_SERVER
    else:
        how = texts.ON_GRAPHS.get(topology.name, texts.ON_EDGES)
    return texts.WHO_WORDS.format(count=len(run.everybody), how=how, names=", ".join(names))


def learnt(run: RecordedRun) -> str:
    """What the model tells apart, from what."""
    label = texts.LEARNT_CLASS
    columns = texts.LEARNT_FEATURES.format(features=run.features)
    if run.learnt is not None:
        label = texts.LEARNT_LABEL.format(label=shown_name(run.learnt.label, 40))
    if run.learnt is not None and run.learnt.columns:
        one = len(run.learnt.columns) == 1
        columns = (texts.LEARNT_COLUMN if one else texts.LEARNT_COLUMNS).format(
            count=len(run.learnt.columns),
            columns=", ".join(_few(run.learnt.columns, _MOST_COLUMNS)),
            features=run.features,
        )
    if run.learnt is not None and run.learnt.frequencies is not None:
        columns += texts.LEARNT_FREQUENCIES.format(frequencies=run.learnt.frequencies)
    return texts.LEARNT_WORDS.format(
        loss=run.config.get("run", {}).get("loss", "logistic"),
        classes=texts.VERSUS.join(_few(run.classes, _MOST_NAMES)),
        label=label,
        columns=columns,
        rounds=run.rounds,
        algorithm=run.algorithm,
    )


def _few(names: Sequence[str], most: int) -> list[str]:
    """The first names, and how many more there are."""
    shown = [shown_name(name, 30) for name in names[:most]]
    return shown + [texts.WHO_MORE.format(count=len(names) - most)] * (len(names) > most)


def _guaranteed(run: RecordedRun) -> str:
    privacy = run.privacy
    if not run.private:
        return texts.GUARANTEED_NOTHING.format(algorithm=run.algorithm)
    template = texts.GUARANTEED_SHARED if privacy.alone else texts.GUARANTEED_WORDS
    if privacy.simulated:
        template = texts.GUARANTEED_SIMULATED
    factor = f"{AtMost(math.exp(privacy.epsilon)):3}" if privacy.epsilon < 700 else "any number of"
    words = template.format(
        # The record of a node is about its own rows; the others state their own.
        whose=shown_name(run.names[0], 40) if len(run.names) == 1 else texts.EACH_PARTY,
        epsilon=AtMost(privacy.epsilon),
        delta=delta_text(privacy.delta),
        factor=factor,
    )
    if run.weakest:
        best = min(run.names, key=lambda name: privacy.parties[name].epsilon)
        words += texts.GUARANTEED_RANGE.format(
            least=f"{AtMost(privacy.parties[best].epsilon):4}",
            best=shown_name(best, 40),
            most=f"{AtMost(privacy.epsilon):4}",
            weakest=shown_name(run.weakest[0], 40),
        )
    return words


def guesses(run: RecordedRun) -> GuessPlot:
    """A hundred guesses about a person of the weakest party."""
    if not run.private:
        return _guess_plot(run, texts.GUESS_CAPTION_NOTHING)
    odds = riskiest(run)
    before = texts.GUESS_CAPTION_SIMULATED if run.privacy.simulated else ""
    right = _guess_plot(run, "").of_hundred
    caption = texts.GUESS_CAPTION_SHARED if run.privacy.alone else texts.GUESS_CAPTION
    return _guess_plot(run, before + caption.format(right=right, theorem=odds.theorem))


def _guess_plot(run: RecordedRun, caption: str) -> GuessPlot:
    seen = texts.GUESS_SEEN_SHARED if run.privacy.alone else texts.GUESS_SEEN
    return GuessPlot(texts.GUESS_TITLE, riskiest(run).right, caption, seen)
