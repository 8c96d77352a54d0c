"""What is left to the algorithm: its loss, and the kind of its noise."""

import numpy as np
import pytest

from dpadmm.algorithms import REGISTRY
from dpadmm.errors import ParameterError
from dpadmm.privacy.events import GaussianObjectivePerturbation, PureRelease, single_events
from dpadmm.run.parameters import (
    ALGORITHM,
    ALGORITHM_ROUNDS,
    TrainingParameters,
    chosen_loss,
)
from dpadmm.run.plan import announced, plan

PERTURBED = ("dvp", "m-admm", "r-admm", "mr-admm")
ROWS = np.full(3, 2000)


def charged_kinds(parameters, features=5):
    """The kinds of the first round's charges."""
    first = announced(plan(parameters, ROWS, features=features))[0][0]
    return {type(part) for part, _ in single_events(first)}


@pytest.mark.parametrize("name", REGISTRY)
def test_noise_gets_huber_hinge_where_the_algorithm_can_take_it(name):
    expected = "huber-hinge" if REGISTRY[name].private and name != "pdml" else "logistic"
    assert TrainingParameters(name).settled().loss == expected


@pytest.mark.parametrize(("name", "loss"), [("admm", "logistic"), ("pr-admm", "huber-hinge")])
def test_a_plan_has_the_loss_that_was_chosen(name, loss):
    assert plan(TrainingParameters(name), ROWS, features=5).site.loss.name == loss


@pytest.mark.parametrize("name", REGISTRY)
def test_a_published_calibration_keeps_the_papers_loss(name):
    assert chosen_loss("auto", name, {}, "published") == "logistic"


def test_a_bound_that_is_proven_for_one_loss_gets_that_loss():
    parameters = TrainingParameters("pr-admm", algorithm_options={"public_norm": True})
    assert plan(parameters, ROWS, features=5).site.loss.name == "logistic"


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
@pytest.mark.parametrize("name", ["admm", "pr-admm", "pdml"])
def test_a_loss_that_is_named_stays(name, loss):
    assert TrainingParameters(name, loss=loss).settled().loss == loss


def test_an_unknown_loss_lists_the_known_ones():
    with pytest.raises(ParameterError, match=r"loss must be one of.*logistic.*got 'automatic'"):
        plan(TrainingParameters("pr-admm", loss="automatic"), ROWS, features=5)


@pytest.mark.parametrize("options", [{}, {"noise": "auto"}])
@pytest.mark.parametrize("name", PERTURBED)
def test_noise_is_gaussian_where_its_proof_is_ours(name, options):
    parameters = TrainingParameters(name, algorithm_options=options)
    assert parameters.settled().algorithm_options == {"noise": "gaussian"}
    assert GaussianObjectivePerturbation in charged_kinds(parameters)


@pytest.mark.parametrize("name", PERTURBED)
def test_the_papers_noise_is_there_on_request_and_in_a_published_calibration(name):
    asked = TrainingParameters(name, algorithm_options={"noise": "exp-norm"})
    published = TrainingParameters(name, calibration="published", penalty=0.2, epsilon=10.0)
    for parameters in (asked, published):
        assert parameters.settled().algorithm_options == {"noise": "exp-norm"}
        assert PureRelease in charged_kinds(parameters)


@pytest.mark.parametrize(
    ("name", "option"), [("dvp", "epsilon_per_round"), ("m-admm", "noise_rate")]
)
def test_an_option_in_the_papers_terms_means_the_papers_noise(name, option):
    parameters = TrainingParameters(name, epsilon=100.0, algorithm_options={option: 0.1})
    assert parameters.settled().algorithm_options["noise"] == "exp-norm"
    assert PureRelease in charged_kinds(parameters)


@pytest.mark.parametrize("name", ["admm", "pr-admm", "ps-admm", "pdml"])
def test_options_of_other_algorithms_stay_as_they_are(name):
    assert TrainingParameters(name).settled().algorithm_options == {}


def test_the_rounds_that_are_asked_for_by_default_are_those_of_the_default_algorithm():
    assert REGISTRY[ALGORITHM].default_rounds == ALGORITHM_ROUNDS
