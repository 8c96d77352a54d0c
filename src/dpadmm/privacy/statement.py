"""Privacy statements: the guarantee in words and numbers, shown with every epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, TypeAdapter

from dpadmm.plain import Array, Delta, Epsilon, html_table, json_bound
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
_GUARANTEE: Final = "Guarantee"
# Headings of what one line of a guarantee leaves out, or says in fewer words: the terms of the
# figures, how an algorithm was chosen and how rows were parted.
_IN_FULL: Final = frozenset(
    ("Adjacency", "Adversary", "Theorem", "Accountant", "Noise", "Calibration", "Not covered")
) | {"Algorithm", "Not taken by itself", "Rows", "Probabilities"}
# Replaces the first with shared noise: the shifts of several summands meet in one sum.
_ADDED_UP: Final = "a person with rows at several parties, for whom their mu add up"


# In runs of up to so many rounds every round is composed. In longer runs so many histories of all
# parties are composed, and a few of each party: that takes no longer than planning the run.
_EVERY_ROUND: Final = 100
_MOST_COMPOSED: Final = 6
_FEWEST_COMPOSED: Final = 3

_GUARANTEES: Final = TypeAdapter(dict[str, Guarantee])
_COURSE: Final = TypeAdapter(list[Epsilon])


def _pairs(value: Any) -> Any:
    """The details of a statement, from the mapping of its saved form."""
    return tuple(value.items()) if isinstance(value, dict) else value


def _course(value: Any) -> Array:
    """The epsilon of each round, from the saved form."""
    return np.array(_COURSE.validate_python(value))


def adjacency_words(rows_per_person: int) -> str:
    """Say which data sets are neighbours."""
    if rows_per_person == 1:
        return "one row of one party is replaced (features and label); row counts are public"
    return (
        f"up to {rows_per_person} rows of one party, all of one person, are replaced; "
        "row counts are public"
    )


def adversary_words(events: Iterable[Event]) -> str:
    """Say against whom a history holds: the weakest of its releases decides."""
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
    """The content of a statement besides its figures.

    Attributes
    ----------
    algorithm
        Its name.
    noise
        The source of the noise.
    simulated
        The noise can be drawn again, so nothing is really hidden.
    calibration
        "proven", or "published": noise as a paper sets it, with figures that are proven here.
    reviewed
        Whether the algorithm's theorem was reviewed in this package.
    claim
        The paper's claim in a published calibration; it is not proven.
    not_covered
        What the guarantee does not cover.
    details
        Further guarantees, such as a label's: pairs of a heading and its words.
    caveats
        Sentences about the course of this run that a reader of the figures must know.
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
        The figure of the network: the largest of the parties' figures, never their sum. Infinite
        without privacy.
    rows_per_person
        How many rows are replaced at once.
    parties
        Each party's guarantee over the whole run.
    rounds
        The epsilon of each party after each round, at its delta, and last after a histogram
        (:meth:`Charges.courses`); empty if it was not asked for.
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
        """Read what :meth:`to_dict` made; fields that an older version lacks may be missing.

        Raises
        ------
        pydantic.ValidationError
            If it is something else.
        """
        return _statements().validate_python(content)

    @property
    def private(self) -> bool:
        """Whether the statement has a guarantee."""
        return math.isfinite(self.epsilon)

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours, in words."""
        return adjacency_words(self.rows_per_person)

    @property
    def theorem(self) -> str:
        """The theorems of all parties."""
        return "; ".join(dict.fromkeys(each.theorem for each in self._weakest_first))

    @property
    def accountant(self) -> str:
        """The accountants of all parties."""
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

    def brief(self) -> list[tuple[str, str]]:
        """The guarantee in one line, with whatever weakens it; :meth:`lines` has the rest.

        The line says what, how much, for which neighbours, against whom and by which theorem.
        Simulated noise, a paper's claim, caveats and guarantees of labels have lines of their own.
        """
        told = [(heading, words) for heading, words in self.lines() if heading not in _IN_FULL]
        if not self.private:
            return told
        whom = self.adversary.partition(";")[0]
        whom = f"whoever {whom}" if self.adversary == ADVERSARY else whom
        line = (
            f"{pair(self.epsilon, self.delta)}-differential privacy of {self._whose}, total over "
            f"the run, where {self.adjacency.partition(';')[0]}, against {whom}; theorem: "
            f"{self.theorem}"
        )
        return [(heading, line if heading == _GUARANTEE else words) for heading, words in told]

    @property
    def _whose(self) -> str:
        # A node knows what it spent itself; the others state their own.
        alone = len(self.parties) == 1
        return f"the rows of {next(iter(self.parties))}" if alone else "each party"

    def _guarantee(self) -> list[tuple[str, str]]:
        if not self.private:
            words = f"none: no finite epsilon is proven for this run of {self.algorithm}"
            return [(_GUARANTEE, words), ("Epsilon", "infinite")]
        which = "" if len(self.parties) == 1 else "; the largest of the parties' figures"
        words = f"{pair(self.epsilon, self.delta)}-differential privacy of {self._whose}"
        return [(_GUARANTEE, f"{words}, total over the whole run{which}")]

    def __str__(self) -> str:
        return "\n".join(f"{heading}: {words}" for heading, words in self.lines())

    def _repr_html_(self) -> str:
        return html_table(self.lines())

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
    """What each party was charged, round by round.

    Attributes
    ----------
    names, events, deltas
        For each party its name, its events and the delta to state.
    rows_per_person
        How many rows are replaced at once.
    elsewhere
        For each party the events that read its other rows, which ``events`` never read.
    """

    names: Sequence[str]
    events: Sequence[Sequence[Event]]
    deltas: Sequence[float] | Array
    rows_per_person: int = 1
    elsewhere: Sequence[Sequence[Event]] = ()

    def guarantees(self) -> dict[str, Guarantee]:
        """Each party's guarantee over the whole run, whichever rows a person has.

        Events that read different rows cost a person the larger of both costs, or their sum
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
        """What each party has spent after each round, at its delta, without ``elsewhere``.

        In long runs that are not Gaussian some rounds are composed. The others take the epsilon of
        the next composed round, which is an upper bound.
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
        """Account every party; parties with the same history are accounted once."""
        known = cache(account)
        histories = zip(map(tuple, self.events), map(float, self.deltas), strict=True)
        return {name: known(*each) for name, each in zip(self.names, histories, strict=True)}


def _ideal(delta: float) -> float:
    """The delta that leaves room for a sampler that is not ideal."""
    return delta * (1 - SAMPLER_ALLOWANCE)


def make_statement(charges: Charges, terms: Terms, *, by_round: bool = True) -> PrivacyStatement:
    """Account what each party was charged, and with ``by_round`` after every round, too.

    Accounting every round is most of the work if the noise is not Gaussian.
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
        # Events that read other rows come last: then the guarantee covers everything.
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
    """Add the details of shared noise."""
    not_covered = tuple(
        _ADDED_UP if each == _PERSON_ELSEWHERE else each for each in terms.not_covered
    )
    details = (*terms.details, *_about_shared_noise(apart))
    return replace(terms, not_covered=not_covered, details=details)


def _about_shared_noise(apart: dict[str, Guarantee]) -> tuple[tuple[str, str], ...]:
    """The caveats of a party that relies on the noise of others."""
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
