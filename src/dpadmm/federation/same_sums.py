r"""The end of a run: whether all parties heard the same in every round, by digests they signed.

Where all parties share one model, each makes it from what it is told: sums, or means. The masks of
a round depend on all sums before it, so the next round reveals a sum that others were told
differently. No round follows the last one. So each party then signs, by the key of its
certificate,

.. code-block:: text

    dpadmm sums 1\n<run, 64 hex digits>\n<name>\n<rounds>\n<SHA-256 of all sums, 64 hex digits>\n

and nodes hand the signed text on unchanged. The run is that of the view, or of the evaluation after
it, whose digest covers the training's sums, too. A digest counts if its certificate leads to the
authority, is the one that is pinned here, if any is, and has signed it. Whoever is between two
parties can keep a digest back, but can neither make one up nor use that of another run. A model is
"agreed by all" once everybody's digest is there and the same. Where one is missing the statement
says so; where one differs the run ends with an error.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self, TypeVar, final

from dpadmm.errors import ExchangeError
from dpadmm.federation.agreement import Consents
from dpadmm.federation.identity import from_base64
from dpadmm.federation.recovery import SomebodyLeft
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MessageStore
from dpadmm.federation.transport.wire import (
    BadMessage,
    Comparing,
    Limits,
    SumsDigest,
    agreement_limit,
    noted,
    said,
)
from dpadmm.privacy.statement import PrivacyStatement


class Stated(Protocol):
    """What a node ends with: a model, or the figures of a study."""

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be said about it."""

    def restated(self, privacy: PrivacyStatement, facts: Mapping[str, Any]) -> Self:
        """With another statement, and more facts about the others."""


AnyRun = TypeVar("AnyRun", bound=Stated)
_VERSION: Final = 1
_NOTE: Final = "signed sums"
_TWICE: Final = "signed sums, second"
_DIGESTS: Final = "digests"
_MOST_NAMES: Final = 20
# Between two questions: short at first, then longer.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Bytes of a digest with its certificate.
_USUAL: Final = 4096
# How long a node that knows of a difference still answers, so that the others learn of it.
_GRACE: Final = 3.0
_YET: Final = (
    "Not agreed by all yet: whether all parties heard the same in every round is still to be "
    "compared."
)
_EARLY: Final = (
    "Not agreed by all: this node ended before the last round; others may have another model."
)
_AGAIN: Final = "Started again together with them, this node compares again."


def sums_text(run: bytes, name: str, rounds: int, sha256: str) -> bytes:
    """What a party signs at the end of a run."""
    return f"dpadmm sums {_VERSION}\n{run.hex()}\n{name}\n{rounds}\n{sha256}\n".encode("ascii")


@dataclass(frozen=True)
class SumsComparison:
    """What the parties say they heard, compared with what this one heard.

    Attributes
    ----------
    sha256
        The digest of what this party heard in all rounds; empty before its last one.
    members
        All parties, in their order.
    same
        Who has the same, this one included.
    short
        How many rounds those have who ended earlier.
    other
        Who has another digest of as many rounds, and which.
    signed
        Whether digests are signed here: not without certificates.
    caveat
        What the reader must know before all have answered.
    """

    sha256: str
    members: tuple[str, ...]
    same: tuple[str, ...]
    short: Mapping[str, int] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)
    signed: bool = True
    caveat: str = ""

    @classmethod
    def to_come(cls, members: tuple[str, ...], *, early: bool = False) -> SumsComparison:
        """Before anything was compared, or where there is nothing to compare."""
        return cls("", members, (), caveat=_EARLY if early else _YET)

    @property
    def missing(self) -> tuple[str, ...]:
        """Whose digest is not here."""
        known = {*self.same, *self.short, *self.other}
        return tuple(name for name in self.members if name not in known)

    @property
    def alike(self) -> bool:
        """Whether all have the same."""
        return self.same == self.members

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a user of the model must know."""
        if self.caveat:
            return (self.caveat,)
        if self.other:
            return (f"Not agreed by all: {self._difference()}.",)
        reasons = [f"{name} ended after {rounds} rounds" for name, rounds in self.short.items()]
        if self.missing:
            reasons.append(f"no digest came from {_named(self.missing)}")
        words = _named(reasons, "; ")
        return (f"Not agreed by all: {words}. {_AGAIN}",) if reasons else ()

    @property
    def refusal(self) -> str:
        """What is wrong, where parties heard different things; else empty."""
        if not self.other:
            return ""
        return (
            f"all parties must have heard the same in every round; {self._difference()}: whoever "
            "told them told different things, or one of them does not tell the truth. Results are "
            "written here as not agreed on: compare with the other owners by telephone "
            "before they are used. What was spent stays spent."
        )

    def _difference(self) -> str:
        others = [f"{name} {found}" for name, found in self.other.items()]
        return (
            f"{_named(self.same)} told {self.sha256} as the sha256 of what they heard, and "
            f"{_named(others)}"
        )

    def stated(self, run: AnyRun) -> AnyRun:
        """The run with what was found, in its statement and in its record."""
        privacy = run.privacy
        details = privacy.details
        # Where nothing is guaranteed a statement has no details; the record has it.
        if self.alike and privacy.private:
            words = f"{_named(self.members)} heard the same in every round, by digests"
            heading = "Agreed by all" if self.signed else "Compared"
            signs = "that each of them signed" if self.signed else "that nobody signed"
            details = (*details, (heading, f"{words} {signs}"))
        changed = replace(privacy, details=details, caveats=(*privacy.caveats, *self.caveats))
        facts = {
            "sums_sha256": self.sha256 or None,
            "agreed_by": list(self.same) if self.signed else [],
        }
        return run.restated(changed, facts)


@final
class SignedSums:
    """The digests of one run that a node has; used by several threads.

    Parameters
    ----------
    name
        The node: a party, or a server that hands on.
    run, members, rounds
        The 32 bytes of the view, its parties in their order, and its rounds.
    consents
        Signs for this node, and checks what others signed.
    pins
        The sha256 of certificates, by name, as the node's owner has pinned them; of those that are
        not there the authority's word counts.
    store
        Where digests are noted: whoever ended may be gone when this node is started again.

    Attributes
    ----------
    echoed
        Who has this node's own digest.
    """

    def __init__(
        self,
        name: str,
        run: bytes,
        members: Sequence[str],
        rounds: int,
        consents: Consents,
        pins: Mapping[str, str],
        store: MessageStore,
    ) -> None:
        self._name, self.run, self.members = name, run, tuple(members)
        self._rounds, self._consents, self._pins, self._store = rounds, consents, dict(pins), store
        self._limits = Limits(frozenset(members), rounds)
        self.longest = agreement_limit(len(members))
        self._lock = threading.Lock()
        self._digests: dict[str, SumsDigest] = {}
        self._twice: dict[str, SumsDigest] = {}
        self.echoed: set[str] = set()
        note = store.note(run, _NOTE)
        if note is not None:
            self._add(noted(Comparing, note, "signed sums", self._limits).digests)
        # Whoever signed two things is not believed after a restart, either.
        twice = store.note(run, _TWICE)
        if twice is not None:
            self._add(noted(Comparing, twice, "signed sums", self._limits).digests)

    @property
    def relays(self) -> bool:
        """Whether this node only hands on what parties signed."""
        return self._name not in self.members

    @property
    def missing(self) -> tuple[str, ...]:
        """Whose digest is not here."""
        with self._lock:
            return tuple(name for name in self.members if name not in self._digests)

    def say(self, rounds: int, sums: bytes) -> None:
        """Sign what this party heard: SHA-256 of all sums of so many rounds."""
        sha256 = sums.hex()
        consent = self._consents.own(sums_text(self.run, self._name, rounds, sha256))
        own = SumsDigest(rounds=rounds, sha256=sha256, consent=consent)
        with self._lock:
            self._digests[self._name] = own

    def to_bytes(self, *, own: bool = False) -> bytes:
        """All digests that are here, or this node's own, as they are said and noted."""
        with self._lock:
            found = dict(self._digests)
        if own:
            found = {name: digest for name, digest in found.items() if name == self._name}
        return Comparing(digests=found).to_bytes()

    def take(self, sender: str, data: bytes) -> list[str]:
        """Take what a node hands on; return what is wrong with it, a sentence for each digest."""
        content = said(Comparing, data, sender, self._limits, longest=self.longest)
        with self._lock:
            ours = self._digests.get(self._name)
        echo = content.digests.get(self._name)
        if ours is not None and echo is not None and echo.sha256 == ours.sha256:
            self.echoed.add(sender)
        return [
            f"{sender} must hand on what {name} signed; {fault}: not counted."
            for name, fault in self._add(content.digests).items()
        ]

    def _add(self, digests: Mapping[str, SumsDigest]) -> dict[str, str]:
        """Take those that are new and hold; what is wrong with others, by name."""
        wrong, news = {}, False
        for name, digest in digests.items():
            with self._lock:
                known = self._digests.get(name)
            what = (digest.rounds, digest.sha256)
            if name == self._name or (known and what == (known.rounds, known.sha256)):
                continue
            fault = self._fault(name, digest)
            if fault:
                wrong[name] = fault
                continue
            with self._lock:
                known = self._digests.get(name)
                # A party that ended early and was started again has more rounds, and signs anew.
                if known is None or known.rounds < digest.rounds:
                    self._digests[name], news = digest, True
                elif known.rounds == digest.rounds and known.sha256 != digest.sha256:
                    self._twice[name] = digest
                    twice = Comparing(digests=dict(self._twice)).to_bytes()
                    self._store.take_note(self.run, _TWICE, twice.decode("ascii"))
        if news:
            self._store.take_note(self.run, _NOTE, self.to_bytes().decode("ascii"))
        return wrong

    def _fault(self, name: str, digest: SumsDigest) -> str:
        consent = digest.consent
        text = sums_text(self.run, name, digest.rounds, digest.sha256)
        fault = self._consents.fault(name, consent, text)
        if fault or name not in self._pins:
            return fault
        shown = hashlib.sha256(from_base64(consent.certificates[0])).hexdigest()
        return "" if shown == self._pins[name] else "its certificate is not the one pinned here"

    def compare(self) -> SumsComparison:
        """What is known so far, compared with what this node heard itself."""
        with self._lock:
            digests, twice = dict(self._digests), dict(self._twice)
        own = digests[self._name]
        same, short, other = [], {}, {}
        for name in self.members:
            found = digests.get(name)
            if found is None:
                continue
            if found.rounds != own.rounds:
                short[name] = found.rounds
            elif found.sha256 != own.sha256:
                other[name] = found.sha256
            elif twice.get(name) is not None:
                # It signed two: it told somebody another one.
                other[name] = twice[name].sha256
            else:
                same.append(name)
        return SumsComparison(
            own.sha256, self.members, tuple(same), short, other, self._consents.signed
        )


@final
class SameSums:
    """One node's part in the exchange of digests, for one run; it answers as long as it is open.

    Parameters
    ----------
    session
        Its connections.
    signed
        The digests that it has.
    on_refused
        Called with a message that should not have been sent: its sender, a code and a sentence.
    """

    def __init__(
        self,
        session: PeerSession,
        signed: SignedSums,
        *,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
    ) -> None:
        self._session, self._signed, self._tell_refused = session, signed, on_refused
        self._topic = f"{signed.run.hex()}-sums"
        self._news = threading.Condition()
        self._asked = -_LONGEST_PAUSE
        session.hear(self._topic, self._take)
        session.serve(self._topic, self._answer)

    def compare(
        self,
        rounds: int,
        sums: bytes,
        timeout: float,
        on_pause: Callable[[float, tuple[str, ...]], None] = lambda seconds, missing: None,
    ) -> SumsComparison:
        """Say what this party heard, and wait until it is known of all others.

        Parameters
        ----------
        rounds, sums
            How many rounds it has, and the SHA-256 of all their sums.
        timeout
            Seconds to wait; 0 says it, and does not wait.
        on_pause
            Called from time to time with how long this party has waited, and for whom. If it raises
            :class:`~dpadmm.federation.recovery.SomebodyLeft`, the waiting ends.
        """
        self._signed.say(rounds, sums)
        begin, pause, end = time.monotonic(), _FIRST_PAUSE, timeout
        while True:
            self._session.publish(self._topic, _DIGESTS, self._signed.to_bytes(own=True))
            if timeout == 0:
                break
            self._ask(self._session.neighbours)
            with self._news:
                self._news.wait_for(self._is_settled, timeout=pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
            waited = time.monotonic() - begin
            if self._signed.compare().other:
                end = min(end, waited + _GRACE)
            if self._is_settled() or waited > end:
                break
            try:
                on_pause(waited, self._signed.missing)
            except SomebodyLeft:
                break
        found = self._signed.compare()
        if found.other:
            time.sleep(_GRACE)
        return found

    def _is_settled(self) -> bool:
        """Whether all is known here, and this node's own at every neighbour that is there."""
        return not self._signed.missing and all(
            name in self._signed.echoed or not self._session.present(name)
            for name in self._session.neighbours
        )

    def _ask(self, names: Iterable[str]) -> None:
        longest = _USUAL * len(self._signed.members)
        for name in names:
            self._session.ask(self._topic, name, _DIGESTS, self._take, timeout=2.0, longest=longest)

    def _answer(self, label: str) -> bytes | None:
        now = time.monotonic()
        if self._signed.relays and now - self._asked >= _LONGEST_PAUSE:
            # Whoever asks waits for those that are missing, also after a restart of this server.
            self._asked = now
            self._ask(name for name in self._signed.missing if name in self._session.neighbours)
        return self._signed.to_bytes() if label == _DIGESTS else None

    def _take(self, name: str, label: str, data: bytes) -> None:
        try:
            for sentence in self._signed.take(name, data):
                self._tell_refused(name, "bad-digest", ExchangeError(sentence))
        except BadMessage as error:
            self._tell_refused(name, error.reason, error)
            return
        with self._news:
            self._news.notify_all()


def _named(names: Sequence[str], between: str = ", ") -> str:
    """Names in a sentence; of many the first ones."""
    shown, more = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return between.join(shown) + (f"{between}and {more} more" if more > 0 else "")
