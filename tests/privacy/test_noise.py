"""Noise: keyed in simulations, unrepeatable elsewhere, and distributed as it should be.

Statistical tests use fixed keys where there is one; the others have a false-alarm rate of 1e-6.
"""

import numpy as np
import pytest
from scipy import stats

from dpadmm.privacy.noise import DiscreteNoise, SecureNoise, SimulatedNoise, secure_noise

ALARM = 1e-6
PARTIES = np.arange(3)


def gaussian(source, sigma=1.0, shape=(3, 4, 2, 50), t=0, purpose="output", parties=PARTIES):
    return source.add_gaussian(np.zeros(shape), np.full(shape, sigma), parties, t, purpose)


def test_simulated_noise_depends_on_its_key_and_place_only():
    first = gaussian(SimulatedNoise(7))
    assert np.array_equal(first, gaussian(SimulatedNoise(7)))
    alone = gaussian(SimulatedNoise(7), shape=(1, 4, 2, 50), parties=np.array([2]))
    assert np.array_equal(alone[0], first[2])
    fewer = gaussian(SimulatedNoise(7), shape=(3, 2, 2, 50))
    assert np.array_equal(fewer, first[:, :2])


@pytest.mark.parametrize("key", [0, 7, 2**32 - 1, 2**32, 2**100 + 3])
@pytest.mark.parametrize("parties", [[3], [4, 0, 700_000], range(600)])
def test_simulated_noise_of_many_parties_is_that_of_each_stream(key, parties):
    source, numbers, t = SimulatedNoise(key), np.array(parties), 13
    shape = (len(numbers), 2, 1, 3)
    added = source.add_gaussian(np.zeros(shape), np.array(2.0), numbers, t, "output")
    drawn = source.exponential_norm(shape, numbers, t, "objective")
    for place in {0, len(numbers) - 1}:
        for run in range(2):
            stream = source.generator(run, int(numbers[place]), t, "output")
            np.testing.assert_array_equal(added[place, run], 2.0 * stream.standard_normal((1, 3)))
            stream = source.generator(run, int(numbers[place]), t, "objective")
            direction, radius = stream.standard_normal(3), stream.gamma(3)
            expected = radius * direction / np.linalg.norm(direction)
            np.testing.assert_allclose(drawn[place, run, 0], expected, rtol=1e-14)


@pytest.mark.parametrize("t", [0, 255, 256, 257, 10_000])
def test_simulated_noise_of_late_rounds_is_that_of_each_stream(t):
    """Keys of some hundred rounds are worked out together."""
    source, parties = SimulatedNoise(7), np.array([3])
    added = source.add_gaussian(np.zeros((1, 2, 1, 3)), np.array(1.0), parties, t, "output")
    for run in range(2):
        stream = source.generator(run, 3, t, "output")
        np.testing.assert_array_equal(added[0, run], stream.standard_normal((1, 3)))


@pytest.mark.parametrize("change", [{"t": 1}, {"purpose": "objective"}])
def test_simulated_noise_is_fresh_in_every_round_and_for_every_purpose(change):
    assert not np.isclose(gaussian(SimulatedNoise(7)), gaussian(SimulatedNoise(7), **change)).any()
    assert not np.isclose(gaussian(SimulatedNoise(7)), gaussian(SimulatedNoise(8))).any()


@pytest.mark.parametrize("key", [0, 7, 2**32 - 1, 2**32, 2**32 + 7, 2**200])
def test_simulated_streams_are_those_of_their_words(key):
    """However the words are handed over, and for keys of any length."""
    words = np.random.SeedSequence([key, 2, 1, 5, *b"output"])
    expected = np.random.Generator(np.random.Philox(words)).standard_normal(4)
    found = SimulatedNoise(key).generator(2, 1, 5, "output").standard_normal(4)
    np.testing.assert_array_equal(found, expected)
    assert SimulatedNoise(key).identity.endswith(f" {key}")


def test_a_key_of_numpy_is_a_key_and_one_below_zero_is_none():
    first = SimulatedNoise(np.int64(7))
    np.testing.assert_array_equal(gaussian(first), gaussian(SimulatedNoise(7)))
    assert first.identity == SimulatedNoise(7).identity
    with pytest.raises(ValueError, match="key must be an integer of at least 0; got -1"):
        SimulatedNoise(-1)
    with pytest.raises(TypeError):
        SimulatedNoise(7.5)


@pytest.mark.parametrize("source", [SecureNoise, DiscreteNoise])
def test_secure_streams_are_chacha20_under_256_bits_of_the_operating_system(source, monkeypatch):
    made = source()
    asked = []

    def urandom(size):
        asked.append(size)
        return b"\x5a" * size

    monkeypatch.setattr("os.urandom", urandom)
    state = made.generator(0, 1, 2, "output").bit_generator.state["state"]
    assert asked == [32]
    assert state["rounds"] == 20
    assert state["keysetup"].tolist() == [0x5A5A5A5A] * 8


@pytest.mark.parametrize("source", [SecureNoise, DiscreteNoise])
def test_other_sources_take_no_seed_and_never_repeat(source):
    with pytest.raises(TypeError):
        source(3)
    one = source()
    # Equal to the last bit: of 1,200 draws two are close by chance in one test of 200.
    assert not (gaussian(one) == gaussian(one)).any()
    assert not one.simulated


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise(), DiscreteNoise()])
@pytest.mark.parametrize("sigma", [1e-3, 2.5])
def test_gaussian_noise_is_gaussian(source, sigma):
    drawn = gaussian(source, sigma).ravel() / sigma
    assert stats.kstest(drawn, "norm").pvalue > ALARM
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(drawn)) / len(drawn)
    assert low < np.mean(drawn**2) < high


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise(), DiscreteNoise()])
def test_exponential_norm_noise_has_a_gamma_radius_and_a_uniform_direction(source):
    drawn = source.exponential_norm((3, 400, 1, 6), PARTIES, 0, "objective").reshape(-1, 6)
    radius = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(radius, stats.gamma(6).cdf).pvalue > ALARM
    # A coordinate of a uniform direction in R^6: its square is Beta(1/2, 5/2).
    squares = (drawn[:, 0] / radius) ** 2
    assert stats.kstest(squares, stats.beta(0.5, 2.5).cdf).pvalue > ALARM


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise()])
def test_every_output_has_exponential_noise_of_its_own(source):
    drawn = source.exponential_norm((3, 200, 2, 6), PARTIES, 0, "objective")
    radius = np.linalg.norm(drawn, axis=-1).reshape(-1, 2)
    for column in radius.T:
        assert stats.kstest(column, stats.gamma(6).cdf).pvalue > ALARM
    assert stats.pearsonr(*radius.T).pvalue > ALARM
    # Directions, too: the square of their cosine is Beta(1/2, 5/2).
    one, other = np.moveaxis(drawn.reshape(-1, 2, 6) / radius[..., None], 1, 0)
    cosines = np.einsum("ij,ij->i", one, other)
    assert stats.kstest(cosines**2, stats.beta(0.5, 2.5).cdf).pvalue > ALARM
    assert abs(np.sign(cosines).mean()) < 5.5 / np.sqrt(len(cosines))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_discrete_noise_refuses_what_is_not_finite(value):
    values = np.zeros((1, 1, 1, 3))
    values[..., 1] = value
    with pytest.raises(ValueError, match="finite"):
        DiscreteNoise().add_gaussian(values, np.ones((1, 1, 1, 1)), np.arange(1), 0, "output")


def test_discrete_noise_lies_on_its_grid():
    # sigma 1: the grid is 2^-60, so that values of size 1 carry all 53 bits of a double; a coarse
    # check with a large sigma sees it.
    drawn = gaussian(DiscreteNoise(), sigma=2.0**70).ravel()
    assert np.array_equal(drawn, np.round(drawn / 2.0**10) * 2.0**10)


def test_discrete_noise_stays_with_its_value_and_its_sigma():
    """Neighbours with one sigma are drawn together: neither order nor spread is mixed up."""
    values = np.arange(9000.0).reshape(2, 1, 5, 900)
    sigma = np.array([[1e-3] * 5, [1e-3, 1e-6, 1e-6, 1e-3, 1e-4]])[:, None, :, None]
    noisy = DiscreteNoise().add_gaussian(values, sigma, np.arange(2), 0, "output")
    for vector in ((noisy - values) / sigma).reshape(10, 900):
        assert stats.kstest(vector, "norm").pvalue > ALARM


@pytest.mark.parametrize("factor", [1.0, 1.001, 1.999])
def test_a_grid_is_never_wider_than_its_sigma_allows(factor):
    """At most 2^-60 sigma, and no finer than half of that.

    A double shows the last step of draws below 2^-7 sigma, one in 160: among so many draws none of
    them is odd with a chance of exp(-19).
    """
    one = {"shape": (1, 1, 1, 6000), "parties": np.arange(1)}
    steps = gaussian(DiscreteNoise(), sigma=factor * 2.0**70, **one).ravel() / 2.0**10
    assert np.array_equal(steps, np.round(steps))
    assert (steps % 2 == 1).any()


def test_the_best_source_at_hand_is_taken():
    assert isinstance(secure_noise(), DiscreteNoise)


@pytest.mark.parametrize("source", [SimulatedNoise(3), DiscreteNoise()])
def test_noise_in_steps_is_gaussian_and_whole(source):
    values = np.random.default_rng(0).normal(size=(3, 4, 2, 50))
    noisy = source.add_gaussian_steps(values, 0.5, 2.0**-30, PARTIES, 0, "output")
    np.testing.assert_array_equal(noisy / 2.0**-30, np.rint(noisy / 2.0**-30))
    drawn = (noisy - values).ravel() / 0.5
    assert stats.kstest(drawn, "norm").pvalue > ALARM
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(drawn)) / len(drawn)
    assert low < np.mean(drawn**2) < high


def test_exact_shares_are_discrete_gaussians():
    """So few steps that a rounded Gaussian, whose variance is larger by a twelfth, would show."""
    drawn = DiscreteNoise().add_gaussian_steps(
        np.full((1, 1, 1, 40_000), 7.25), 1.0, 1.0, np.zeros(1, dtype=int), 0, "output"
    )
    places = np.arange(-8, 9)
    masses = np.exp(-(places**2) / 2) / np.exp(-(places**2) / 2).sum()
    found = [(drawn == 7 + place).sum() for place in places]
    assert sum(found) == drawn.size
    bulk = np.abs(places) <= 3
    counts = np.append(np.array(found)[bulk], np.array(found)[~bulk].sum())
    expected = np.append(masses[bulk], masses[~bulk].sum()) * drawn.size
    assert stats.chisquare(counts, expected).pvalue > ALARM


def test_what_is_added_in_steps_does_not_depend_on_the_values():
    shape = (3, 1, 1, 20)
    drawn = [
        SimulatedNoise(5).add_gaussian_steps(values, 2.0, 0.25, PARTIES, 1, "output")
        - 0.25 * np.rint(values / 0.25)
        for values in (np.zeros(shape), np.random.default_rng(0).normal(size=shape))
    ]
    np.testing.assert_array_equal(*drawn)


def test_simulated_noise_in_steps_is_that_of_its_stream():
    values = np.random.default_rng(0).normal(size=(3, 2, 1, 4))
    drawn = SimulatedNoise(5).add_gaussian(np.zeros_like(values), np.array(2.0), PARTIES, 1, "sum")
    found = SimulatedNoise(5).add_gaussian_steps(values, 2.0, 0.25, PARTIES, 1, "sum")
    np.testing.assert_array_equal(found / 0.25, np.rint(values / 0.25) + np.rint(drawn / 0.25))


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise(), DiscreteNoise()])
def test_a_message_of_one_number_gets_noise(source):
    values = np.full((3, 2, 1, 1), 0.5)
    sigma = np.array([1e-6, 1.0, 1e6])[:, None, None, None]
    moved = np.abs(source.add_gaussian(values, sigma, PARTIES, 0, "output") - values) / sigma
    # Between these lies a standard normal number but for a chance of 1e-8.
    assert ((moved > 1e-9) & (moved < 6.2)).all()


def test_noise_in_steps_refuses_what_is_not_finite():
    with pytest.raises(ValueError, match="values must be finite"):
        DiscreteNoise().add_gaussian_steps(
            np.array([[[[1.0, np.nan]]]]), 1.0, 1.0, np.zeros(1, dtype=int), 0, "output"
        )
