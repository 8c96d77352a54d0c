"""What is proven for a label: what is no label's guarantee is refused, the rest is the smallest."""

import math

import pytest

from dpadmm.privacy.accountant import joint_label_delta, joint_label_guarantee
from dpadmm.privacy.events import GaussianRelease, LabelRandomizedResponse, PureRelease


@pytest.mark.parametrize(
    "numbers",
    [
        (0.0, 1.0, 0.5),
        (-0.5, 1.0, 0.5),
        (math.nan, 1.0, 0.5),
        (1.0, -0.5, 0.5),
        (1.0, math.nan, 0.5),
        (1.0, 1.0, -0.5),
        (1.0, 1.0, math.nan),
    ],
)
def test_numbers_that_are_no_budget_are_refused(numbers):
    with pytest.raises(ValueError, match="label_epsilon must be positive, mu_label and epsilon"):
        joint_label_delta(*numbers)


@pytest.mark.parametrize("delta", [-0.5, -1e-9, 1.0, math.nan])
def test_a_delta_that_is_none_is_refused(delta):
    with pytest.raises(ValueError, match=r"delta must be in \[0, 1\)"):
        joint_label_guarantee(LabelRandomizedResponse(1.0), [GaussianRelease(1.0, 1.0)], delta)


def test_labels_of_which_nothing_is_released_cost_nothing():
    assert joint_label_delta(1.0, 0.0, 0.0) == 0
    assert joint_label_delta(1.0, 0.0, 0.5) == 0
    found = joint_label_guarantee(LabelRandomizedResponse(1.0), [GaussianRelease(0.0, 1.0)], 0.0)
    assert (found.epsilon, found.delta, found.scope) == (0.0, 0.0, "label")


@pytest.mark.parametrize("label", [0.01, 0.5, 3.0])
def test_without_delta_the_randomisation_alone_counts(label):
    releases = [GaussianRelease(1e-3, 1.0)]
    found = joint_label_guarantee(LabelRandomizedResponse(label), releases, 0.0)
    assert found.epsilon == label
    assert joint_label_delta(label, 1e-3, label) == 0
    assert joint_label_delta(label, 1e-3, math.nextafter(label, 0.0)) > 0


@pytest.mark.parametrize(("label", "mu"), [(0.5, 0.3), (0.5, 3.0), (2.0, 0.3), (8.0, 5.0)])
@pytest.mark.parametrize("delta", [1e-9, 1e-4, 0.05])
def test_the_epsilon_of_a_label_is_the_smallest(label, mu, delta):
    releases = [(GaussianRelease(mu, 2.0), 4)]
    epsilon = joint_label_guarantee(LabelRandomizedResponse(label), releases, delta).epsilon
    assert 0 <= epsilon <= label
    assert joint_label_delta(label, mu, epsilon) <= delta
    assert epsilon == 0 or joint_label_delta(label, mu, epsilon * (1 - 1e-11)) > delta


def test_releases_that_are_not_gaussian_are_refused():
    with pytest.raises(ValueError, match="Gaussian events only"):
        joint_label_guarantee(LabelRandomizedResponse(1.0), [PureRelease(0.1)], 1e-5)
