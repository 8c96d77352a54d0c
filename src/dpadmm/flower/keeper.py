r"""A process of the party's owner that answers for it, so that Flower's code never sees a row.

A SuperNode runs the code that its SuperLink sends, as the user who started it: whatever that user
can read or write, whoever hands apps to the SuperLink can. So the party's rows, ledger and policy
belong to another user, who runs

.. code-block:: sh

    python -m dpadmm.flower.keeper --config node.toml --socket /run/dpadmm/north.socket

and the SuperNode is told where to ask, ``--node-config 'keeper="/run/dpadmm/north.socket"'``. Over
the socket goes one line of JSON each way, the values of a question and of an answer, bytes in hex.
The socket is for its owner and group alone.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.config import load_node_config
from dpadmm.flower.party import answer, prepare_party
from dpadmm.flower.server import Answer

# A question has a message and what was agreed on; twice that, for the hex.
_LONGEST_LINE: Final = 1 << 28
# A client that says nothing for so long is dropped.
_PATIENCE: Final = 30.0
_BYTES: Final = "hex:"


class Keeper:
    """Answers, one question after the other, on a socket in the file system.

    Parameters
    ----------
    node_file
        The owner's ``node.toml``.
    place
        Where the socket is made; what an earlier keeper left there is replaced.
    """

    def __init__(self, node_file: Path, place: Path) -> None:
        self._node_file, self._place = node_file, place
        if place.exists() and not place.is_socket():
            raise ParameterError(f"socket must be a new file; {place} is something else.")
        place.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            before = os.umask(0o117)
            try:
                self._listener.bind(str(place))
            finally:
                os.umask(before)
        except OSError as error:
            self._listener.close()
            raise ParameterError(
                f"socket must be in a folder that can be written; got {place}: {error.strerror}."
            ) from None
        self._listener.listen()

    def serve_one(self) -> None:
        """Wait for one question and answer it; ignore a client that breaks off."""
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                content = _receive(connection)
                connection.sendall(_line(answer(self._node_file, content).plain()))
            except (OSError, ValueError, RecursionError):
                return

    def close(self) -> None:
        """Stop answering."""
        self._listener.close()
        self._place.unlink(missing_ok=True)


def ask_keeper(place: Path, content: Mapping[str, Any]) -> Answer:
    """The keeper's answer to what a server asked.

    Raises
    ------
    ExchangeError
        If nobody answers there.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(place))
            connection.sendall(_line(content))
            return Answer.read(_receive(connection))
        except (OSError, ValueError):
            raise ExchangeError(
                f"keeper must be the socket of a keeper that runs; nobody answers at {place}."
            ) from None


def _line(content: Mapping[str, Any]) -> bytes:
    """One line of JSON; bytes are hex behind a mark, which no text may begin with."""
    marked = {
        name: f"{_BYTES}{value.hex()}" if isinstance(value, bytes) else value
        for name, value in content.items()
    }
    return json.dumps(marked, default=repr).encode("ascii") + b"\n"


def _receive(connection: socket.socket) -> dict[str, Any]:
    """The values of one line."""
    with connection.makefile("rb") as file:
        line = file.readline(_LONGEST_LINE)
    content = json.loads(line)
    if not line.endswith(b"\n") or not isinstance(content, dict):
        raise ValueError("a line must be whole, and hold values by their names")
    return {
        name: bytes.fromhex(value.removeprefix(_BYTES))
        if isinstance(value, str) and value.startswith(_BYTES)
        else value
        for name, value in content.items()
    }


def main(words: list[str] | None = None) -> None:
    """Answer until the process ends; refuse at once what a party would refuse."""
    parser = argparse.ArgumentParser(
        prog="python -m dpadmm.flower.keeper",
        description="Answer a Flower server's questions for one party, from its owner's files.",
    )
    parser.add_argument("--config", type=Path, required=True, help="The party's node.toml.")
    parser.add_argument("--socket", type=Path, required=True, help="Where its SuperNode asks.")
    told = parser.parse_args(words)
    try:
        setup = prepare_party(load_node_config(told.config))
        keeper = Keeper(told.config, told.socket)
    except ValueError as error:
        parser.exit(2, f"Error: {error}\n")
    for sentence in setup.warnings:
        sys.stderr.write(f"Warning: {sentence}\n")
    sys.stderr.write(f"{setup.name} answers for run {setup.run.hex()[:12]} at {told.socket}.\n")
    try:
        while True:
            keeper.serve_one()
    except KeyboardInterrupt:
        parser.exit(130)
    finally:
        keeper.close()


if __name__ == "__main__":
    main()
