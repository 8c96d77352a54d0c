"""Nodes that evaluate their model on rows kept out: parity, kills, accounts, refusals."""

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.errors import ParameterError
from dpadmm.federation.config import load_node_config
from dpadmm.federation.runtime import prepare_node
from dpadmm.ledger.balance import RowRange
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease
from dpadmm.run.config import RunConfig
from dpadmm.run.files import train_run
from dpadmm.run.model import load_model

KEY = 5
NAMES = ("north", "south", "west")
EVALUATED = {
    "algorithm": "dp-gd",
    "topology": "server",
    "rounds": 6,
    "holdout": 0.25,
    "evaluate": True,
}


@pytest.fixture
def build(fork_server, tmp_path):
    """Make a federation that evaluates, its files written; with ledgers unless it simulates."""
    made = []

    def build(simulation=None, averager=None, tls=False, **run):
        federation = Federation(
            tmp_path / "federation",
            fork_server,
            NAMES,
            tls=tls,
            averager=averager,
            run={**EVALUATED, **run},
        )
        federation.simulated = simulation is not None and federation.shared
        for name in federation.nodes:
            if name == averager:
                federation.write(name)
                continue
            if simulation is None:
                federation.make_ledger(name)
            federation.write(name, simulation=simulation)
        made.append(federation)
        return federation

    yield build
    for federation in made:
        federation.close()


def quality(federation, name):
    return load_model(federation.folder / f"{name}.model").classifier.quality


def in_one_process(federation, key):
    run = {name: value for name, value in federation.run.items() if name != "run_id"}
    parties = [{"name": name, "file": f"{name}.csv"} for name in NAMES]
    content = {
        "run": run | {"simulation_key": key},
        "data": {"schema": "schema.toml"},
        "party": parties,
        "result": {"model": "all.model", "report": False},
    }
    return train_run(RunConfig.from_dict(content, federation.folder)).model


@pytest.mark.parametrize(
    ("averager", "tls", "options"),
    [(None, False, {}), ("hub", False, {}), ("hub", True, {"noise": "shared"})],
)
def test_nodes_evaluate_as_one_process_does(build, averager, tls, options):
    federation = build(simulation=KEY, averager=averager, tls=tls, algorithm_options=options)
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    expected = in_one_process(federation, KEY).classifier
    for name in NAMES:
        found = quality(federation, name)
        assert found.about == "held out"
        assert found.rows == expected.quality.rows == {"north": 10, "south": 13, "west": 15}
        np.testing.assert_allclose(
            found.histogram.counts, expected.quality.histogram.counts, rtol=0, atol=1e-6
        )
        assert found.histogram.noise_variance == expected.quality.histogram.noise_variance
        assert set(found.privacy.parties) == {name}


def test_a_killed_node_evaluates_once(build):
    federation = build(averager="hub")
    for name in federation.nodes:
        federation.start(name)
    # Nobody is through with the round while west is away: it is killed once it has begun.
    federation.wait_for("west", "evaluating")
    federation.kill("west")
    federation.start("west")
    federation.finish()
    counts = [quality(federation, name).histogram.counts for name in NAMES]
    assert np.array_equal(counts[0], counts[1])
    assert np.array_equal(counts[0], counts[2])
    for name in NAMES:
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
        training, evaluation = account.runs.values()
        assert evaluation.rows == (training.rows.stop, federation.rows[name])
        assert (len(evaluation.events), len(evaluation.commits)) == (1, 1)
        # Training and evaluation spend the same epsilon on different rows: it counts once.
        assert account.spent_epsilon == pytest.approx(1.0, abs=1e-6)
        assert account.spent_epsilon <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"noise": "shared"}])
def test_a_node_that_stays_away_is_evaluated_with_later(build, options):
    federation = build(averager="hub", tls=bool(options), algorithm_options=options)
    short = {"when_lost": "stop", "lost_after": 4, "serve_for": 1}
    for name in federation.nodes:
        federation.write(name, policy=short)
        federation.start(name)
    federation.wait_for("west", "results-written")
    federation.kill("west")
    for name in ("north", "south"):
        assert federation.wait(name) == 0, federation.output(name)
        # What was paid for is there; nothing is said of how good it is.
        told = federation.log(name, "not-evaluated") or federation.log(name, "evaluated")
        assert told
    federation.wait("hub")
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    counts = [quality(federation, name).histogram.counts for name in NAMES]
    assert np.array_equal(counts[0], counts[1])
    assert np.array_equal(counts[0], counts[2])
    with SQLiteLedger(federation.folder / "north.ledger") as ledger:
        assert [len(run.events) for run in ledger.verify().runs.values()] == [6, 1]


def test_probabilities_without_a_holdout_stay_within_the_budget(build):
    federation = build(holdout=0.0, evaluate=False, probabilities=True)
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    for name in NAMES:
        model = load_model(federation.folder / f"{name}.model")
        assert model.classifier.quality.about == "trained on"
        assert 0.99 < model.privacy.epsilon <= 1.0
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert 0.99 < ledger.verify().spent_epsilon <= 1.0


def test_a_histogram_is_stated_before_it_is_sent(build):
    federation = build(holdout=0.0, evaluate=False, probabilities=True)
    for name in federation.nodes:
        federation.start(name)
    # What it has written by now it leaves behind, whoever is lost before the histogram is there.
    federation.wait_for("west", "results-written")
    federation.kill("west")
    assert 0.99 < load_model(federation.folder / "west.model").privacy.epsilon <= 1.0


def test_nodes_that_do_not_hear_everybody_refuse_before_a_row_is_read(build):
    with pytest.raises(ParameterError, match=r"topology must be 'server' or 'complete'"):
        build(algorithm="pr-admm", topology="path")


def test_an_evaluation_that_would_not_fit_is_refused_before_the_training(build):
    federation = build()
    path = federation.folder / "north.ledger"
    with SQLiteLedger(path) as ledger, ledger.open_run("other", "x", rows=RowRange(30, 40)) as run:
        run.reserve(0, GaussianRelease(1.0, 5.0))
    for name in federation.nodes:
        federation.start(name)
    assert federation.wait("north") == 2
    assert "is left for rows 31 to 40" in federation.output("north")
    with SQLiteLedger(path) as ledger:
        assert list(ledger.account.runs) == ["other"]


def test_an_evaluation_that_was_refused_is_not_stated_as_charged(build):
    federation = build()
    for name in federation.nodes:
        federation.write(name, policy={"when_lost": "stop", "lost_after": 4, "serve_for": 1})
    for name in ("north", "south"):
        federation.start(name)
    # The evaluation fitted when the run was opened; by now somebody else spends on those rows.
    federation.wait_for("north", "agreeing")
    path = federation.folder / "north.ledger"
    with SQLiteLedger(path) as ledger, ledger.open_run("other", "x", rows=RowRange(30, 40)) as run:
        run.reserve(0, GaussianRelease(1.0, 5.0))
    federation.start("west")
    for name in NAMES:
        assert federation.wait(name) == 0, federation.output(name)
        assert federation.log(name, "not-evaluated")
    for name in NAMES:
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            runs = ledger.verify().runs
        drawn = [len(run.events) for run_id, run in runs.items() if "evaluation" in run_id]
        stated = str(load_model(federation.folder / f"{name}.model").privacy)
        # The others may have sent their histograms before they learnt that north sends none.
        assert ("Their evaluation is charged" in stated) == (drawn == [1])
        assert ("this statement is about the others" in stated) == (drawn != [1])
        assert name != "north" or drawn != [1]


def test_the_owner_limits_what_is_asked_for_in_all(build):
    # The training alone spends less than what the run asks for.
    federation = build(holdout=0.0, evaluate=False, probabilities=True)
    federation.write("north", policy={"epsilon": 0.97})
    config = load_node_config(federation.folder / "north.toml")
    assert federation.agreed.plan(federation.schema).budget.epsilon[0] < 0.97
    with pytest.raises(
        ParameterError, match=r"epsilon must be at most what \[policy\] allows, 0.97"
    ):
        prepare_node(config, insecure_loopback=True)


def test_a_node_counts_what_its_ledger_has_of_the_run_from_other_outputs(build):
    """The messages are those of the ledgers; another mean of them is another model to evaluate."""
    federation = build(output="last")
    for name in NAMES:
        (federation.folder / f"{name}.ledger").unlink()
        federation.make_ledger(name, 3.0)
    stated = []
    for output in ("last", "mean"):
        federation.run["output"] = output
        for name in NAMES:
            federation.remove_results(name)
            federation.write(name)
            federation.start(name)
        federation.finish()
        model = load_model(federation.folder / "north.model")
        with SQLiteLedger(federation.folder / "north.ledger") as ledger:
            spent = ledger.verify().spent_epsilon
        assert model.privacy.epsilon == pytest.approx(spent, rel=1e-5)
        stated.append(model.privacy)
    first, second = stated
    assert (first.epsilon <= 1.0, first.caveats) == (True, ())
    assert second.epsilon > 1.3
    (caveat,) = second.caveats
    assert "the ledgers have 1 other evaluation under this run, counted here" in caveat
    assert caveat in (federation.folder / "north.statement").read_text()
    assert "Caveat: Evaluated before" in federation.output("north")


def test_an_evaluation_of_another_model_does_not_stand_for_that_of_this_run(build):
    federation = build()
    path = federation.folder / "north.ledger"
    name = f"{federation.run['run_id']} evaluation {'0' * 16}"
    with SQLiteLedger(path) as ledger, ledger.open_run(name, "x", rows=RowRange(30, 40)) as run:
        run.reserve(0, GaussianRelease(1.0, 5.0))
    for node in federation.nodes:
        federation.start(node)
    assert federation.wait("north") == 2
    assert "is left for rows 31 to 40" in federation.output("north")
    with SQLiteLedger(path) as ledger:
        assert list(ledger.account.runs) == [name]
