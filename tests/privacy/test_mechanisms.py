"""Mechanisms: the only makers of releases; they charge what they release."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.privacy import mechanisms
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import GradientPerturbation
from dpadmm.privacy.events import (
    Composed,
    GaussianRelease,
    NonPrivate,
    PostProcessing,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
)
from dpadmm.privacy.noise import (
    GRID,
    SAMPLER_ALLOWANCE,
    DiscreteNoise,
    SecureNoise,
    SimulatedNoise,
)
from dpadmm.privacy.sensitivity import Summation

ALARM = 1e-6
NODES, SHAPE = np.arange(2), (2, 300, 1, 4)


def gaussian(values=None, residual=None, **changes):
    arguments = {
        "tolerance": np.array([1e-6, 1e-6]),
        "sensitivity": np.array([0.1, 0.2]),
        "sigma": np.array([0.5, 2.0]),
        "parties": NODES,
        "noise": SimulatedNoise(1),
        "t": 0,
    } | changes
    values = np.zeros(SHAPE) if values is None else values
    residual = np.zeros(SHAPE[:3]) if residual is None else residual
    return mechanisms.release_gaussian(values, residual, **arguments)


def test_nobody_else_makes_a_release():
    with pytest.raises(TypeError, match="mechanisms"):
        mechanisms.Released(object(), np.zeros(SHAPE), (NonPrivate(), NonPrivate()))


def test_a_release_has_an_event_for_every_party():
    with pytest.raises(ParameterError, match=r"one event per party \(2\); got 1"):
        mechanisms.Released(mechanisms._MAKER, np.zeros(SHAPE), (NonPrivate(),))


def test_noise_so_large_that_its_grid_would_show_is_refused():
    numbers = math.prod(SHAPE[2:])
    allowed = SAMPLER_ALLOWANCE / (GRID * math.sqrt(numbers) * (1 + SAMPLER_ALLOWANCE))
    sensitivity = np.array([1.0, 1.0])
    gaussian(sensitivity=sensitivity, sigma=np.array([1.0, allowed * (1 - 1e-9)]))
    with pytest.raises(ParameterError, match=f"rounding its {numbers} numbers to a grid"):
        gaussian(sensitivity=sensitivity, sigma=np.array([1.0, allowed * (1 + 1e-9)]))


def test_a_gaussian_release_adds_the_noise_it_charges():
    released = gaussian()
    assert released.events == (GaussianRelease(0.1, 0.5), GaussianRelease(0.2, 2.0))
    for values, event in zip(released.values, released.events, strict=True):
        scaled = values.ravel() / event.sigma
        assert stats.kstest(scaled, "norm").pvalue > ALARM
    assert not released.values.flags.writeable


def test_a_residual_beyond_the_charge_releases_nothing():
    residual = np.zeros(SHAPE[:3])
    residual[1, 3, 0] = 2e-6
    with pytest.raises(ConvergenceError, match="nothing was released"):
        gaussian(residual=residual)
    residual[1, 3, 0] = np.nan
    with pytest.raises(ConvergenceError):
        gaussian(residual=residual)


def test_a_residual_up_to_the_charge_is_released():
    gaussian(residual=np.full(SHAPE[:3], 1e-6))
    with pytest.raises(ConvergenceError, match="nothing was released"):
        gaussian(residual=np.full(SHAPE[:3], math.nextafter(1e-6, 1)))


def test_every_party_of_a_release_is_charged():
    values, events = np.zeros(SHAPE), (NonPrivate(), NonPrivate())
    assert mechanisms.release_again(values, events).events == events
    for wrong in ((), events[:1], (*events, NonPrivate())):
        with pytest.raises(ParameterError, match=r"one event per party \(2\)"):
            mechanisms.release_again(values, wrong)


def test_a_release_keeps_no_array_of_its_caller():
    values = np.zeros(SHAPE)
    released = mechanisms.release_unprotected(values)
    values += 1
    assert not released.values.any()
    with pytest.raises(ValueError, match="read-only"):
        released.values[0] = 1


# The least sensitivity, in units of sigma, at which a grid of 2^-60 sigma moves 4 numbers by no
# more than a billionth of it.
LEAST = 2.0**-60 * 2 * (1 + 1e-9) / 1e-9


def released_on_a_grid(kind, ratio, outputs=1):
    """A release of four numbers, for each output, whose sensitivity is ``ratio`` of its noise."""
    one, shape = np.ones(1), (1, 2, outputs, 4)
    place = {"parties": np.arange(1), "noise": SimulatedNoise(0), "t": 0}
    solved = (np.zeros(shape), np.zeros(shape[:3]))
    if kind == "gaussian":
        given = {"tolerance": one, "sensitivity": ratio * one, "sigma": one}
        return mechanisms.release_gaussian(*solved, **given, **place)
    if kind == "adaptive":
        given = {"tolerance": one, "reach": np.ones((1, 2, outputs)), "mu": ratio * one}
        return mechanisms.release_adaptive_gaussian(*solved, **given, **place)
    if kind == "objective":
        # 2 tolerance / convexity is what AMP's noise has to hide.
        planned = mechanisms.ObjectivePerturbation(
            "gaussian", one, one, one, 3 * ratio * one, 6 * one, one
        )
        return mechanisms.release_objective(lambda b: solved, planned, shape, **place)
    full, difference = (ratio, 1.0) if kind == "full" else (1.0, ratio)
    form = "split" if kind == "split" else "one-release"
    sigmas = (0.6, 0.8) if kind == "split" else (1.0, 1 / difference)
    planned = GradientPerturbation(
        form,
        2,
        np.array([1]),
        np.array([3]),
        sensitivity=(ratio if kind == "split" else full) * one,
        difference_sensitivity=one,
        gradient_sigma=sigmas[0] * one,
        difference_sigma=sigmas[1] * one,
    )
    return mechanisms.release_noisy_gradients(
        lambda inner: np.zeros(shape), np.zeros(shape), planned, **place
    )


@pytest.mark.parametrize("kind", ["gaussian", "adaptive", "objective", "full", "inner", "split"])
def test_noise_so_large_that_its_grid_would_count_is_refused(kind):
    released_on_a_grid(kind, LEAST * (1 + 1e-9))
    with pytest.raises(ParameterError, match="4 numbers to a grid would count"):
        released_on_a_grid(kind, LEAST * (1 - 1e-9))
    # All outputs are one release, but under objective perturbation, where each has its own.
    numbers, least = (4, LEAST) if kind == "objective" else (12, LEAST * math.sqrt(3))
    released_on_a_grid(kind, least * (1 + 1e-9), outputs=3)
    with pytest.raises(ParameterError, match=f"its {numbers} numbers to a grid would count"):
        released_on_a_grid(kind, least * (1 - 1e-9), outputs=3)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_not_released(value):
    with pytest.raises(ConvergenceError, match="finite"):
        gaussian(values=np.full(SHAPE, value))
    values = np.zeros(SHAPE)
    values[1, 7, 0, 2] = value
    for release in (gaussian, mechanisms.release_unprotected):
        with pytest.raises(ConvergenceError, match="finite"):
            release(values)


def test_what_follows_from_messages_costs_nothing():
    values = np.arange(8.0).reshape(2, 1, 1, 4)
    released = mechanisms.release_post_processed(values)
    assert released.events == (PostProcessing(), PostProcessing())
    np.testing.assert_array_equal(released.values, values)


def test_numbers_of_parties_that_disagree_are_refused():
    for sensitivity, sigma in ((np.ones(3), np.ones(2)), (np.ones(2), np.ones(3))):
        with pytest.raises(ValueError, match="argument"):
            mechanisms.gaussian_events(sensitivity, sigma)
    for sizes in ((2, 2, 3), (2, 3, 2), (3, 2, 2)):
        batch, rows, parties = (np.arange(5, 5 + size) for size in sizes)
        with pytest.raises(ValueError, match="argument"):
            mechanisms.draw_batches(SimulatedNoise(0), 2, batch, rows, 1, parties, 0)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_noise_must_be_positive(sigma):
    with pytest.raises(ValueError, match="sigma"):
        gaussian(sigma=np.array([sigma, 1.0]))


def test_shapes_must_agree():
    with pytest.raises(ParameterError, match="shape"):
        gaussian(residual=np.zeros((2, 300)))


def test_adaptive_noise_follows_the_reach_while_the_charge_stays():
    reach = np.stack([np.full((300, 1), 0.01), np.full((300, 1), 0.03)])
    released = mechanisms.release_adaptive_gaussian(
        np.zeros(SHAPE),
        np.zeros(SHAPE[:3]),
        tolerance=np.full(2, 1e-6),
        reach=reach,
        mu=np.array([0.5, 0.25]),
        parties=NODES,
        noise=SimulatedNoise(2),
        t=0,
    )
    assert released.events == (GaussianRelease(0.5, 1.0), GaussianRelease(0.25, 1.0))
    for values, sigma in zip(released.values, (0.01 / 0.5, 0.03 / 0.25), strict=True):
        assert stats.kstest(values.ravel() / sigma, "norm").pvalue > ALARM


@pytest.mark.parametrize("residual", [1.0001e-6, np.nan])
def test_adaptive_noise_counts_with_the_tolerance_too(residual):
    residuals = np.zeros((1, 3, 1))
    residuals[0, 2] = residual
    with pytest.raises(ConvergenceError, match="nothing was released"):
        mechanisms.release_adaptive_gaussian(
            np.zeros((1, 3, 1, 4)),
            residuals,
            tolerance=np.array([1e-6]),
            reach=np.ones((1, 3, 1)),
            mu=np.array([0.5]),
            parties=np.arange(1),
            noise=SimulatedNoise(2),
            t=0,
        )


def test_adaptive_noise_follows_the_reach_of_every_output():
    """Outputs are sent together: each gets sqrt(outputs) times the noise of one."""
    reach = np.array([0.01, 0.03, 0.2])[None, None]
    released = mechanisms.release_adaptive_gaussian(
        np.ones((1, 1, 3, 2000)),
        np.zeros((1, 1, 3)),
        tolerance=np.ones(1),
        reach=reach,
        mu=np.array([0.5]),
        parties=np.arange(1),
        noise=SimulatedNoise(2),
        t=0,
    )
    assert released.events == (GaussianRelease(0.5, 1.0),)
    scaled = (released.values - 1) * 0.5 / (math.sqrt(3) * reach[..., None])
    for values in scaled[0, 0]:
        assert stats.kstest(values, "norm").pvalue > ALARM


def perturbation(kind, outputs=1):
    return mechanisms.ObjectivePerturbation(
        kind=kind,
        sensitivity=np.array([0.02, 0.02]),
        kappa=np.array([0.01, 0.02]),
        scale=np.array([0.1, 0.2]),
        tolerance=np.full(2, 1e-8),
        convexity=np.array([1.0, 2.0]),
        output_sigma=np.full(2, 1e-5),
        outputs=outputs,
    )


@pytest.mark.parametrize("kind", ["exp-norm", "gaussian"])
def test_objective_noise_reaches_the_problem_with_its_scale(kind):
    seen = {}

    def solve(noise):
        seen["noise"] = noise
        return -noise, np.zeros(noise.shape[:3])

    planned = perturbation(kind)
    released = mechanisms.release_objective(solve, planned, SHAPE, NODES, SimulatedNoise(3), 0)
    assert released.events == planned.events()
    norms = np.linalg.norm(seen["noise"], axis=-1) / planned.scale[:, None, None]
    law = stats.gamma(4) if kind == "exp-norm" else stats.chi(4)
    assert stats.kstest(norms.ravel(), law.cdf).pvalue > ALARM
    amp = (released.values + seen["noise"]) / 1e-5
    assert stats.kstest(amp.ravel(), "norm").pvalue > ALARM


def test_a_solve_leaves_the_room_that_rounding_needs():
    """The charge counts with the tolerance, a solve may use 15/16 of it."""
    planned = perturbation("gaussian")

    def release(share):
        residual = np.full(SHAPE[:3], share * 1e-8)
        return mechanisms.release_objective(
            lambda noise: (noise, residual), planned, SHAPE, NODES, SimulatedNoise(3), 0
        )

    release(15 / 16)
    with pytest.raises(ConvergenceError, match="nothing was released"):
        release(15 / 16 * (1 + 1e-12))


def test_noise_of_another_kind_is_drawn_anew_for_every_party_and_run():
    shape, events = (2, 3, 2, 4), (GaussianRelease(1.0, 2.0), GaussianRelease(1.0, 3.0))
    given = {"tolerance": np.ones(2), "events": events, "parties": np.array([4, 1]), "t": 7}
    values = np.arange(48.0).reshape(shape)
    released = mechanisms.release_additive(
        values,
        np.zeros(shape[:3]),
        draw=lambda stream, place, size: (place + 1) * stream.standard_normal(size),
        noise=SimulatedNoise(2),
        **given,
    )
    assert released.events == events
    for place, party in enumerate((4, 1)):
        for run in range(3):
            stream = SimulatedNoise(2).generator(run, party, 7, "output")
            drawn = (place + 1) * stream.standard_normal((2, 4))
            np.testing.assert_array_equal(released.values[place, run], values[place, run] + drawn)
    with pytest.raises(ConvergenceError, match="nothing was released"):
        mechanisms.release_additive(
            values,
            np.full(shape[:3], 1.001),
            draw=lambda stream, place, size: np.zeros(size),
            noise=SimulatedNoise(2),
            **given,
        )


def test_objective_perturbation_is_charged_by_its_theorem():
    first, second = perturbation("exp-norm").events()
    assert isinstance(first, Composed)
    assert first.events[0].epsilon == pytest.approx(0.2 + math.log1p(0.01))
    assert second.events[0].epsilon == pytest.approx(0.1 + math.log1p(0.02))
    gaussian_event = perturbation("gaussian").events()[0].events[0]
    assert (gaussian_event.mu, gaussian_event.kappa) == (pytest.approx(0.2), 0.01)
    # Every output is a release of its own.
    one = epsilon_spent(perturbation("gaussian").events()[:1], 1e-5).epsilon
    three = epsilon_spent(perturbation("gaussian", outputs=3).events()[:1], 1e-5).epsilon
    assert three == pytest.approx(
        epsilon_spent([(perturbation("gaussian").events()[0], 3)], 1e-5).epsilon
    )
    assert three > one


def steps_of(form, steps=5):
    return GradientPerturbation(
        form,
        steps,
        np.array([3, 2]),
        np.array([20, 9]),
        sensitivity=np.array([0.1, 0.2]),
        difference_sensitivity=np.array([0.7, 0.8]),
        gradient_sigma=np.array([0.3, 0.4]),
        difference_sigma=np.array([1.5, 2.5]),
    )


@pytest.mark.parametrize("form", ["one-release", "split"])
def test_noisy_gradients_get_the_noise_that_is_charged(form):
    seen = []

    def descend(inner):
        seen.append(inner)
        return np.zeros((2, 300, 2, 4))

    planned = steps_of(form)
    gradient = np.ones((2, 300, 2, 4))
    released = mechanisms.release_noisy_gradients(
        descend, gradient, planned, NODES, SimulatedNoise(3), 0
    )
    (inner,) = seen
    assert released.events == planned.events()
    assert inner.draws.shape == (2, 300, 5, 2, 4)
    assert stats.kstest(inner.draws.ravel(), "norm").pvalue > ALARM
    full, differences = released.events[1].events
    if form == "split":
        np.testing.assert_array_equal(inner.carried, gradient)
        np.testing.assert_array_equal(inner.released, 0.0)
        np.testing.assert_allclose(inner.fixed, np.hypot([0.3, 0.4], [1.5, 2.5]))
        np.testing.assert_array_equal(inner.relative, 0.0)
        assert full == Repeated(GaussianRelease(0.2, 0.4), 5)
        assert differences == Repeated(SubsampledGaussian(2, 9, 0.8, 2.5), 4)
    else:
        np.testing.assert_array_equal(inner.carried, 0.0)
        noise = (inner.released - 1.0) / np.array([0.3, 0.4])[:, None, None, None]
        assert stats.kstest(noise.ravel(), "norm").pvalue > ALARM
        np.testing.assert_array_equal(inner.fixed, 0.0)
        # Two outputs are sent together: each gets sqrt(2) times the noise of one.
        relative = inner.relative / (math.sqrt(2) * np.array([1.5, 2.5]))
        np.testing.assert_allclose(relative - 1, 1e-9, rtol=1e-5)
        assert full == GaussianRelease(0.2, 0.4)
        assert differences == Repeated(SubsampledGaussian(2, 9, 1.0, 2.5), 4)


@pytest.mark.parametrize("form", ["one-release", "split"])
def test_noise_on_a_grid_is_added_to_each_step_as_it_comes(form):
    """Where the value has to be known when its noise is drawn, nothing is drawn ahead."""
    seen = []

    def descend(inner):
        seen.append(inner)
        return np.zeros((2, 1, 2, 1500))

    mechanisms.release_noisy_gradients(
        descend, np.ones((2, 1, 2, 1500)), steps_of(form), NODES, DiscreteNoise(), 0
    )
    (inner,) = seen
    assert inner.draws.shape == (2, 1, 0, 2, 1500)
    for place in range(2):
        values = np.full((2, 1500), 3.0 + place)
        noisy = inner.release(place, values, 0.5)
        assert stats.kstest(((noisy - values) / 0.5).ravel(), "norm").pvalue > ALARM
    if form == "one-release":
        noise = (inner.released - 1.0) / np.array([0.3, 0.4])[:, None, None, None]
        assert stats.kstest(noise.ravel(), "norm").pvalue > ALARM


def test_one_inner_step_reads_no_batch_and_is_charged_none():
    assert steps_of("one-release", steps=1).events()[0] == Composed((GaussianRelease(0.1, 0.3),))


def test_batches_are_fresh_samples_without_replacement():
    batches = mechanisms.draw_batches(
        SimulatedNoise(1), 4001, np.array([3, 9]), np.array([20, 9]), 2, NODES, 0
    )
    assert [each.shape for each in batches] == [(2, 4000, 3), (2, 4000, 9)]
    for each, rows in zip(batches, (20, 9), strict=True):
        drawn = np.sort(each, axis=-1)
        assert (np.diff(drawn, axis=-1) > 0).all()
        counts = np.bincount(each.ravel(), minlength=rows)
        assert len(counts) == rows
        assert stats.chisquare(counts).pvalue > ALARM
    # A row's presence in one step says nothing about the next.
    held = (batches[0][0] == 0).any(axis=1).astype(float)
    assert abs(np.corrcoef(held[1:], held[:-1])[0, 1]) < 0.1
    assert not np.array_equal(batches[0][0], batches[0][1])


def test_randomised_response_flips_with_its_probability():
    labels = np.tile([1.0, -1.0], 20_000)
    reported, event = mechanisms.randomize_labels(labels, 1.0, np.random.default_rng(5))
    assert event.epsilon == 1.0
    flips = int((reported != labels).sum())
    assert stats.binomtest(flips, len(labels), 1 / (1 + math.e)).pvalue > ALARM
    assert set(np.unique(reported)) == {-1.0, 1.0}


class Dice:
    """Draws that are given, as a generator draws them: multiples of 2^-53."""

    def __init__(self, multiples):
        self.draws = np.array([int(multiple) * 2.0**-53 for multiple in multiples])

    def random(self, shape):
        return self.draws.reshape(shape)


@pytest.mark.parametrize("epsilon", [1e-17, 1e-9, 0.1, 1.0, 3.7, 12.0, 36.0, 700.0, 760.0, 1e300])
def test_no_label_is_flipped_less_often_than_its_epsilon_says(epsilon):
    with mpmath.workdps(50):
        flip = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        near = int(mpmath.floor(flip * 2**53))
        around = np.arange(max(near - 64, 0), near + 65)
        reported, _ = mechanisms.randomize_labels(np.ones(len(around)), epsilon, Dice(around))
        # Every draw up to the last one that flips does.
        flipped = around[reported < 0]
        assert (flipped == around[: len(flipped)]).all()
        chance = mpmath.mpf(int(flipped[-1]) + 1) / 2**53
        assert flip <= chance <= min(flip * (1 + mpmath.mpf(2) ** -48) + mpmath.mpf(2) ** -53, 0.5)
    labels, expected = np.array([0.0, -0.2, 5.0]), [-1.0, -1.0, 1.0]
    kept, _ = mechanisms.randomize_labels(labels, epsilon, Dice([2**53 - 1] * 3))
    assert kept.tolist() == expected


def test_each_label_may_have_an_epsilon_of_its_own():
    epsilon = np.repeat([0.5, 3.0], 20_000)
    reported, event = mechanisms.randomize_labels(
        np.ones(40_000), epsilon, np.random.default_rng(6)
    )
    assert event.epsilon == 3.0
    for part, strength in ((reported[:20_000], 0.5), (reported[20_000:], 3.0)):
        flips = int((part < 0).sum())
        assert stats.binomtest(flips, 20_000, 1 / (1 + math.exp(strength))).pvalue > ALARM


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_label_epsilon_must_be_positive(epsilon):
    for given in (epsilon, np.array([1.0, epsilon, 2.0])):
        with pytest.raises(ParameterError, match="label epsilon"):
            mechanisms.randomize_labels(np.ones(3), given, np.random.default_rng(0))


# -- summands -----------------------------------------------------------------------------------


def shared_release(step=2.0**-40, sensitivity=0.1, noise=None, values=None, sigma=1.0):
    return mechanisms.release_shared_gaussian(
        np.zeros((2, 1, 1, 3)) if values is None else values,
        summation=Summation(step, 5, 2, 1000 * step * 2.0**30),
        sensitivity=np.ones(2) * sensitivity,
        sigma=sigma,
        parties=np.arange(2),
        noise=noise or SimulatedNoise(0),
        t=0,
    )


def test_a_summand_is_charged_against_its_colluders():
    released = shared_release()
    assert released.events == (SharedGaussian(0.1, 1.0, 5, 2),) * 2
    steps = released.values / 2.0**-40
    np.testing.assert_array_equal(steps, np.rint(steps))


def test_a_summand_gets_its_share_of_the_noise():
    released = shared_release(values=np.zeros((2, 1, 1, 4000)))
    shares = released.values.ravel() * math.sqrt(5 - 2)
    assert stats.kstest(shares, "norm").pvalue > ALARM


def test_rounding_of_all_outputs_together_counts_for_a_summand():
    values, least = np.zeros((2, 5, 4, 3)), 2.0**-40 * math.sqrt(12)
    shared_release(values=values, sensitivity=least * (1 + 1e-9))
    with pytest.raises(ParameterError, match="its rounding of a summand at most its sensitivity"):
        shared_release(values=values, sensitivity=least * (1 - 1e-9))


def test_one_party_whose_summand_is_rounded_too_far_is_enough():
    with pytest.raises(ParameterError, match="its rounding of a summand at most its sensitivity"):
        shared_release(sensitivity=np.array([0.1, 2.0**-41]))


@pytest.mark.parametrize(("change", "fits"), [(1.0, True), (1 - 1e-9, False)])
def test_the_borders_of_a_grid_for_shares(change, fits):
    step = 2.0**-24
    coarsest = {"step": step, "sigma": math.sqrt(3) * (change if change < 1 else 1 + 1e-12)}
    widest = {"step": 2.0**-40, "sensitivity": 2.0**-40 * math.sqrt(3) * change}
    for given in (coarsest, widest):
        if fits:
            shared_release(**given)
        else:
            with pytest.raises(ParameterError, match="the step of a summation"):
                shared_release(**given)


def test_a_grid_that_is_too_coarse_releases_nothing():
    with pytest.raises(ParameterError, match="the step of a summation must be at most"):
        shared_release(step=2.0**-20)
    with pytest.raises(ParameterError, match="its rounding of a summand at most its sensitivity"):
        shared_release(sensitivity=2.0**-40)


def test_floating_point_draws_are_no_shares_of_noise():
    with pytest.raises(ParameterError, match="noise must be drawn exactly"):
        shared_release(noise=SecureNoise())


def test_words_stand_for_a_release_and_cost_the_same():
    released = shared_release()
    words = np.arange(6, dtype=np.uint64).reshape(2, 1, 1, 3)
    covered = mechanisms.release_covered(released, words)
    assert covered.values.dtype == np.uint64
    np.testing.assert_array_equal(covered.values, words)
    assert covered.events == released.events
    for wrong in (words[:1], words.astype(np.int64), words.astype(float)):
        with pytest.raises(ParameterError, match="words must be uint64 of the shape"):
            mechanisms.release_covered(released, wrong)
