"""Every algorithm computes in a federation what one process computes for all parties."""

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation, in_process
from tests.helpers.wards import FOURIER_SCHEMA, POLYNOMIAL_SCHEMA

from dpadmm.algorithms import REGISTRY
from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.wire import decode_masked, decode_message
from dpadmm.run.model import load_model

KEY = 11
ROUNDS = 8
NAMES = ("north", "south", "west")
OPTIONS = {
    "pdml": {"label_epsilon": 2.0},
    # A start of its own for every party, which its neighbours know without being told.
    "m-admm": {"dual_step": 0.04, "start": {"seed": 1, "spread": 0.1}},
}
# Penalties of each party and round, and the mean over all rounds.
OTHERWISE = {
    "m-admm": {
        "penalty": {
            "north": 0.05,
            "south": 0.06,
            "west": [0.05 + 0.01 * t for t in range(ROUNDS)],
        },
        "output": "mean",
    }
}


def federated(federation):
    for name in federation.nodes:
        federation.write(name, simulation=None if name == federation.averager else KEY)
        federation.start(name)
    for name in federation.nodes:
        assert federation.wait(name) == 0, federation.output(name)


@pytest.mark.parametrize(
    ("algorithm", "averager", "tls"),
    [(name, None, name in ("pr-admm", "ps-admm")) for name in REGISTRY]
    + [("consensus-admm", "hub", False), ("ps-admm", "hub", True)],
)
def test_every_round_agrees_with_one_process(fork_server, tmp_path, algorithm, averager, tls):
    server = REGISTRY[algorithm].needs_server
    if algorithm in ("scas-admm", "ps-admm"):
        fork_server.warm()
    run = {
        "algorithm": algorithm,
        "topology": "server" if server else "ring",
        "rounds": ROUNDS,
        "tolerance": 1e-12,
        "algorithm_options": OPTIONS.get(algorithm, {}),
        **OTHERWISE.get(algorithm, {}),
    }
    federation = Federation(
        tmp_path / "federation", fork_server, NAMES, tls=tls, averager=averager, run=run
    )
    federated(federation)
    expected = in_process(federation, tmp_path, KEY)
    digest = federation.agreed.digest(federation.schema)
    for name in NAMES:
        kept = federation.messages(name)
        assert len(kept) == ROUNDS
        for t, messages in enumerate(kept):
            # Gradients are no models: what comes of them is compared below.
            models = {} if REGISTRY[algorithm].hears_everybody else messages
            for party, data in models.items():
                values = decode_message(
                    data, run=digest, party=party, t=t, shape=expected.shape[2:]
                )
                truth = expected[t].mean(axis=0) if party == len(NAMES) else expected[t, party]
                np.testing.assert_allclose(values, truth, rtol=0, atol=1e-9)
        model = load_model(federation.folder / f"{name}.model")
        assert model.classifier.privacy.simulated
        # A ring of three is complete and a server's mean is that of all: everybody's model is one.
        tail = expected[-(ROUNDS // 3) :].mean(axis=(0, 1))[0]
        wanted = tail if REGISTRY[algorithm].private else expected[-1].mean(axis=0)[0]
        if "output" in run:
            wanted = expected.mean(axis=(0, 1))[0]
        np.testing.assert_allclose(model.classifier.coef, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("schema", "features"), [(FOURIER_SCHEMA, 24), (POLYNOMIAL_SCHEMA, 16)])
def test_nodes_train_on_mapped_rows_like_one_process(fork_server, tmp_path, schema, features):
    run = {"algorithm": "dp-gd", "topology": "server", "rounds": ROUNDS}
    federation = Federation(
        tmp_path / "federation", fork_server, NAMES, tls=False, run=run, schema=schema
    )
    federated(federation)
    expected = in_process(federation, tmp_path, KEY)
    for name in NAMES:
        model = load_model(federation.folder / f"{name}.model")
        assert model.schema.feature_names == federation.schema.feature_names
        assert model.schema.sha256 == federation.schema.sha256
        wanted = expected[-(ROUNDS // 3) :].mean(axis=(0, 1))[0]
        assert wanted.shape == (1, features)
        np.testing.assert_allclose(model.classifier.coef, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("topology", ["server", "complete"])
def test_nodes_centre_rows_like_one_process(fork_server, tmp_path, topology):
    run = {
        "algorithm": "dp-gd",
        "topology": topology,
        "rounds": ROUNDS,
        "algorithm_options": {"center": "on"},
    }
    federation = Federation(tmp_path / "federation", fork_server, NAMES, tls=False, run=run)
    assert federation.agreed.plan(federation.schema).algorithm.centres
    federated(federation)
    expected = in_process(federation, tmp_path, KEY)
    assert not expected[0].any()
    for name in NAMES:
        model = load_model(federation.folder / f"{name}.model")
        wanted = expected[-(ROUNDS // 3) :].mean(axis=(0, 1))[0]
        np.testing.assert_allclose(model.classifier.coef, wanted, rtol=0, atol=1e-9)
        assert "5% of the budget centres the rows" in str(model.classifier.privacy)


@pytest.mark.parametrize(
    ("topology", "averager"), [("server", "hub"), ("server", None), ("complete", None)]
)
def test_shared_noise_gives_the_model_of_one_process(fork_server, tmp_path, topology, averager):
    """Around a server, and where every node adds up: sums of words are sums of doubles."""
    run = {
        "algorithm": "dp-gd",
        "topology": topology,
        "rounds": ROUNDS,
        "algorithm_options": {"noise": "shared", "center": "on"},
    }
    federation = Federation(tmp_path / "federation", fork_server, NAMES, averager=averager, run=run)
    federation.simulated = True
    federated(federation)
    expected = in_process(federation, tmp_path, KEY)
    shape = expected.shape[2:]
    digest = federation.agreed.digest(federation.schema)
    summation = federation.agreed.plan(federation.schema).algorithm.summation
    for name in NAMES:
        kept = federation.messages(name)
        assert len(kept) == ROUNDS
        for t, messages in enumerate(kept):
            words = {
                party: decode_masked(data, run=digest, party=party, t=t, shape=shape)
                for party, data in messages.items()
            }
            total = words[len(NAMES)] if averager else sum(words.values())
            assert np.abs(summation.from_words(total)).max() < summation.bound / 10
            with pytest.raises(ExchangeError, match="a sum must be at most"):
                summation.from_words(words[NAMES.index(name)])
        model = load_model(federation.folder / f"{name}.model")
        assert model.classifier.privacy.simulated
        wanted = expected[-(ROUNDS // 3) :].mean(axis=(0, 1))[0]
        np.testing.assert_allclose(model.classifier.coef, wanted, rtol=0, atol=1e-9)
    # Keys are gone with the run.
    assert not list(federation.folder.glob("*.key"))
