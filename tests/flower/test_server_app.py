"""The server among Flower's nodes: who is asked again, who is not counted, when it ends."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed: make flower-test")

from flwr.app import ConfigRecord, RecordDict

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.flower import server_app
from dpadmm.flower.server import RECORD, Answer, Question
from dpadmm.flower.server_app import Asking

QUESTION = Question(bytes(32), 0, b"", b"{}")
NAMES = ("north", "south")


class Grid:
    """Flower's grid: nodes are functions from how often they were asked to an answer, or None."""

    def __init__(self, nodes):
        self._nodes, self.asked = nodes, dict.fromkeys(nodes, 0)
        self._waiting = {}

    def get_node_ids(self):
        return list(self._nodes)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.asked[node] += 1
            numbers.append(f"{node}-{self.asked[node]}")
            self._waiting[numbers[-1]] = (node, self._nodes[node](self.asked[node]))
        return numbers

    def pull_messages(self, numbers):
        for number in numbers:
            node, answer = self._waiting.get(number, (0, None))
            if answer is not None:
                yield reply(number, node, answer)


def reply(number, node, answer):
    facts = SimpleNamespace(reply_to_message_id=number, src_node_id=node)
    error = SimpleNamespace(code=7) if answer == "error" else None
    content = RecordDict()
    if isinstance(answer, Answer):
        content = RecordDict({RECORD: ConfigRecord(answer.plain())})
    return SimpleNamespace(
        metadata=facts, content=content, error=error, has_error=lambda: error is not None
    )


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(server_app, "_PAUSE", 0.001)
    monkeypatch.setattr(server_app, "_RETRY", 0.001)
    monkeypatch.setattr(server_app, "Message", _message)


def _message(content, **facts):
    return SimpleNamespace(content=content, metadata=SimpleNamespace(**facts))


def ask(nodes, lost_after=20.0, ask_again=10.0):
    grid = Grid(nodes)
    parties = server_app._Parties(grid, NAMES, Asking(lost_after, ask_again))
    return grid, parties.ask(QUESTION)


def good(name):
    return lambda times: Answer(name, b"message")


def test_everybody_is_asked_once():
    grid, found = ask({1: good("north"), 2: good("south")})
    assert {name: answer.message for name, answer in found.items()} == dict.fromkeys(
        NAMES, b"message"
    )
    assert grid.asked == {1: 1, 2: 1}


@pytest.mark.parametrize("first", [Answer("south", refusal="busy", again=True), "error"])
def test_trouble_that_may_pass_is_asked_about_again(first):
    grid, found = ask({1: good("north"), 2: lambda times: first if times < 3 else good("south")(1)})
    assert set(found) == set(NAMES)
    assert grid.asked == {1: 1, 2: 3}


def test_who_does_not_answer_is_asked_again():
    silent = {1: good("north"), 2: lambda times: None if times < 2 else good("south")(1)}
    assert ask(silent, ask_again=0.01)[0].asked == {1: 1, 2: 2}


def test_a_run_ends_with_who_is_missing():
    with pytest.raises(ExchangeError, match=r"within 0\.05 s; south did not.*start the run again"):
        ask({1: good("north")}, lost_after=0.05)


def test_a_refusal_ends_the_run_with_its_sentence():
    no = Answer("south", refusal="the run must be the same; \x1b[31mNothing was spent.")
    with pytest.raises(ExchangeError) as found:
        ask({1: good("north"), 2: lambda times: no})
    assert "south refused: the run must be the same" in str(found.value)
    assert "\x1b" not in str(found.value)


def test_strangers_are_not_counted_and_nobody_is_twice():
    strange = {3: good("east"), 1: good("north"), 2: good("south")}
    assert set(ask(strange)[1]) == set(NAMES)
    with pytest.raises(ExchangeError, match="two say that they are 'north'"):
        ask({1: good("north"), 3: good("north"), 2: lambda times: None})


def test_what_is_no_answer_does_not_count():
    with pytest.raises(ExchangeError, match=r"node 1: a party's answer must be one that can be"):
        ask({1: lambda times: "nothing", 2: good("south")}, lost_after=0.05)
    strange = {1: good("north"), 2: good("south"), 3: lambda times: "nothing"}
    assert set(ask(strange)[1]) == set(NAMES)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "agreed in the run configuration must be the path"),
        ({"agreed": "a", "schema": 3}, "schema in the run configuration must be the path"),
        ({"noise": 0}, "and no others; got noise"),
    ],
)
def test_a_run_configuration_is_checked(told, words):
    with pytest.raises(ParameterError, match=words):
        server_app._configured(told)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_are_seconds(seconds):
    with pytest.raises(ParameterError, match="lost-after must be a number of seconds above 0"):
        Asking(lost_after=seconds)
