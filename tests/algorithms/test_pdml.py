"""PDML against the paper's own equations, and what is promised for labels and rows."""

import math
import re

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm
from tests.helpers import oracles

from dpadmm import ADMMClassifier
from dpadmm.algorithms.base import Budget, Settings
from dpadmm.algorithms.pdml import PDML
from dpadmm.audit.algorithms import AlgorithmCase
from dpadmm.audit.cases import audit_case
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent, joint_label_delta
from dpadmm.privacy.figures import pair
from dpadmm.privacy.noise import SecureNoise, SimulatedNoise
from dpadmm.problem.losses import corrected_for_label_noise, get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site
from dpadmm.run.charges import open_runs
from dpadmm.run.engine import Checkpoint
from dpadmm.run.model import Model, load_model, save_model
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import lay_out, state_privacy, train
from dpadmm.solvers.workspace import Workspace

COUNTS = (60, 90, 45, 120)
LOGISTIC = get_loss("logistic")


def parties_of(seed=1, counts=COUNTS, features=4):
    return oracles.random_parties(seed, counts, features)


def columns(parties):
    return [(rows, labels[:, None]) for rows, labels in parties]


def planned(counts=COUNTS, features=4, **changes):
    options = {"label_epsilon": 1.0, **changes.pop("options", {})}
    chosen = {"rounds": 20, "penalty": 0.05, "regularization": 0.1, "delta": 1e-5, **changes}
    parameters = TrainingParameters("pdml", algorithm_options=options, **chosen)
    return plan(parameters, counts, features=features)


# -- the corrected loss -------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 1.0, 5.0, 40.0])
def test_the_corrected_loss_is_unbiased_over_label_noise(epsilon):
    corrected, margins = corrected_for_label_noise(LOGISTIC, epsilon), np.linspace(-30, 30, 241)
    flip = 1 / (1 + math.exp(epsilon))
    for given, true in [
        (corrected.value, LOGISTIC.value),
        (lambda m: corrected.slope(m), LOGISTIC.slope),
    ]:
        sign = -1 if true is LOGISTIC.slope else 1  # the derivative of l(-m) is -l'(-m)
        mean = (1 - flip) * given(margins) + sign * flip * given(-margins)
        np.testing.assert_allclose(mean, true(margins), atol=1e-12 / epsilon**2)


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 3.0])
def test_the_corrected_loss_is_equation_19_and_its_constants_hold(epsilon):
    corrected, margins = corrected_for_label_noise(LOGISTIC, epsilon), np.linspace(-40, 40, 801)
    power = math.exp(epsilon)
    literal = (power * LOGISTIC.value(margins) - LOGISTIC.value(-margins)) / (power - 1)
    np.testing.assert_allclose(corrected.value(margins), literal, atol=1e-12)
    assert corrected.slope_bound == pytest.approx(power / (power - 1))
    slopes = corrected.slope(margins)
    assert np.abs(slopes).max() <= corrected.slope_bound
    assert np.abs(slopes).max() == pytest.approx(corrected.slope_bound)
    assert np.ptp(slopes) <= corrected.slope_range == LOGISTIC.slope_range
    assert (slopes < 0).all()
    np.testing.assert_array_equal(corrected.curvature(margins), LOGISTIC.curvature(margins))


def test_the_correction_of_any_symmetric_loss_is_equation_19():
    squared, margins = get_loss("squared"), np.linspace(-3, 3, 31)
    literal = (math.e * squared.value(margins) - squared.value(-margins)) / (math.e - 1)
    corrected = corrected_for_label_noise(squared, 1.0)
    np.testing.assert_allclose(corrected.value(margins), literal, atol=1e-12)


# -- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
def test_without_noise_and_with_true_labels_it_reaches_the_pooled_optimum(topology):
    parties = parties_of()
    run = planned(
        topology=topology,
        rounds=300,
        penalty=0.03,
        epsilon=1e14,
        tolerance=1e-10,
        options={"label_epsilon": 60.0, "labels_already_randomized": True},
    )
    shard = lay_out(run, columns(parties), noise=SimulatedNoise(0))
    found = train(run, shard, noise=SimulatedNoise(0)).last[:, 0, 0]
    best = oracles.pooled_optimum(parties, lam=0.1, weights=run.site.weight)
    np.testing.assert_allclose(found, np.tile(best, (4, 1)), atol=1e-6)


def paper_run(parties, neighbours, *, rounds, beta, a, epsilon, eta, theta):
    """Equations (14)-(17) and (19) with the noise given, server by server and row by row."""
    count, d = len(parties), parties[0][0].shape[1]
    power = math.exp(epsilon)
    reported = [np.zeros(d) for _ in range(count)]
    gamma = [np.zeros(d) for _ in range(count)]
    history = []
    for t in range(rounds):
        solved = []
        for i, (rows, labels) in enumerate(parties):

            def gradient(w, i=i, rows=rows, labels=labels, reported=reported):
                total = a / count * w + eta[i] / count + gamma[i]
                for x, y in zip(rows, labels, strict=True):
                    score = y * (w @ x)
                    true, false = -1 / (1 + math.exp(score)), 1 / (1 + math.exp(-score))
                    total = total + (power * true - false) / (power - 1) * y * x / len(rows)
                for j in neighbours[i]:
                    total = total + 2 * beta * (w - (reported[i] + reported[j]) / 2)
                return total

            def hessian(w, i=i, rows=rows):
                total = (a / count + 2 * beta * len(neighbours[i])) * np.eye(d)
                for x in rows:
                    chance = 1 / (1 + math.exp(-(w @ x)))
                    total = total + chance * (1 - chance) * np.outer(x, x) / len(rows)
                return total

            w = reported[i].copy()
            for _ in range(30):
                w = w - np.linalg.solve(hessian(w), gradient(w))
            assert np.linalg.norm(gradient(w)) < 1e-12
            solved.append(w)
        reported = [solved[i] + theta[t][i] for i in range(count)]
        for i in range(count):
            for j in neighbours[i]:
                gamma[i] = gamma[i] + beta * (reported[i] - reported[j])
        history.append(np.array(reported))
    return history


def test_the_published_calibration_is_the_paper_s_algorithm():
    counts, rounds, decay, initial, bound = (12, 9, 15), 5, 0.8, 0.3, 2.0
    parties, d = parties_of(3, counts, 3), 3
    run = planned(
        counts=counts,
        features=d,
        topology="path",
        rounds=rounds,
        penalty=0.1,
        party_weight="equal",
        calibration="published",
        tolerance=1e-11,
        options={"initial_noise": initial, "decay": decay, "objective_noise_bound": bound},
    )
    noise, messages = SimulatedNoise(5), []
    shard = lay_out(run, columns(parties), noise=noise)
    outcome = train(
        run, shard, noise=noise, on_round=lambda done, sent: messages.append(sent[:, 0, 0].copy())
    )
    labels = []
    for party, (_, given) in enumerate(parties):
        stream = SimulatedNoise(5).generator(0, party, 0, "labels")
        flips = stream.random((len(given), 1))[:, 0] < 1 / (1 + math.e)
        labels.append(np.where(flips, -given, given))
    assert any((new != old).any() for new, (_, old) in zip(labels, parties, strict=True))
    eta = [
        SimulatedNoise(5).generator(0, party, 0, "objective").uniform(-bound, bound, (1, d))[0]
        for party in range(3)
    ]
    theta = [
        [
            initial
            * decay ** (t / 2)
            * SimulatedNoise(5).generator(0, party, t, "output").standard_normal((1, d))[0]
            for party in range(3)
        ]
        for t in range(rounds)
    ]
    literal = paper_run(
        [(rows, new) for (rows, _), new in zip(parties, labels, strict=True)],
        [[1], [0, 2], [1]],
        rounds=rounds,
        beta=0.1,
        a=0.1,
        epsilon=1.0,
        eta=eta,
        theta=theta,
    )
    np.testing.assert_allclose(messages, literal, atol=1e-8)
    statement = state_privacy(run, outcome.events, noise)
    assert "1-local differential privacy" in statement.claim
    assert "no values" in statement.claim
    assert [event.sigma for event in outcome.events[0]] == pytest.approx(
        [initial * decay ** (t / 2) for t in range(rounds)]
    )
    reach = 2 * math.e / (math.e - 1) / (counts[0] * (0.1 / 3 + 0.2))
    assert outcome.events[0][0].sensitivity == pytest.approx(reach, rel=1e-8)


def test_objective_noise_is_drawn_once_even_from_a_source_that_cannot_repeat():
    site = Site.of_all(
        np.array([10, 10]),
        planned((10, 10), 3).site.topology,
        LOGISTIC,
        features=3,
        regularization=0.1,
    )
    budget = Budget(np.full(2, 1e14), np.full(2, 1e-5))
    for option in ({"objective_noise_bound": 3.0}, {"objective_noise_rate": 0.5}):
        settings = Settings(2, 0.1, tolerance=1e-9, options=option, budget=budget)
        algorithm = PDML.configure(site, settings)
        workspace = Workspace(Shard.from_parties(columns(parties_of(2, (10, 10), 3))), site)
        state, noise = algorithm.init(site), SecureNoise()
        first = algorithm.local_step(state, workspace, site, noise, 0).values
        again = algorithm.local_step(state, workspace, site, noise, 1).values
        np.testing.assert_allclose(first, again, atol=1e-6)
        other = Workspace(Shard.from_parties(columns(parties_of(2, (10, 10), 3))), site)
        fresh = algorithm.local_step(state, other, site, noise, 0).values
        assert np.abs(fresh - first).max() > 1e-2
        other.restore(workspace.snapshot())
        restored = algorithm.local_step(state, other, site, noise, 0).values
        np.testing.assert_allclose(restored, first, atol=1e-6)


def test_each_row_may_have_an_epsilon_of_its_own():
    parties = parties_of()
    rng = np.random.default_rng(0)
    chosen = [rng.uniform(0.5, 3.0, count) for count in COUNTS]
    options = {
        "label_epsilon": 0.5,
        "largest_label_epsilon": 3.0,
        "labels_already_randomized": True,
    }
    run = planned(rounds=400, penalty=0.03, epsilon=1e14, tolerance=1e-10, options=options)
    noise = SimulatedNoise(0)
    shard = lay_out(run, columns(parties), noise=noise, label_epsilon=chosen)
    found = train(run, shard, noise=noise).last[:, 0, 0]
    # The optimality condition of the pooled problem, row by row.
    w = found.mean(axis=0)
    gradient = 0.1 * w
    for (rows, labels), own, c in zip(parties, chosen, run.site.weight, strict=True):
        for x, y, epsilon in zip(rows, labels, own, strict=True):
            slope = -1 / (1 + math.exp(y * (w @ x))) - 1 / math.expm1(epsilon)
            gradient = gradient + c / len(rows) * slope * y * x
    assert np.linalg.norm(gradient) < 1e-6
    assert run.site.loss.slope_bound == pytest.approx(1 + 1 / math.expm1(0.5))


def test_the_solver_finds_the_same_with_and_without_a_factor_when_rows_are_tilted():
    parties = parties_of()
    run = planned(options={"largest_label_epsilon": 2.0, "labels_already_randomized": True})
    chosen = [np.linspace(1.0, 2.0, count) for count in COUNTS]
    shard = lay_out(run, columns(parties), noise=SimulatedNoise(0), label_epsilon=chosen)
    linear, convexity = np.full(run.site.shape, 0.3), np.full(4, 1e-3)
    points = [
        Workspace(shard, run.site, factor_limit=limit).argmin(linear, convexity, 1e-10).point
        for limit in (0, 1500)
    ]
    np.testing.assert_allclose(points[0], points[1], atol=1e-6)
    plain = Shard(shard.blocks, shard.counts)
    assert Workspace(plain, run.site).fingerprint() != Workspace(shard, run.site).fingerprint()


# -- what it promises ---------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("people", [1, 3])
def test_the_proven_calibration_spends_the_budget_and_no_more(decay, people):
    run = planned(epsilon=0.7, options={"decay": decay}, rows_per_person=people)
    for events in announced(run):
        spent = epsilon_spent(events, 1e-5, rows_per_person=people).epsilon
        assert 0.995 * 0.7 <= spent <= 0.7


def moved(run, data, neighbour, linear):
    """How far apart two data sets put the minimiser of party 0."""
    points = [
        Workspace(lay_out(run, columns(parties), noise=SimulatedNoise(0)), run.site)
        .argmin(linear, 0.1 / 4 + 2 * 0.05 * run.site.degree, 1e-10)
        .point[0]
        for parties in (data, neighbour)
    ]
    return np.linalg.norm(points[0] - points[1])


def test_no_row_and_no_label_moves_a_message_further_than_is_charged():
    run = planned(options={"labels_already_randomized": True, "label_epsilon": 0.4}, tolerance=1e-9)
    rng = np.random.default_rng(4)
    worst_row = worst_label = 0.0
    for trial in range(30):
        data = parties_of(trial)
        rows, labels = data[0][0].copy(), data[0][1].copy()
        direction = rng.normal(size=4)
        direction /= np.linalg.norm(direction)
        rows[0] = direction
        data = [(rows, labels), *data[1:]]
        linear = np.tile(-direction * 10.0 ** rng.uniform(-2, 2), (4, 1, 1, 1)).reshape(4, 1, 1, 4)
        flipped = labels.copy()
        flipped[0] = -flipped[0]
        worst_label = max(worst_label, moved(run, data, [(rows, flipped), *data[1:]], linear))
        other = rows.copy()
        other[0] = -direction + 0.1 * rng.normal(size=4)
        worst_row = max(worst_row, moved(run, data, [(other, labels), *data[1:]], linear))
    assert worst_row <= run.algorithm.sensitivity[0]
    assert worst_label <= run.algorithm.label_sensitivity[0]
    # The label's bound is attained but for the curvature of the loss.
    assert worst_label > 0.9 * run.algorithm.label_sensitivity[0]
    assert run.algorithm.label_sensitivity[0] < run.algorithm.sensitivity[0]


def test_the_auditor_comes_close_to_the_claim_and_refutes_half_the_noise():
    arguments = {"rounds": 5, "options": {"label_epsilon": 0.4}}
    honest = audit_case(AlgorithmCase("pdml", 1.0, 1e-5, **arguments), samples=10_000)
    assert not honest.refuted
    assert honest.lower_bound > 0.7 * honest.claim.mu
    cheated = AlgorithmCase("pdml", 1.0, 1e-5, noise_scale=0.5, **arguments)
    assert audit_case(cheated, samples=10_000).refuted


@pytest.mark.parametrize(("label_epsilon", "mu"), [(1.0, 0.3), (0.4, 1.0), (3.0, 2.0)])
def test_the_joint_label_guarantee_is_the_integral_over_both_coins(label_epsilon, mu):
    flip = 1 / (1 + math.exp(label_epsilon))
    for share in (0.0, 0.3, 0.8, 1.0):
        epsilon = share * label_epsilon

        def excess(x, epsilon=epsilon):
            one, other = norm.pdf(x), norm.pdf(x - mu)
            kept = (1 - flip) * one + flip * other
            return max(kept - math.exp(epsilon) * (flip * one + (1 - flip) * other), 0.0)

        value = integrate.quad(excess, -12, 12 + mu, limit=400, points=[mu / 2])[0]
        assert joint_label_delta(label_epsilon, mu, epsilon) == pytest.approx(value, abs=1e-5)


def test_one_sentence_for_parties_of_different_budgets_has_both_maxima():
    """The largest epsilon may be one party's and the largest delta another's."""
    parameters = TrainingParameters(
        "pdml",
        rounds=5,
        epsilon={"a": 1.0, "b": 0.9},
        delta={"a": 1e-6, "b": 1e-3},
        algorithm_options={"label_epsilon": 20.0},
    )
    run = plan(parameters, [800, 800], features=3, names=("a", "b"))
    statement = state_privacy(run, announced(run), SimulatedNoise(0))
    details = dict(statement.details)
    for heading in ("Label against other parties", "Features and label against other parties"):
        epsilon, delta = re.match(r"\(([0-9.e-]+), ([0-9.e-]+)\)", details[heading]).groups()
        assert float(delta) == 1e-3
        # At a's delta alone, b costs far more than a.
        assert float(epsilon) < epsilon_spent(announced(run)[1], 1e-6).epsilon
    assert details["Features and label against other parties"].startswith("(1, 0.001)-")
    assert (statement.epsilon, statement.delta) == (pytest.approx(1.0, rel=1e-5), 1e-3)
    assert epsilon_spent(announced(run)[1], 1e-6).epsilon == pytest.approx(1.55, abs=0.01)


def test_the_statement_tells_label_and_features_at_home_and_elsewhere_apart(tmp_path):
    rows, labels = (
        np.concatenate([r for r, _ in parties_of()]),
        np.concatenate([y for _, y in parties_of()]),
    )
    model = ADMMClassifier(
        "pdml",
        epsilon=2.0,
        rounds=5,
        algorithm_options={"label_epsilon": 0.8},
        random_state=0,
    ).fit(rows, labels)
    details = dict(model.privacy_.details)
    assert "0.8-local differential privacy" in details["Label against its own server"]
    assert "held the true ones" in details["Label against its own server"]
    label = float(details["Label against other parties"].split(",")[0].strip("("))
    assert 0 < label < 0.8
    assert pair(model.privacy_.epsilon, 1e-5) in details["Features and label against other parties"]
    assert details["Features against their own server"].startswith("none")
    assert set(model.privacy_.to_dict()["details"]) == set(details)
    assert all(heading in str(model.privacy_) for heading in details)
    assert 1.99 <= model.privacy_.epsilon <= 2.0
    save_model(tmp_path / "m.model", Model.from_estimator(model))
    assert load_model(tmp_path / "m.model").privacy.details == model.privacy_.details


def test_labels_are_randomised_once_and_not_where_they_already_are():
    parties = [(np.eye(2)[np.zeros(4000, int)], np.ones(4000)) for _ in range(2)]
    for already, expected in ((False, 1 / (1 + math.exp(1.5))), (True, 0.0)):
        run = planned(
            (4000, 4000),
            2,
            topology="path",
            options={"label_epsilon": 1.5, "labels_already_randomized": already},
        )
        shard = lay_out(run, columns(parties), noise=SimulatedNoise(0))
        share = float((shard.blocks[0].labels[:, :, 0] < 0).mean())
        assert share == pytest.approx(expected, abs=0.02)
        assert already == (share == 0)


# -- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"label_epsilon": 0.0}}, r"\['label_epsilon'\].*greater than 0; got 0.0"),
        ({"options": {"label_epsilon": -1.0}}, "greater than 0"),
        ({"options": {"label_epsilon": math.nan}}, "label_epsilon"),
        ({"options": {"decay": 0.0}}, r"\['decay'\].*greater than 0"),
        ({"options": {"decay": 1.01}}, r"\['decay'\].*less than or equal to 1"),
        ({"options": {"objective_noise_bound": -1.0}}, "objective_noise_bound"),
        (
            {"options": {"objective_noise_bound": 1.0, "objective_noise_rate": 1.0}},
            "must not be given together",
        ),
        ({"options": {"largest_label_epsilon": 0.5}}, "must be at least label_epsilon, 1; got 0.5"),
        ({"options": {"initial_noise": 1.0}}, "left out except for the published calibration"),
        ({"calibration": "published"}, "initial_noise must be given for the published"),
        (
            {"loss": "huber-hinge"},
            "pdml needs a loss with symmetric curvature; huber-hinge has none",
        ),
        ({"loss": "squared"}, "bounded slope"),
        ({"regularization": 0.0}, "regularization must be a positive number"),
    ],
)
def test_bad_parameters_are_refused_in_words(changes, words):
    with pytest.raises(ParameterError, match=words):
        planned(**changes)


def test_more_than_two_classes_are_refused():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ParameterError, match="pdml needs two classes; got 3"):
        ADMMClassifier("pdml", n_parties=2, delta=1e-3).fit(rows, np.arange(30) % 3)


def test_epsilons_of_rows_are_refused_outside_the_public_bounds_and_for_other_algorithms():
    rows, labels = np.ones((30, 2)), np.arange(30) % 2
    model = ADMMClassifier("pdml", n_parties=2, delta=1e-3, rounds=2, random_state=0)
    with pytest.raises(ParameterError, match="between the options label_epsilon"):
        model.fit(rows, labels, label_epsilon=np.full(30, 0.5))
    with pytest.raises(ParameterError, match=r"one number for each of the 30 rows"):
        model.fit(rows, labels, label_epsilon=np.ones(29))
    model.set_params(algorithm_options={"largest_label_epsilon": 2.0})
    model.fit(rows, labels, label_epsilon=np.linspace(1, 2, 30))
    assert "at most 2-local" in dict(model.privacy_.details)["Label against its own server"]
    other = ADMMClassifier("pr-admm", n_parties=2, delta=1e-3, rounds=2, random_state=0)
    with pytest.raises(ParameterError, match="left out for the algorithm 'pr-admm'"):
        other.fit(rows, labels, label_epsilon=np.ones(30))


def test_a_run_that_may_be_continued_takes_only_labels_that_are_randomised(tmp_path):
    words = "labels_already_randomized must be true in a run"
    with pytest.raises(ParameterError, match=f"{words} charged to a ledger"):
        open_runs(planned(), [], "run", SecureNoise())
    run, noise = planned(), SecureNoise()
    shard = lay_out(run, columns(parties_of()), noise=noise)
    with pytest.raises(ParameterError, match=f"{words} with a checkpoint"):
        train(run, shard, noise=noise, checkpoint=Checkpoint(tmp_path / "saved"))
