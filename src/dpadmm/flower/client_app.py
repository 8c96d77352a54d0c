"""A party as a Flower ``ClientApp``: ``clientapp = "dpadmm.flower.client_app:app"``.

Its owner names its ``node.toml`` when the SuperNode is started, ``--node-config
'node="/srv/dpadmm/node.toml"'``; nothing that a server sends can name another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from dpadmm.flower.party import answer
from dpadmm.flower.questions import RECORD, Answer

__all__ = ["app", "make_client_app"]

_UNNAMED = "this party could not answer: its SuperNode was started without a node in --node-config."


def make_client_app(nodes: Sequence[str | Path] | None = None) -> ClientApp:
    """A ``ClientApp`` that answers a server's questions from the owner's files.

    Parameters
    ----------
    nodes
        For Flower's simulation, which has all parties in one process: the ``node.toml`` of every
        one of them. A SuperNode of its own says which file is its party's.
    """
    made = ClientApp()

    @made.train()
    def train(message: Message, context: Context) -> Message:
        file = _node_file(context.node_config, nodes)
        if file is None:
            found = Answer("", refusal=_UNNAMED, again=True)
        else:
            found = answer(file, _content(message))
        record = ConfigRecord(found.plain())
        return Message(RecordDict({RECORD: record}), reply_to=message)

    return made


def _node_file(told: Any, nodes: Sequence[str | Path] | None) -> Path | None:
    """The owner's file: from the SuperNode's own configuration, or by its place in a simulation."""
    if nodes is not None:
        return Path(nodes[int(told["partition-id"])])
    named = told.get("node")
    return Path(named) if isinstance(named, str) else None


def _content(message: Message) -> dict[str, Any]:
    """The values of the record that a server sent; empty where there is none."""
    record = message.content.get(RECORD) if message.has_content() else None
    return dict(record) if isinstance(record, ConfigRecord) else {}


app = make_client_app()
