"""The node without rows that averages what parties send; it adds no noise and keeps no ledger.

Where parties send words under masks it adds them up, and sees nothing but their sum.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpadmm.errors import ParameterError
from dpadmm.federation.agreement import Disagreement
from dpadmm.federation.recovery import Departure, SomebodyLeft, Stretch
from dpadmm.federation.runtime import NodeRuntime
from dpadmm.federation.transport.key_ring import KeyRing
from dpadmm.federation.transport.mailbox import Mailbox, NeighbourLost
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.sum_exchange import added_words
from dpadmm.federation.transport.wire import decode_message, decode_words, encode_message
from dpadmm.plain import Array, Words


def average(node: NodeRuntime) -> tuple[Mailbox, Departure | None]:
    """Average round by round; go on without a lost party if the owner chose to."""
    setup = node.setup
    session = node.connect()
    stretch = Stretch.whole(setup.agreed, setup.planned, setup.schema)
    mailbox: Mailbox | None = None
    while True:
        mailbox, departure, following = _average_stretch(node, session, stretch, mailbox)
        if following is None:
            break
        stretch = following
    expected = setup.whole(stretch.agreed).expected()
    if expected is None or mailbox.rounds < stretch.rounds - stretch.first_sent:
        return mailbox, departure
    # What parties send of the model that came of it; of which model does not matter here.
    judged, _, _ = _average_stretch(node, session, stretch.evaluating(expected), mailbox)
    return (judged, None) if judged.rounds else (mailbox, departure)


def _average_stretch(
    node: NodeRuntime, session: PeerSession, stretch: Stretch, before: Mailbox | None
) -> tuple[Mailbox, Departure | None, Stretch | None]:
    agreed, run, shape = stretch.agreed, stretch.run, stretch.planned.site.shape[1:]
    departure = node.departure(session, stretch)
    number = len(agreed.names)
    sources = {name: place for place, name in enumerate(agreed.names)}
    options = node.mailbox_options(departure, stretch) | {"before": before}
    ring = None if stretch.planned.algorithm.summation is None else KeyRing(agreed.names)
    mailbox = Mailbox(session, run, number, sources, shape, node.store, ring=ring, **options)
    # What parties sign at the end it hands on, as long as it serves them.
    node.same_sums(session, stretch)
    rounds, first = stretch.rounds - stretch.first_sent, stretch.first_sent
    decision = None if departure is None else departure.decided()
    t = node.store.rounds(run)
    while decision is None and t < rounds:
        try:
            if departure is not None and departure.lost:
                raise SomebodyLeft(departure.lost)
            if ring is not None and not ring.complete:
                mailbox.gather(t)
            received = {place: mailbox.receive(place, t) for place in sources.values()}
        except (NeighbourLost, SomebodyLeft) as error:
            slow = isinstance(error, NeighbourLost) and not error.ended
            if slow and session.present(error.name):
                continue
            told = {"neighbour": error.name, "round": first + t}
            node.watcher.event("neighbour-lost", level="error", **told)
            if departure is None:
                break
            departure.freeze(error.name, first + t)
            try:
                decision = departure.settle(node.setup.config.policy.lost_after)
            except Disagreement as refusal:
                node.watcher.event("cannot-go-on", level="error", error=refusal)
            break
        answer = added_up(received, run, t, shape, words=ring is not None)
        mean = encode_message(run, number, t, answer)
        # Kept before it is sent: a restarted server hands out the same bytes.
        mailbox.keep(t, {number: mean, **received})
        mailbox.tell(mean)
        t += 1
        if not stretch.evaluation:
            node.watcher.round(first + t, stretch.rounds)
        node.watcher.bytes(*mailbox.take_counts())
    if decision is None:
        return mailbox, departure, None
    try:
        following = stretch.following(decision, node.setup.schema)
    except ParameterError as refusal:
        node.watcher.event("cannot-go-on", level="error", error=refusal)
        return mailbox, departure, None
    left = list(following.agreed.nodes)
    node.watcher.event("going-on", spec=following.run.hex(), nodes=left, round=decision.kept)
    return mailbox, departure, following


def added_up(
    received: Mapping[int, bytes], run: bytes, t: int, shape: tuple[int, ...], *, words: bool
) -> Array | Words:
    """The mean of the parties' messages, or the sum of their words."""
    if words:
        return added_words(
            [
                decode_words(data, run=run, party=place, t=t, shape=shape)
                for place, data in received.items()
            ]
        )
    heard = [
        decode_message(data, run=run, party=place, t=t, shape=shape)
        for place, data in received.items()
    ]
    mean: Array = np.mean(heard, axis=0)
    return mean
