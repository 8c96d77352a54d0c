"""One node of a federation: from its owner's configuration to a model.

The order is fixed: whatever can be refused is refused first, by this node's own files and its
owner's policy; then rows are read; then all nodes agree; only then is anything reserved in the
ledger. From there on the engine runs as it does everywhere, and a node that is killed at any point
goes on from its ledger and its messages when it is started again.
"""

from __future__ import annotations

from contextlib import ExitStack

from dpadmm.federation.averager import average
from dpadmm.federation.party import train_node
from dpadmm.federation.recovery import Departure, LeftOut, SomebodyLeft
from dpadmm.federation.runtime import NodeRuntime
from dpadmm.federation.setup import NodeSetup
from dpadmm.federation.transport.mailbox import Mailbox
from dpadmm.federation.watcher import Watcher
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES
from dpadmm.run.result import Run


def run_node(setup: NodeSetup, watcher: Watcher) -> Run | None:
    """Run a node to its end: the results are written, and late neighbours were served.

    Returns
    -------
    Run or None
        What was trained; nothing at a server.

    Raises
    ------
    LeftOut
        If the others go on without this node; what it trained before is written.
    """
    config = setup.config
    agreed = setup.agreed
    watcher.join(str(agreed.run.run_id))
    # A larger graph nobody could read, and the status file would grow with its square.
    if len(agreed.nodes) <= MOST_PARTIES:
        links = agreed.links(setup.planned)
        if len(links) <= MOST_LINKS:
            watcher.graph(agreed.nodes, links, agreed.server)
    trained: Run | None = None
    with ExitStack() as stack:
        node = NodeRuntime.open(setup, watcher, stack)
        choice = setup.planned.choice
        if choice is not None:
            advice = {"advice": choice.advice} if choice.advice else {}
            watcher.event("algorithm-chosen", choice=choice.reason, **advice)
        if config.node.role == "server":
            mailbox, departure = average(node)
        else:
            mailbox, departure, trained = train_node(node)
        if departure is None or not departure.left_out:
            watcher.serving(config.policy.serve_for)
        late = _serve(mailbox, departure, config.policy.serve_for)
        if late:
            watcher.event("neighbours-late", level="warning", missing=late)
    early = trained is not None and trained.model.provenance["federation"]["lost"] is not None
    if early and departure is not None and departure.left_out:
        raise LeftOut(setup.name, trained)
    watcher.finished()
    return trained


def _serve(mailbox: Mailbox, departure: Departure | None, seconds: float) -> tuple[str, ...]:
    """Hand out the last rounds to late neighbours; return who did not finish in time."""
    while departure is None or not departure.left_out:
        try:
            return mailbox.finish(seconds)
        except SomebodyLeft as error:
            # This node has all its rounds. The others learn how far it is, and go on among
            # themselves.
            assert departure is not None
            rounds = departure.first_sent + mailbox.rounds
            departure.freeze(error.name, rounds, rounds)
    # The others need nothing of a node that they go on without.
    return ()
