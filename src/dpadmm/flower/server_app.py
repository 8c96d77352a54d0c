"""The averaging server as a Flower ``ServerApp``: ``serverapp = "dpadmm.flower.server_app:app"``.

Its run configuration has these keys:

``agreed``, ``schema``
    The files of the agreed run and of the schema.
``model``
    Where the model goes; without it, and of a study, parties alone have results.
``lost-after``
    Seconds without the answer of a party after which the run ends (3600). What was answered stays
    at the parties: started again, the run goes on from there.
``ask-again``
    Seconds after which a party that has not answered is asked again (300).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpadmm.errors import ExchangeError, ParameterError, needs_extra

with needs_extra("flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp

    from dpadmm.federation.transport.wire import BadMessage
    from dpadmm.flower.server import (
        RECORD,
        Answer,
        Question,
        ServerRun,
        average_answers,
        prepare_server,
        write_model,
    )

_KEYS: Final = ("agreed", "schema", "model", "lost-after", "ask-again")
_PAUSE: Final = 0.2
_RETRY: Final = 5.0
_log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Asking:
    """How long to wait for parties.

    Attributes
    ----------
    lost_after
        Seconds without the answer of a party after which the run ends.
    ask_again
        Seconds after which a party that has not answered is asked again.
    """

    lost_after: float = 3600.0
    ask_again: float = 300.0

    def __post_init__(self) -> None:
        for name, value in (("lost-after", self.lost_after), ("ask-again", self.ask_again)):
            # Not a comparison that NaN passes.
            if not 0 < value <= 1e8:
                raise ParameterError(f"{name} must be a number of seconds above 0; got {value!r}.")


def make_server_app(setup: ServerRun | None = None, asking: Asking | None = None) -> ServerApp:
    """A ``ServerApp`` that averages what parties send.

    Parameters
    ----------
    setup, asking
        What it is told, and how long it waits; from Flower's run configuration unless given.
    """
    made = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        run, patience = setup, asking or Asking()
        if run is None:
            run, patience = _configured(context.run_config)
        parties = _Parties(grid, run.agreed.names, patience)
        averaged = average_answers(run, parties.ask, _tell)
        if run.model is not None:
            write_model(run, averaged, run.model)
        _log.info("dpadmm: the run is complete; every party has its results.")

    # Not as a decorator: Flower may not be there to say what it returns.
    made.main()(main)
    return made


def _tell(done: int, rounds: int) -> None:
    _log.info("dpadmm: round %d of %d is complete.", done, rounds)


def _configured(told: Any) -> tuple[ServerRun, Asking]:
    unknown = set(told) - set(_KEYS)
    if unknown:
        raise ParameterError(
            f"the run configuration must have {', '.join(_KEYS)}, and no others; got "
            f"{', '.join(sorted(unknown))}."
        )
    for name in ("agreed", "schema"):
        if not isinstance(told.get(name), str):
            raise ParameterError(
                f"{name} in the run configuration must be the path of a file; got "
                f"{told.get(name)!r}."
            )
    model = told.get("model")
    run = prepare_server(
        Path(told["agreed"]), Path(told["schema"]), None if model is None else Path(str(model))
    )
    defaults = Asking()
    seconds = {
        "lost_after": told.get("lost-after", defaults.lost_after),
        "ask_again": told.get("ask-again", defaults.ask_again),
    }
    return run, Asking(**{name: float(value) for name, value in seconds.items()})


class _Parties:
    """The nodes behind a Flower server; each says which party it is."""

    def __init__(self, grid: Grid, names: tuple[str, ...], patience: Asking) -> None:
        self._grid, self._names, self._patience = grid, names, patience

    def ask(self, question: Question) -> dict[str, Answer]:
        """Ask until every party has answered; ask silent ones again."""
        answers: dict[str, Answer] = {}
        trouble: dict[str, str] = {}
        done: set[int] = set()
        asked: dict[int, float] = {}
        sent: set[str] = set()
        deadline = time.monotonic() + self._patience.lost_after
        while len(answers) < len(self._names):
            now = time.monotonic()
            if now > deadline:
                raise self._lost(answers, trouble)
            present = set(self._grid.get_node_ids())
            # Who went away and came back has forgotten that it was asked.
            asked = {node: at for node, at in asked.items() if node in present}
            again = self._patience.ask_again
            due = [node for node in present - done if now - asked.get(node, -again) >= again]
            if due:
                # What could not be handed over has no number, and is asked again.
                numbers = self._grid.push_messages(self._messages(question, due))
                sent |= {number for number in numbers if number}
                asked |= dict.fromkeys(due, now)
            for node, found in self._replies(sent):
                if found.again:
                    trouble[found.party or f"node {node}"] = found.refusal
                    # In a while, not at once: another process of that party may be at work.
                    asked[node] = now - again + min(again, _RETRY)
                elif node not in done:
                    done.add(node)
                    self._take(answers, found)
            if len(answers) < len(self._names):
                time.sleep(_PAUSE)
        return answers

    def _lost(self, answers: dict[str, Answer], trouble: dict[str, str]) -> ExchangeError:
        missing = [name for name in self._names if name not in answers]
        told = " ".join(f"{name}: {words}" for name, words in trouble.items())
        return ExchangeError(
            f"every party must answer within {self._patience.lost_after:g} s; "
            f"{', '.join(missing)} did not. {told or 'Start their SuperNodes.'} What was answered "
            "is kept there: start the run again to go on."
        )

    def _take(self, answers: dict[str, Answer], found: Answer) -> None:
        if found.party not in self._names:
            _log.warning("dpadmm: %r is no party of the run, and not counted.", found.party)
            return
        if found.refusal:
            raise ExchangeError(f"{found.party} refused: {found.refusal}")
        if found.party in answers:
            raise ExchangeError(
                f"a party must have one node; two say that they are {found.party!r}. Stop one."
            )
        answers[found.party] = found

    def _messages(self, question: Question, nodes: list[int]) -> list[Message]:
        record = ConfigRecord(question.plain())
        return [
            Message(
                RecordDict({RECORD: record}),
                dst_node_id=node,
                message_type="train",
                group_id=str(question.round),
                ttl=self._patience.lost_after,
            )
            for node in nodes
        ]

    def _replies(self, sent: set[str]) -> Iterator[tuple[int, Answer]]:
        """The answers since the last time; each is taken off the list."""
        for reply in self._grid.pull_messages(list(sent)) if sent else ():
            sent.discard(reply.metadata.reply_to_message_id)
            node = reply.metadata.src_node_id
            if reply.has_error():
                # Its words come from the node: they are not shown here.
                words = f"Flower reports its error {int(reply.error.code)}."
                yield node, Answer("", refusal=words, again=True)
                continue
            told = reply.content.get(RECORD)
            try:
                found = Answer.read(dict(told) if isinstance(told, ConfigRecord) else {})
            except BadMessage as error:
                # Whose it is nobody knows: a stranger's must not end the run.
                found = Answer("", refusal=str(error), again=True)
            yield node, found


app = make_server_app()
