"""What a message of a stochastic local solve is charged: every step, and every party its own."""

import numpy as np
import pytest

from dpadmm.privacy.calibration import GradientPerturbation
from dpadmm.privacy.events import Composed, GaussianRelease, Repeated, SubsampledGaussian


def perturbation(form, steps):
    return GradientPerturbation(
        form,
        steps,
        batch=np.array([2, 3]),
        rows=np.array([50, 70]),
        sensitivity=np.array([0.1, 0.2]),
        difference_sensitivity=np.array([0.3, 0.4]),
        gradient_sigma=np.array([1.5, 2.5]),
        difference_sigma=np.array([3.5, 4.5]),
    )


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_every_batch_difference_but_the_first_is_charged(steps):
    assert perturbation("one-release", steps).events() == (
        Composed(
            (
                GaussianRelease(0.1, 1.5),
                Repeated(SubsampledGaussian(2, 50, 1.0, 3.5), steps - 1),
            )
        ),
        Composed(
            (
                GaussianRelease(0.2, 2.5),
                Repeated(SubsampledGaussian(3, 70, 1.0, 4.5), steps - 1),
            )
        ),
    )


@pytest.mark.parametrize("steps", [2, 5])
def test_a_split_charges_the_gradient_in_every_step(steps):
    first, second = perturbation("split", steps).events()
    assert first == Composed(
        (
            Repeated(GaussianRelease(0.1, 1.5), steps),
            Repeated(SubsampledGaussian(2, 50, 0.3, 3.5), steps - 1),
        )
    )
    assert second.events[1] == Repeated(SubsampledGaussian(3, 70, 0.4, 4.5), steps - 1)


def test_one_step_has_no_batch_difference():
    assert perturbation("one-release", 1).events()[0] == Composed((GaussianRelease(0.1, 1.5),))
    split = perturbation("split", 1).events()[1]
    assert split == Composed((Repeated(GaussianRelease(0.2, 2.5), 1),))
