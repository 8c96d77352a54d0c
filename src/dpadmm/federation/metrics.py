"""The numbers of a node for Prometheus (extra ``federation``), on a loopback address.

There are no numbers of the process (seconds of the processor, memory): they would tell about the
local solves, and so about rows.
"""

from __future__ import annotations

from functools import partial
from typing import final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from dpadmm.durable import Closable
from dpadmm.errors import ParameterError
from dpadmm.federation.transport.addresses import joined_address, serving_address

__all__ = ["Metrics"]


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
        host, port = serving_address(
            "metrics", address, anywhere=anywhere, consent="metrics_anywhere is set"
        )
        # A registry of its own: the usual one has the numbers of the process.
        registry = CollectorRegistry()
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        neighbour = ["neighbour"]
        info = gauge("dpadmm_node_info", "1, with names as labels.", ["node", "run"])
        info.labels(node, run).set(1)
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
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ParameterError(
                f"metrics must be on an address that is free; {address} is not: {error.strerror}. "
                "Choose another port."
            ) from None
        #: Where the numbers are.
        self.address = joined_address(host, self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
