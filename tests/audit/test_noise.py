"""The joint test of noise: honest noise passes at the stated rate, and what is wrong is found."""

import math

import numpy as np
import pytest
from scipy import stats

from dpadmm.algorithms import REGISTRY
from dpadmm.audit.algorithms import AlgorithmCase, audit_algorithm
from dpadmm.audit.cases import audit_case
from dpadmm.audit.oracle import NoiseScores, Oracle, find_faults, normal_scores, parts_of
from dpadmm.audit.scene import Federation, Scene, draw_scene
from dpadmm.audit.witness import EchoNoise, RecordingNoise, audit_noise
from dpadmm.errors import ParameterError
from dpadmm.privacy.events import GaussianRelease, PostProcessing, SharedGaussian
from dpadmm.privacy.noise import SimulatedNoise, secure_noise

PRIVATE = [name for name, kind in REGISTRY.items() if kind.private]
# Parties, runs, rounds, outputs, coordinates.
SHAPE = (3, 24, 5, 2, 4)
SMALL = {"rounds": 2, "features": 3, "outputs": 1, "rows_per_person": 1}


def scores_of(values, name="noise", **more):
    return NoiseScores(name, values, tuple(range(values.shape[2])), **more)


def drawn(seed, shape=SHAPE):
    return np.random.default_rng(seed).standard_normal(shape)


# The test itself ---------------------------------------------------------------------------------


def test_honest_noise_is_refuted_no_more_often_than_stated():
    """A stated rate of 0.2; over 300 repetitions more alarms than 0.999 of binomials have."""
    repetitions, rate = 300, 0.2
    alarms = 0
    for seed in range(repetitions):
        kinds = [scores_of(drawn([seed, kind]), f"kind {kind}") for kind in range(2)]
        alarms += bool(find_faults(kinds, rate)[0])
    assert alarms <= stats.binom.isf(1e-3, repetitions, rate)
    # Bonferroni's limits are nearly attained: a test that never fires would pass the line above.
    assert alarms > rate / 10 * repetitions


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda z: z[1, :, 3].__imul__(0.5), "too little noise at party 1, round 3"),
        (lambda z: z[1].__imul__(0.8), "too little noise at party 1: "),
        (lambda z: z[..., 0].__imul__(0.0), "coordinate 0: 0 of the variance"),
        (lambda z: z[2, :, :, 1].__imul__(2.0), "too much noise at party 2"),
        (lambda z: z.__setitem__((slice(None), slice(None), 4), z[:, :, 0]), "round 4"),
        (lambda z: z.__setitem__(2, -z[0]), "party 0 is not independent of that of party 2"),
        (lambda z: z.__setitem__((slice(None), 7), z[:, 9]), "run 7 is not independent"),
        (lambda z: z.__setitem__((..., 1, slice(None)), z[..., 0, :]), "output 0 is not"),
        (lambda z: z.__setitem__((..., 3), z[..., 2]), "coordinate 2 is not independent"),
        (lambda z: z.__setitem__((2, slice(None), 1, 0, 3), z[0, :, 4, 1, 0]), "party 2, round 1"),
        (lambda z: np.copyto(z, np.sign(z)), "another distribution"),
    ],
)
def test_a_fault_is_found_and_named(spoil, words):
    values = drawn(0)
    spoil(values)
    found, tests = find_faults([scores_of(values)], 1e-4)
    assert any(words in finding.sentence for finding in found), found
    assert all(finding.probability <= 1e-4 for finding in found)
    assert tests > 5000


def test_more_noise_than_needed_is_no_fault_where_the_need_is_a_bound():
    values = 1.5 * drawn(1)
    assert find_faults([scores_of(values)], 1e-4)[0]
    assert not find_faults([scores_of(values, exact=False)], 1e-4)[0]
    assert find_faults([scores_of(values / 3, exact=False)], 1e-4)[0]


def test_noise_of_two_kinds_must_differ():
    values = drawn(2)
    found, _ = find_faults([scores_of(values, "one"), scores_of(values, "two")], 1e-4)
    assert [each.sentence for each in found if "one: not independent of two" in each.sentence]


@pytest.mark.parametrize("features", [1, 2, 9, 120])
def test_normal_scores_of_exp_norm_noise_are_normal(features):
    shape = (1, 1, 4000, features)
    noise = SimulatedNoise(3).exponential_norm(shape, np.array([0]), 0, "objective")
    scores = normal_scores(noise)
    assert stats.kstest(scores.ravel()[:40_000], "norm").pvalue > 1e-4
    more, less = (np.linalg.norm(normal_scores(noise * factor), axis=-1) for factor in (2.0, 0.5))
    assert (less < np.linalg.norm(scores, axis=-1)).all()
    assert (more > np.linalg.norm(scores, axis=-1)).all()
    assert not normal_scores(np.zeros(shape)).any()


# What is needed, worked out twice ----------------------------------------------------------------


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_oracle_agrees_with_the_algorithms(name, seed):
    # Calibrating several inner steps takes seconds.
    steps = {"options": {"inner_steps": 1 + seed % 2}} if name == "ps-admm" else {}
    scene = draw_scene(name, seed, rounds=4, **steps)
    federation = Federation.of(scene)
    algorithm = federation.configure()
    oracle, state = Oracle(scene, federation.site, algorithm), algorithm.init(federation.site)
    charged = [algorithm.announce(state, federation.site, t) for t in range(4)]
    for t, events in enumerate(charged):
        assert oracle.check(events, t) == []
        for place, event in enumerate(events):
            for part in parts_of(event):
                plain = isinstance(part, GaussianRelease | SharedGaussian)
                if plain and not scene.kind.needs_server:
                    reach = oracle.reach if oracle.public_norm else oracle.release_reach
                    needed = reach(t)[place]
                    given = part.sensitivity if not oracle.public_norm else needed
                    assert given == pytest.approx(needed, rel=1e-8)
    assert oracle.check_total(list(zip(*charged, strict=True))) == []


# Whole runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIVATE)
def test_the_noise_of_an_honest_run_is_as_claimed(name):
    report = audit_noise(draw_scene(name, 5, **SMALL), false_alarm=1e-6)
    assert report.findings == ()
    assert not report.refuted
    # What a deployment uses is among what was tested.
    assert secure_noise().description in report.sources
    assert "found nothing" in report.words()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_tenth_less_noise_is_found(name):
    options = {"noise": "exp-norm"} if name in ("dvp", "m-admm") else None
    scene = draw_scene(name, 6, options=options, **SMALL)
    report = audit_noise(scene, false_alarm=1e-4, noise_scale=0.9)
    assert report.refuted
    assert "too little noise" in report.words()


def test_a_deployment_that_can_be_repeated_is_refuted():
    scene = draw_scene("pr-admm", 0, **SMALL)
    report = audit_noise(scene, false_alarm=1e-4, deployed=lambda: SimulatedNoise(3))
    assert any("deployed" in finding.sentence for finding in report.findings)
    assert report.to_dict()["findings"][0]["probability"] <= 1e-4


@pytest.mark.parametrize("rate", [0.0, 0.5, math.nan])
def test_a_rate_that_makes_no_sense_is_refused(rate):
    with pytest.raises(ParameterError, match=r"false_alarm must be between 0 and 0\.5"):
        audit_noise(Scene("pr-admm"), false_alarm=rate)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_honest_runs_are_refuted_no_more_often_than_stated(name):
    """Settings of every kind, 12 of them, at a stated rate of 0.1."""
    alarms = [
        audit_noise(draw_scene(name, seed, rounds=2), false_alarm=0.1).refuted for seed in range(12)
    ]
    assert sum(alarms) <= stats.binom.isf(1e-3, len(alarms), 0.1)


def test_a_recording_hands_the_draws_on_bit_for_bit():
    parties, values = np.array([0, 1]), np.ones((2, 3, 1, 4))
    source, sigma = SimulatedNoise(1), np.full((2, 1, 1, 1), 0.5)
    recording = RecordingNoise(SimulatedNoise(1))
    noisy = recording.add_gaussian(values, sigma, parties, 0, "output")
    plain = source.add_gaussian(values, sigma, parties, 0, "output")
    np.testing.assert_array_equal(noisy, plain)
    drawn = recording.exponential_norm(values.shape, parties, 0, "objective")
    np.testing.assert_array_equal(
        drawn, source.exponential_norm(values.shape, parties, 0, "objective")
    )
    batches = recording.batches(3, 2, 9, 0, 1, 0)
    np.testing.assert_array_equal(batches, source.batches(3, 2, 9, 0, 1, 0))
    echo = EchoNoise(recording, ("objective",))
    np.testing.assert_array_equal(echo.batches(3, 2, 9, 0, 1, 0), batches)
    np.testing.assert_array_equal(
        echo.exponential_norm(values.shape, parties, 0, "objective"), drawn
    )
    assert (echo.add_gaussian(values, sigma, parties, 0, "output") == values).all()
    with pytest.raises(ParameterError, match="must be Gaussian or of density"):
        echo.generator(0, 0, 0, "labels")


# Settings ----------------------------------------------------------------------------------------


def test_settings_are_drawn_from_the_seed_and_what_is_given_stays():
    scenes = [draw_scene("pr-admm", seed, rows=50, options={"decay": 0.7}) for seed in range(40)]
    assert scenes[:5] == [
        draw_scene("pr-admm", seed, rows=50, options={"decay": 0.7}) for seed in range(5)
    ]
    for name in ("features", "outputs", "rows_per_person"):
        assert len({getattr(scene, name) for scene in scenes}) >= 3
    assert {scene.options["schedule"] for scene in scenes} == {"constant", "periodic", "iteration"}
    assert {scene.options["decay"] for scene in scenes} == {0.7}
    assert {scene.rows for scene in scenes} == {50}
    planes = [scene.plane() for scene in scenes if scene.features == 5]
    assert np.linalg.matrix_rank(np.vstack(planes)) == 5
    for plane in planes:
        np.testing.assert_allclose(plane @ plane.T, np.eye(2), atol=1e-12)


def test_what_an_algorithm_refuses_is_drawn_again_and_a_paper_s_setting_is_not_drawn():
    assert {draw_scene("pdml", seed).outputs for seed in range(10)} == {1}
    published = draw_scene("dvp", 3, calibration="published")
    assert (published.features, published.outputs, published.options) == (2, 1, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": 1}, "features must be at least 2"),
        ({"outputs": 2}, "outputs must be 1 .two classes. or at least 3"),
        ({"outputs": 0}, "outputs must be a whole number"),
        ({"rows_per_person": 101}, "rows_per_person must be at most rows, 100"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, words):
    with pytest.raises(ParameterError, match=words):
        draw_scene("pr-admm", **({"seed": 0} | change))


# The attack --------------------------------------------------------------------------------------


def test_several_outputs_rows_and_features_show_most_of_the_claim():
    facts = {"rounds": 5, "outputs": 3, "rows_per_person": 2, "features": 6, "seed": 4}
    found = audit_case(AlgorithmCase("pr-admm", 1.0, 1e-5, **facts), samples=20_000)
    assert 0.6 <= found.recovered <= 1
    assert found.estimate / found.claim.mu == pytest.approx(0.92, abs=0.15)
    # The noise of one output where there are three.
    less = AlgorithmCase("pr-admm", 1.0, 1e-5, noise_scale=1 / math.sqrt(3), **facts)
    assert audit_case(less, samples=20_000).refuted


@pytest.mark.parametrize(
    ("name", "options"), [("dvp", {"noise": "exp-norm"}), ("dvp", {"noise": "gaussian"})]
)
def test_losses_of_several_outputs_are_logarithms_of_density_ratios(name, options):
    facts = {"rounds": 2, "outputs": 3, "rows_per_person": 2, "features": 4, "options": options}
    case = AlgorithmCase(name, 4.0, 1e-5, **facts)
    null = case.scores(SimulatedNoise(4), 10_000, replaced=False)
    alternative = case.scores(SimulatedNoise(5), 10_000, replaced=True)
    for ratio in (np.exp(null), np.exp(-alternative)):
        assert ratio.mean() == pytest.approx(1, abs=5 * ratio.std() / 100)
        assert ratio.std() > 0.1


def test_the_two_parts_of_an_audit_share_its_error():
    verdict = audit_algorithm(draw_scene("pr-admm", 0, **SMALL), samples=1000, confidence=0.95)
    assert verdict.confidence == 0.95
    assert verdict.noise.false_alarm == pytest.approx(0.0005)
    assert not verdict.refuted
    assert verdict.to_dict()["setting"]["features"] == 3
    refuted = audit_algorithm(
        draw_scene("pr-admm", 0, **SMALL), samples=1000, confidence=0.95, noise_scale=0.9
    )
    assert refuted.refuted
    assert not refuted.exceeded
    assert "does not follow from such noise" in refuted.words()


def test_a_recycled_round_has_no_noise_to_test():
    scene = Scene("r-admm", rounds=2)
    federation = Federation.of(scene)
    algorithm = federation.configure()
    state = algorithm.init(federation.site)
    assert isinstance(algorithm.announce(state, federation.site, 1)[0], PostProcessing)
    assert audit_noise(scene, false_alarm=1e-6).findings == ()
