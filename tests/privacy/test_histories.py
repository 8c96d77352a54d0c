"""Releases of more than one kind: what a split of the noise means, and how a share is chosen."""

import math
from fractions import Fraction

import pytest

from dpadmm.privacy.accountant import epsilon_spent, total_mu
from dpadmm.privacy.calibration import InnerReleases, best_split, one_release_noise, split_history
from dpadmm.privacy.events import GaussianRelease, SubsampledGaussian
from dpadmm.privacy.gaussian import gaussian_mu

RUN = InnerReleases(outer=5, inner=4, batch=3, population=70)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.9])
def test_the_variances_of_a_split_add_up_to_the_noise_that_is_drawn(share):
    (batch, batches), (full, gradients) = split_history(RUN, 2.5, 0.4, 0.07, share)
    assert (batches, gradients) == (15, 20)
    assert batch == SubsampledGaussian(3, 70, 0.4, batch.sigma)
    assert full == GaussianRelease(0.07, full.sigma)
    assert batch.sigma**2 == pytest.approx(share * 2.5**2, rel=1e-12)
    assert full.sigma**2 + batch.sigma**2 == pytest.approx(2.5**2, rel=1e-12)


@pytest.mark.parametrize("logit", [-6.0, -2.4, -1.0, -0.07, 0.39, 0.45, 0.95, 1.68, 6.0])
def test_the_share_that_is_chosen_is_near_the_best(logit):
    """Of two Gaussians, where calculus knows it: a^2 / s + b^2 / (1 - s) is least at a / (a + b).

    It is larger by the factor 1 + s (1 - s) (2 cosh(d) - 2) where the logit is off by d, and some
    share that is tried is off by 0.4 at most.
    """
    best = 1 / (1 + math.exp(-logit))

    def history(share):
        sizes = (best, share), (1 - best, 1 - share)
        return [GaussianRelease(size, math.sqrt(part)) for size, part in sizes]

    share, guarantee = best_split(history, 1e-5)
    assert guarantee == epsilon_spent(history(share), 1e-5)
    excess = best * (1 - best) * (2 * math.cosh(0.4) - 2)
    assert 1 - 1e-12 <= total_mu(history(share)) ** 2 <= (1 + excess) * (1 + 1e-9)


def test_a_share_is_chosen_for_people_with_several_rows():
    def history(share):
        return [GaussianRelease(0.3, math.sqrt(share)), GaussianRelease(0.7, math.sqrt(1 - share))]

    share, guarantee = best_split(history, 1e-5, rows_per_person=3)
    assert guarantee == epsilon_spent(history(share), 1e-5, rows_per_person=3)


@pytest.mark.parametrize("rows", [1, 3])
def test_gradients_alone_stay_within_the_budget_to_the_last_bit(rows):
    """As fractions: the sum of mu^2 is no more than the budget's, whatever was rounded."""
    most = Fraction(float(gaussian_mu(1.0, 1e-5))) ** 2
    for outer in (1, 3, 7, 10, 11, 13, 29, 50, 57):
        run = InnerReleases(outer, 1, 5, 300)
        gradient, _ = one_release_noise(1.0, 1e-5, run, share=0.4, rows_per_person=rows)
        assert rows**2 * outer / Fraction(gradient) ** 2 <= most
