"""What a run can be told, declared once; and what is left to the algorithm."""

import inspect
from dataclasses import fields
from typing import get_args, get_type_hints

import numpy as np
import pytest

from dpadmm.algorithms import REGISTRY
from dpadmm.cli.account import AccountOptions
from dpadmm.cli.plan import PlanOptions
from dpadmm.errors import ParameterError
from dpadmm.estimators import ADMMClassifier
from dpadmm.privacy.events import GaussianObjectivePerturbation, PureRelease, single_events
from dpadmm.run.config import RunSection
from dpadmm.run.options import (
    ALGORITHM,
    ALGORITHM_ROUNDS,
    AUTO,
    OPTIONS,
    TrainingParameters,
    chosen_loss,
    one_of,
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


def surfaces():
    """Who offers options of a run: what each calls its defaults."""
    arrays = inspect.signature(ADMMClassifier).parameters
    commands = {
        each.name: each.default for kind in (AccountOptions, PlanOptions) for each in fields(kind)
    }
    return {
        "estimator": {name: given.default for name, given in arrays.items()},
        "[run]": {name: each.get_default() for name, each in RunSection.model_fields.items()},
        "plan": {each.name: each.default for each in fields(TrainingParameters)},
        "commands": {name: commands[name] for name in OPTIONS if name in commands},
    }


# What differs, and why: estimators and configurations name one algorithm, whose rounds are known;
# a mapping is made anew for each run; commands have a loss and an output of their own, and a plan
# names no algorithm.
EXPECTED = {
    "estimator": {"rounds": ALGORITHM_ROUNDS},
    "[run]": {"rounds": ALGORITHM_ROUNDS},
    "plan": {},
    "commands": {"algorithm": AUTO},
}
APART = {
    "[run]": {"algorithm_options"},
    "plan": {"algorithm", "algorithm_options", "algorithm_chosen"},
    "commands": {"loss", "output"},
}


@pytest.mark.parametrize("surface", EXPECTED)
def test_an_option_is_declared_once(surface):
    offered = surfaces()[surface]
    apart = APART.get(surface, set())
    assert set(offered) - {"algorithm_chosen"} <= set(OPTIONS)
    for name in offered.keys() - apart:
        assert offered[name] == EXPECTED[surface].get(name, OPTIONS[name].default), name


@pytest.mark.parametrize("described", [ADMMClassifier, RunSection])
def test_documentation_comes_from_the_declaration(described):
    words = " ".join(described.__doc__.split())
    assert "<options>" not in words
    for name in inspect.signature(described).parameters:
        assert " ".join(OPTIONS[name].words.split()) in words, name


@pytest.mark.parametrize("command", [AccountOptions, PlanOptions])
def test_help_comes_from_the_declaration(command):
    hints = get_type_hints(command, include_extras=True)
    for name in {"epsilon", "delta", "algorithm", "topology", "rows_per_person"}:
        assert hints[name].__metadata__[0].help == OPTIONS[name].help


def test_choices_are_those_of_the_declaration():
    assert get_args(RunSection.model_fields["output"].annotation) == OPTIONS["output"].choices
    with pytest.raises(ParameterError, match=r"party_weight must be one of.*rows.*got 'even'"):
        one_of("party_weight", "even")
