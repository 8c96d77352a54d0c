import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import approx_fprime
from tests.helpers import oracles

from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.problem import rows as row_layout
from dpadmm.problem import rows as rows_module
from dpadmm.problem.losses import LOSSES, get_loss
from dpadmm.problem.rows import RowBlock, Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.solvers import newton
from dpadmm.solvers.workspace import FACTOR_LIMIT, Workspace, check_reachable

NAMES = sorted(LOSSES)


def site_of(counts, loss, features, *, runs=1, outputs=1, weight="rows"):
    return Site.of_all(
        np.array(counts),
        build_topology("path", len(counts)),
        get_loss(loss),
        features=features,
        regularization=0.1,
        runs=runs,
        outputs=outputs,
        party_weight=weight,
    )


def workspace_of(parties, site, **extra):
    columns = [(rows, labels if labels.ndim == 2 else labels[:, None]) for rows, labels in parties]
    return Workspace(Shard.from_parties(columns), site, **extra)


def problem(seed, counts, loss, features=4, **extra):
    parties = oracles.random_parties(seed, counts, features)
    site = site_of(counts, loss, features, **extra)
    linear = 0.3 * np.random.default_rng(seed + 1).normal(size=site.shape)
    return parties, site, linear


def true_gradient(point, parties, site, linear, convexity, labels=None):
    """The gradient of every node, run and output in extended precision."""
    result = np.empty(site.shape)
    for node, (rows, own) in enumerate(parties):
        for run in range(site.runs):
            for output in range(site.outputs):
                signs = own if own.ndim == 1 else own[:, output]
                result[node, run, output] = oracles.local_gradient(
                    point[node, run, output].astype(np.longdouble),
                    rows.astype(np.longdouble),
                    signs.astype(np.longdouble),
                    loss=site.loss.name,
                    weight=site.weight[node],
                    convexity=convexity[node],
                    linear=linear[node, run, output].astype(np.longdouble),
                )
    return result


# -- against scipy ------------------------------------------------------------------------------


def test_the_oracle_is_the_objective_written_out_row_by_row():
    ((rows, labels),) = oracles.random_parties(0, [7], 3)
    w = np.array([0.3, -0.2, 0.9])
    for loss in NAMES:
        terms = {"loss": loss, "weight": 2.0, "convexity": 0.3, "linear": np.array([1.0, 0, -1])}
        numerical = approx_fprime(
            w, lambda v, terms=terms: oracles.local_value(v, rows, labels, **terms)
        )
        exact = oracles.local_gradient(w, rows, labels, **terms)
        np.testing.assert_allclose(exact, numerical, atol=1e-6)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("weight", ["rows", "equal"])
@pytest.mark.parametrize("factor_limit", [0, 1500])
def test_the_minimiser_is_that_of_scipy(loss, weight, factor_limit):
    parties, site, linear = problem(3, [40, 13, 44, 90], loss, weight=weight)
    convexity = np.array([0.01, 0.2, 1.5, 0.05])
    solved = workspace_of(parties, site, factor_limit=factor_limit).argmin(linear, convexity, 1e-11)
    for node, (rows, labels) in enumerate(parties):
        expected = oracles.solve_local(
            rows,
            labels,
            loss=loss,
            weight=site.weight[node],
            convexity=convexity[node],
            linear=linear[node, 0, 0],
        )
        np.testing.assert_allclose(solved.point[node, 0, 0], expected, atol=2e-9)


@pytest.mark.parametrize("loss", NAMES)
def test_several_outputs_are_solved_each_with_its_own_labels(loss):
    parties, _, _ = problem(5, [30, 50], loss)
    random = np.random.default_rng(9)
    parties = [(rows, random.choice([-1.0, 1.0], size=(len(rows), 3))) for rows, _ in parties]
    site = site_of([30, 50], loss, 4, outputs=3, runs=2)
    linear = 0.2 * random.normal(size=site.shape)
    convexity = np.array([0.05, 0.3])
    solved = workspace_of(parties, site).argmin(linear, convexity, 1e-10)
    residual = np.linalg.norm(
        true_gradient(solved.point, parties, site, linear, convexity), axis=-1
    )
    assert (residual <= 1e-10).all()


# -- the certificate ----------------------------------------------------------------------------


@pytest.mark.parametrize("factor_limit", [0, 1500])
@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8, 1e-11])
def test_the_residual_is_the_true_gradient_norm_and_within_tolerance(loss, tolerance, factor_limit):
    parties, site, linear = problem(11, [25, 70, 26, 3], loss, runs=3)
    workspace = workspace_of(parties, site, factor_limit=factor_limit)
    convexity = np.array([0.02, 0.1, 3.0, 0.5])
    random = np.random.default_rng(0)
    for _ in range(4):  # warm starts too
        solved = workspace.argmin(linear, convexity, tolerance)
        gradient = true_gradient(solved.point, parties, site, linear, convexity)
        norms = np.linalg.norm(gradient, axis=-1)
        assert solved.residual.shape == site.shape[:-1]
        np.testing.assert_allclose(solved.residual, norms, atol=1e-13)
        assert (norms <= tolerance).all()
        linear = linear + 0.1 * random.normal(size=site.shape)


def test_a_tolerance_per_party_is_kept_by_each():
    parties, site, linear = problem(2, [20, 20], "logistic")
    solved = workspace_of(parties, site).argmin(linear, np.full(2, 0.01), np.array([1e-2, 1e-11]))
    assert solved.residual[1, 0, 0] <= 1e-11
    assert solved.residual[0, 0, 0] <= 1e-2


# -- layouts agree ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", NAMES)
def test_runs_together_are_the_runs_apart(loss):
    parties, site, linear = problem(7, [20, 80], loss, runs=4)
    linear[:, 2] *= 100.0  # a run far from the others shares their inverse
    convexity = np.array([0.01, 0.1])
    together = workspace_of(parties, site).argmin(linear, convexity, 1e-10)
    single = site_of([20, 80], loss, 4)
    for run in range(4):
        alone = workspace_of(parties, single).argmin(linear[:, [run]], convexity, 1e-10)
        np.testing.assert_allclose(together.point[:, [run]], alone.point, atol=4e-10 / 0.01)


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_runs_that_noise_drives_apart_get_inverses_of_their_own(outputs, thin):
    """Stacked parties of unlike sizes, one of them with few of its rows in an inverse."""
    random, counts = np.random.default_rng(3), [300, 280, 40]
    labels = [random.choice([-1.0, 1.0], size=(count, outputs)) for count in counts]
    rows = [part for part, _ in oracles.random_parties(3, counts, 4)]
    parties = list(zip(rows, labels, strict=True))
    site = site_of(counts, "logistic", 4, runs=5, outputs=outputs, weight="equal")
    given = [(sparse.csr_array(part) if thin else part, signs) for part, signs in parties]
    workspace, convexity = workspace_of(given, site), np.array([1e-3, 2e-3, 5e-3])
    for _ in range(4):
        linear = 0.3 * random.normal(size=site.shape)
        solved = workspace.argmin(linear, convexity, 1e-10)
        exact = true_gradient(solved.point, parties, site, linear, convexity)
        assert np.linalg.norm(exact, axis=-1).max() <= 1e-10
    inverses = [values for name, values in workspace.snapshot().items() if "inverse" in name]
    # Sparse parties are solved one by one, and the small one does not need it.
    assert 5 * outputs in {values.shape[1] for values in inverses}
    assert thin or {values.shape[1] for values in inverses} == {5 * outputs}


def drifting(renewed):
    """Passes of solves whose solution slowly leaves the place the first inverse was made for."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(300, 6))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.sign(rows @ np.ones(6))
    site = site_of([300], "logistic", 6)
    workspace = workspace_of([(rows, labels)], site)
    (solver,) = workspace._solvers
    if not renewed:
        solver._rebuild_cost = np.inf
    linear = generator.normal(size=site.shape)
    for done in range(60):
        solution = workspace.argmin(0.005 * done * linear, np.array([0.01]), 1e-6)
        assert (solution.residual <= 1e-6).all()
    return workspace.passes


def test_an_inverse_is_renewed_when_small_delays_have_added_up():
    assert drifting(renewed=True) < 0.9 * drifting(renewed=False)


def test_an_inverse_follows_the_strong_convexity():
    """A growing penalty is not a reason to look at the rows again."""
    parties, site, linear = problem(21, [60, 80], "logistic")
    workspace = workspace_of(parties, site)
    workspace.argmin(linear, np.array([0.1, 0.3]), 1e-9)
    for growth in (1.7, 4.0, 0.6):
        convexity = growth * np.array([0.1, 0.3])
        for solver in workspace._solvers:
            state = solver.state
            before = state.inverse.copy()
            hessians = np.linalg.inv(before) - state.bowl[:, None, None, None] * np.eye(4)
            solver._follow(state, convexity[solver.nodes])
            wanted = hessians + convexity[solver.nodes][:, None, None, None] * np.eye(4)
            np.testing.assert_allclose(state.inverse, np.linalg.inv(wanted), rtol=1e-9)
        solution = workspace.argmin(linear, convexity, 1e-9)
        gradient = true_gradient(solution.point, parties, site, linear, convexity)
        assert np.linalg.norm(gradient, axis=-1).max() <= 1e-9


def test_runs_go_on_sharing_where_inverses_of_their_own_would_not_fit(monkeypatch):
    monkeypatch.setattr(newton, "_OWN_BYTES", 0)
    random, counts = np.random.default_rng(3), [300, 280]
    parties = oracles.random_parties(3, counts, 4)
    site = site_of(counts, "logistic", 4, runs=5, weight="equal")
    workspace, convexity = workspace_of(parties, site), np.array([1e-3, 2e-3])
    for _ in range(4):
        linear = 0.3 * random.normal(size=site.shape)
        solved = workspace.argmin(linear, convexity, 1e-10)
        exact = true_gradient(solved.point, parties, site, linear, convexity)
        assert np.linalg.norm(exact, axis=-1).max() <= 1e-10
    inverses = [values for name, values in workspace.snapshot().items() if "inverse" in name]
    assert {values.shape[1] for values in inverses} == {1}


@pytest.mark.parametrize("loss", NAMES)
def test_stacked_parties_are_the_parties_alone(loss):
    counts = [30, 31, 33, 8, 9, 200]
    parties, site, linear = problem(8, counts, loss, weight="equal")
    convexity = np.linspace(0.05, 1.0, len(counts))
    workspace = workspace_of(parties, site)
    together = workspace.argmin(linear, convexity, 1e-11)
    for node, party in enumerate(parties):
        single = site_of([counts[node]], loss, 4, weight="equal")
        alone = workspace_of([party], single).argmin(linear[[node]], convexity[[node]], 1e-11)
        np.testing.assert_allclose(together.point[node], alone.point[0], atol=1e-9)


@pytest.mark.parametrize("loss", NAMES)
def test_factor_free_and_sparse_are_as_factored_and_dense(loss):
    parties, site, linear = problem(4, [25, 60, 61], loss, features=6, runs=2)
    parties = [(np.where(np.abs(rows) > 0.2, rows, 0.0), labels) for rows, labels in parties]
    thin = [(sparse.csr_array(rows), labels) for rows, labels in parties]
    convexity = np.array([0.1, 0.2, 0.4])
    dense = workspace_of(parties, site).argmin(linear, convexity, 1e-11)
    free = workspace_of(parties, site, factor_limit=0).argmin(linear, convexity, 1e-11)
    np.testing.assert_allclose(free.point, dense.point, atol=3e-10)
    for limit in (FACTOR_LIMIT, 0):
        workspace = workspace_of(thin, site, factor_limit=limit)
        compressed = workspace.argmin(linear, convexity, 1e-11)
        np.testing.assert_allclose(compressed.point, dense.point, atol=3e-10)
        kept = {name.partition(".")[2] for name in workspace.snapshot()}
        assert ("inverse" in kept) == (limit > 0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_rows_of_few_nonzero_numbers_are_as_if_they_had_many(outputs, monkeypatch):
    """Large parties of dense rows that are mostly zeros: the same solutions, and sparse passes."""
    random = np.random.default_rng(12)
    features, count = 40, 1000
    place = random.integers(features, size=(count, 4))
    rows = np.zeros((count, features))
    np.put_along_axis(rows, place, 0.5, axis=1)
    labels = random.choice([-1.0, 1.0], size=(count, outputs))
    site = site_of([count], "logistic", features, outputs=outputs)
    linear, convexity = 0.1 * random.normal(size=site.shape), np.array([0.05])
    thin = workspace_of([(rows, labels)], site)
    assert [solver._sparse for solver in thin._solvers] == [True]
    monkeypatch.setattr(rows_module, "_THIN_BYTES", 0)
    dense = workspace_of([(rows, labels)], site)
    assert [solver._sparse for solver in dense._solvers] == [False]
    for size in (1.0, 3.0):
        points = [each.argmin(size * linear, convexity, 1e-11).point for each in (thin, dense)]
        np.testing.assert_allclose(*points, atol=2e-11 / 0.05)
    gradients = [each.gradient(points[0]) for each in (thin, dense)]
    np.testing.assert_allclose(*gradients, atol=1e-15)
    assert thin.fingerprint() == dense.fingerprint()


def test_a_party_read_in_pieces_is_the_party_read_at_once(monkeypatch):
    parties, site, linear = problem(6, [9_000], "logistic")
    whole = workspace_of(parties, site).argmin(linear, np.ones(1), 1e-11)
    monkeypatch.setattr(row_layout, "_PIECE_BYTES", 1)
    pieces = workspace_of(parties, site).argmin(linear, np.ones(1), 1e-11)
    np.testing.assert_allclose(pieces.point, whole.point, atol=1e-10)


# -- every data set -----------------------------------------------------------------------------


def rounding_floor(site, linear, convexity):
    """A public bound on the rounding error of a gradient, from the bound on the solution."""
    size = np.linalg.norm(linear, axis=-1).max(axis=(1, 2))
    bounded = np.isfinite(site.loss.slope_bound)
    reach = (size + site.weight) / convexity
    slopes = 1.0 if bounded else 1.0 + reach
    times = 50 + 2 * site.rows + site.features
    return times * 2.3e-16 * (size + site.weight * (slopes + site.loss.curvature_bound * reach))


@st.composite
def hard_parties(draw):
    features = draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parties = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.sampled_from([1, 2, 3, 10, 60]))
        rows = random.normal(size=(count, features))
        rows *= 10.0 ** random.uniform(-5, 0, size=features) ** draw(st.integers(0, 1))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]
        kind = draw(st.sampled_from(["plain", "separable", "zero", "same", "tiny", "opposed"]))
        labels = random.choice([-1.0, 1.0], size=count)
        if kind == "separable":
            labels = np.where(rows @ random.normal(size=features) > 0, 1.0, -1.0)
        elif kind == "zero":
            rows = np.zeros_like(rows)
        elif kind in {"same", "opposed"}:
            rows = np.repeat(rows[:1], count, axis=0)
            labels = np.ones(count) if kind == "same" else labels
        elif kind == "tiny":
            rows = rows * 10.0 ** random.uniform(-6, 0, size=(count, 1))
        parties.append((rows, labels))
    return features, parties


EXPONENTS = st.one_of(st.floats(-6, 6), st.floats(-6, -3), st.sampled_from([-6.0, 6.0]))


@settings(max_examples=120)
@given(
    data=hard_parties(),
    loss=st.sampled_from(NAMES),
    runs=st.sampled_from([1, 3]),
    dense=st.booleans(),
    rounds=st.lists(
        st.tuples(EXPONENTS, st.one_of(st.none(), st.floats(-6, 6))), min_size=1, max_size=3
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_converges_on_every_data_set(data, loss, runs, dense, rounds, seed):
    features, parties = data
    random = np.random.default_rng(seed)
    site = site_of([len(rows) for rows, _ in parties], loss, features, runs=runs, weight="equal")
    workspace = workspace_of(parties, site, factor_limit=1500 if dense else 0)
    for exponent, size in rounds:  # a later round starts where an earlier one ended, however far
        convexity = np.full(len(parties), 10.0**exponent)
        linear = random.normal(size=site.shape) * (0.0 if size is None else 10.0**size)
        tolerance = np.maximum(1e-8, rounding_floor(site, linear, convexity))
        solved = workspace.argmin(linear, convexity, tolerance)
        gradient = true_gradient(solved.point, parties, site, linear, convexity)
        assert (np.linalg.norm(gradient, axis=-1) <= tolerance[:, None, None]).all()


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge"])
@pytest.mark.parametrize("seed", range(8))
def test_a_flat_start_far_away_does_not_stop_it(loss, seed):
    # From a point where every row is saturated full Newton steps overshoot by 1 / m.
    parties = oracles.random_parties(seed, [10], 3, noise=0.0)
    site = site_of([10], loss, 3)
    workspace = workspace_of(parties, site)
    random = np.random.default_rng(seed)
    for size in (3.0, 0.0, 1e-3, 30.0, 0.0):
        linear = size * random.normal(size=site.shape)
        before = workspace.passes
        solved = workspace.argmin(linear, np.array([2e-6]), 1e-6)
        assert solved.residual.max() <= 1e-6
        assert workspace.passes - before < 600


@pytest.mark.parametrize("loss", NAMES)
def test_the_proven_method_alone_reaches_the_tolerance(loss, monkeypatch):
    monkeypatch.setattr(newton, "_MAX_STEPS", 0)
    parties, site, linear = problem(21, [30, 31, 5], loss, runs=2)
    convexity = np.array([1e-3, 0.1, 10.0])
    solved = workspace_of(parties, site).argmin(linear, convexity, 1e-9)
    gradient = true_gradient(solved.point, parties, site, linear, convexity)
    assert (np.linalg.norm(gradient, axis=-1) <= 1e-9).all()


def test_a_solved_lane_beside_a_busy_one_raises_no_warning():
    parties = [(np.zeros((4, 2)), np.ones(4)), oracles.random_parties(0, [4], 2)[0]]
    site = site_of([4, 4], "logistic", 2)
    solved = workspace_of(parties, site).argmin(np.zeros(site.shape), np.full(2, 0.1), 1e-9)
    np.testing.assert_array_equal(solved.point[0], 0)


def unclipped(rows, site):
    """A workspace on rows as they are: a shard would have brought them to norm 1."""
    block = RowBlock(np.array([0]), rows[None], np.ones((1, len(rows), 1)))
    return Workspace(Shard((block,), np.array([len(rows)])), site)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_that_are_not_numbers_are_never_certified():
    site = site_of([3], "logistic", 2)
    with pytest.raises((ConvergenceError, np.linalg.LinAlgError)):
        unclipped(np.full((3, 2), np.nan), site).argmin(np.zeros(site.shape), np.ones(1), 1e-8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_failure_says_nothing_about_the_rows(monkeypatch):
    # Rows far longer than 1 break the bound on the curvature, which the proof needs.
    monkeypatch.setattr(newton, "_MAX_STEPS", 0)
    texts = set()
    for seed in range(3):
        rows = 1e9 * np.random.default_rng(seed).normal(size=(5, 2))
        site = site_of([5], "squared", 2)
        with pytest.raises(ConvergenceError, match="nothing was released") as failure:
            unclipped(rows, site).argmin(np.ones(site.shape), np.ones(1), 1e-8)
        texts.add(str(failure.value))
    assert len(texts) == 1


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize(
    ("tolerance", "size", "convexity"),
    [(1e-20, 1.0, 1.0), (1e-8, 1e9, 1.0), (1e-8, 1e6, 1e-3), (1e-8, 1e200, 1.0), (0.0, 1.0, 1.0)],
)
def test_a_tolerance_below_rounding_is_refused_whatever_the_rows(loss, tolerance, size, convexity):
    texts = set()
    for seed in range(3):
        parties, site, linear = problem(seed, [5, 5], loss)
        linear = np.full_like(linear, size)
        with pytest.raises(ParameterError, match="tolerance must be at least") as refusal:
            workspace_of(parties, site).argmin(linear, np.full(2, convexity), tolerance)
        texts.add(str(refusal.value))
    assert len(texts) == 1
    assert f"{tolerance:.3g}" in texts.pop()


@pytest.mark.parametrize("tolerance", [np.nan, -1.0])
def test_a_tolerance_that_is_none_is_refused(tolerance):
    parties, site, linear = problem(0, [5], "logistic")
    with pytest.raises(ParameterError, match="tolerance must be at least"):
        workspace_of(parties, site).argmin(linear, np.ones(1), tolerance)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_linear_term_that_is_not_finite_is_refused(value):
    parties, site, linear = problem(0, [5, 6], "logistic")
    linear[1, 0, 0, 2] = value
    with pytest.raises(ParameterError, match="linear must be finite"):
        workspace_of(parties, site).argmin(linear, np.ones(2), 1e-8)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_strong_convexity_must_be_positive(value):
    parties, site, linear = problem(0, [5, 6], "logistic")
    with pytest.raises(ParameterError, match="strong_convexity must be positive"):
        workspace_of(parties, site).argmin(linear, np.array([1.0, value]), 1e-8)


def test_a_shard_of_other_counts_is_refused():
    parties, _, _ = problem(0, [5, 6], "logistic")
    with pytest.raises(ParameterError, match=r"site\.rows"):
        workspace_of(parties, site_of([6, 5], "logistic", 4))


# -- snapshots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor_limit", [0, 1500])
def test_a_restored_snapshot_continues_bit_for_bit(factor_limit):
    parties, site, _ = problem(13, [20, 21, 70], "logistic", runs=2)
    random = np.random.default_rng(1)
    # Enough of them for inverses to be renewed before and after.
    steps = [0.5 * random.normal(size=site.shape) for _ in range(40)]
    convexity = np.array([0.05, 0.2, 1.0])
    first = workspace_of(parties, site, factor_limit=factor_limit)
    for linear in steps[:20]:
        first.argmin(linear, convexity, 1e-9)
    saved = first.snapshot()
    expected = [first.argmin(linear, convexity, 1e-9).point for linear in steps[20:]]
    for _ in range(2):  # the snapshot is not used up by going on, nor by being restored
        second = workspace_of(parties, site, factor_limit=factor_limit)
        second.restore(saved)
        for linear, point in zip(steps[20:], expected, strict=True):
            np.testing.assert_array_equal(second.argmin(linear, convexity, 1e-9).point, point)


def test_a_solution_is_not_touched_by_later_solves():
    parties, site, linear = problem(14, [20], "logistic")
    workspace = workspace_of(parties, site)
    solved = workspace.argmin(linear, np.ones(1), 1e-9)
    kept = solved.point.copy()
    workspace.argmin(linear + 1, np.ones(1), 1e-9)
    np.testing.assert_array_equal(solved.point, kept)


def test_the_arguments_are_left_alone():
    parties, site, linear = problem(15, [20, 30], "logistic")
    copies = [(rows.copy(), labels.copy()) for rows, labels in parties]
    before, convexity = linear.copy(), np.ones(2)
    workspace_of(parties, site).argmin(linear, convexity, 1e-9)
    np.testing.assert_array_equal(linear, before)
    for (rows, labels), (old_rows, old_labels) in zip(parties, copies, strict=True):
        np.testing.assert_array_equal(rows, old_rows)
        np.testing.assert_array_equal(labels, old_labels)


# -- sensitivity (L1, L1') ----------------------------------------------------------------------


@settings(max_examples=150)
@given(
    loss=st.sampled_from(["logistic", "huber-hinge"]),
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    features=st.integers(1, 4),
    convexity=st.floats(-3, 2).map(lambda e: 10.0**e),
    size=st.floats(-2, 3).map(lambda e: 10.0**e),
    tolerance=st.sampled_from([1e-2, 1e-6, 1e-9]),
)
def test_one_row_moves_the_minimiser_by_no_more_than_the_bound(
    loss, seed, count, features, convexity, size, tolerance
):
    random = np.random.default_rng(seed)
    ((rows, labels),) = oracles.random_parties(seed, [count], features)
    site = site_of([count], loss, features, weight="equal")
    linear = random.normal(size=site.shape)
    linear *= size / np.linalg.norm(linear)
    tolerance = max(tolerance, rounding_floor(site, linear, np.array([convexity]))[0])
    other_rows, other_labels = rows.copy(), labels.copy()
    # The worst neighbours sit on either side of the direction in which the linear term pulls.
    axis = -linear[0, 0, 0] / size
    side = random.normal(size=features)
    side -= (side @ axis) * axis
    turn = random.uniform(0, np.pi)
    first = np.cos(turn) * axis + np.sin(turn) * side / max(np.linalg.norm(side), 1e-12)
    rows[0] = first / max(np.linalg.norm(first), 1.0)
    other_rows[0] = random.choice([-1.0, 1.0]) * rows[0]
    other_labels[0] = random.choice([-1.0, 1.0])
    points = []
    for party in ((rows, labels), (other_rows, other_labels)):
        workspace = workspace_of([party], site)
        points.append(workspace.argmin(linear, np.array([convexity]), tolerance).point)
    moved = np.linalg.norm(points[0] - points[1])
    bound = 2 * site.loss.slope_bound / (count * convexity) + 2 * tolerance / convexity
    assert moved <= bound * (1 + 1e-12)


def test_the_bound_is_nearly_attained_so_that_it_is_the_right_one():
    # Two rows on either side of a strong pull: the slopes there are -1 and the rows opposite.
    site = site_of([1], "logistic", 2, weight="equal")
    linear = np.array([1000.0, 0.0]).reshape(site.shape)
    points = []
    for sign in (1.0, -1.0):
        rows = np.array([[0.05, sign * np.sqrt(1 - 0.05**2)]])
        workspace = workspace_of([(rows, np.ones(1))], site)
        points.append(workspace.argmin(linear, np.ones(1), 1e-9).point)
    assert np.linalg.norm(points[0] - points[1]) > 0.99 * 2.0


def test_what_a_solve_learns_makes_later_ones_shorter(monkeypatch):
    parties, site, _ = problem(5, [3000], "logistic", features=20)
    steps = np.random.default_rng(0).normal(size=(40, *site.shape)) / 500

    def passes():
        workspace = workspace_of(parties, site)
        for linear in np.cumsum(steps, axis=0):  # from round to round, as noise drives them
            workspace.argmin(linear, np.full(1, 5e-3), 1e-7)
        return workspace.passes

    learnt = passes()
    monkeypatch.setattr(newton, "_LEARNING_ROWS", np.inf)
    assert learnt < 0.95 * passes()


# -- the certificate of many rows ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ["logistic", "huber-hinge"])
@pytest.mark.parametrize("count", [100, 200_000])
def test_the_certificate_holds_for_many_rows(kind, loss, count):
    # Equal rows: the exact mean gradient is that of one row, and a sum of equal numbers is rounded
    # in the same direction again and again.
    row = np.array([0.6, -0.8 * math.sqrt(1 - 0.01), 0.08])
    rows = np.tile(row, (count, 1))
    site = site_of([count], loss, 3)
    held = sparse.csr_array(rows) if kind == "sparse" else rows
    workspace = Workspace(Shard.from_parties([(held, np.ones((count, 1)))]), site)
    convexity = np.array([0.02])
    for size in (0.0, 0.01, 0.05, 0.3):
        linear = np.full(site.shape, size) * [1.0, -0.3, 0.7]
        rounding = check_reachable(site, linear, convexity, np.ones(1))
        # The smallest tolerance that is not refused.
        tolerance = 2.05 * check_reachable(site, linear, convexity, 2.05 * rounding)
        point = workspace.argmin(linear, convexity, tolerance).point[0, 0, 0]
        wide = np.longdouble
        margin = float((point.astype(wide) * row).sum())
        slope = get_loss(loss).slope(np.array([margin])).astype(wide)[0]
        gradient = slope * row + convexity.astype(wide) * point + linear[0, 0, 0]
        assert float(np.sqrt((gradient**2).sum())) <= tolerance[0]


def test_the_certificate_leaves_room_for_rows_and_features():
    def floor(count, features, weight="equal"):
        site = site_of([count], "logistic", features, weight=weight)
        return float(check_reachable(site, np.zeros(site.shape), np.ones(1), np.ones(1))[0])

    unit = 2.0**-53
    # Two sums over the rows, each term of which is rounded once for every row of a block.
    assert floor(1000, 2) - floor(100, 2) == pytest.approx((899 + 28) * unit, rel=1e-6, abs=0)
    # A margin of d numbers, at a point of norm |l'(0)| + tol = 1.5, curvature 1/4.
    assert floor(100, 1000) - floor(100, 10) == pytest.approx(990 * 0.375 * unit, rel=1e-3, abs=0)
