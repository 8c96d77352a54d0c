"""The numbers of a node for Prometheus (extra ``federation``), on a loopback address.

There are no numbers of the process (seconds of the processor, memory): they would tell about the
local solves, and so about rows.
"""

from __future__ import annotations

from functools import partial
from typing import Final, final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from dpadmm.durable import Closable
from dpadmm.federation.page_server import Page, PageServer

_TEXT: Final = "text/plain; version=0.0.4"


@final
class Metrics(Closable):
    """Serves the numbers of one node until it is closed.

    Parameters
    ----------
    address
        Where, such as ``127.0.0.1:9464``; port 0 takes a free one.
    node, run
        Labels of ``dpadmm_node_info``.
    anywhere
        Allow an address that other machines reach.
    """

    def __init__(self, address: str, node: str, run: str, *, anywhere: bool = False) -> None:
        # A registry of its own: the usual one has the numbers of the process.
        registry = CollectorRegistry()
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        neighbour = ["neighbour"]
        self._node = node
        self._info = gauge("dpadmm_node_info", "1, with names as labels.", ["node", "run"])
        self.join(run)
        self.round = gauge("dpadmm_round", "Complete rounds.")
        self.rounds = gauge("dpadmm_rounds", "Rounds of the run.")
        self.waiting = gauge(
            "dpadmm_waiting_seconds",
            "For how long this round has waited for a neighbour; 0 when it came.",
            neighbour,
        )
        self.waited = counter("dpadmm_waited_seconds", "All waiting for a neighbour.", neighbour)
        self.unreachable = gauge(
            "dpadmm_unreachable",
            "1 for a neighbour that cannot be reached, by the node's own attempt.",
            neighbour,
        )
        self.sent = counter("dpadmm_sent_bytes", "Bytes of messages sent.")
        self.received = counter("dpadmm_received_bytes", "Bytes of messages received.")
        self.epsilon_spent = gauge("dpadmm_epsilon_spent", "Spent on the data set, by its ledger.")
        self.epsilon_left = gauge(
            "dpadmm_epsilon_left",
            "Epsilon of Gaussian releases that still fit into the data set's budget.",
        )
        self.dropped = counter("dpadmm_dropped_messages", "Messages refused.", ["reason"])
        numbers = Page(_TEXT, lambda: generate_latest(registry).decode("utf-8"))
        self._server = PageServer(
            "metrics",
            address,
            {"/metrics": numbers, "/": numbers},
            anywhere=anywhere,
            consent="metrics_anywhere is set",
            # Other machines call this one by names that only they know.
            any_name=anywhere,
        )
        #: Where the numbers are.
        self.address = self._server.address

    def join(self, run: str) -> None:
        """Name the run; before it has a name there is no ``dpadmm_node_info``."""
        self._info.clear()
        if run:
            self._info.labels(self._node, run).set(1)

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
