"""R-ADMM and MR-ADMM: against their papers' algorithms, their optimum and their budget."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest
from tests.helpers import oracles

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Budget, OptimumWarning, Settings, graph_convexity
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import Composed, GaussianRelease, InexactSolve, PostProcessing
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.mechanisms import release_post_processed
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource, SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import state_privacy, train
from dpadmm.solvers.workspace import Workspace
from dpadmm_papers.r_admm.theory import privacy_loss

# Large penalties keep these runs cheap; how far they get does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")

COUNTS = (60, 85, 110, 140, 170, 200)
FEATURES = 5
LAM = 0.05
UNEQUAL = [0.02, 0.03, 0.015, 0.025, 0.02, 0.01]
BY_NAME = {str(party): value for party, value in enumerate(UNEQUAL)}
PARTIES = oracles.random_parties(1, COUNTS, FEATURES)
NOISES = ("exp-norm", "gaussian", "output")
NAMES = ("r-admm", "mr-admm")


class Silence(NoiseSource):
    """Every draw is zero."""

    description = "silence"
    simulated = True

    def generator(self, run, party, t, purpose):
        raise AssertionError("nothing is drawn")

    def add_gaussian(self, values, sigma, parties, t, purpose):
        return values.copy()

    def exponential_norm(self, shape, parties, t, purpose):
        return np.zeros(shape)


class Untouchable:
    """A workspace that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError(f"an even iteration asked the workspace for {name}")


def site_on(topology, *, counts=COUNTS, outputs=1):
    return Site.of_all(
        np.array(counts),
        build_topology(topology, len(counts)),
        get_loss("logistic"),
        features=FEATURES,
        regularization=LAM,
        outputs=outputs,
        party_weight="equal",
    )


def configured(
    name,
    site,
    *,
    rounds,
    penalty=0.02,
    penalties=None,
    calibration="proven",
    epsilon=1e3,
    **options,
):
    count = len(site.index)
    settings = Settings(
        rounds=rounds,
        penalty=penalty,
        tolerance=1e-12,
        options=options,
        budget=Budget(np.full(count, epsilon), np.full(count, 1e-5)),
        calibration=calibration,
        penalties=penalties,
    )
    return get_algorithm(name).configure(site, settings)


def messages(algorithm, site, rounds, noise):
    """The messages of every round, ``(rounds, parties, features)``."""
    sent = []
    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in PARTIES])
    run(
        algorithm,
        site,
        Workspace(shard, site),
        rounds=rounds,
        exchange=InProcess(),
        ledgers=[MemoryLedger() for _ in site.index],
        noise=noise,
        on_round=lambda done, values: sent.append(values[:, 0, 0]),
    )
    return np.array(sent)


# -- where it goes without noise ------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, None, 0.5])
@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
def test_without_noise_it_reaches_the_pooled_optimum(topology, gamma):
    site = site_on(topology)
    algorithm = configured("r-admm", site, rounds=250, gamma=gamma)
    last = messages(algorithm, site, 250, Silence())[-1]
    optimum = oracles.pooled_optimum(PARTIES, lam=LAM, weights=np.ones(6))
    np.testing.assert_allclose(last, np.tile(optimum, (6, 1)), atol=1e-6)


def test_a_growing_penalty_common_to_all_reaches_the_pooled_optimum():
    site = site_on("ring")
    algorithm = configured("mr-admm", site, rounds=400, penalty=0.01, penalty_growth=1.005)
    last = messages(algorithm, site, 400, Silence())[-1]
    optimum = oracles.pooled_optimum(PARTIES, lam=LAM, weights=np.ones(6))
    np.testing.assert_allclose(last, np.tile(optimum, (6, 1)), atol=1e-6)


def test_unequal_penalties_reach_the_optimum_weighted_by_their_inverses():
    site, inverse = site_on("ring"), 1 / np.array(UNEQUAL)
    with pytest.warns(OptimumWarning, match="sum_i f_i / penalty_i"):
        algorithm = configured(
            "mr-admm",
            site,
            rounds=500,
            calibration="published",
            node_penalties=BY_NAME,
            penalty_growth=1.0,
        )
    last = messages(algorithm, site, 500, Silence())[-1]
    weighted = oracles.pooled_optimum(PARTIES, lam=LAM * inverse.mean(), weights=inverse)
    pooled = oracles.pooled_optimum(PARTIES, lam=LAM, weights=np.ones(6))
    np.testing.assert_allclose(last, np.tile(weighted, (6, 1)), atol=1e-6)
    assert np.linalg.norm(last[0] - pooled) > 0.05


def test_weighting_the_objectives_by_the_penalties_is_the_common_penalty_again():
    """eta_i f_i with the penalty eta_i: the same messages as f_i with the penalty 1."""
    site, factor = site_on("ring"), np.array(UNEQUAL) / 0.02
    common = messages(configured("r-admm", site, rounds=8, gamma=0.0), site, 8, Silence())
    weights = [1.0] * 6

    def scaled(dual, own, others, party):
        return oracles.augmented_lagrangian_minimum(
            PARTIES[party],
            own,
            others,
            dual,
            eta=UNEQUAL[party],
            rho=factor[party] * LAM / 6,
            weight=factor[party] * weights[party],
            loss="logistic",
        )

    literal = literal_iterates(
        site, [np.array(UNEQUAL)] * 4, gamma=0.0, solve=scaled, factor=factor
    )
    np.testing.assert_allclose(common, literal, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_even_iterations_need_not_be_sent_on_a_complete_graph(gamma):
    site = site_on("complete")
    options = {"gamma": gamma, "penalty_growth": 1.1}
    sending = configured("r-admm", site, rounds=19, **options)
    silent = configured("r-admm", site, rounds=10, send_even=False, **options)
    sent = messages(sending, site, 19, Silence())
    np.testing.assert_allclose(messages(silent, site, 10, Silence()), sent[::2], atol=1e-10)


# -- the paper's algorithm, literally -------------------------------------------------------------


def literal_iterates(site, penalties, *, gamma, solve, factor=None, noise=None):
    """Algorithm 3 with its halved duals and the stored gradient; ``penalties[k][i]``."""
    count = len(PARTIES)
    neighbours = [site.topology.neighbours(i) for i in range(count)]
    scale = np.ones(count) if factor is None else factor
    f = [np.zeros(FEATURES) for _ in range(count)]
    dual = [np.zeros(FEATURES) for _ in range(count)]
    iterates = []
    for k, eta in enumerate(penalties):
        drawn = np.zeros((count, FEATURES)) if noise is None else noise[k]
        odd, stored = [], []
        for i in range(count):
            others = [f[j] for j in neighbours[i]]
            point = solve(dual[i] + drawn[i] / 2, f[i], others, i)
            rows, labels = PARTIES[i]
            gradient = oracles.local_gradient(
                point,
                rows,
                labels,
                loss="logistic",
                weight=scale[i],
                convexity=scale[i] * LAM / count,
                linear=np.zeros(FEATURES),
            )
            odd.append(point)
            stored.append(drawn[i] + gradient)
        difference = []
        for i in range(count):
            total = np.zeros(FEATURES)
            for j in neighbours[i]:
                total = total + eta[i] * (odd[i] - odd[j])
            difference.append(total)
            dual[i] = dual[i] + total / 2
        f = [
            odd[i]
            - (2 * dual[i] + stored[i] + difference[i]) / (2 * eta[i] * len(neighbours[i]) + gamma)
            for i in range(count)
        ]
        iterates += [np.array(odd), np.array(f)]
    return np.array(iterates)


@pytest.mark.parametrize("topology", ["ring", "star"])
@pytest.mark.parametrize("vary", ["the same everywhere", "from round to round", "of each party"])
@pytest.mark.parametrize("name", NAMES)
def test_the_published_form_is_the_paper_s_algorithm(name, vary, topology):
    """Also where noise and penalties vary from node to node, as the paper says it was run too."""
    site, count = site_on(topology), 5
    penalties = np.array([[0.2 * 1.04**k] * 6 for k in range(count)])
    rates = np.full((count, 6), 40.0)
    options, more = {"gamma": 0.5, "noise_rate": 40.0, "penalty_growth": 1.04}, {}
    if vary != "the same everywhere":
        del options["penalty_growth"]
        penalties = penalties * np.array([1.0, 1.1, 0.9, 1.3, 1.2])[:, None]
        rates = rates + 5.0 * np.arange(count)[:, None]
        options["noise_rate"], more["penalties"] = rates[:, 0].tolist(), tuple(penalties[:, 0])
    if vary == "of each party":
        penalties = penalties * np.array([1.0, 1.03, 1.02, 0.8, 1.01, 1.0])
        rates = rates + 2.0 * np.arange(6)
        options["noise_rate"] = {str(i): rates[:, i].tolist() for i in range(6)}
        more["penalties"] = {str(i): tuple(penalties[:, i]) for i in range(6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimumWarning)
        algorithm = configured(
            name, site, rounds=10, penalty=0.2, calibration="published", **options, **more
        )
    source, shape = SimulatedNoise(3), (6, 1, 1, FEATURES)
    drawn = [
        source.exponential_norm(shape, site.index, 2 * k, "objective")[:, 0, 0] / rates[k][:, None]
        for k in range(count)
    ]
    at = {}

    def solve(dual, own, others, party):
        k = at.setdefault(party, 0)
        at[party] += 1
        return oracles.augmented_lagrangian_minimum(
            PARTIES[party],
            own,
            others,
            dual,
            eta=penalties[k][party],
            rho=LAM / 6,
            weight=1.0,
            loss="logistic",
        )

    literal = literal_iterates(site, penalties, gamma=0.5, solve=solve, noise=drawn)
    sent = messages(algorithm, site, 10, source)
    np.testing.assert_allclose(sent, literal, atol=1e-8)


# -- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("rounds", "outputs", "rows_per_person"), [(9, 1, 1), (10, 3, 1), (4, 1, 2)]
)
def test_a_proven_calibration_spends_its_budget(name, noise, rounds, outputs, rows_per_person):
    planned = plan(
        TrainingParameters(
            algorithm=name,
            rounds=rounds,
            epsilon={"0": 0.8, "1": 2.0, "2": 0.8},
            rows_per_person=rows_per_person,
            algorithm_options={"noise": noise},
        ),
        [4000, 6000, 9000],
        features=FEATURES,
        outputs=outputs,
    )
    delta = 1e-5 * (1 - SAMPLER_ALLOWANCE)
    for events, budget in zip(announced(planned), (0.8, 2.0, 0.8), strict=True):
        paid = [event for event in events if event != PostProcessing()]
        assert len(paid) == math.ceil(rounds / 2)
        spent = epsilon_spent(events, delta, rows_per_person=rows_per_person).epsilon
        assert 0.999 * budget <= spent <= budget


@pytest.mark.parametrize("noise", NOISES)
def test_every_message_is_paid_for_when_even_ones_are_not_sent(noise):
    planned = plan(
        TrainingParameters(
            algorithm="r-admm",
            topology="complete",
            rounds=6,
            algorithm_options={"noise": noise, "send_even": False},
        ),
        [4000] * 3,
        features=FEATURES,
    )
    for events in announced(planned):
        assert PostProcessing() not in events
        assert 0.999 <= epsilon_spent(events, 1e-5).epsilon <= 1.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", NOISES)
def test_an_even_iteration_reads_no_row_draws_no_noise_and_costs_nothing(name, noise):
    site = site_on("ring")
    algorithm = configured(name, site, rounds=6, noise=noise)
    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in PARTIES])
    workspace, state = Workspace(shard, site), algorithm.init(site)
    for t in range(6):
        events = algorithm.announce(state, site, t)
        if t % 2:
            message = algorithm.local_step(state, Untouchable(), site, Untouchable(), t)
            assert events == message.events == (PostProcessing(),) * 6
        else:
            message = algorithm.local_step(state, workspace, site, SimulatedNoise(0), t)
            expected = GaussianRelease if noise == "output" else Composed
            assert all(isinstance(event, expected) for event in events)
        dual = state.dual
        state = algorithm.absorb(state, message.values, message.values, site, t)
        assert (t % 2 == 1) == np.array_equal(state.dual, dual)


def test_an_even_message_is_a_function_of_the_messages_before_it():
    """Recomputed from the log of messages alone by the paper's formula with the stored gradient."""
    site, gamma, eta = site_on("star"), 0.3, 0.02
    algorithm = configured("r-admm", site, rounds=8, gamma=gamma, epsilon=5.0)
    log = messages(algorithm, site, 8, SimulatedNoise(1))
    links, degree = site.adjacency.toarray(), site.degree[:, None]
    dual, before = np.zeros((6, FEATURES)), np.zeros((6, FEATURES))
    for k in range(4):
        odd, even = log[2 * k], log[2 * k + 1]
        gradient = -dual - eta * (2 * degree * odd - degree * before - links @ before)
        dual = dual + eta * (degree * odd - links @ odd)
        step = gradient + dual + eta * (degree * odd - links @ odd)
        np.testing.assert_allclose(even, odd - step / (2 * eta * degree + gamma), atol=1e-9)
        before = even


def test_a_post_processed_release_costs_nothing():
    values = np.ones((3, 1, 1, 2))
    released = release_post_processed(values)
    assert released.events == (PostProcessing(),) * 3
    assert epsilon_spent(released.events, 1e-5).epsilon == 0


# -- the published calibration --------------------------------------------------------------------


def published(rows=(4000, 6000, 9000), name="r-admm", **more):
    parameters = {
        "algorithm": name,
        "rounds": 9,
        "penalty": 0.5,
        "epsilon": 3.0,
        "calibration": "published",
        "party_weight": "equal",
        **more,
    }
    return plan(TrainingParameters(**parameters), list(rows), features=FEATURES)


def test_a_published_run_states_the_claim_and_what_is_proven():
    planned = published(rows=(400, 400, 400), rounds=4)
    noise = SimulatedNoise(0)
    shard = Shard.from_parties(
        [(rows, labels[:, None]) for rows, labels in oracles.random_parties(2, (400,) * 3, 5)]
    )
    statement = state_privacy(planned, train(planned, shard, noise=noise).events, noise)
    assert "Theorem V.1, eq. (32): epsilon = 3 with delta = 0" in statement.claim
    # Two releases compose no better than they add up; the solver's residual comes on top.
    assert 2.9 < statement.epsilon < 3.05
    assert statement.delta == 1e-5
    assert statement.calibration == "published"


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_is_equation_32_and_the_charge_what_is_proven(name):
    planned = published(name=name, algorithm_options={"noise_rate": 500.0, "penalty_growth": 1.05})
    claim = planned.algorithm.claim(planned.site)
    bowls = [1e-4 / 3 + 4 * 0.5 * 1.05**k for k in range(5)]
    losses = [privacy_loss(bowls, 500.0, rows) for rows in (4000, 6000, 9000)]
    figure = float(re.search(r"epsilon = ([0-9.e+-]+)", claim).group(1))
    assert figure == pytest.approx(max(loss.published for loss in losses), rel=1e-5)
    for events, loss in zip(announced(planned), losses, strict=True):
        exact = [event.events[0].epsilon for event in events if isinstance(event, Composed)]
        assert sum(exact) == pytest.approx(loss.proven, rel=1e-8)
        assert all(
            isinstance(event.events[1], InexactSolve)
            for event in events
            if isinstance(event, Composed)
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("outputs", "people"), [(1, 1), (3, 1), (3, 2)])
def test_several_outputs_and_rows_share_the_claimed_epsilon_once(name, outputs, people):
    """Eq. (32) is added up over outputs, and over a person's rows: it claims the whole epsilon."""
    parameters = TrainingParameters(
        name,
        rounds=9,
        penalty=0.5,
        epsilon=5.0,
        calibration="published",
        party_weight="equal",
        rows_per_person=people,
    )
    planned = plan(parameters, [4000, 4000], features=FEATURES, outputs=outputs)
    algorithm, site = planned.algorithm, planned.site
    rates, releases = 1 / algorithm.scale[:, 0], range(len(algorithm.scale))
    bowls = [graph_convexity(site, algorithm.penalty[k])[0] for k in releases]
    each = sum(2 / 4000 * (1.4 * 0.25 / bowls[k] + rates[k]) for k in releases)
    assert people * outputs * each == pytest.approx(5.0, rel=1e-9)
    assert f"epsilon = {AtMost(outputs * each)} " in algorithm.claim(site)
    # The same rates, given: what is claimed is within epsilon, and not a factor too much.
    told = dataclasses.replace(parameters, algorithm_options={"noise_rate": rates[0] * (1 - 1e-9)})
    plan(told, [4000, 4000], features=FEATURES, outputs=outputs)
    dear = dataclasses.replace(parameters, algorithm_options={"noise_rate": rates[0] * 1.001})
    with pytest.raises(ParameterError, match="must keep the total within epsilon = 5"):
        plan(dear, [4000, 4000], features=FEATURES, outputs=outputs)


def test_the_published_noise_of_amp_does_not_show():
    algorithm = published().algorithm
    solution_noise = algorithm.scale * FEATURES / (algorithm.penalty * 4)
    assert (algorithm.output_sigma < 1e-3 * solution_noise).all()


def test_the_paper_s_condition_is_checked_with_its_numbers():
    with pytest.raises(ParameterError, match=re.escape("2 c1 < (B / C)(rho / N + 2 eta V)")) as no:
        published(rows=(40, 6000, 9000), penalty=0.002)
    assert "at 0 it reads 0.5 < 0.32" in str(no.value)
    assert published(rows=(40, 6000, 9000), penalty=0.02, epsilon=100.0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"epsilon": 1e-4}, "the cost of the Jacobians alone by eq. (32)"),
        ({"algorithm_options": {"noise": "gaussian"}}, "noise must be 'exp-norm'"),
        ({"algorithm_options": {"noise": "output"}}, "noise must be 'exp-norm'"),
        (
            {"calibration": "proven", "algorithm_options": {"noise_rate": 1.0}},
            "noise_rate needs calibration 'published'",
        ),
    ],
)
def test_what_the_published_form_lacks_is_refused(more, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        published(**more)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gamma", -0.1),
        ("gamma", math.inf),
        ("penalty_growth", 0.99),
        ("penalty_growth", math.nan),
        ("noise", "laplace"),
        ("noise_rate", 0.0),
        ("send_even", 1),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_option_is_refused_by_name_and_value(name, option, value):
    with pytest.raises(ParameterError, match=option) as refusal:
        configured(name, site_on("ring"), rounds=2, **{option: value})
    assert repr(value) in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.1] * 6, "node_penalties must be a table of parties"),
        ({**BY_NAME, "5": -1.0}, "node_penalties of party 5 must be a positive number"),
        ({str(party): 0.1 for party in range(5)}, "5 has none"),
        ({**BY_NAME, "hospital": 1.0}, "got 'hospital'"),
        ({**BY_NAME, "5": [0.1] * 2}, "one number for each of the 1 odd iterations; got 2"),
    ],
)
def test_bad_node_penalties_are_refused(given, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        configured(
            "mr-admm", site_on("ring"), rounds=2, calibration="published", node_penalties=given
        )


def test_equal_node_penalties_are_the_common_one_and_need_no_warning():
    site = site_on("ring")
    by_name = configured("mr-admm", site, rounds=4, node_penalties={str(i): 0.02 for i in range(6)})
    by_number = configured("mr-admm", site, rounds=4, node_penalties=dict.fromkeys(range(6), 0.02))
    common = configured("mr-admm", site, rounds=4, penalty=0.02)
    for field in dataclasses.fields(common):
        expected = getattr(common, field.name)
        np.testing.assert_array_equal(getattr(by_name, field.name), expected)
        np.testing.assert_array_equal(getattr(by_number, field.name), expected)


@pytest.mark.parametrize("name", ["r-admm", "mr-admm", "dvp"])
def test_proven_penalties_must_be_common_and_m_admm_is_where_they_need_not_be(name):
    with pytest.raises(ParameterError, match=r"optimum of sum_i f_i / penalty_i.*'m-admm'"):
        configured(name, site_on("ring"), rounds=2, penalties=BY_NAME)
    with pytest.warns(OptimumWarning):
        configured(
            name,
            site_on("ring"),
            rounds=2,
            penalties=BY_NAME,
            calibration="published",
            epsilon=1e3,
        )


def test_a_party_by_itself_takes_its_own_penalty_and_knows_that_others_differ():
    own = site_on("complete").of_party(2)
    told = {"rounds": 2, "calibration": "published", "epsilon": 1e3, "node_penalties": BY_NAME}
    with pytest.warns(OptimumWarning):
        algorithm = configured("mr-admm", own, **told)
    np.testing.assert_array_equal(algorithm.penalty, [[UNEQUAL[2]]])
    with (
        pytest.warns(OptimumWarning),
        pytest.raises(ParameterError, match="send_even=False needs the same penalty"),
    ):
        configured("mr-admm", own, **told, send_even=False)


def test_r_admm_has_no_node_penalties():
    with pytest.raises(ParameterError, match="node_penalties"):
        configured("r-admm", site_on("ring"), rounds=2, node_penalties=BY_NAME)


def test_a_single_party_has_no_neighbours_to_recycle_from():
    site = site_on("ring", counts=(200,))
    with pytest.raises(ParameterError, match="gamma must be positive for a single party"):
        configured("r-admm", site, rounds=4, gamma=0.0)
    algorithm = configured("r-admm", site, rounds=4)
    state = algorithm.init(site)._replace(message=np.ones(site.shape))
    again = algorithm.local_step(state, Untouchable(), site, Silence(), 1)
    np.testing.assert_array_equal(again.values, state.message)


def test_even_iterations_are_left_out_only_where_everyone_can_compute_them():
    with pytest.raises(ParameterError, match="send_even=False needs topology 'complete'"):
        configured("r-admm", site_on("ring"), rounds=2, send_even=False)
    with (
        pytest.warns(OptimumWarning),
        pytest.raises(ParameterError, match="send_even=False needs the same penalty"),
    ):
        configured(
            "mr-admm",
            site_on("complete"),
            rounds=2,
            send_even=False,
            calibration="published",
            node_penalties=BY_NAME,
        )


@pytest.mark.parametrize("algorithm", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_noise_is_never_cut_off_by_the_solver(algorithm):
    """A tolerance that large noise could miss is refused before anything is drawn."""
    parameters = TrainingParameters(
        algorithm,
        rounds=10,
        penalty=0.03,
        tolerance=1.45e-13,
        loss="logistic",
        algorithm_options={"noise": "exp-norm"},
    )
    with pytest.raises(ParameterError, match="tolerance must be at least"):
        announced(plan(parameters, [100, 100, 100], features=50))


def test_the_penalties_of_parties_may_grow_each_at_its_own_pace():
    growth = {str(party): 1.0 + 0.01 * party for party in range(6)}
    told = {"rounds": 7, "penalty": 0.05}
    with pytest.warns(OptimumWarning, match="depends on the course that it took"):
        found = configured(
            "mr-admm", site_on("ring"), calibration="published", penalty_growth=growth, **told
        )
    steps = np.arange(4)[:, None]
    expected = 0.05 * np.array(list(growth.values()))[None] ** steps
    np.testing.assert_allclose(found.penalty, expected, rtol=1e-12)
    alike = configured(
        "mr-admm", site_on("ring"), penalty_growth=dict.fromkeys(growth, 1.03), **told
    )
    common = configured("mr-admm", site_on("ring"), penalty_growth=1.03, **told)
    np.testing.assert_array_equal(alike.penalty, common.penalty)
    # A proven run has one optimum, that of the pooled objective: one growth for all.
    with pytest.raises(ParameterError, match="penalties of the parties differ"):
        configured("mr-admm", site_on("ring"), penalty_growth=growth, **told)
    with pytest.raises(ParameterError, match=r"penalty_growth of party 1 must be .* got 0\.9"):
        configured("mr-admm", site_on("ring"), penalty_growth=growth | {"1": 0.9}, **told)
    with pytest.raises(ParameterError, match="penalty_growth"):
        configured("mr-admm", site_on("ring"), penalty_growth={"0": 1.1}, **told)
