"""What a node makes of the part that it ran."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.federation.party import _about_losses, _ahead, _noise_error, _others
from dpadmm.federation.runtime import NodeSetup
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import PostProcessing
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.charges import evaluation_id
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import noise_error, state_whole

NAMES = ("east", "north", "south", "west")


def planned(algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = TrainingParameters(algorithm=algorithm, rounds=3, loss="huber-hinge")
        return plan(told, [300, 200, 200, 100], features=5, names=NAMES)


def part(told, names, *, gone=(), lost=None):
    hearing = SimpleNamespace(names=names, lost=lost, refused_sum=None)
    view, outcome = SimpleNamespace(planned=told, lost=gone), SimpleNamespace(course=None)
    return SimpleNamespace(hearing=hearing, view=view, outcome=outcome)


def test_the_error_of_the_noise_is_that_of_the_messages_that_were_heard():
    ring = planned("pr-admm")
    own = _noise_error(part(ring, ("north", "east", "south")), "last")
    assert own == noise_error(ring, "last", (1, 0, 2))
    assert own != noise_error(ring, "last")
    # Where one model stands for all, everybody is in it.
    summed = planned("dp-gd")
    assert _noise_error(part(summed, ("the mean",)), "auto") == noise_error(summed)


@pytest.mark.parametrize("how", [{"gone": ("west",)}, {"lost": "west"}])
def test_a_run_that_did_not_go_as_planned_has_no_error_that_is_known(how):
    assert _noise_error(part(planned("dp-gd"), NAMES, **how), "auto") is None


def of_node(folder, **run):
    """A node of an agreed run, and its part of the run."""
    made = Federation(folder, None, NAMES, tls=False, run=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = made.agreed.plan(made.schema)
    config = SimpleNamespace(node=SimpleNamespace(name="north"))
    setup = NodeSetup(config, made.agreed, made.schema, told, None, ())
    run_id = made.agreed.run.run_id
    view = SimpleNamespace(lost=("west",), agreed=made.agreed, run_id=run_id)
    hearing = SimpleNamespace(lost=None, refused_sum=None, done=3)
    node = SimpleNamespace(setup=setup, ledger=None)
    return SimpleNamespace(
        node=node, view=view, hearing=hearing, own=told.of_party(1), number=1, is_whole=True
    )


SERVED = {"algorithm": "dp-gd", "topology": "server", "rounds": 4}


def test_who_went_on_relies_on_what_the_run_was_to_spend_in_all(tmp_path):
    # The training has a part of the budget, the histogram the rest.
    run = of_node(tmp_path, **SERVED, probabilities=True)
    assert run.own.budget.epsilon[0] < 1.0
    assert "Rely on the agreed budget, (1, 0.001), of which" in _about_losses(run, run)[-1]


def test_a_histogram_that_is_to_come_is_told_in_epsilon(tmp_path):
    """A node states it before it knows whether there is one; never less than it is charged."""
    run = of_node(tmp_path, **SERVED, probabilities=True)
    weights = np.ones((1, run.own.site.features))
    ahead = _ahead(run.node, run, weights, over=False)
    events = announced(run.own)
    wish = run.view.agreed.run.wish
    stated = state_whole(run.own, events, SimulatedNoise(1), wish, ahead=ahead)
    words = dict(stated.details)["Probabilities"]
    shown = re.search(r"10% of the run's mu\^2 .* it is \(([0-9.]+), 0\.001\)-diff", words)
    charged = epsilon_spent(ahead[0], 1e-3).epsilon
    assert charged <= float(shown[1]) < charged * (1 + 1e-4)


def test_who_went_on_with_the_noise_of_a_paper_relies_on_what_is_proven(tmp_path):
    run = of_node(tmp_path, algorithm="dvp", calibration="published", rounds=4)
    proven = run.node.setup.proven.epsilon
    assert proven > 1.0
    words = f"Rely on what is proven of the agreed run, ({AtMost(proven)}, 0.001), of which"
    assert words in _about_losses(run, run)[-1]


def test_an_evaluation_that_was_charged_is_stated_though_its_training_is_not_whole_again(tmp_path):
    run = of_node(tmp_path, **SERVED, probabilities=True)
    whole = run.node.setup.whole()
    expected, weights = whole.expected(), np.ones((1, whole.training.site.features))
    counted = _ahead(run.node, run, weights, over=False)
    assert len(counted[0]) == 1
    run.is_whole = False
    assert _ahead(run.node, run, weights, over=False) == ()
    data = ChargedData("rows", "north", whole.rows["north"])
    with SQLiteLedger.create(tmp_path / "north.ledger", data, Policy(2.0, 1e-3)) as ledger:
        run.node.ledger = ledger
        with ledger.open_run(run.view.run_id, "x") as trained:
            trained.reserve(0, PostProcessing())
        with ledger.open_run(evaluation_id(run.view.run_id, expected), "x") as evaluated:
            # What was opened alone cost nothing.
            assert _others(run.node, run, weights).names == ()
            evaluated.reserve(0, *counted[0])
        others = _others(run.node, run, weights)
        assert (others.trained_on, others.kept_out) == (counted, ((),))
        # Once it is whole, that is its own evaluation, which is stated as such.
        run.is_whole = True
        assert _others(run.node, run, weights).names == ()
        assert _others(run.node, run, 2 * weights).trained_on == counted
