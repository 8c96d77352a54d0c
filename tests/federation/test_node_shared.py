"""Noise that real nodes share: what is refused beforehand, and what lies, kills and losses do."""

import json
import shutil
import time
import tomllib
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import sign_again
from tests.helpers.kill_run import Trial
from tests.helpers.shared_run import lie_in_round

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.agreement import Consents, Disagreement, consents_note
from dpadmm.federation.config import AgreedRun, load_node_config
from dpadmm.federation.identity import read_certificate
from dpadmm.federation.recovery import Decision, View
from dpadmm.federation.runtime import NodeRuntime, prepare_node
from dpadmm.federation.transport.session import Security
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.config import validated
from dpadmm.run.model import load_model
from dpadmm.run.plan import announced

NAMES = ("north", "south", "west", "east")
SHARED = {"algorithm": "dp-gd", "topology": "server", "algorithm_options": {"noise": "shared"}}


@pytest.fixture
def build(make_federation):
    """Make a federation with shared noise, its files written."""

    def build(names=NAMES, averager="hub", policy=None, **run):
        return make_federation(names, policy, averager=averager, run={**SHARED, **run})

    return build


def spent(federation, name):
    with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
        return ledger.verify().spent_epsilon


def charged_rounds(federation, name):
    with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
        return [len(record.events) for record in ledger.verify().runs.values()]


# -- before anything is read or spent ------------------------------------------------------------


def change(federation, old, new, name="north"):
    path = federation.folder / f"{name}.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("west = ", "# west = ", "must have the sha256 of every other party's certificate"),
        ("west = ", "waste = ", r"could invent parties; west is not there"),
        ('west = "', 'west = "0', "west under [pins] must be the sha256 of a certificate"),
        ("colluders = 1", "colluders = 2", r"at least what [policy] demands, 2; the agreed"),
        ("colluders = 1", "colluders = 0", "colluders under [policy] must be greater than"),
        ("colluders = 1", "", "colluders under [policy] must be given where noise is shared"),
    ],
)
def test_a_node_does_not_share_noise_with_whom_its_owner_does_not_know(build, old, new, words):
    path = change(build(), old, new)
    with pytest.raises(ParameterError) as refused:
        prepare_node(load_node_config(path))
    assert words in str(refused.value)


def test_pins_are_of_different_certificates_and_its_own_among_them(build):
    federation = build()
    pins = federation.pins
    path = change(federation, pins["west"], pins["south"])
    with pytest.raises(ParameterError, match="another certificate for every party; two agree"):
        prepare_node(load_node_config(path))
    path = change(federation, pins["south"], pins["west"])
    change(federation, pins["south"], pins["west"])
    path = change(federation, pins["north"], pins["east"])
    with pytest.raises(ParameterError, match="the pin of north must be the sha256 of its own"):
        prepare_node(load_node_config(path))


def test_noise_that_can_be_drawn_again_is_not_shared_unless_all_agree(build):
    """Else a node would count on the noise of others that hides nothing."""
    federation = build()
    real = federation.folder / "north.toml"
    federation.write("south", simulation=3)
    with pytest.raises(ParameterError, match="must be true for a node with"):
        prepare_node(load_node_config(federation.folder / "south.toml"))
    before = federation.agreed.digest(federation.schema)
    federation.simulated = True
    assert federation.agreed.digest(federation.schema) != before
    federation.write("south", simulation=3)
    prepare_node(load_node_config(federation.folder / "south.toml"))
    federation.write("north")
    with pytest.raises(ParameterError, match="must be false at a node with a ledger"):
        prepare_node(load_node_config(real))


def test_shared_noise_needs_tls(build):
    path = build().folder / "north.toml"
    with pytest.raises(ParameterError, match="noise must be 'own' without TLS"):
        prepare_node(load_node_config(path), insecure_loopback=True)


def test_a_server_needs_no_pins(build):
    federation = build()
    path = federation.folder / "hub.toml"
    lines = [line for line in path.read_text().splitlines() if line[-67:-65] != ' "']
    path.write_text("\n".join(line for line in lines if line != "[pins]"))
    assert prepare_node(load_node_config(path)).config.pins == {}


def agreed_with(federation, options):
    changes = {"algorithm_options": {"noise": "shared", **options}}
    text = federation.agreed_text(**changes)
    return validated(AgreedRun, tomllib.loads(text), federation.folder, "agreed")


def test_how_many_collude_is_agreed_on(build):
    federation = build()
    schema = federation.schema
    said, unsaid, other = (
        agreed_with(federation, options) for options in ({"colluders": 1}, {}, {"colluders": 2})
    )
    assert unsaid.facts(schema)["colluders"] == 1
    assert other.facts(schema)["colluders"] == 2
    assert len({agreed.digest(schema) for agreed in (said, unsaid, other)}) == 3


def test_cutting_parties_off_never_lowers_how_many_may_collude(build):
    """Of seven three may collude; of five that are left still three, and of four it ends."""
    federation = build(names=tuple(f"n{k}" for k in range(7)))
    agreed, schema = federation.agreed, federation.schema
    whole = View.whole(agreed, agreed.plan(schema), schema)
    first = whole.planned.algorithm
    assert first.summation.colluders == 3
    five = whole.following(Decision("n6", 2, 3), schema).following(Decision("n2", 2, 3), schema)
    algorithm = five.planned.algorithm
    assert (algorithm.summation.parties, algorithm.summation.colluders) == (5, 3)
    assert five.agreed.colluders == 3
    # What is charged is what is drawn: shares of the noise grow as honest parties go.
    event = announced(five.planned)[0][0]
    assert (event.parties, event.colluders) == (5, 3)
    with pytest.raises(ParameterError, match="colluders must be 1 to 2 with 4 parties"):
        five.following(Decision("n0", 2, 3), schema)


def test_noise_after_a_loss_is_new_also_in_a_simulation(build):
    federation = build()
    agreed, schema = federation.agreed, federation.schema
    whole = View.whole(agreed, agreed.plan(schema), schema)
    others = [whole.following(Decision("west", kept, 2), schema) for kept in (0, 1)]
    config = SimpleNamespace(simulation=SimpleNamespace(key=3))
    simulated = SimulatedNoise(3)
    node = NodeRuntime(SimpleNamespace(config=config), None, None, simulated, None, None)
    assert node.noise_of(whole) is simulated
    keys = [node.noise_of(view).identity for view in others]
    assert len({simulated.identity, *keys}) == 3
    assert node.noise_of(others[0]).identity == keys[0]


def test_every_committed_round_stays_charged_and_fewer_are_left(build):
    federation = build()
    agreed, schema = federation.agreed, federation.schema
    whole = View.whole(agreed, agreed.plan(schema), schema)
    events = announced(whole.planned)[0]
    # Two sums are everybody's; somebody has sent five rounds.
    own = tuple(np.zeros((1, 1, 3), dtype=np.uint64) for _ in range(2))
    following = whole.following(Decision("west", 2, 5), schema, own, events[:5])
    assert (following.rounds, following.first_sent) == (7, 2)
    coming = announced(following.planned)[0][2:7]
    assert len(events[:5]) + len(coming) == 10
    following.check_budget("north")


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_after_a_loss_rows_are_centred_as_before_or_once_more(build, noise):
    federation = build(algorithm_options={"noise": noise, "center": "on"}, rounds=100)
    agreed, schema = federation.agreed, federation.schema
    whole = View.whole(agreed, agreed.plan(schema), schema)
    events = announced(whole.planned)[0]
    message = np.zeros((1, 1, 3), dtype=np.uint64 if noise == "shared" else np.float64)
    # The mean row is everybody's: its round is not among those to come.
    known = whole.following(Decision("west", 2, 5), schema, (message,) * 2, events[:5])
    assert known.rounds == 97
    assert announced(known.planned)[0][1:2] * 95 == announced(known.planned)[0][2:97]
    known.check_budget("north")
    # It is not: it is released again, charged again, in the place of several gradients.
    again = whole.following(Decision("west", 0, 1), schema, (), events[:1])
    assert 93 <= again.rounds < 95
    again.check_budget("north")
    assert again.planned.algorithm.centres
    # Whether rows are centred is not decided anew for those who are left.
    assert again.agreed.run.algorithm_options["center"] == "on"


def test_rows_that_were_not_centred_are_not_after_a_loss(build):
    federation = build(rounds=100, epsilon=0.05)
    agreed, schema = federation.agreed, federation.schema
    whole = View.whole(agreed, agreed.plan(schema), schema)
    assert not whole.planned.algorithm.centres
    message = np.zeros((1, 1, 3), dtype=np.uint64)
    left = whole.following(Decision("west", 2, 5), schema, (message,) * 2)
    assert left.agreed.run.algorithm_options["center"] == "off"


def test_who_agrees_by_another_certificate_is_named_and_nothing_is_spent(build):
    """East has a certificate of the same authority and name, but not the one that is pinned."""
    federation = build(averager=None)
    change(federation, federation.pins["east"], federation.pins["east"][::-1])
    for name in NAMES:
        federation.start(name)
    assert federation.wait("north") == 2
    words = "the certificate of east must be the one that [pins] has"
    assert words in federation.output("north")
    for name in NAMES[1:]:
        federation.kill(name)
    assert {name: spent(federation, name) for name in NAMES} == dict.fromkeys(NAMES, 0.0)


def test_a_node_goes_on_by_the_certificate_that_it_agreed_with(build, tmp_path):
    """By its next one nobody would count its keys: an evaluation would wait for them for ever."""
    federation = build(averager=None, topology="complete")
    certificates, place = federation.folder / "certificates", federation.folder / "west.toml"
    (tmp_path / "next").mkdir()
    sign_again(certificates, "west", tmp_path / "next", begin=-1, end=30)
    pins = federation.pins["west"], read_certificate(tmp_path / "next" / "west.pem").fingerprint
    for path in (place, federation.folder / "west.agreed.toml"):
        told = f'rotation = {{west = ["{pins[0]}", "{pins[1]}"]}}\n[run]'
        told = path.read_text().replace("[run]", told, 1)
        path.write_text(told.replace("[pins]", f'[next_pins]\nwest = "{pins[1]}"\n[pins]'))

    def go_on():
        setup = prepare_node(load_node_config(place))
        with Watcher("west", terminal=False) as watcher, ExitStack() as stack:
            node = NodeRuntime.open(setup, watcher, stack)
            agreed = {}
            for name in NAMES:
                files = (certificates / each for each in ("ca.pem", f"{name}.pem", f"{name}.key"))
                agreed[name] = Consents(name, setup.run, Security(*files)).own()
            node.store.take_note(setup.run, "agreed", consents_note(agreed))
            return node.connect()

    go_on()
    place.write_text(place.read_text().replace("certificates/west", f"{tmp_path}/next/west"))
    with pytest.raises(Disagreement, match="must be the one by which west agreed to this run"):
        go_on()


# -- a server that lies --------------------------------------------------------------------------


def test_a_server_that_leaves_out_a_party_ends_the_run_with_the_model_before(build):
    federation = build(rounds=30, policy={"when_lost": "stop", "lost_after": 5, "serve_for": 1})
    sums = lie_in_round(federation, 4)
    bound = federation.agreed.plan(federation.schema).algorithm.summation
    with pytest.raises(ExchangeError, match="a sum must be at most"):
        bound.from_words(sums[-1])
    for name in NAMES:
        assert federation.log(name, "sum-refused")[0]["facts"]["round"] == 4
        record = json.loads((federation.folder / f"{name}.record").read_text())["federation"]
        assert record["rounds_complete"] == 4
        statement = (federation.folder / f"{name}.statement").read_text()
        assert "Ended early: the sum of round 4 was refused" in statement
        # The round whose sum was spoilt is charged, and no other one after it.
        assert charged_rounds(federation, name) == [5]
        assert not list(federation.folder.glob(f"{name}.*.key"))


# -- kills, keys and losses ----------------------------------------------------------------------


def test_a_lost_key_ends_a_node_and_an_old_ledger_is_refused(build, tmp_path):
    federation = build(rounds=100)
    for name in federation.nodes:
        federation.start(name)
    federation.wait_for("west", "round")
    federation.kill("west")
    (key,) = federation.folder.glob("west.*.key")
    ledger = federation.folder / "west.ledger"
    # Opened once, it is rid of what a killed process has left beside it.
    before = spent(federation, "west")
    shutil.copy(ledger, tmp_path / "early.ledger")
    further = len(federation.messages("hub")) + 3
    kept = tmp_path / "kept.key"
    shutil.move(key, kept)
    federation.start("west")
    assert federation.wait("west") == 2
    assert "a session key must be there until the end of its view" in federation.output("west")
    assert spent(federation, "west") == before
    # With its key back it goes on, some rounds further.
    shutil.move(kept, key)
    federation.start("west")
    deadline = time.monotonic() + 60
    while len(federation.messages("hub")) < further:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    federation.kill("west")
    assert spent(federation, "west") > before
    shutil.copy(ledger, tmp_path / "late.ledger")
    shutil.copy(tmp_path / "early.ledger", ledger)
    federation.start("west")
    assert federation.wait("west") == 2
    assert "put back to an older copy. Nothing was drawn" in federation.output("west")
    shutil.copy(tmp_path / "late.ledger", ledger)
    federation.start("west")
    federation.finish()
    models = [load_model(federation.folder / f"{name}.model").classifier.coef for name in NAMES]
    for name, model in zip(NAMES, models, strict=True):
        np.testing.assert_array_equal(model, models[0])
        assert spent(federation, name) == pytest.approx(1, rel=1e-6)
        assert charged_rounds(federation, name) == [100]
    assert not list(federation.folder.glob("*.key"))


@pytest.mark.parametrize("kind", ["shared", "shared-complete"])
def test_nodes_killed_before_and_after_a_loss_share_noise(fork_server, tmp_path, kind):
    # The loss comes early enough that nobody has sent all rounds before it, on a fast machine, too.
    rounds, pause = 200, 0.2
    folder, who = tmp_path / kind, {"losses": 1, "nodes": 4}
    trial = Trial(fork_server, folder, kind, 0, rounds=rounds, pause=pause, lost_after=5, **who)
    found = trial.play(before=2, after=2)
    assert not found.faults, found
    assert found.losses == 1
    assert found.went_on == 3
    left = sorted(set(trial.federation.names) - set(trial.lost))
    folder = trial.federation.folder
    models = [load_model(folder / f"{name}.model").classifier.coef for name in left]
    agreed = []
    for name, model in zip(left, models, strict=True):
        record = json.loads((folder / f"{name}.record").read_text())
        assert record["federation"]["went_on_without"] == trial.lost
        # Everybody went on from one state, and nobody was charged for more rounds than agreed.
        np.testing.assert_array_equal(model, models[0])
        assert sum(charged_rounds(trial.federation, name)) <= rounds
        agreed_by = record["federation"]["agreed_by"]
        assert {name} <= {*agreed_by} <= {*left}
        agreed.append(len(agreed_by))
    # Those who went on signed the same; whoever ended last has heard them all.
    assert max(agreed) == len(left)
