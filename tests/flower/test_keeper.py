"""A keeper answers on its socket what its party would, and outlives whoever breaks off."""

import os
import socket
import stat
import threading

import pytest

pytest.importorskip("cryptography", reason="the extra 'federation' is not installed")

from tests.helpers.flower_parties import FlowerParties

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.flower import keeper as keeper_module
from dpadmm.flower.keeper import Keeper, ask_keeper, main
from dpadmm.flower.server import Answer

NONSENSE = [b"", b"{", b"[1]\n", b"\xff\n", b'{"run": "hex:zz"}\n', b"[" * 50_000 + b"\n"]


@pytest.fixture
def parties(tmp_path):
    made = FlowerParties(tmp_path / "parties", run={"algorithm": "dp-gd", "rounds": 2})
    made.write_all()
    return made


@pytest.fixture
def place(parties, monkeypatch):
    # A path in the file system is at most about 100 characters for a socket.
    monkeypatch.chdir(parties.folder)
    return parties.folder.relative_to(parties.folder) / "north.socket"


def serve(keeper, times):
    def answer_all():
        for _ in range(times):
            keeper.serve_one()

    thread = threading.Thread(target=answer_all)
    thread.start()
    return thread


def test_a_keeper_answers_as_the_party_does(parties, place):
    question = parties.server().question(0, b"")
    keeper = Keeper(parties.node_file("north"), place)
    thread = serve(keeper, 2)
    found = ask_keeper(place, question.plain())
    assert found.message
    assert found == parties.ask_one("north", question)
    assert "and no others" in ask_keeper(place, {"what": 1.5}).refusal
    thread.join()
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o660
    keeper.close()
    with pytest.raises(ExchangeError, match="nobody answers"):
        ask_keeper(place, question.plain())


@pytest.mark.parametrize("words", NONSENSE)
def test_whoever_breaks_off_or_sends_nonsense_is_forgotten(parties, place, words, monkeypatch):
    monkeypatch.setattr(keeper_module, "_LONGEST_LINE", 1 << 16)
    keeper = Keeper(parties.node_file("north"), place)
    thread = serve(keeper, 2)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place))
        connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert ask_keeper(place, parties.server().question(0, b"").plain()).message
    thread.join()
    keeper.close()


def test_what_an_earlier_keeper_left_is_replaced_but_no_other_file(parties, place):
    Keeper(parties.node_file("north"), place)._listener.close()
    Keeper(parties.node_file("north"), place).close()
    place.write_text("notes")
    with pytest.raises(ParameterError, match="socket must be a new file"):
        Keeper(parties.node_file("north"), place)


def test_a_keeper_refuses_at_its_start_what_its_party_refuses(parties, place, capsys):
    parties.write("north", policy={"epsilon": 0.5})
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(parties.node_file("north")), "--socket", str(place)])
    assert ended.value.code == 2
    assert "epsilon must be at most what [policy] allows" in capsys.readouterr().err
    assert not place.exists()


def test_a_text_is_not_taken_for_bytes_of_a_message():
    """What a party's answer says in words stays words."""
    line = keeper_module._line(Answer("north", refusal="hex:00").plain())
    left, right = socket.socketpair()
    with left, right:
        left.sendall(line)
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(ExchangeError, match="refusal must be of the type str"):
            Answer.read(keeper_module._receive(right))
