"""Flower itself: its simulation, and a SuperLink with SuperNodes over TLS.

Run by ``make flower-test`` in an environment of its own: Flower wants older versions of libraries
that the tests are pinned to.
"""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed: make flower-test")

from tests.helpers.federation_net import in_process
from tests.helpers.flower_network import FlowerNetwork
from tests.helpers.flower_parties import NAMES, FlowerParties, FlowerStudy

from dpadmm.flower.client_app import make_client_app
from dpadmm.flower.server_app import Asking, make_server_app
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

KEY = 11
TWO = ("north", "south")


def rounds_of(parties, name):
    """Which rounds a ledger has charged, and which have a message."""
    with SQLiteLedger(parties.folder / f"{name}.ledger", read_only=True) as ledger:
        found = ledger.account.runs.get("trial")
        return ([], []) if found is None else (sorted(found.events), sorted(found.commits))


def coefficients(parties, *names):
    return [load_model(parties.folder / f"{name}.model").classifier.coef for name in names]


def has_models(parties, *names):
    return lambda: all((parties.folder / f"{name}.model").exists() for name in names)


@pytest.mark.filterwarnings("ignore")
def test_flowers_simulation_gives_the_model_of_one_process(tmp_path):
    from flwr.simulation import run_simulation

    parties = FlowerParties(tmp_path / "parties", run={"rounds": 3, "tolerance": 1e-12})
    parties.write_all(simulation=KEY)
    run_simulation(
        make_server_app(parties.server(), Asking(lost_after=300)),
        make_client_app([parties.node_file(name) for name in NAMES]),
        num_supernodes=len(NAMES),
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
    )
    wanted = in_process(parties, tmp_path, KEY)[-1].mean(axis=0)[0]
    for found in coefficients(parties, *NAMES, "hub"):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


SHARED = {"algorithm": "dp-gd", "rounds": 2, "algorithm_options": {"noise": "shared"}}


@pytest.fixture
def network(tmp_path, request):
    names, run, simulation = request.param
    parties = FlowerParties(tmp_path / "parties", names=names, run=run)
    if simulation is not None:
        parties.simulated = True
        parties.write_agreed()
    parties.write_all(simulation=simulation)
    made = FlowerNetwork(parties)
    yield made
    made.close()


@pytest.mark.parametrize("network", [(NAMES, SHARED, KEY)], indirect=True, ids=["shared noise"])
def test_supernodes_over_tls_give_the_model_of_one_process(network, tmp_path):
    parties = network.parties
    network.start_link()
    for name in NAMES:
        network.start_node(name)
    network.run()
    network.wait_for(has_models(parties, *NAMES, "hub"))
    wanted = in_process(parties, tmp_path, KEY)[-1].mean(axis=0)[0]
    for found in coefficients(parties, *NAMES, "hub"):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "network", [(TWO, {"algorithm": "dp-gd", "rounds": 2}, None)], indirect=True, ids=["own noise"]
)
def test_a_lying_server_spends_nothing_and_a_killed_supernode_draws_once(network):
    parties = network.parties
    network.start_link()
    network.start_keeper("south")
    for name in TWO:
        network.start_node(name)
    lie = parties.folder / "lie.toml"
    lie.write_text(parties.agreed_text(rounds=400))
    network.run(agreed=lie)
    network.wait_for(lambda: any(parties.log(name, "question-refused") for name in TWO))
    assert [rounds_of(parties, name) for name in TWO] == [([], []), ([], [])]
    network.run()
    network.wait_for(lambda: rounds_of(parties, "north")[1] == [0])
    network.kill("north")
    with SQLiteLedger(parties.folder / "north.ledger", read_only=True) as ledger:
        drawn = ledger.load_message(ledger.account.runs["trial"].commits[0])
    network.start_node("north")
    network.wait_for(has_models(parties, *TWO, "hub"))
    for name in TWO:
        assert rounds_of(parties, name) == ([0, 1], [0, 1])
    with SQLiteLedger(parties.folder / "north.ledger", read_only=True) as ledger:
        kept = ledger.load_message(ledger.account.runs["trial"].commits[0])
    np.testing.assert_array_equal(kept, drawn)
    north, south, hub = coefficients(parties, *TWO, "hub")
    np.testing.assert_array_equal(north, hub)
    np.testing.assert_array_equal(south, hub)


@pytest.fixture
def study_network(tmp_path):
    parties = FlowerStudy(tmp_path / "parties", "infer", noise="shared", simulated=True)
    parties.write_all(simulation=KEY)
    made = FlowerNetwork(parties)
    yield made
    made.close()


def test_a_study_over_tls_finds_what_one_process_finds_whoever_is_killed(study_network):
    parties = study_network.parties
    study_network.start_link()
    study_network.start_keeper("south")
    for name in NAMES:
        study_network.start_node(name)
    study_network.run()
    study_network.wait_for(lambda: parties.log("north", "round"))
    study_network.kill("north")
    study_network.start_node("north")
    study_network.wait_for(lambda: all(parties.log(name, "finished") for name in NAMES))
    wanted = parties.in_one_process(KEY)
    for name in NAMES:
        record = parties.record(name)
        assert record["found"] == wanted
        assert record["federation"]["agreed_by"] == list(NAMES)
    assert not (parties.folder / "hub.model").exists()
