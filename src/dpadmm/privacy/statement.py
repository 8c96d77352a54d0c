"""What is guaranteed, in words and in numbers: shown wherever an epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.privacy.accountant import Guarantee, epsilon_spent, network_guarantee, spend_over_rounds
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import pair
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

__all__ = [
    "ADVERSARY",
    "NOT_COVERED",
    "PrivacyStatement",
    "adjacency_words",
    "make_statement",
]

ADVERSARY: Final = (
    "sees every message of every round and may control all other parties; the guarantee of a "
    "party rests on its own noise alone"
)
NOT_COVERED: Final = (
    "a person with rows at two parties",
    "timing",
    "tuning on private rows",
    "anything computed from rows outside this run",
)


def adjacency_words(rows_per_person: int) -> str:
    """Which data sets are neighbours."""
    if rows_per_person == 1:
        return "one row of one party is replaced (features and label); row counts are public"
    return (
        f"up to {rows_per_person} rows of one party, all of one person, are replaced; "
        "row counts are public"
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
            lines.append(("Adversary", ADVERSARY))
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
        return {
            "algorithm": self.algorithm,
            "epsilon": _number(self.epsilon),
            "delta": self.delta,
            "rows_per_person": self.rows_per_person,
            "adjacency": adjacency_words(self.rows_per_person),
            "adversary": ADVERSARY,
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
            "parties": {
                name: {**asdict(guarantee), "epsilon": _number(guarantee.epsilon)}
                for name, guarantee in self.parties.items()
            },
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
    # Parties often share a history; each different one is accounted once.
    known: dict[tuple[tuple[Event, ...], float], Guarantee] = {}
    courses: dict[tuple[tuple[Event, ...], float], NDArray[np.float64]] = {}
    parties, rounds = {}, {}
    for name, history, delta in zip(names, events, deltas, strict=True):
        key = (tuple(history), float(delta))
        if key not in known:
            # Delta leaves room for the distance of a sampler from the ideal one.
            ideal = key[1] * (1 - SAMPLER_ALLOWANCE)
            spent = epsilon_spent(history, ideal, rows_per_person=rows_per_person)
            known[key] = replace(spent, delta=key[1])
            if by_round:
                courses[key] = spend_over_rounds(history, ideal, rows_per_person=rows_per_person)
        parties[name] = known[key]
        if by_round:
            rounds[name] = courses[key]
    network = network_guarantee(parties.values())
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
        not_covered=(*NOT_COVERED, *also_not_covered),
        details=details,
        caveats=tuple(caveats),
    )
