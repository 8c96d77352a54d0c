"""Going on without a lost node: who decides when and from where, and what is left of the run."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dpadmm.data.schema import Schema
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.agreement import Disagreement
from dpadmm.federation.config import AgreedRun
from dpadmm.federation.search import Search
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MessageStore
from dpadmm.federation.transport.wire import (
    BadMessage,
    Decided,
    Departing,
    Frozen,
    Limits,
    ends_of,
    lost_words,
    noted,
    said,
)
from dpadmm.ledger.balance import RowRange
from dpadmm.ledger.filters import overspent
from dpadmm.plain import Array, Words
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import Given
from dpadmm.problem.site import SpanningTree
from dpadmm.run.charges import evaluation_id
from dpadmm.run.plan import Plan, announced

if TYPE_CHECKING:
    from dpadmm.run.result import Run


@dataclass(frozen=True)
class PastSum:
    """The sum of a complete round.

    Parameters
    ----------
    total
        The sum of the masked vectors.
    mean
        The decoded sum, divided by how many parties there were then.
    """

    total: Words
    mean: Array


#: What a node can do about a neighbour that never returns, with what that means for privacy.
WHEN_LOST: Final = {
    "wait": (
        "this node waits; nothing more is sent and nothing more is spent. What was spent stays "
        "spent."
    ),
    "stop": (
        "this node ends with the model of the last complete round. The rounds that were sent stay "
        "spent, the one that could not be completed included; those not begun are not spent."
    ),
    "continue": (
        "the others go on without it over the links that are left, with their own budgets: nobody "
        "spends more than agreed. What was sent to the lost neighbour stays with it and stays "
        "spent."
    ),
}
#: The same where a link was cut, and sums took another way.
LINK_LOST: Final = (
    "nobody was lost. The round that was cut short stays spent, and fewer rounds were left."
)
DEPARTURE_TOPIC: Final = "departure"
_FROZEN: Final = "departure"
_DECIDED: Final = "departure decided"
_SENT: Final = "departure sent"
_PAUSE: Final = 0.1
_PATIENCE: Final = 4
_EVALUATING: Final = b"evaluation"
_REHEARSING: Final = b"rehearsal"


class SomebodyLeft(ExchangeError):
    """A neighbour says that somebody is lost and that it goes on without.

    Attributes
    ----------
    name
        Who is lost.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is lost, and the others go on without it.")
        self.name = name


class LeftOut(ExchangeError):
    """The others agreed to go on without this node; it ends, and what it paid for is written.

    Attributes
    ----------
    run
        What it trained before; None where no round was complete.
    """

    def __init__(self, name: str, run: Run | None = None) -> None:
        model = "there is no model" if run is None else "the model of the rounds before is written"
        super().__init__(
            f"{name} must be connected to take part; a link of it was gone for longer than "
            f"lost_after, and the others go on without it: {model}. What was sent stays spent. "
            "Started again it ends the same way: mend the link, and agree on another run_id to "
            "train with all."
        )
        self.run = run


@dataclass(frozen=True)
class Decision:
    """Without whom the others go on, and from where.

    Attributes
    ----------
    lost
        Who, or which link, is left out.
    kept
        How many rounds all of the others have sent; where only sums are seen, how many sums all of
        them have.
    furthest
        How many rounds the furthest of them has sent, and been charged for.
    """

    lost: str
    kept: int
    furthest: int

    def rounds(self, before: int, ran: Plan, coming: Plan) -> int:
        """The rounds of the new run: so few that nobody spends more than was planned.

        Parameters
        ----------
        before
            Rounds of the run that somebody was lost in.
        ran, coming
            The plans of that run and of the new one: a round that is repeated may cost as much as
            several others.
        """
        left = sum(ran.algorithm.round_cost(t) for t in range(self.furthest, before))
        rounds = self.kept
        while rounds < before and left >= (cost := coming.algorithm.round_cost(rounds)):
            left -= cost
            rounds += 1
        return rounds


class Departure:
    """One node's vote on whom the others go on without, for one run.

    Where a link is cut its two ends miss each other, and either may be heard first. Each node has
    one vote, for the loss of one node. The others go on once all nodes but that one have voted for
    its loss. Where sums travel along a tree a vote may also be for the loss of a link, which needs
    the votes of all nodes; which of the two a node votes for first is known by asking
    (:mod:`~dpadmm.federation.search`). Links come before nodes, in the order of the run.
    A node changes its vote only to one later in the order, and only once
    somebody other than the earlier one has voted for that: then the earlier can no longer have all
    votes. So all nodes that decide decide the same, however often links come and go. Nobody votes
    for the loss of a node without which the others could not go on: it leaves itself.

    Parameters
    ----------
    session, run
        Its connections and the run.
    parties, nodes, rounds
        Who has rows in the run, all nodes, and how many rounds it has.
    store
        Where it notes what it said.
    sums, first_sent
        Whether only sums of messages are seen: then nobody's message is sent again, and the others
        go on from the last sum that all of them have. The first round with messages in this run.
    can_spare
        Whether the others could go on without a node, or a link.
    links
        Who is linked with whom, where the others can go on without a link; else None.
    on_refused
        Called with a message that should not have been sent: its sender, a code and a sentence.

    Attributes
    ----------
    left_out
        Whether the others go on without this node.
    """

    def __init__(
        self,
        session: PeerSession,
        run: bytes,
        parties: tuple[str, ...],
        nodes: tuple[str, ...],
        rounds: int,
        store: MessageStore,
        *,
        sums: bool = False,
        first_sent: int = 0,
        can_spare: Callable[[str], bool] = lambda name: True,
        links: Mapping[str, tuple[str, ...]] | None = None,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
    ) -> None:
        self._session, self._run, self._store = session, run, store
        self._name, self._can_spare = session.name, lru_cache(maxsize=None)(can_spare)
        self._sums, self.first_sent = sums, first_sent
        self._parties, self._nodes = set(parties), set(nodes)
        self._order = {name: place for place, name in enumerate(nodes)}
        self._label = run.hex()
        self._lock = threading.Lock()
        # For whose loss this node votes: its own name once it takes no further part.
        self._lost = ""
        self.left_out = self._settled = False
        self._sent: dict[str, int] = {}
        self._summed: dict[str, int] = {}
        self._reported = ""
        self._limits, self._tell_refused = Limits(frozenset(nodes), rounds), on_refused
        note, known = store.note(run, _FROZEN), store.note(run, _SENT)
        if note is not None:
            frozen = noted(Frozen, note, "a loss", self._limits)
            self._lost, self._sent = frozen.lost, {session.name: frozen.sent}
            self._summed = {session.name: frozen.summed}
            self.left_out = frozen.lost == session.name
            if known is not None:
                # Others may still have to hear it from here.
                others = noted(Departing, known, "a loss", self._limits)
                self._sent |= others.sent
                self._summed |= others.summed
        self._search: Search | None = None
        if links is not None:
            topic, label = (DEPARTURE_TOPIC, f"{self._label}-missed")
            self._search = Search(session, topic, label, links, self._limits, on_refused=on_refused)
        session.serve(DEPARTURE_TOPIC, self._answer)

    @staticmethod
    def sent_before(store: MessageStore, run: bytes) -> int | None:
        """How many rounds of a run this node had sent when it stopped for good, if it did."""
        note = store.note(run, _FROZEN)
        return None if note is None else noted(Frozen, note, "a loss").sent

    @property
    def lost(self) -> str:
        """Without whom this node wants to go on; empty while there is nobody.

        Its own name once it takes no further part.
        """
        return self._lost

    def decided(self) -> Decision | None:
        """What was decided before a restart."""
        note = self._store.note(self._run, _DECIDED)
        if note is None:
            return None
        return Decision(**noted(Decided, note, "a decision", self._limits).model_dump())

    def look_for(self, name: str, timeout: float) -> str:
        """What is lost where this node misses a neighbour: it, or the link; empty if neither."""
        if self._search is None or self._lost:
            return name
        try:
            return self._search.look_for(name, timeout, self._can_spare, self.listen)
        except SomebodyLeft as left:
            return left.name

    def listen(self) -> None:
        """Ask the neighbours whether somebody is lost.

        Raises
        ------
        SomebodyLeft
            If one has said so; or, whatever was heard before, that it is this node.
        """
        search = self._search
        for neighbour in self._session.neighbours:
            self._session.ask(DEPARTURE_TOPIC, neighbour, self._label, self._take, timeout=2.0)
            if search is not None:
                self._session.ask(
                    DEPARTURE_TOPIC, neighbour, search.label, search.take, timeout=2.0
                )
        with self._lock:
            if self.left_out:
                raise SomebodyLeft(self._name)
            if self._reported and not self._lost:
                raise SomebodyLeft(self._reported)

    def freeze(self, lost: str, sent: int, summed: int = 0) -> None:
        """Stop for good after ``sent`` rounds; durable when it returns.

        A message that is committed counts, whether it was sent or not: it will not change. Where
        the others could not go on without the lost node, this one leaves until it is started again.

        Parameters
        ----------
        lost
            For whose loss; this node's own name if the others go on without it.
        sent, summed
            How many rounds were released here, and of how many the sum is here.
        """
        with self._lock:
            if self._lost:
                return
            self._sent[self._name] = sent
            self._summed[self._name] = summed if self._sums else 0
            if lost == self._name or self._can_spare(lost):
                self._turn(lost)
            else:
                self._lost = self._name

    def settle(self, timeout: float) -> Decision:
        """Wait until it is known where all of the others stopped.

        Raises
        ------
        Disagreement
            If nothing new is heard for so many seconds, or not all within four times as many; or if
            the others could not go on without the lost node.
        SomebodyLeft
            If the others go on without this node.
        """
        if self._lost == self._name and not self.left_out:
            raise Disagreement(
                "at least two parties, and the server, must be left and connected to go on without "
                "a node; they are not."
            )
        begin = heard = time.monotonic()
        news: tuple[set[str], list[bool]] | None = None
        while True:
            self.listen()
            time.sleep(_PAUSE)
            with self._lock:
                left = self._nodes - {self._lost}
                missing = left - set(self._sent)
                known = self._known()
                parties = self._parties & left & set(self._sent)
                if not missing and not self.left_out:
                    sent = [self._sent[name] for name in parties]
                    summed = [self._summed.get(name, 0) for name in parties]
                    kept = min(summed if self._sums else sent)
                    decision = Decision(self._lost, kept, max(sent))
                    self._settled = True
                    break
            # Somebody was heard of or came back: the next one may be about to.
            present = [self._session.present(name) for name in self._session.neighbours]
            if news != (missing, present):
                news, heard = (missing, present), time.monotonic()
            if time.monotonic() > min(heard + timeout, begin + _PATIENCE * timeout):
                raise Disagreement(
                    f"all others must agree to go on without {lost_words(self._lost)} within "
                    f"{timeout:g} s; not heard of: {', '.join(sorted(missing))}."
                )
        self._store.take_note(self._run, _SENT, known.to_bytes().decode("ascii"))
        self._store.take_note(self._run, _DECIDED, json.dumps(vars(decision)))
        return decision

    def _answer(self, label: str) -> bytes | None:
        if self._search is not None and label == self._search.label:
            return self._search.said()
        with self._lock:
            if label != self._label or not self._lost:
                return None
            return self._known().to_bytes()

    def _rank(self, lost: str) -> tuple[int, int, str]:
        """The order in which votes change: nothing, links, nodes."""
        if not lost:
            return (0, 0, "")
        return (1, 0, lost) if ends_of(lost) else (2, self._order[lost], "")

    def _known(self) -> Departing:
        summed = self._summed if self._sums else {}
        raised = set(self._sent) - {self._lost}
        return Departing(
            lost=self._lost,
            sent={name: self._sent[name] for name in raised},
            summed={name: count for name, count in summed.items() if name in raised},
        )

    def _take(self, name: str, label: str, data: bytes) -> None:
        try:
            content = said(Departing, data, name, self._limits)
        except BadMessage as error:
            self._tell_refused(name, error.reason, error)
            return
        if not self._can_spare(content.lost):
            # Nobody could go on without that node, so it is not lost: the sender itself has left.
            content = Departing(lost=name, sent={})
        with self._lock:
            if not self._lost:
                self._reported = max(self._reported, content.lost, key=self._rank)
                return
            if self.left_out or self._settled:
                return
            if content.lost != self._lost:
                if not self._must_turn(content):
                    return
                self._turn(content.lost)
            elif self._lost == self._name:
                self._turn(self._name)
            for node, value in content.sent.items():
                if node not in (self._name, self._lost):
                    self._sent.setdefault(node, value)
                    # Nobody has the sum of a round that it has not sent.
                    summed = min(content.summed.get(node, 0), value)
                    self._summed.setdefault(node, summed)

    def _must_turn(self, content: Departing) -> bool:
        """Whether this node changes its vote: its own can no longer win, and the other one may."""
        if self._lost == self._name:
            return False
        later = self._rank(content.lost) > self._rank(self._lost)
        others = set(content.sent) - {content.lost, self._lost}
        if content.lost == self._name and self._nodes <= {self._name, *content.sent}:
            return True
        return later and bool(others)

    def _turn(self, lost: str) -> None:
        """Vote for the loss of a node, in place of another's, durably."""
        sent, summed = self._sent[self._name], self._summed[self._name]
        note = Frozen(lost=lost, sent=sent, summed=summed)
        self._store.take_note(self._run, _FROZEN, note.to_bytes().decode("ascii"))
        self._lost, self.left_out = lost, lost == self._name
        self._sent, self._summed = {self._name: sent}, {self._name: summed}


@dataclass(frozen=True)
class View:
    """A view: a period of constant membership, and what its members compute.

    A run begins with one view of all nodes. When a node is lost and the others go on, the next view
    begins. An evaluation is a view of its own, with the same members.

    Attributes
    ----------
    agreed, planned
        The run of its members.
    run
        Its 32 bytes.
    rounds
        Its rounds: those of the plan, or fewer.
    lost
        Who was lost before it.
    rehearsal
        Whether it is one round of zeros, of which no ledger knows.
    replayed
        This party's messages of the first rounds, released before.
    past, absorbed_by
        Where only sums are seen: those of the first rounds, of which nothing is sent again; and
        the plan that each was absorbed by, so that parties go on from the state after the last.
    first_sent
        The first of its rounds that has messages of its own; on the wire that is round 0.
    charged
        What this party was charged before.
    first
        The run as it was agreed on, before anybody was lost; None for that run itself.
    evaluation
        How ledgers know it, where it is the evaluation of a model; else empty.
    tree
        How sums travel, where every party is heard and not all are linked with each other.
    """

    agreed: AgreedRun
    planned: Plan
    run: bytes
    rounds: int
    lost: tuple[str, ...] = ()
    rehearsal: bool = False
    replayed: tuple[Array, ...] = field(default=(), repr=False)
    past: tuple[PastSum, ...] = field(default=(), repr=False)
    absorbed_by: tuple[Plan, ...] = field(default=(), repr=False)
    first_sent: int = 0
    charged: tuple[Event, ...] = field(default=(), repr=False)
    first: Plan | None = field(default=None, repr=False)
    evaluation: str = ""
    tree: SpanningTree | None = None

    @classmethod
    def whole(cls, agreed: AgreedRun, planned: Plan, schema: Schema) -> View:
        """The run as it was agreed on."""
        tree = agreed.tree(planned)
        return cls(agreed, planned, agreed.digest(schema), planned.rounds, tree=tree)

    @property
    def run_id(self) -> str:
        """How ledgers know it."""
        return self.evaluation or str(self.agreed.run.run_id)

    def can_spare(self, lost: str) -> bool:
        """Whether the others could go on without a node or a link, as far as links decide."""
        topology, ends = self.planned.site.topology, ends_of(lost)
        if ends:
            pair = tuple(sorted(map(self.agreed.names.index, ends)))
            edges = tuple(each for each in topology.edges if each != pair)
            connected = len(replace(topology, edges=edges).components) == 1
            return self.links is not None and pair in topology.edges and connected
        try:
            self.agreed.without(lost, self.planned)
        except ParameterError:
            return False
        if topology.server:
            return True
        place = self.agreed.names.index(lost)
        edges = tuple(each for each in topology.edges if place not in each)
        # It is left over as a part of its own.
        return len(replace(topology, edges=edges).components) == 2

    @property
    def links(self) -> dict[str, tuple[str, ...]] | None:
        """Who is linked with whom, where sums can take another way; else None."""
        planned = self.planned
        if planned.site.topology.server or not planned.algorithm.hears_everybody:
            return None
        return {name: self.agreed.neighbours(name, planned) for name in self.agreed.names}

    @property
    def purpose(self) -> str:
        """What is summed in it, where only sums are seen: part of every mask's key."""
        if self.rehearsal:
            return "rehearsal"
        return "evaluation" if self.evaluation else "training"

    def part(self, rows: int) -> RowRange | None:
        """Which of a party's rows it reads; None for all."""
        split = self.agreed.run.wish.split
        return split.held_out(rows) if self.evaluation else split.train(rows)

    def evaluating(self, planned: Plan) -> View:
        """The evaluation of the model that came of it.

        Its 32 bytes follow from this view's. Where noise is shared, its masks vanish only if all
        have the same model; a comparison at the end also finds a difference
        (:mod:`dpadmm.federation.same_sums`).
        """
        digest = hashlib.sha256(self.run + _EVALUATING).digest()
        name = evaluation_id(self.run_id, planned)
        told = (self.agreed, planned, digest, planned.rounds, self.lost)
        return View(*told, evaluation=name, tree=self.tree)

    def rehearsing(self) -> View:
        """One round of zeros by the same members, under 32 bytes of its own.

        A consent, a key or a message of a rehearsal is none of the run.
        """
        digest = hashlib.sha256(self.run + _REHEARSING).digest()
        return replace(self, run=digest, rounds=1, rehearsal=True)

    def following(
        self,
        decision: Decision,
        schema: Schema,
        own: tuple[Array, ...] = (),
        charged: tuple[Event, ...] = (),
        past: tuple[PastSum, ...] = (),
    ) -> View:
        """The view of the others after a node is lost; refused where too few links are left.

        Parameters
        ----------
        decision
            Without whom, and from where. Refused where no new round would be left.
        schema
            How rows are encoded.
        own, charged, past
            This party's messages of this view, what it was charged up to its end, and, where
            only sums are seen, the sums.
        """
        agreed = self.agreed.without(decision.lost, self.planned)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            planned = agreed.plan(schema)
        rounds = decision.rounds(self.rounds, self.planned, planned)
        if rounds <= decision.kept:
            raise ParameterError(
                f"a run must have a round left to go on without {lost_words(decision.lost)}; it "
                f"has {self.rounds}, and one of the others has sent them all."
            )
        content = f"{decision.lost} {decision.kept} {decision.furthest}"
        digest = hashlib.sha256(self.run + agreed.digest(schema) + content.encode("ascii"))
        summed = planned.algorithm.summation is not None
        ran = (*self.absorbed_by, *(self.planned for _ in past[len(self.absorbed_by) :]))
        return View(
            agreed,
            planned,
            digest.digest(),
            rounds,
            (*self.lost, decision.lost),
            replayed=own[: decision.kept],
            past=past[: decision.kept],
            absorbed_by=ran[: decision.kept],
            first_sent=decision.kept if summed else 0,
            charged=charged,
            first=self.first or self.planned,
            tree=agreed.tree(planned),
        )

    def check_budget(self, name: str) -> None:
        """Refuse a view in which this party would spend more than was agreed for the whole run."""
        if self.first is None or self.first.budget is None:
            return
        place = self.agreed.names.index(name)
        coming = announced(self.planned.of_party(place))[0][len(self.replayed) : self.rounds]
        # Others may have chosen who is lost, and when, after they saw messages: hence a filter.
        agreed = self.first.of_party(self.first.site.names.index(name))
        assert agreed.budget is not None
        epsilon = float(agreed.budget.epsilon[0])
        reason = overspent(
            announced(agreed)[0],
            (*self.charged, *coming),
            epsilon=epsilon,
            delta=float(agreed.budget.ideal_delta[0]),
            rows_per_person=agreed.budget.rows_per_person,
        )
        if reason is not None:
            raise ParameterError(
                f"epsilon of {name} must stay within the agreed {Given(epsilon)}, going on without "
                f"{lost_words(self.lost[-1])}; {reason}."
            )
