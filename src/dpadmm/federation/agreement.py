"""Agreement before training: every node compares what it was told with what its neighbours were.

A node publishes its public facts and the consents that it has: its own, and those of others that
its neighbours handed on, each signed by its node (:class:`Consents`). It starts when it has
everybody's. So nobody spends anything on a run that another node, however far away, understands
differently or does not know of. A node names every difference, item by item. What a neighbour says
can make this node wait or refuse, and nothing else: it runs its own copy of the agreed run, within
its owner's policy, or nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from dpadmm.errors import ExchangeError, ParameterError, passing
from dpadmm.federation.identity import (
    certificate_fault,
    from_base64,
    load_certificates,
    load_signing_key,
    sign,
    signed_part,
    to_base64,
    verify,
)
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import instance_hash
from dpadmm.federation.transport.wire import (
    LONGEST_CONSENT,
    Agreeing,
    BadMessage,
    Consent,
    Limits,
    Utterance,
    agreement_limit,
    noted,
    said,
)
from dpadmm.plain import visible
from dpadmm.version import __version__

_VERSION: Final = 1
_UNSIGNED: Final = Consent(certificates=[], signature="")


def signed_text(run: bytes, name: str) -> bytes:
    """What a node signs to agree to a run."""
    return f"dpadmm agreement {_VERSION}\n{run.hex()}\n{name}\n".encode("ascii")


@final
class Consents:
    r"""Makes this node's consent to a run, and checks those of others.

    The consent of node :math:`i` to the run with the digest :math:`h` is its signature, by the key
    of its TLS certificate, of

    .. code-block:: text

        dpadmm agreement 1\n<h, 64 hex digits>\n<name of i>\n

    together with that certificate and those between it and the authority. Nodes hand consents on
    as they are, and each believes one only after it has checked the signature, the way to the
    authority that it trusts itself, the dates, and that the certificate's common name is the
    node's. So nobody can consent for another node, and a node that was
    never started has not consented.

    No nonce is exchanged. A consent counts for one digest, which covers all facts of the run, its
    ``run_id``, parties, rows and formats among them: one of another run does not count. One of the
    same run does, also after its node was killed, and is meant to: by that digest a node finds its
    notes and messages again, and by the ``run_id`` in it every ledger knows what was spent, so
    that the node goes on with the run that it agreed to, or refuses. Whoever repeats an old
    consent says only what is true: that this node was started for this run. A trial that is to
    begin anew needs another ``run_id``.

    The signed text begins with words that no handshake of TLS signs, so that a signature made for
    one cannot serve as the other.

    Without TLS, which is for trials on one machine only, there are no keys: consents are empty,
    anybody on that machine can make them up, and the log says ``"signed": false``.

    Parameters
    ----------
    name
        This node.
    run
        The 32 bytes of the run.
    security
        Its certificate and key, and the authority; None without TLS.
    revoked
        The signed parts (sha256) of certificates that all agreed not to count.
    """

    def __init__(
        self,
        name: str,
        run: bytes,
        security: Security | None,
        revoked: Collection[str] = (),
    ) -> None:
        self.name, self._run, self._security = name, run, security
        self._revoked = frozenset(revoked)
        self._roots = [] if security is None else load_certificates(security.authority)

    @property
    def signed(self) -> bool:
        """Whether consents are signed here."""
        return self._security is not None

    def own(self, text: bytes | None = None) -> Consent:
        """Say that this node agrees; or sign another text in the same way."""
        if self._security is None:
            return _UNSIGNED
        chain = load_certificates(self._security.certificate)
        text = text or signed_text(self._run, self.name)
        signature = sign(load_signing_key(self._security.key), text)
        texts = [to_base64(item.public_bytes(Encoding.DER)) for item in chain]
        # The authority itself is at every node.
        roots = {root.public_bytes(Encoding.DER) for root in self._roots}
        texts = texts[:1] + [
            text
            for text, item in zip(texts[1:], chain[1:], strict=True)
            if item.public_bytes(Encoding.DER) not in roots
        ]
        try:
            return Consent(certificates=texts, signature=to_base64(signature))
        except ValueError:
            raise ParameterError(
                "a certificate must have at most 3 others between it and the authority, with it at "
                f"most {LONGEST_CONSENT} bytes in base64; {self._security.certificate} has more."
            ) from None

    def fault(self, name: str, consent: Consent, text: bytes | None = None) -> str:
        """What is wrong with the consent of a node, or with another text that it signed.

        Nothing if it holds.
        """
        if self._security is None:
            return "" if consent == _UNSIGNED else "it is signed, though this node has no TLS"
        if not consent.certificates or not consent.signature:
            return "it is not signed"
        try:
            chain = [
                x509.load_der_x509_certificate(from_base64(text)) for text in consent.certificates
            ]
            found = certificate_fault(name, chain[0], chain[1:], self._roots, datetime.now(UTC))
            if signed_part(chain[0]) in self._revoked:
                found = "its certificate is revoked"
            if not found:
                key = chain[0].public_key()
                text = text or signed_text(self._run, name)
                verify(key, from_base64(consent.signature), text)
        except InvalidSignature:
            return "its signature is not of this run by the key of the certificate"
        except Exception:  # whatever another's bytes do to a parser, they are no consent
            return "its certificate cannot be read"
        return found


AGREEMENT_TOPIC: Final = "agreement"
_FACTS: Final = "facts"
_MOST_SHOWN: Final = 5
_MOST_COUNTED: Final = 1000
# Between two questions: short at first, then longer.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# How long a node that refuses still answers, so that its neighbours learn why.
_GRACE: Final = 2.0
_ABSENT: Final = "nothing"


class Disagreement(ExchangeError):
    """Nodes that were told different things; nothing was started."""


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of plain data differ: the place, our value and theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(set(ours) | set(theirs), key=str):
            inside = f"{place}.{key}" if place else str(key)
            yield from differences(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), inside)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs) and not any(isinstance(item, dict) for item in ours):
            yield place, ours, theirs
            return
        for number in range(max(len(ours), len(theirs))):
            first, second = (
                side[number] if number < len(side) else _ABSENT for side in (ours, theirs)
            )
            yield from differences(first, second, f"{place}.{number + 1}")
    elif type(ours) is not type(theirs) or ours != theirs:
        yield place, ours, theirs


def disagreement(name: str, ours: Any, theirs: Agreeing) -> str:
    """The sentence about what another node was told otherwise; empty where all is the same."""
    found = list(islice(differences(ours, theirs.facts), _MOST_COUNTED))
    if not found:
        return ""
    shown = "; ".join(
        f"{visible(place)} is {_shown(here)} here and {_shown(there)} there"
        for place, here, there in found[:_MOST_SHOWN]
    )
    more = len(found) - _MOST_SHOWN
    shown += f"; and {more} more" if more > 0 else ""
    if theirs.dpadmm != __version__:
        shown += f" (it runs dpadmm {theirs.dpadmm}, this node {__version__})"
    return (
        f"the run must be the same at every node; {name} differs: {shown}. Nothing was started, "
        "and nothing more was spent."
    )


class Agreement:
    """Compares what this node was told with what its neighbours were told.

    Parameters
    ----------
    session
        Its connections.
    facts
        What must be the same everywhere; plain data.
    nodes
        All nodes of the run.
    consents
        Signs for this node, and checks what others signed.
    before
        Everybody's consents, if it was agreed before: this node goes on.
    on_refused
        Called with a message that should not have been sent: its sender, a code and a sentence.
    """

    def __init__(
        self,
        session: PeerSession,
        facts: Mapping[str, Any],
        nodes: tuple[str, ...],
        consents: Consents,
        *,
        before: Mapping[str, Consent] | None = None,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
    ) -> None:
        self._session = session
        # As it looks on the wire, so that like is compared with like.
        self._facts: Any = json.loads(json.dumps(dict(facts)))
        self._nodes = set(nodes)
        self._limits = Limits(frozenset(nodes))
        self._longest = agreement_limit(len(nodes))
        self._consents = consents
        self._tell_refused = on_refused
        self._lock = threading.Lock()
        own = consents.own()
        self._agreed = dict(before or {}) | {session.name: own}
        # About as long as what others answer: the facts, and everybody's consent.
        self._said = len(json.dumps(self._facts)) + len(nodes) * len(own.model_dump_json())
        self._heard: set[str] = set()
        self._fault = ""
        self._reached = before is not None
        session.serve(AGREEMENT_TOPIC, self._answer)

    def reach(self, timeout: float) -> dict[str, Consent]:
        """Wait until everybody agrees; return all consents.

        Raises
        ------
        Disagreement
            If somebody does not, or not in time; nothing was started here.
        """
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            for neighbour in self._session.neighbours:
                self._session.ask(
                    AGREEMENT_TOPIC,
                    neighbour,
                    _FACTS,
                    self._take,
                    timeout=2.0,
                    longest=self._said,
                )
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
            with self._lock:
                fault = self._fault
                missing = self._nodes - set(self._agreed)
                unheard = set(self._session.neighbours) - self._heard
            if fault:
                time.sleep(_GRACE)
                raise Disagreement(fault)
            if not missing and not unheard:
                # Whatever is said from now on changes nothing, nor what others are told.
                with self._lock:
                    self._reached = True
                    return dict(self._agreed)
            if time.monotonic() > deadline:
                raise passing(
                    Disagreement(
                        f"all nodes must agree on the run within {timeout:g} s; not heard of: "
                        f"{', '.join(sorted(missing | unheard))}. Nothing more was spent. Check "
                        "that they run and can be reached."
                    )
                )

    def _answer(self, label: str) -> bytes | None:
        if label != _FACTS:
            return None
        with self._lock:
            agreed = {} if self._fault and not self._reached else dict(self._agreed)
        content = Agreeing(
            dpadmm=__version__,
            facts=self._facts,
            consents=agreed,
            names=self._session.claims.told(),
        )
        return content.to_bytes()

    def _take(self, name: str, label: str, data: bytes) -> None:
        if self._reached:
            return
        try:
            theirs = said(Agreeing, data, name, self._limits, longest=self._longest)
        except BadMessage as error:
            self._tell_refused(name, error.reason, error)
            with self._lock:
                self._fault = self._fault or str(error)
            return
        differs = disagreement(name, self._facts, theirs)
        good = {} if differs else self._checked(name, theirs.consents)
        with self._lock:
            taken = theirs.names.get(self._session.name)
            if taken not in (None, instance_hash(self._session.instance)):
                self._fault = (
                    f"the name {self._session.name!r} must be one node's; {name} hears another "
                    "under it. Stop one of the two, and make sure that nobody else has its key. "
                    "Nothing was started here."
                )
            elif differs:
                self._fault = differs
            else:
                self._heard.add(name)
                for node, consent in good.items():
                    self._agreed.setdefault(node, consent)

    def _checked(self, name: str, consents: Mapping[str, Consent]) -> dict[str, Consent]:
        """The consents that are new and hold; whoever handed on another one is reported."""
        with self._lock:
            new = {node: item for node, item in consents.items() if node not in self._agreed}
        for node, consent in list(new.items()):
            fault = self._consents.fault(node, consent)
            if fault:
                del new[node]
                sentence = f"{name} must hand on what {node} signed; {fault}: not counted."
                self._tell_refused(name, "bad-consent", ExchangeError(sentence))
        return new


class _Noted(Utterance):
    consents: dict[str, Consent]


def consents_note(consents: Mapping[str, Consent]) -> str:
    """What to note about an agreement."""
    return _Noted(consents=dict(consents)).to_bytes().decode("ascii")


def noted_consents(
    note: str | None, nodes: tuple[str, ...], *, signed: bool
) -> dict[str, Consent] | None:
    """The consents of an agreement that was reached before; None where nodes must agree anew."""
    if note is None:
        return None
    try:
        consents = noted(_Noted, note, "the agreement").consents
    except ExchangeError:
        return None
    whole = set(consents) == set(nodes) and all(
        bool(consent.signature) == signed for consent in consents.values()
    )
    return consents if whole else None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
