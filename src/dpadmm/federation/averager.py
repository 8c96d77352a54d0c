"""The node without rows that averages what parties send; it adds no noise and keeps no ledger."""

from __future__ import annotations

import numpy as np

from dpadmm.errors import ParameterError
from dpadmm.federation.agreement import Disagreement
from dpadmm.federation.recovery import Departure, Segment, SomebodyLeft
from dpadmm.federation.runtime import NodeRuntime
from dpadmm.federation.transport.mailbox import Mailbox, NeighbourLost
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import decode_message, encode_message

__all__ = ["average"]


def average(node: NodeRuntime) -> tuple[Mailbox, Departure | None]:
    """Average round by round; go on without a lost party if the owner chose to."""
    prepared = node.prepared
    session = node.connect()
    segment = Segment.whole(prepared.agreed, prepared.planned, prepared.schema)
    while True:
        mailbox, departure, following = _average_segment(node, session, segment)
        if following is None:
            return mailbox, departure
        segment = following


def _average_segment(
    node: NodeRuntime, session: PeerSession, segment: Segment
) -> tuple[Mailbox, Departure | None, Segment | None]:
    agreed, run, shape = segment.agreed, segment.run, segment.planned.site.shape[1:]
    departure = node.departure(session, segment)
    number = len(agreed.names)
    sources = {name: place for place, name in enumerate(agreed.names)}
    options = node.mailbox_options(departure, segment)
    mailbox = Mailbox(session, run, number, sources, shape, node.store, **options)
    decision = None if departure is None else departure.decided()
    t = node.store.rounds(run)
    while decision is None and t < segment.rounds:
        try:
            if departure is not None and departure.lost:
                raise SomebodyLeft(departure.lost)
            received = {place: mailbox.receive(place, t) for place in sources.values()}
        except (NeighbourLost, SomebodyLeft) as error:
            slow = isinstance(error, NeighbourLost) and not error.ended
            if slow and session.present(error.name):
                continue
            node.watcher.event("neighbour-lost", level="error", neighbour=error.name, round=t)
            if departure is None:
                break
            departure.freeze(error.name, t)
            try:
                decision = departure.settle(node.prepared.config.policy.lost_after)
            except Disagreement as refusal:
                node.watcher.event("cannot-go-on", level="error", error=refusal)
            break
        heard = [
            decode_message(data, run=run, party=place, t=t, shape=shape)
            for place, data in received.items()
        ]
        mean = encode_message(run, number, t, np.mean(heard, axis=0))
        # Kept before it is sent: a restarted server hands out the same bytes.
        mailbox.keep(t, {number: mean, **received})
        mailbox.tell(mean)
        t += 1
        node.watcher.round(t, segment.rounds)
        node.watcher.bytes(*mailbox.take_counts())
    if decision is None:
        return mailbox, departure, None
    try:
        following = segment.following(decision, node.prepared.schema)
    except ParameterError as refusal:
        node.watcher.event("cannot-go-on", level="error", error=refusal)
        return mailbox, departure, None
    left = list(following.agreed.nodes)
    node.watcher.event("going-on", spec=following.run.hex(), nodes=left, round=decision.kept)
    return mailbox, departure, following
