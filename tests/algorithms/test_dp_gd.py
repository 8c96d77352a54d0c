"""dp-gd against its own equations, written out once more, and against exact arithmetic."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse, stats
from tests.helpers import oracles
from tests.helpers.row_parts import parted_shard

from dpadmm import ADMMClassifier
from dpadmm.algorithms.summed_gaussian import default_colluders
from dpadmm.audit.witness import SilentNoise
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import GaussianRelease, SharedGaussian
from dpadmm.privacy.mechanisms import release_covered
from dpadmm.privacy.noise import DiscreteNoise, SecureNoise, SimulatedNoise
from dpadmm.problem.losses import LOSSES
from dpadmm.problem.rows import Shard, summation_error
from dpadmm.run.engine import Checkpoint, Exchange, MemoryLedger, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import train
from dpadmm.solvers.block import clip_slopes
from dpadmm.solvers.workspace import Workspace

COUNTS, FEATURES, LAM = (14, 25, 9, 40), 3, 0.1


def planned_of(counts=COUNTS, *, rounds=6, outputs=1, options=None, **changes):
    parameters = {"epsilon": 1.0, "delta": 1e-3, "regularization": LAM, "loss": "huber-hinge"}
    return plan(
        TrainingParameters(
            "dp-gd", rounds=rounds, algorithm_options=options or {}, **{**parameters, **changes}
        ),
        counts,
        features=FEATURES,
        outputs=outputs,
    )


def parties_of(counts=COUNTS, outputs=1, seed=1):
    random = np.random.default_rng([seed, outputs])
    return [
        (rows, random.choice([-1.0, 1.0], size=(len(rows), outputs)))
        for rows, _ in oracles.random_parties(seed, counts, FEATURES)
    ]


def models_of(planned, parties, noise):
    seen = []
    shard = Shard.from_parties(parties)
    train(planned, shard, noise=noise, on_round=lambda done, model: seen.append(model.copy()))
    return np.array(seen)


def test_a_checkpoint_of_release_0_2_goes_on_without_the_course(tmp_path):
    """It has no models of the rounds before: error bars do not read them off what is not there."""
    planned, shard = planned_of(rounds=8), Shard.from_parties(parties_of())
    kept = {"noise": SimulatedNoise(2), "checkpoint": Checkpoint(tmp_path / "run.npz", 3)}
    whole = train(planned, shard, noise=SimulatedNoise(2))
    assert len(whole.course) == 6

    def stop(done, model):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(planned, shard, on_round=stop, **kept)
    with np.load(tmp_path / "run.npz") as found:
        arrays = {name: found[name] for name in found.files if name != "course"}
    header = json.loads(str(arrays["header"]))
    assert (header["done"], header["version"]) == (3, 4)
    arrays["header"] = np.array(json.dumps(header | {"version": 3}))
    with (tmp_path / "run.npz").open("wb") as file:
        np.savez(file, **arrays)
    resumed = train(planned, shard, **kept)
    np.testing.assert_array_equal(resumed.last, whole.last)
    assert len(resumed.course) == 0


# -- the iteration ------------------------------------------------------------------------------


def written_out(rows, labels, *, rounds, step, momentum, slope, lam):
    """The whole algorithm on one party's rows without noise, ``(rounds, outputs, features)``."""
    z = v = np.zeros((labels.shape[1], rows.shape[1]))
    models = []
    for _ in range(rounds):
        slopes = np.array([slope(z @ row * signs) for row, signs in zip(rows, labels, strict=True)])
        for vector in slopes:
            vector *= min(1.0, 1.0 / np.linalg.norm(vector)) if vector.any() else 1.0
        v = momentum * v + (slopes * labels).T @ rows / len(rows) + lam * z
        z = z - step * v
        models.append(z)
    return np.array(models)


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge"])
@pytest.mark.parametrize("topology", ["auto", "complete", "ring"])
def test_one_party_without_noise_is_gradient_descent(loss, topology):
    planned = planned_of((60,), rounds=30, loss=loss, topology=topology)
    ((rows, labels),) = parties_of((60,))
    seen = models_of(planned, [(rows, labels)], SilentNoise())
    algorithm = planned.algorithm
    expected = written_out(
        rows,
        labels,
        rounds=30,
        step=algorithm.step,
        momentum=algorithm.momentum,
        slope=LOSSES[loss].slope,
        lam=LAM,
    )
    np.testing.assert_allclose(seen[:, 0, 0], expected, atol=1e-12)


@pytest.mark.parametrize("topology", ["server", "complete"])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_many_parties_without_noise_are_one(topology, noise):
    options = {"noise": noise, "step": 0.5, "momentum": 0.8}
    planned = planned_of(rounds=20, topology=topology, outputs=3, options=options)
    parties = parties_of(outputs=3)
    seen = models_of(planned, parties, SilentNoise())
    rows, labels = (np.concatenate(each) for each in zip(*parties, strict=True))
    lam = LAM / len(COUNTS)
    expected = written_out(
        rows,
        labels,
        rounds=20,
        step=0.5,
        momentum=0.8,
        slope=LOSSES["huber-hinge"].slope,
        lam=lam,
    )
    # Summands are rounded to a grid where noise is shared.
    np.testing.assert_allclose(seen[:, 0, 0], expected, atol=1e-12)
    assert (seen == seen[:, :1]).all()


def test_sparse_rows_give_what_dense_rows_give():
    planned, parties = planned_of(outputs=3), parties_of(outputs=3)
    dense = models_of(planned, parties, SimulatedNoise(3))
    spread = [(sparse.csr_array(rows), labels) for rows, labels in parties]
    np.testing.assert_allclose(models_of(planned, spread, SimulatedNoise(3)), dense, atol=1e-12)


def test_a_round_is_one_pass():
    planned = planned_of(rounds=5, options={"noise": "shared"})
    workspace = Workspace(Shard.from_parties(parties_of()), planned.site)
    run(
        planned.algorithm,
        planned.site,
        workspace,
        rounds=5,
        exchange=Masked(planned.algorithm.summation),
        ledgers=[MemoryLedger() for _ in COUNTS],
        noise=SimulatedNoise(0),
    )
    blocks = len(Shard.from_parties(parties_of()).blocks)
    assert workspace.passes == 5 * blocks


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_the_step_is_the_public_rule(noise):
    rounds, features, parties = 50, FEATURES, 5
    planned = planned_of((300,) * parties, rounds=rounds, options={"noise": noise}, delta=1e-5)
    # (1, 1e-5) is 0.26805-GDP; one row of 300 moves a gradient by 2 / 300.
    sigma = 2 / 300 * math.sqrt(rounds) / 0.26805
    share = sigma if noise == "own" else sigma / math.sqrt(parties - 2)
    level = math.sqrt(features / rounds) * share / math.sqrt(parties)
    stable = 1.9 * 1.9 / (1.0 + LAM / parties)
    expected = min(stable, 10 * 0.1 / (level * rounds))
    assert expected != stable
    assert planned.algorithm.step == pytest.approx(expected, rel=1e-4)
    quiet = planned_of((300,) * parties, rounds=rounds, options={"noise": noise}, epsilon=50.0)
    assert quiet.algorithm.step == pytest.approx(stable, rel=1e-12)


def test_every_party_has_the_same_model():
    rows, labels = parties_of((90,))[0]
    model = ADMMClassifier("dp-gd", n_parties=4, rounds=8, delta=1e-3, random_state=0)
    model.fit(rows, labels.ravel())
    assert model.node_coef_.shape == (4, 1, FEATURES)
    assert (model.node_coef_ == model.node_coef_[0]).all()
    last = ADMMClassifier(
        "dp-gd", n_parties=4, rounds=8, delta=1e-3, output="last", random_state=0
    ).fit(rows, labels.ravel())
    np.testing.assert_allclose(last.coef_, last.node_coef_[0], rtol=1e-12)


# -- the noise and what it costs ----------------------------------------------------------------


def test_own_noise_spends_each_party_s_budget():
    epsilon = {"0": 0.3, "1": 1.0, "2": 2.0, "3": 5.0}
    planned = planned_of(epsilon=epsilon, outputs=3)
    for events, wanted in zip(announced(planned), epsilon.values(), strict=True):
        assert all(type(event) is GaussianRelease for event in events)
        assert wanted * (1 - 1e-6) < epsilon_spent(events, 1e-3 * (1 - 1e-9)).epsilon <= wanted


def test_shared_noise_is_the_largest_that_anybody_needs():
    epsilon = {"0": 0.3, "1": 1.0, "2": 2.0, "3": 5.0}
    options = {"noise": "shared", "colluders": 2}
    planned = planned_of(epsilon=epsilon, outputs=3, rounds=9, options=options)
    spent = []
    for events, wanted in zip(announced(planned), epsilon.values(), strict=True):
        assert all(type(event) is SharedGaussian for event in events)
        assert {(event.parties, event.colluders) for event in events} == {(4, 2)}
        spent.append(epsilon_spent(events, 1e-3 * (1 - 1e-9)).epsilon / wanted)
    assert 1 - 1e-6 < max(spent) <= 1
    assert sorted(spent)[-2] < 0.99
    # Each is charged its own Delta_i over the common sigma; c_i / n_i is the same for all.
    sums = [events[0].sensitivity for events in announced(planned)]
    np.testing.assert_allclose(sums, 2 * 4 / sum(COUNTS), rtol=1e-8)


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("people", [1, 3])
def test_the_noise_that_is_added_is_what_is_charged(noise, people):
    options = {"noise": noise, "step": 1.0}
    counts = (8, 12, 10, 9, 11)
    planned = planned_of(counts, options=options, rounds=1, outputs=3, rows_per_person=people)
    algorithm, site = planned.algorithm, dataclasses.replace(planned.site, runs=4000)
    state = algorithm.init(site)
    workspace = Workspace(Shard.from_parties(parties_of(counts, 3)), site)
    noisy = algorithm.local_step(state, workspace, site, SimulatedNoise(5), 0).values
    quiet = algorithm.local_step(state, workspace, site, SilentNoise(), 0).values
    for party, events in enumerate(announced(planned)):
        (event,) = events
        variance = event.sigma**2 / (event.honest if noise == "shared" else 1)
        scores = (noisy[party] - quiet[party]).ravel() / math.sqrt(variance)
        assert stats.kstest(scores, "norm").pvalue > 1e-4


def exact_gradient(rows, labels, weight):
    """(c / n) sum_k l'(0) y_k x_k of the huber-hinge, whose slope at 0 is -1; in fractions."""
    exact = [
        sum((Fraction(x) * Fraction(y) for x, y in zip(column, labels, strict=True)), Fraction(0))
        for column in rows.T
    ]
    return [-Fraction(weight) * each / len(rows) for each in exact]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_sums_err_by_no_more_than_the_sensitivity_counts_with(layout):
    random = np.random.default_rng(0)
    rows = random.normal(size=(3000, FEATURES)) * 10.0 ** random.uniform(-9, 0, (3000, 1))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    labels = random.choice([-1.0, 1.0], size=(3000, 1))
    planned = planned_of((3000,), delta=1e-5)
    workspace = Workspace(Shard.from_parties([(layout(rows), labels)]), planned.site)
    found = workspace.gradient(np.zeros(planned.site.shape))[0, 0, 0]
    errors = [
        abs(Fraction(value) - exact)
        for value, exact in zip(found, exact_gradient(rows, labels[:, 0], 1.0), strict=True)
    ]
    bound = float(summation_error([3000], FEATURES)[0])
    assert 0 < math.hypot(*map(float, errors)) <= bound
    charged = announced(planned)[0][0].sensitivity
    assert charged >= 2 / 3000 + 2 * bound


def test_the_error_of_sums_is_counted():
    # So many rows that the allowance for samplers is less than the error of their sums.
    planned = planned_of((10**8,), delta=1e-10)
    error = 2 * float(summation_error([10**8], FEATURES)[0])
    assert announced(planned)[0][0].sensitivity >= 2e-8 + error
    assert error > 1e-6 * 2e-8


@pytest.mark.parametrize("outputs", [1, 3])
def test_rounding_to_the_grid_is_counted(outputs):
    own = planned_of(outputs=outputs)
    shared = planned_of(outputs=outputs, options={"noise": "shared"})
    added = shared.algorithm.summation.step * math.sqrt(FEATURES * outputs)
    np.testing.assert_array_equal(shared.algorithm.sensitivity, own.algorithm.sensitivity + added)
    assert added > 0


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_one_row_moves_a_summand_by_almost_the_sensitivity(noise, outputs):
    counts = (5, 9, 4)
    planned = planned_of(counts, outputs=outputs, options={"noise": noise})
    algorithm, site = planned.algorithm, planned.site
    worst = 0.0
    for seed in range(20):
        parties = parties_of(counts, outputs, seed)
        direction = np.random.default_rng(seed).normal(size=FEATURES)
        direction /= np.linalg.norm(direction)
        sent = []
        for sign in (1.0, -1.0):
            rows, labels = (each.copy() for each in parties[0])
            rows[0], labels[0] = sign * direction, 1.0
            shard = Shard.from_parties([(rows, labels), *parties[1:]])
            state = algorithm.init(site)
            message = algorithm.local_step(state, Workspace(shard, site), site, SilentNoise(), 0)
            sent.append(message.values[0])
        worst = max(worst, float(np.linalg.norm(sent[0] - sent[1])))
    charged = announced(planned)[0][0].sensitivity
    assert 0.999999 * charged < worst <= charged


@pytest.mark.parametrize("layout", ["dense", "stacked", "sparse", "parted"])
@pytest.mark.parametrize("outputs", [1, 3, 10, 100])
def test_no_pair_of_rows_moves_a_summand_further_than_the_sensitivity(layout, outputs):
    # Wherever the model is, and at the slopes (L, ..., L), where rounding has most to shorten.
    counts = (2, 2, 2) if layout == "stacked" else (2,)
    planned = planned_of(counts, outputs=outputs)
    algorithm, site = planned.algorithm, planned.site
    random = np.random.default_rng(outputs)
    charged, worst = announced(planned)[0][0].sensitivity, 0.0
    for attempt in range(30):
        model = 10.0 ** random.uniform(-1, 9) * random.normal(size=(outputs, FEATURES))
        model *= attempt % 4 != 1
        row = random.normal(size=FEATURES)
        row /= np.linalg.norm(row)
        other = -row if attempt % 2 else random.normal(size=FEATURES)
        other /= max(1.0, np.linalg.norm(other))
        sent = []
        for replaced in (row, other):
            # The same labels against every margin of the one row; far out, and at 0 with a huber
            # hinge, all slopes are -L.
            signs = np.where(model @ row > 0, -1.0, 1.0)
            fixed = (np.stack([replaced, row / 2]), np.stack([signs, np.ones(outputs)]))
            parties = [fixed] * len(counts)
            if layout == "sparse":
                parties = [(sparse.csr_array(rows), labels) for rows, labels in parties]
            if layout == "parted":
                shard = parted_shard(parties, lambda rows: (1, rows - 1))
            else:
                shard = Shard.from_parties(parties)
            state = algorithm.init(site)._replace(model=np.broadcast_to(model, site.shape))
            message = algorithm.local_step(state, Workspace(shard, site), site, SilentNoise(), 0)
            sent.append(message.values[0])
        worst = max(worst, float(np.linalg.norm(sent[0] - sent[1])))
    assert 0.999 * charged < worst <= charged


@pytest.mark.parametrize("outputs", range(2, 101))
def test_clipped_slopes_exceed_their_bound_by_rounding_only(outputs):
    slopes = np.full((1, 3, 1, outputs), -1.0)
    slopes[0, 1] = np.linspace(-1.0, 0.0, outputs)
    slopes[0, 2] = 0.0
    slopes[0, 2, 0, 0] = -1.0
    kept = slopes[0, 2].copy()
    clip_slopes(slopes, 1.0)
    for vector in slopes[0, :, 0]:
        square = sum(Fraction(value) ** 2 for value in vector)
        assert square <= (1 + Fraction(1, 10**13)) ** 2
    np.testing.assert_array_equal(slopes[0, 2], kept)


def test_one_output_is_not_touched():
    # One slope may exceed its bound by rounding, and is left to the bit.
    slopes = np.full((2, 5, 3, 1), np.nextafter(-1.0, -2.0))
    kept = slopes.copy()
    clip_slopes(slopes, 1.0)
    np.testing.assert_array_equal(slopes, kept)


# -- the sum, and nothing else ------------------------------------------------------------------


class Masked(Exchange):
    """A secure sum in one process: words under masks that cancel, drawn anew on every call."""

    def __init__(self, summation):
        self.summation, self.random, self.sent = summation, np.random.default_rng(), []

    def cover(self, message, t):
        words = self.summation.to_words(message.values)
        masks = self.random.integers(0, 2**64, words.shape, dtype=np.uint64)
        masks[-1] = -masks[:-1].sum(axis=0, dtype=np.uint64)
        return release_covered(message, words + masks)

    def __call__(self, message, t):
        assert message.values.dtype == np.uint64
        self.sent.append(message.values)
        total = self.summation.from_words(message.values.sum(axis=0, dtype=np.uint64))
        return (total / self.summation.parties)[None]


@pytest.mark.parametrize("topology", ["server", "complete"])
def test_masked_words_lead_to_the_same_bits(topology):
    planned = planned_of(options={"noise": "shared"}, topology=topology, outputs=3)
    plain = models_of(planned, parties_of(outputs=3), SimulatedNoise(7))
    seen, exchange = [], Masked(planned.algorithm.summation)
    outcome = run(
        planned.algorithm,
        planned.site,
        Workspace(Shard.from_parties(parties_of(outputs=3)), planned.site),
        rounds=planned.rounds,
        exchange=exchange,
        ledgers=[MemoryLedger() for _ in COUNTS],
        noise=SimulatedNoise(7),
        on_round=lambda done, model: seen.append(model.copy()),
    )
    assert np.array(seen).tobytes() == plain.tobytes()
    assert outcome.last.tobytes() == plain[-1].tobytes()
    np.testing.assert_array_equal(outcome.history.disagreement, 0.0)
    assert (outcome.history.change > 0).all()


@pytest.mark.parametrize("source", [SimulatedNoise(1), DiscreteNoise()], ids=["simulated", "exact"])
def test_summands_are_whole_steps(source):
    planned = planned_of(options={"noise": "shared"})
    algorithm, site = planned.algorithm, planned.site
    workspace = Workspace(Shard.from_parties(parties_of()), site)
    message = algorithm.local_step(algorithm.init(site), workspace, site, source, 0)
    steps = message.values / algorithm.summation.step
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(message.values).sum() < algorithm.summation.bound
    share = algorithm.sigma[0] / math.sqrt(2)
    # On both sides of what no wrong scale reaches: 12 numbers, each within 6 deviations.
    quiet = algorithm.local_step(algorithm.init(site), workspace, site, SilentNoise(), 0)
    scores = (message.values - quiet.values).ravel() / share
    assert 0.2 < np.sqrt(np.mean(scores**2)) < 3


def test_a_party_alone_computes_what_the_site_of_all_does():
    epsilon = {"0": 0.3, "1": 1.0, "2": 2.0, "3": 5.0}
    planned = planned_of(epsilon=epsilon, options={"noise": "shared"})
    parties = parties_of()
    site, algorithm = planned.site, planned.algorithm
    together = algorithm.local_step(
        algorithm.init(site),
        Workspace(Shard.from_parties(parties), site),
        site,
        SimulatedNoise(2),
        0,
    )
    for place in range(len(COUNTS)):
        own = planned.of_party(place)
        assert own.algorithm.step == algorithm.step
        assert own.algorithm.summation == algorithm.summation
        message = own.algorithm.local_step(
            own.algorithm.init(own.site),
            Workspace(Shard.from_parties([parties[place]]), own.site),
            own.site,
            SimulatedNoise(2),
            0,
        )
        assert message.events == together.events[place : place + 1]
        np.testing.assert_allclose(message.values[0], together.values[place], atol=1e-12)


@pytest.mark.parametrize("counts", [(9,), (9, 12), COUNTS])
def test_with_own_noise_a_party_alone_hears_the_others_and_itself(counts):
    planned = planned_of(counts, topology="complete")
    site, algorithm = planned.site, planned.algorithm
    workspace = Workspace(Shard.from_parties(parties_of(counts)), site)
    state = algorithm.init(site)
    sent = algorithm.local_step(state, workspace, site, SimulatedNoise(2), 0).values
    together = algorithm.absorb(state, sent, sent, site, 0)
    for place in range(len(counts)):
        own = planned.of_party(place)
        start = own.algorithm.init(own.site)
        heard = np.delete(sent, place, axis=0)
        apart = own.algorithm.absorb(start, sent[[place]], heard, own.site, 0)
        np.testing.assert_array_equal(apart.model[0], together.model[place])


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(
    "topology", ["ring", "path", "star", "grid", "random", [(0, 2), (1, 2), (2, 3)]]
)
def test_any_connected_graph_has_the_result_of_a_complete_one(topology, outputs, noise):
    """Links decide how sums travel, and nothing else: bit for bit."""
    told = {"outputs": outputs, "options": {"noise": noise}}
    parties = parties_of(outputs=outputs)
    found, complete = (
        models_of(planned_of(topology=graph, **told), parties, SimulatedNoise(3))
        for graph in (topology, "complete")
    )
    np.testing.assert_array_equal(found, complete)
    events = [announced(planned_of(topology=graph, **told)) for graph in (topology, "complete")]
    assert events[0] == events[1]


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_thousand_parties_on_a_sparse_graph(noise):
    counts = (5,) * 1000
    random = np.random.default_rng(0)
    parties = [
        (rows / np.linalg.norm(rows, axis=1, keepdims=True), random.choice([-1.0, 1.0], (5, 1)))
        for rows in random.normal(size=(1000, 5, FEATURES))
    ]
    found, complete = (
        models_of(
            planned_of(counts, topology=graph, rounds=2, options={"noise": noise}, delta=1e-4),
            parties,
            SimulatedNoise(3),
        )
        for graph in ("random", "server")
    )
    np.testing.assert_array_equal(found, complete)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parties", "colluders"), [(3, 1), (4, 1), (5, 2), (6, 2), (20, 9), (21, 10), (100, 49)]
)
def test_an_honest_majority_is_the_default(parties, colluders):
    assert default_colluders(parties) == colluders
    planned = planned_of((9,) * parties, options={"noise": "shared"})
    assert planned.algorithm.summation.colluders == colluders


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibration": "published"}, "calibration must be 'proven' for 'dp-gd'"),
        ({"options": {"colluders": 1}}, "colluders must be left out with noise = 'own'"),
        (
            {"options": {"noise": "shared", "colluders": 3}},
            "must be 1 to 2 with 4 parties, so that two are honest; got 3",
        ),
        ({"counts": (9, 9), "options": {"noise": "shared"}}, "parties must be at least 3"),
        ({"topology": [(0, 1), (2, 3)]}, "topology must be connected; got the components"),
        ({"options": {"step": 4.0}}, "must be below 2 .* the rounds diverge; got 4.0"),
        ({"options": {"momentum": 1.0}}, "less than 1"),
        ({"loss": "squared"}, "must have a bounded slope"),
        (
            {
                "counts": (10**15,) * 4,
                "options": {"noise": "shared"},
                "epsilon": 50.0,
                "delta": 1e-17,
            },
            "the noise of a share must be at least .* so that sums of 4 summands are exact",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_row_is_read(changes, words):
    with pytest.raises(ParameterError, match=words):
        planned_of(**changes)


def test_floating_point_draws_are_no_shares():
    planned = planned_of(options={"noise": "shared"})
    with pytest.raises(ParameterError, match="noise must be drawn exactly where parties share it"):
        train(planned, Shard.from_parties(parties_of()), noise=SecureNoise())


def test_a_penalty_has_no_part_in_it():
    given, chosen = planned_of(penalty=1e6), planned_of()
    assert given.algorithm.step == chosen.algorithm.step
    np.testing.assert_array_equal(given.algorithm.sigma, chosen.algorithm.sigma)
