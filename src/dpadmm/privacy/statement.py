"""What is guaranteed, in words and in numbers: shown wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, TypeAdapter

from dpadmm.plain import Array, Delta, Epsilon, json_bound
from dpadmm.privacy.accountant import (
    Guarantee,
    epsilon_spent,
    larger,
    network_guarantee,
    spend_over_rounds,
)
from dpadmm.privacy.events import Event, alone, parts_add_up, shared_events
from dpadmm.privacy.figures import pair
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

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


# Of runs up to so many rounds each round is composed. Of longer ones so many histories are over all
# parties, but a few of each: that takes no longer than the planning of the run took.
_EVERY_ROUND: Final = 100
_MOST_COMPOSED: Final = 6
_FEWEST_COMPOSED: Final = 3

_GUARANTEES: Final = TypeAdapter(dict[str, Guarantee])
_COURSE: Final = TypeAdapter(list[Epsilon])


def _pairs(value: Any) -> Any:
    """Details as a statement keeps them, from the mapping that is written."""
    return tuple(value.items()) if isinstance(value, dict) else value


def _course(value: Any) -> Array:
    """An epsilon for each round, from what is written."""
    return np.array(_COURSE.validate_python(value))


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


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a statement says besides its figures.

    Attributes
    ----------
    algorithm
        Its name.
    noise
        Where the noise came from.
    simulated
        The noise can be drawn again, so nothing is really hidden.
    calibration
        "proven", or "published": noise as a paper sets it, while the figures here stay proven.
    reviewed
        Whether the algorithm's theorem is this package's own.
    claim
        What the paper claims, for a published calibration; not what is proven.
    not_covered
        What the guarantee does not speak of.
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
    noise: str
    simulated: bool
    calibration: str = "proven"
    reviewed: bool = True
    claim: str | None = None
    not_covered: tuple[str, ...] = NOT_COVERED
    details: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = ()
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement(Terms):
    """The privacy of a whole run.

    Attributes
    ----------
    epsilon, delta
        The network's figure: the largest of the parties', never their sum. Infinite without
        privacy.
    rows_per_person
        How many rows are replaced at once.
    parties
        Each party's guarantee over the whole run.
    rounds
        An epsilon of each party that holds after each round, at its delta, and in the end after a
        histogram, too (:meth:`Charges.courses`); empty where it was not asked for.
    adversary
        Against whom the guarantee holds.
    alone
        With shared noise: each party's guarantee if all others collude.
    """

    epsilon: Epsilon
    delta: Delta
    rows_per_person: int
    parties: Annotated[dict[str, Guarantee], Field(min_length=1)]
    rounds: dict[str, Annotated[Array, PlainValidator(_course)]] = field(default_factory=dict)
    adversary: str = ADVERSARY
    alone: dict[str, Guarantee] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Any) -> PrivacyStatement:
        """Read what :meth:`to_dict` made; what an older version did not write yet may be missing.

        Raises
        ------
        pydantic.ValidationError
            If it is something else.
        """
        return _statements().validate_python(content)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed at all."""
        return math.isfinite(self.epsilon)

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""
        return adjacency_words(self.rows_per_person)

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
            lines.append(("Adjacency", self.adjacency))
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
            "epsilon": json_bound(self.epsilon),
            "delta": self.delta,
            "rows_per_person": self.rows_per_person,
            "adjacency": self.adjacency,
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
            "parties": _GUARANTEES.dump_python(self.parties, mode="json"),
        }
        if self.alone:
            record["alone"] = _GUARANTEES.dump_python(self.alone, mode="json")
        return record


@cache
def _statements() -> TypeAdapter[PrivacyStatement]:
    return TypeAdapter(PrivacyStatement)


Found = TypeVar("Found")


@dataclass(frozen=True)
class Charges:
    """What every party was charged, round by round.

    Attributes
    ----------
    names, events, deltas
        Of each party: its name, its events, the delta to state.
    rows_per_person
        How many rows are replaced at once.
    elsewhere
        Of each party: events that read other rows of it, none of which the first ones read.
    """

    names: Sequence[str]
    events: Sequence[Sequence[Event]]
    deltas: Sequence[float] | Array
    rows_per_person: int = 1
    elsewhere: Sequence[Sequence[Event]] = ()

    def guarantees(self) -> dict[str, Guarantee]:
        """What each party is guaranteed over the whole run, whichever rows a person has.

        Events that read different rows cost a person the larger of both, or their sum
        (:func:`~dpadmm.privacy.events.parts_add_up`).
        """

        def account(history: tuple[Event, ...], delta: float) -> Guarantee:
            spent = epsilon_spent(history, _ideal(delta), rows_per_person=self.rows_per_person)
            return replace(spent, delta=delta)

        if not self.elsewhere:
            return self._of_each(account)
        there = replace(self, events=self.elsewhere)._of_each(account)
        pairs = zip(self.events, self.elsewhere, strict=True)
        together = [
            (*one, *other) if parts_add_up((*one, *other), self.rows_per_person) else one
            for one, other in pairs
        ]
        here = replace(self, events=together)._of_each(account)
        return {name: larger(first, there[name]) for name, first in here.items()}

    def courses(self) -> dict[str, Array]:
        """What each party has spent after each round, at its delta: of the first events alone.

        Of long runs that are not Gaussian some rounds are composed, and the others have the epsilon
        of the next of them: an upper bound.
        """
        different = len(set(zip(map(tuple, self.events), map(float, self.deltas), strict=True)))
        share = max(_MOST_COMPOSED // max(different, 1), _FEWEST_COMPOSED)

        def account(history: tuple[Event, ...], delta: float) -> Array:
            return spend_over_rounds(
                history,
                _ideal(delta),
                rows_per_person=self.rows_per_person,
                most=share if len(history) > _EVERY_ROUND else None,
            )

        return self._of_each(account)

    def _of_each(self, account: Callable[[tuple[Event, ...], float], Found]) -> dict[str, Found]:
        """Account every party; those that share a history are accounted once."""
        known = cache(account)
        histories = zip(map(tuple, self.events), map(float, self.deltas), strict=True)
        return {name: known(*each) for name, each in zip(self.names, histories, strict=True)}


def _ideal(delta: float) -> float:
    """Delta leaves room for the distance of a sampler from the ideal one."""
    return delta * (1 - SAMPLER_ALLOWANCE)


def make_statement(charges: Charges, terms: Terms, *, by_round: bool = True) -> PrivacyStatement:
    """Account what every party was charged; ``by_round``: after every round, too.

    Accounting every round is most of the work where noise is not Gaussian.
    """
    parties = charges.guarantees()
    network = network_guarantee(parties.values())
    histories = (*charges.events, *charges.elsewhere)
    everything = [event for history in histories for event in history]
    apart: dict[str, Guarantee] = {}
    if shared_events(everything):
        single, other = (
            [[alone(event) for event in history] for history in read]
            for read in (charges.events, charges.elsewhere)
        )
        apart = replace(charges, events=single, elsewhere=other).guarantees()
        terms = _shared_noise_terms(terms, apart)
    courses = charges.courses() if by_round else {}
    if charges.elsewhere:
        # What reads other rows comes last: then the guarantee is that of all.
        courses = {name: np.append(each, parties[name].epsilon) for name, each in courses.items()}
    return PrivacyStatement(
        **vars(terms),
        epsilon=network.epsilon,
        delta=network.delta,
        rows_per_person=charges.rows_per_person,
        parties=parties,
        rounds=courses,
        adversary=adversary_words(everything),
        alone=apart,
    )


def _shared_noise_terms(terms: Terms, apart: dict[str, Guarantee]) -> Terms:
    """Add what whoever relies on the noise of others must know."""
    not_covered = tuple(
        _ADDED_UP if each == _PERSON_ELSEWHERE else each for each in terms.not_covered
    )
    details = (*terms.details, *_about_shared_noise(apart))
    return replace(terms, not_covered=not_covered, details=details)


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
