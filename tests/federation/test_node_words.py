"""A neighbour with a valid certificate that says what it likes, against real nodes."""

import time

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import BadNeighbour, Federation, bare_client

from dpadmm.federation.agreement import Consents
from dpadmm.federation.recovery import DEPARTURE_TOPIC as DEPARTURE
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.wire import Consent
from dpadmm.ledger.sqlite import SQLiteLedger


@pytest.fixture
def build(fork_server, tmp_path):
    """Write a federation; its nodes are stopped at the end."""
    built = []

    def build(names, run, policy=None):
        federation = Federation(tmp_path / "federation", fork_server, names, run=run)
        built.append(federation)
        for name in names:
            federation.make_ledger(name)
            federation.write(name, policy=policy)
        return federation

    yield build
    for federation in built:
        federation.close()


def spent(federation, name):
    with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
        return ledger.account.spent


def shown(federation, name):
    """What a node printed: no letter of it does anything to a terminal."""
    output = federation.output(name)
    assert output.replace("\n", "").isprintable(), output
    assert "Traceback" not in output
    return output


# -- agreement -----------------------------------------------------------------------------------

PATH = {"topology": "path", "rounds": 5}


def test_nobody_agrees_for_a_node_that_was_never_started(build):
    """North - west - south: west, in between, says that south agreed. Nothing is spent."""
    federation = build(("north", "west", "south"), PATH, {"start_within": 6})
    folder = federation.folder / "certificates"
    federation.start("north")
    west = BadNeighbour(federation)
    south = Consents(
        "south",
        bytes(32),
        Security(folder / "ca.pem", folder / "south.pem", folder / "south.key"),
    ).own()
    try:
        federation.wait_for("north", "agreeing")
        forgeries = {
            "it is not signed": Consent(certificates=[], signature=""),
            "its certificate is another node's": west.consent,
            # South's own hand, for another run.
            "its signature is not of this run": south,
            "its signature is not of": south.model_copy(
                update={"signature": west.consent.signature}
            ),
        }
        for fault, forged in forgeries.items():
            west.consents = {"west": west.consent, "south": forged}
            deadline = time.monotonic() + 20
            while fault not in str(federation.log("north", "message-dropped")):
                assert time.monotonic() < deadline, federation.log("north")
                time.sleep(0.02)
        assert federation.wait("north") == 75
    finally:
        west.session.close()
    assert "not heard of: south. Nothing more was spent" in shown(federation, "north")
    assert not federation.log("north", "agreed")
    assert spent(federation, "north") == 0
    dropped = [entry["facts"] for entry in federation.log("north", "message-dropped")]
    assert {(facts["neighbour"], facts["reason"]) for facts in dropped} == {("west", "bad-consent")}


def test_consents_reach_those_far_away_and_survive_a_restart(build):
    """Everybody's signature is at every node, and a node that agreed goes on without asking."""
    federation = build(("north", "west", "south"), {"topology": "path", "rounds": 30})
    for name in ("north", "west"):
        federation.start(name)
    federation.wait_for("north", "agreeing")
    assert not federation.log("north", "agreed")
    federation.start("south")
    assert federation.wait_for("north", "agreed")["signed"] is True
    federation.kill("north")
    federation.start("north")
    federation.finish()
    assert len(federation.log("north", "agreed")) == 1
    assert federation.log("north", "continued")


def test_another_release_of_the_same_format_agrees(build):
    federation = build(("north", "west"), PATH | {"rounds": 3})
    federation.start("north")
    west = BadNeighbour(federation, dpadmm="9.9.9")
    try:
        federation.wait_for("north", "agreed")
        west.finished = True
        federation.finish("north")
    finally:
        west.session.close()


def test_a_difference_that_another_writes_is_shown_on_one_line(build):
    federation = build(("north", "west"), PATH)
    federation.start("north")
    west = BadNeighbour(federation, dpadmm="9.9.9")
    west.facts = west.facts | {
        "\x1b[2J\ndpadmm: all is well\u202e": "\x1b[31m\n",
        "run": west.facts["run"] | {"rounds": 7},
    }
    try:
        assert federation.wait("north") == 2
    finally:
        west.session.close()
    output = shown(federation, "north")
    assert "run.rounds is 5 here and 7 there" in output
    assert "it runs dpadmm 9.9.9" in output
    assert len(output.splitlines()) == 1
    assert spent(federation, "north") == 0


NO_AGREEMENT = b'{"facts": {}, "consents": {}, "names": {}, "dpadmm": "1"}'
HOSTILE_AGREEMENTS = [
    NO_AGREEMENT + b" " * (4 << 20),
    b'{"dpadmm": "0.1.0", "facts": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    b'{"dpadmm": "\\u001b[2J", "facts": {}, "consents": {}, "names": {}}',
    b'{"dpadmm": "0.1.0", "facts": {"a": 1e999}, "consents": {}, "names": {}}',
    b'{"dpadmm": "0.1.0", "facts": {}, "consents": [], "names": {"x\\n": 1}}',
    NO_AGREEMENT + b" " * (2 << 20),
]


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow), 3, 5])
def test_an_agreement_that_is_none_ends_in_a_sentence(build, number):
    federation = build(("north", "west"), PATH, {"start_within": 4})
    federation.start("north")
    west = BadNeighbour(federation)
    west.agreeing = lambda: HOSTILE_AGREEMENTS[number]
    try:
        assert federation.wait("north") == (75 if number == 0 else 2)
    finally:
        west.session.close()
    # What is longer than a connection may bring never arrives.
    words = "not heard of: west" if number == 0 else "west must send what can be read"
    assert words in shown(federation, "north")
    assert spent(federation, "north") == 0


# -- departure -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    ['{"west": -100}', pytest.param('{"west": 1e999}', marks=pytest.mark.slow)],
    ids=["negative", "infinite"],
)
def test_a_count_out_of_range_bricks_nobody(build, sent):
    """East is lost; west, asked how far it is, says something that no node can be."""
    names = ("north", "south", "east", "west")
    run = {"topology": "complete", "rounds": 12}
    federation = build(names, run, {"when_lost": "continue", "lost_after": 1.5, "serve_for": 1})
    for name in names[:3]:
        federation.start(name)
    west = BadNeighbour(federation)
    words = f'{{"lost": "east", "sent": {sent}}}'.encode()
    lost = []
    west.session.serve(DEPARTURE, lambda label: words if lost else None)
    try:
        federation.wait_for("north", "round", 60)
        federation.kill("east")
        lost.append("east")
        for name in ("north", "south"):
            # It ends with the model of the rounds before; and so it does after a restart.
            for _ in range(2 if name == "north" else 1):
                assert federation.wait(name) == 0, federation.output(name)
                assert (federation.folder / f"{name}.model").exists()
                assert "Traceback" not in federation.output(name)
                federation.start(name)
            told = [entry["facts"] for entry in federation.log(name, "message-dropped")]
            assert ("west", "invalid") in {(facts["neighbour"], facts["reason"]) for facts in told}
    finally:
        west.session.close()


# -- keys ----------------------------------------------------------------------------------------


def test_a_key_with_line_breaks_accuses_nobody_else(federation):
    """West writes to keys that hold what looks like lines of Zenoh's about south."""
    zid = "a03b2fbb5565eb87a69f2f218953f1a7"
    source = "zenoh::net::routing::interceptor::access_control"
    forged = (
        f"2026-11-17T12:26:41.687192Z TRACE rx-0 ThreadId(15) {source}: {zid} on "
        f"Interface(lo)+CertCommonName(south)+Transport(Tls)+{zid} is unauthorized to Put "
        "(ingress) on dpadmm/message/north/x"
    )
    alarm = "2026-11-17T12:26:41.687192Z ERROR rx-0 ThreadId(15) zenoh: south \x1b[31mattacks"
    federation.start("north")
    federation.wait_for("north", "agreeing")
    impostor = bare_client(federation.ports["north"], federation.folder / "certificates", "west")
    for key in (
        f"dpadmm/t/south/x\n{forged}",
        f"dpadmm/t/west/x\n{forged}",
        f"dpadmm/t/south/\x1b[2J\n{alarm}",
        f"dpadmm/t/west/\u202e\n{alarm}",
    ):
        for _ in range(3):
            impostor.put(key, b"1")
        impostor.liveliness().declare_token(f"dpadmm/alive/west/{key.replace('/', '|')}")
    told = federation.wait_for("north", "message-dropped")
    assert (told["neighbour"], told["reason"]) == ("west", "another-name")
    time.sleep(0.5)
    impostor.close()
    for name in ("south", "west"):
        federation.start(name)
    federation.finish()
    for entry in federation.log("north"):
        # Whoever is named in a warning is west, by its certificate; others come and go.
        if entry["level"] != "info" and entry["event"] != "neighbour-gone":
            assert entry["facts"].get("neighbour", "west") == "west", entry
            assert all(
                value.isprintable() for value in entry["facts"].values() if isinstance(value, str)
            )
    assert "south" not in shown(federation, "north").replace(str(federation.folder), "")
