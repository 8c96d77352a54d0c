"""A party as a Flower ``ClientApp``: ``clientapp = "dpadmm.flower.client_app:app"``.

Its owner says who answers when the SuperNode is started; nothing that a server sends can change it:

* ``--node-config 'keeper="/run/dpadmm/north.socket"'``: a process of the owner's
  (:mod:`dpadmm.flower.keeper`), whose files the code that Flower runs cannot reach;
* ``--node-config 'node="/srv/dpadmm/node.toml"'``: this process. Then whoever hands apps to the
  SuperLink must be trusted with the rows, since a SuperNode runs the code that it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dpadmm.errors import ExchangeError, needs_extra

with needs_extra("flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp

    from dpadmm.flower.keeper import ask_keeper
    from dpadmm.flower.party import answer
    from dpadmm.flower.server import RECORD, Answer

_UNNAMED: Final = (
    "this party could not answer: the --node-config of its SuperNode must have keeper or node, one "
    "of them."
)
_NO_KEEPER: Final = "this party could not answer: its keeper does not run."


def make_client_app(nodes: Sequence[str | Path] | None = None) -> ClientApp:
    """A ``ClientApp`` that answers a server's questions from the owner's files.

    Parameters
    ----------
    nodes
        For Flower's simulation, which has all parties in one process: the ``node.toml`` of every
        one of them. A SuperNode of its own says which file is its party's.
    """
    made = ClientApp()

    def train(message: Message, context: Context) -> Message:
        found = _answered(context.node_config, _content(message), nodes)
        record = ConfigRecord(found.plain())
        return Message(RecordDict({RECORD: record}), reply_to=message)

    # Not as a decorator: Flower may not be there to say what it returns.
    made.train()(train)
    return made


def _answered(told: Any, content: dict[str, Any], nodes: Sequence[str | Path] | None) -> Answer:
    """The answer of the party that the owner named, or of a simulated one by its number."""
    if nodes is not None:
        return answer(Path(nodes[int(told["partition-id"])]), content)
    keeper, node = told.get("keeper"), told.get("node")
    if isinstance(keeper, str) and node is None:
        try:
            return ask_keeper(Path(keeper), content)
        except ExchangeError:
            return Answer("", refusal=_NO_KEEPER, again=True)
    if isinstance(node, str) and keeper is None:
        return answer(Path(node), content)
    return Answer("", refusal=_UNNAMED, again=True)


def _content(message: Message) -> dict[str, Any]:
    """The values of the record that a server sent; empty where there is none."""
    record = message.content.get(RECORD) if message.has_content() else None
    return dict(record) if isinstance(record, ConfigRecord) else {}


app = make_client_app()
