"""Peers over mutual TLS, several in one process: who may connect, who may write, what is let in."""

import threading
import time
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

import zenoh
from tests.helpers.federation_net import bare_client, free_ports, has_ipv6, sign_again

from dpadmm.errors import ParameterError
from dpadmm.federation.identity import make_authority, make_certificate
from dpadmm.federation.reach import probe
from dpadmm.federation.transport.mailbox import Mailbox, NeighbourLost, Patience
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MemoryStore, MessageFile
from dpadmm.federation.transport.wire import encode_message

RUN = bytes(range(32))
SHAPE = (1, 1, 3)
NAMES = ("a", "b", "c")
QUICK = Patience(timeout=10.0, first_question=0.05, longest_pause=0.2, report=0.2)


def message(party, t, value=None):
    return encode_message(
        RUN, party, t, np.full(SHAPE, float(10 * party + t if value is None else value))
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    for name in (*NAMES, "d"):
        make_certificate(folder, name, authority=folder)
    return folder


class Net:
    """Sessions and mailboxes of a path a - b - c, and whatever a test adds."""

    def __init__(self, folder):
        self.folder = folder
        self.ports = dict(zip((*NAMES, "d"), free_ports(4), strict=True))
        self.events = {name: [] for name in (*NAMES, "d")}
        self.waits = {name: [] for name in NAMES}
        self.sessions = []
        self.stores = []

    def security(self, name, authority=None):
        folder = authority or self.folder
        return Security(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")

    def session(self, name, neighbours, security=None):
        session = PeerSession(
            name,
            f"127.0.0.1:{self.ports[name]}",
            {other: f"127.0.0.1:{self.ports[other]}" for other in neighbours},
            security or self.security(name),
            lease=2.0,
            instance=name,
            on_event=lambda event, **facts: self.events[name].append((event, facts)),
        )
        self.sessions.append(session)
        return session

    def mailbox(self, name, neighbours, store=None, patience=QUICK, security=None):
        session = self.session(name, neighbours, security)
        self.stores.append(store or MemoryStore())
        return Mailbox(
            session,
            RUN,
            NAMES.index(name),
            {other: NAMES.index(other) for other in neighbours},
            SHAPE,
            self.stores[-1],
            patience=patience,
            on_refused=lambda other, reason, error: self.events[name].append(
                ("message-refused", {"neighbour": other, "reason": reason, "error": str(error)})
            ),
            on_waiting=lambda other, seconds: self.waits[name].append((other, seconds)),
        )

    def told(self, name, event):
        return [facts for kind, facts in self.events[name] if kind == event]

    def wait_for(self, name, event, seconds=10.0):
        deadline = time.monotonic() + seconds
        while not self.told(name, event):
            assert time.monotonic() < deadline, f"{name} was not told {event}: {self.events[name]}"
            time.sleep(0.02)
        return self.told(name, event)

    def close(self):
        for part in (*self.sessions, *self.stores):
            part.close()


@pytest.fixture
def net(certificates):
    net = Net(certificates)
    yield net
    net.close()


def play(mailbox, number, sources, rounds, begin=0):
    for t in range(begin, rounds):
        mailbox.send(t, message(number, t))
        heard = {other: mailbox.receive(other, t) for other in sources}
        for other, data in heard.items():
            assert data == message(other, t)
        mailbox.keep(t, {number: message(number, t), **heard})


def together(*tasks):
    failures = []

    def guarded(task):
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_rounds_over_mutual_tls(net):
    a, b, c = (
        net.mailbox("a", ["b"]),
        net.mailbox("b", ["a", "c"]),
        net.mailbox("c", ["b"]),
    )
    together(
        lambda: play(a, 0, [1], 20), lambda: play(b, 1, [0, 2], 20), lambda: play(c, 2, [1], 20)
    )
    together(lambda: a.finish(5), lambda: b.finish(5), lambda: c.finish(5))
    assert not any(net.told(name, "message-refused") for name in NAMES)


def test_a_late_and_a_restarted_node_get_the_same_bytes_again(net, tmp_path):
    stores = {name: MessageFile(tmp_path / name) for name in "ab"}
    a = net.mailbox("a", ["b"], stores["a"])
    a.send(0, message(0, 0))  # nobody is there to hear it
    b = net.mailbox("b", ["a"], stores["b"])
    together(lambda: play(a, 0, [1], 5), lambda: play(b, 1, [0], 5))
    net.sessions[-1].close()
    net.sessions.pop()
    stores["b"].close()
    again = net.mailbox("b", ["a"], MessageFile(tmp_path / "b"))
    # Complete rounds come from the file, the next ones from the network.
    together(lambda: play(a, 0, [1], 8, begin=5), lambda: play(again, 1, [0], 8))
    # A node that lost its file asks for everything.
    net.sessions[-1].close()
    net.sessions.pop()
    lost = net.mailbox("b", ["a"], MessageFile(tmp_path / "another"))
    play(lost, 1, [0], 8)


def test_a_stranger_is_named_and_neither_heard_nor_answered(net):
    b = net.mailbox("b", ["a"])
    b.send(0, message(1, 0))
    stranger = net.session("d", ["b"])
    heard = []
    stranger.hear(RUN.hex(), lambda *words: heard.append(words))
    assert net.wait_for("b", "stranger-refused")[0] == {"level": "warning", "node": "d", "count": 1}
    # It tries every name there is, past its own checks.
    for name in ("a", "d"):
        key = f"dpadmm/{RUN.hex()}/{name}/message"
        stranger._session.put(key, message(0, 0, 7.0), attachment=name)
    stranger.ask(RUN.hex(), "b", "0", lambda *words: heard.append(words), timeout=0.5)
    time.sleep(0.7)
    b.send(0, message(1, 0))
    time.sleep(0.2)
    assert heard == []
    with pytest.raises(NeighbourLost):
        Mailbox.receive(_hurried(b), 0, 0)
    assert net.told("b", "message-refused") == []


def _hurried(mailbox):
    mailbox._patience = Patience(timeout=0.3, first_question=0.05)
    return mailbox


def test_a_neighbour_cannot_write_as_another(net):
    b = net.mailbox("b", ["a", "c"])
    # One of our own would not even send it.
    c = bare_client(net.ports["b"], net.folder, "c")
    for name in ("a", "c"):
        key = f"dpadmm/{RUN.hex()}/{name}/message"
        c.put(key, message(0, 0, 7.0), attachment=name)
    refused = net.wait_for("b", "message-refused")
    assert [facts["neighbour"] for facts in refused] == ["c"]
    assert "must have the party 2; got 0" in refused[0]["error"]
    a = net.mailbox("a", ["b"])
    a.send(0, message(0, 0))
    assert b.receive(0, 0) == message(0, 0)
    c.close()


@pytest.mark.parametrize("fault", ["another authority", "expired", "not yet valid", "none"])
def test_no_connection_without_a_valid_certificate(net, tmp_path, fault, capfd):
    b = net.session("b", ["a"])
    if fault == "another authority":
        make_authority(tmp_path)
        make_certificate(tmp_path, "a", authority=tmp_path)
        foreign = net.security("a", tmp_path)
        impostor = Security(net.folder / "ca.pem", foreign.certificate, foreign.key)
    elif fault != "none":
        days = {"expired": (-2, -1), "not yet valid": (1, 2)}[fault]
        sign_again(net.folder, "a", tmp_path, begin=days[0], end=days[1])
        impostor = net.security("a", tmp_path)
    if fault == "none":
        with pytest.raises(zenoh.ZError):
            bare_client(net.ports["b"], net.folder, None)
    else:
        net.session("a", ["b"], impostor)
        time.sleep(1.0)
    assert not b.present("a")
    assert net.events["b"] == []
    words = {
        "another authority": "invalid peer certificate",
        "expired": "certificate expired",
        "not yet valid": "certificate not valid yet",
        "none": "peer sent no certificates",
    }
    assert words[fault] in capfd.readouterr().out


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_whose_certificate_opens_a_connection_at_the_dialled_address(net, tmp_path, host):
    """Zenoh trusts the web's authorities, too, when it dials: here one stands for them."""
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    web = tmp_path / "web"
    make_authority(web)
    make_certificate(web, "shop", hosts=["shop.example"])
    make_certificate(web, "b", hosts=["shop.example"])
    make_certificate(tmp_path, "c", hosts=["elsewhere.example"], authority=net.folder)
    trusted = tmp_path / "ca.pem"
    trusted.write_text((net.folder / "ca.pem").read_text() + (web / "ca.pem").read_text())
    dialling = Security(trusted, net.folder / "a.pem", net.folder / "a.key")
    # Whoever is dialled takes all comers, so that the one who dials decides.
    for folder, name, expected in (
        (tmp_path, "c", ("neighbour-here", {"neighbour": "c"})),
        (web, "shop", ("stranger-refused", {"level": "warning", "node": "shop", "count": 1})),
        (web, "b", ("neighbour-here", {"neighbour": "b"})),
    ):
        port, own, nobody = free_ports(3)
        shown = Security(trusted, folder / f"{name}.pem", folder / f"{name}.key")
        neighbour, events = "b" if name == "shop" else name, []
        with (
            PeerSession(name, f"{host}:{port}", {"a": f"127.0.0.1:{nobody}"}, shown),
            PeerSession(
                "a",
                f"{host}:{own}",
                {neighbour: f"{host}:{port}"},
                dialling,
                on_event=lambda event, events=events, **facts: events.append((event, facts)),
            ) as session,
        ):
            # As documented: hosts are compared at an IPv4 address, and not at an IPv6 address.
            expected_events = [expected] if host == "[::1]" else []
            deadline = time.monotonic() + (10 if expected_events else 1.5)
            while time.monotonic() < deadline and (not events or not expected_events):
                time.sleep(0.02)
            assert events == expected_events
            # An answer to one's own question counts by the federation's authority and the host.
            own_files = net.security("a")
            reason = probe(neighbour, f"{host}:{port}", own_files).reason
            assert reason == ("unknown-authority" if folder == web else "host-not-in-certificate")
            assert session.present(neighbour) == (expected[0] == "neighbour-here" and bool(events))


def test_without_tls_only_on_this_machine():
    with pytest.raises(ParameterError, match=r"127\.0\.0\.1 or \[::1\] without TLS; got '10\.0\.0"):
        PeerSession("a", "127.0.0.1:7447", {"b": "10.0.0.2:7447"}, None)
    with pytest.raises(ParameterError, match="without TLS"):
        PeerSession("a", "0.0.0.0:7447", {}, None)


def test_bad_messages_are_dropped_and_told_of(net):
    b, a = net.mailbox("b", ["a"]), net.session("a", ["b"])
    net.wait_for("b", "neighbour-here")
    good = message(0, 0)
    nan = encode_message(RUN, 0, 0, np.full(SHAPE, np.nan))
    bad = {
        "garbage": (bytes(len(good)), "damaged", "damaged"),
        "long": (good + b"x", "wrong-size", "must have 120 bytes"),
        "short": (good[:-1], "wrong-size", "must have 120 bytes"),
        "empty": (b"", "wrong-size", "must have 120 bytes"),
        "nan": (nan, "not-finite", "must be finite"),
        "huge": (message(0, 0, 1e7), "too-large", "at most 1e+06"),
        "run": (encode_message(bytes(32), 0, 0, np.zeros(SHAPE)), "wrong-run", "must have the run"),
        "party": (message(1, 0), "wrong-party", "must have the party 0; got 1"),
        "shape": (
            encode_message(RUN, 0, 0, np.zeros((1, 3, 1))),
            "wrong-shape",
            "must have the shape",
        ),
        "round": (message(0, 2), "not-due", "round 2 of a is not due"),
    }
    for data, _, _ in bad.values():
        a.publish(RUN.hex(), "message", data)
    a.publish(RUN.hex(), "message", good)
    assert b.receive(0, 0) == good
    assert b.refused == Counter(("a", reason) for _, reason, _ in bad.values())
    for facts, (_, reason, words) in zip(
        net.told("b", "message-refused"), bad.values(), strict=True
    ):
        assert facts["reason"] == reason
        assert words in facts["error"]
    a.publish(RUN.hex(), "message", good)  # again: no harm
    a.publish(RUN.hex(), "message", message(0, 0, 5.0))  # another one: named, and the first stands
    deadline = time.monotonic() + 5
    while ("a", "two-messages") not in b.refused:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert b.receive(0, 0) == good


def test_ten_thousand_fuzzed_messages_do_no_harm(net):
    b, a = net.mailbox("b", ["a"]), net.mailbox("a", ["b"])
    net.wait_for("b", "neighbour-here")
    random = np.random.default_rng(0)
    good = message(0, 0)
    count = 0
    for _ in range(10_000):
        data = bytearray(good)
        for _ in range(int(random.integers(1, 4))):
            data[int(random.integers(len(data)))] ^= int(random.integers(1, 256))
        if random.random() < 0.5:
            data = data[: int(random.integers(len(data)))] or random.bytes(50)
        net.sessions[-1].publish(RUN.hex(), "message", bytes(data))
        count += bytes(data) != good
    together(lambda: play(a, 0, [1], 3), lambda: play(b, 1, [0], 3))
    assert sum(b.refused.values()) == count
    assert set(b.refused) <= {("a", "damaged"), ("a", "wrong-size")}


def test_two_different_messages_for_a_past_round_are_named(net, tmp_path):
    b, a = net.mailbox("b", ["a"], MessageFile(tmp_path / "b")), net.mailbox("a", ["b"])
    together(lambda: play(a, 0, [1], 3), lambda: play(b, 1, [0], 3))
    net.sessions[-1].publish(RUN.hex(), "message", message(0, 1))  # a replay: no harm
    net.sessions[-1].publish(RUN.hex(), "message", message(0, 1, 5.0))
    (refused,) = net.wait_for("b", "message-refused")
    assert "a sent two different messages for round 1" in refused["error"]


def test_a_neighbour_that_stays_away_is_waited_for_and_reported(net):
    b = net.mailbox("b", ["a"], patience=Patience(1.5, 0.05, 0.1, 0.1))
    with pytest.raises(NeighbourLost, match=r"a must send round 0; nothing came within 1\.5 s"):
        b.receive(0, 0)
    assert len(net.waits["b"]) >= 2
    assert all(name == "a" for name, _ in net.waits["b"])


def test_a_neighbour_that_leaves_is_noticed(net):
    net.session("b", ["a"])
    a = net.session("a", ["b"])
    net.wait_for("b", "neighbour-here")
    net.sessions.remove(a)
    a.close()
    assert net.wait_for("b", "neighbour-gone") == [{"level": "warning", "neighbour": "a"}]


def test_nobody_is_warned_of_a_neighbour_that_said_that_it_ended(net):
    b, a = net.session("b", ["a"]), net.session("a", ["b"])
    net.wait_for("b", "neighbour-here")
    b.left.add("a")
    net.sessions.remove(a)
    a.close()
    assert net.wait_for("b", "neighbour-gone") == [{"level": "info", "neighbour": "a"}]


def test_who_tells_neighbours_different_things_is_named_at_the_end(net, tmp_path):
    stores = {name: MessageFile(tmp_path / name) for name in "ab"}
    a = net.mailbox("a", ["b", "c"], stores["a"])
    b = net.mailbox("b", ["a", "c"], stores["b"])
    # c is a neighbour of both, and answers them differently.
    for name, value in (("a", 1.0), ("b", 2.0)):
        other = net.session("c", [name])
        other.serve(
            RUN.hex(),
            lambda label, value=value: message(2, int(label), value) if label.isdigit() else None,
        )
        net.ports["c"] = free_ports(1)[0]

    def rounds(mailbox, number, other):
        for t in range(3):
            mailbox.send(t, message(number, t))
            heard = {source: mailbox.receive(source, t) for source in (other, 2)}
            mailbox.keep(t, {number: message(number, t), **heard})
        mailbox.finish(0.5)

    together(lambda: rounds(a, 0, 1), lambda: rounds(b, 1, 0))
    for name, other in (("a", "b"), ("b", "a")):
        (refused,) = net.wait_for(name, "message-refused")
        # On a neighbour's word alone nobody else is accused: the sentence says what may be.
        assert (refused["neighbour"], refused["reason"]) == (other, "heard-otherwise")
        assert f"{other} heard other messages of c than this node" in refused["error"]
    for store in stores.values():
        store.close()
