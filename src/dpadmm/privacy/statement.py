"""What is guaranteed, in words and in numbers: shown wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.privacy.accountant import Guarantee, epsilon_spent, network_guarantee, spend_over_rounds
from dpadmm.privacy.events import Event, alone, shared_events
from dpadmm.privacy.figures import pair
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

__all__ = [
    "ADVERSARY",
    "NOT_COVERED",
    "PrivacyStatement",
    "adjacency_words",
    "adversary_words",
    "make_statement",
]

ADVERSARY: Final = (
    "sees every message of every round and may control all other parties; the guarantee of a "
    "party rests on its own noise alone"
)
_PERSON_ELSEWHERE: Final = "a person with rows at two parties"
NOT_COVERED: Final = (
    _PERSON_ELSEWHERE,
    "timing",
    "tuning on private rows",
    "anything computed from rows outside this run",
)
# In place of the first where noise is shared: the shifts of several summands meet in one sum.
_ADDED_UP: Final = "a person with rows at several parties, for whom their mu add up"


def adjacency_words(rows_per_person: int) -> str:
    """Which data sets are neighbours."""
    if rows_per_person == 1:
        return "one row of one party is replaced (features and label); row counts are public"
    return (
        f"up to {rows_per_person} rows of one party, all of one person, are replaced; "
        "row counts are public"
    )


def adversary_words(events: Iterable[Event]) -> str:
    """Against whom a history holds: the weakest of its releases decides."""
    shared = shared_events(events)
    if not shared:
        return ADVERSARY
    fewest, most = (pick(event.parties for event in shared) for pick in (min, max))
    parties = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        "the server or any listener, who sees the sum of all messages of every round, and at most "
        f"{min(event.colluders for event in shared)} of the {parties} parties together with it; "
        "the guarantee of a party rests on the noise of the honest ones"
    )


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy of a whole run.

    Attributes
    ----------
    epsilon, delta
        The network's figure: the largest of the parties', never their sum. Infinite without
        privacy.
    parties
        Each party's guarantee over the whole run.
    rounds
        Each party's epsilon after each round, at its delta; empty where it was not asked for.
    noise
        Where the noise came from.
    simulated
        The noise can be drawn again, so nothing is really hidden.
    calibration
        "proven", or "published": noise as a paper sets it, while the figures here stay proven.
    reviewed
        Whether the algorithm's theorem is this package's own.
    not_covered
        What the guarantee does not speak of.
    claim
        What the paper claims, for a published calibration; not what is proven.
    details
        Guarantees beside that of a row, such as a label's: pairs of a heading and its words.
    caveats
        What whoever relies on the figures must know of how this run went, as sentences.
    adversary
        Against whom the guarantee holds.
    alone
        Where noise is shared, each party's guarantee if all others collude; else empty.
    """

    algorithm: str
    epsilon: float
    delta: float
    parties: dict[str, Guarantee]
    rounds: dict[str, NDArray[np.float64]]
    rows_per_person: int
    noise: str
    simulated: bool
    calibration: str = "proven"
    reviewed: bool = True
    claim: str | None = None
    not_covered: tuple[str, ...] = NOT_COVERED
    details: tuple[tuple[str, str], ...] = ()
    caveats: tuple[str, ...] = ()
    adversary: str = ADVERSARY
    alone: dict[str, Guarantee] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed at all."""
        return math.isfinite(self.epsilon)

    @property
    def theorem(self) -> str:
        """What the network's figure rests on: the theorems of all parties."""
        return "; ".join(dict.fromkeys(each.theorem for each in self._weakest_first))

    @property
    def accountant(self) -> str:
        """How it was computed, for all parties."""
        return "; ".join(dict.fromkeys(each.accountant for each in self._weakest_first))

    @property
    def _weakest_first(self) -> list[Guarantee]:
        return sorted(self.parties.values(), key=lambda guarantee: -guarantee.epsilon)

    def lines(self) -> list[tuple[str, str]]:
        """The statement as pairs of a heading and its words."""
        lines: list[tuple[str, str]] = []
        if self.simulated:
            lines.append(("SIMULATION", f"{self.noise}: this run protects nobody"))
        lines += self._guarantee()
        lines += [("Caveat", caveat) for caveat in self.caveats]
        lines += self.details
        if self.private:
            lines.append(("Adjacency", adjacency_words(self.rows_per_person)))
        if self.private or self.details:
            lines.append(("Adversary", self.adversary))
        if self.private:
            lines += [("Theorem", self.theorem), ("Accountant", self.accountant)]
        if self.private or self.details:
            lines += [("Noise", self.noise), ("Calibration", self.calibration)]
            lines.append(("Not covered", "; ".join(self.not_covered)))
        if self.claim is not None:
            lines.append(("As published, not proven", self.claim))
        if not self.reviewed:
            lines.append(("Theorem's status", "not reviewed: the algorithm is from outside"))
        return lines

    def _guarantee(self) -> list[tuple[str, str]]:
        if not self.private:
            words = f"none: no finite epsilon is proven for this run of {self.algorithm}"
            return [("Guarantee", words), ("Epsilon", "infinite")]
        whose, which = "each party", "; the largest of the parties' figures"
        if len(self.parties) == 1:
            # A node knows what it spent itself; the others state their own.
            whose, which = f"the rows of {next(iter(self.parties))}", ""
        words = f"{pair(self.epsilon, self.delta)}-differential privacy of {whose}"
        return [("Guarantee", f"{words}, total over the whole run{which}")]

    def __str__(self) -> str:
        return "\n".join(f"{heading}: {words}" for heading, words in self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines; infinite numbers become the string "infinite"."""
        record: dict[str, Any] = {
            "algorithm": self.algorithm,
            "epsilon": _number(self.epsilon),
            "delta": self.delta,
            "rows_per_person": self.rows_per_person,
            "adjacency": adjacency_words(self.rows_per_person),
            "adversary": self.adversary,
            "theorem": self.theorem,
            "accountant": self.accountant,
            "noise": self.noise,
            "simulated": self.simulated,
            "calibration": self.calibration,
            "reviewed": self.reviewed,
            "claim": self.claim,
            "details": dict(self.details),
            "caveats": list(self.caveats),
            "not_covered": list(self.not_covered),
            "parties": _plain(self.parties),
        }
        if self.alone:
            record["alone"] = _plain(self.alone)
        return record


def _plain(guarantees: dict[str, Guarantee]) -> dict[str, Any]:
    return {
        name: {**asdict(guarantee), "epsilon": _number(guarantee.epsilon)}
        for name, guarantee in guarantees.items()
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "infinite"


def make_statement(
    algorithm: str,
    names: Sequence[str],
    events: Sequence[Sequence[Event]],
    deltas: Sequence[float] | NDArray[np.float64],
    *,
    rows_per_person: int,
    noise: str,
    simulated: bool,
    calibration: str = "proven",
    reviewed: bool = True,
    claim: str | None = None,
    also_not_covered: Sequence[str] = (),
    details: tuple[tuple[str, str], ...] = (),
    caveats: Sequence[str] = (),
    by_round: bool = True,
) -> PrivacyStatement:
    """Account what every party was charged.

    Parameters
    ----------
    algorithm
        Its name.
    names, events, deltas
        Of each party: its name, what it was charged round by round, the delta to state.
    rows_per_person
        How many rows are replaced at once.
    noise, simulated
        Where noise came from, and whether it can be drawn again.
    also_not_covered
        What the noise and the data at hand add to :data:`NOT_COVERED`.
    calibration, reviewed, claim, details, caveats
        As in :class:`PrivacyStatement`.
    by_round
        Whether to account every round; most of the work where noise is not Gaussian.
    """
    parties = _guarantees(names, events, deltas, rows_per_person)
    # Parties often share a history; each different one is accounted once.
    courses: dict[tuple[tuple[Event, ...], float], NDArray[np.float64]] = {}
    rounds = {}
    for name, history, delta in zip(names, events, deltas, strict=True) if by_round else ():
        key = (tuple(history), float(delta))
        if key not in courses:
            courses[key] = spend_over_rounds(
                history, _ideal(key[1]), rows_per_person=rows_per_person
            )
        rounds[name] = courses[key]
    network = network_guarantee(parties.values())
    everything = [event for history in events for event in history]
    apart: dict[str, Guarantee] = {}
    not_covered = (*NOT_COVERED, *also_not_covered)
    if shared_events(everything):
        single = [[alone(event) for event in history] for history in events]
        apart = _guarantees(names, single, deltas, rows_per_person)
        details = (*details, *_about_shared_noise(apart))
        not_covered = tuple(
            _ADDED_UP if each == _PERSON_ELSEWHERE else each for each in not_covered
        )
    return PrivacyStatement(
        algorithm=algorithm,
        epsilon=network.epsilon,
        delta=network.delta,
        parties=parties,
        rounds=rounds,
        rows_per_person=rows_per_person,
        noise=noise,
        simulated=simulated,
        calibration=calibration,
        reviewed=reviewed,
        claim=claim,
        not_covered=not_covered,
        details=details,
        caveats=tuple(caveats),
        adversary=adversary_words(everything),
        alone=apart,
    )


def _ideal(delta: float) -> float:
    """Delta leaves room for the distance of a sampler from the ideal one."""
    return delta * (1 - SAMPLER_ALLOWANCE)


def _guarantees(
    names: Sequence[str],
    events: Sequence[Sequence[Event]],
    deltas: Sequence[float] | NDArray[np.float64],
    rows_per_person: int,
) -> dict[str, Guarantee]:
    """Each party's guarantee; each different history is accounted once."""
    known: dict[tuple[tuple[Event, ...], float], Guarantee] = {}
    parties = {}
    for name, history, delta in zip(names, events, deltas, strict=True):
        key = (tuple(history), float(delta))
        if key not in known:
            spent = epsilon_spent(history, _ideal(key[1]), rows_per_person=rows_per_person)
            known[key] = replace(spent, delta=key[1])
        parties[name] = known[key]
    return parties


def _about_shared_noise(apart: dict[str, Guarantee]) -> tuple[tuple[str, str], ...]:
    """What whoever relies on the noise of others must know."""
    worst = network_guarantee(apart.values())
    return (
        (
            "If all others collude",
            f"{pair(worst.epsilon, worst.delta)}-differential privacy: a party's own share of the "
            "noise is all that is left",
        ),
        (
            "Masks",
            "that nothing but the sum is seen rests on cryptography: on nobody being able to "
            "compute what the keys of two honest parties hide",
        ),
        (
            "A party that lies",
            "may leave out its noise and is then one of those who collude; it may send a wrong "
            "summand and spoil the model; it learns no more than the sum",
        ),
    )
