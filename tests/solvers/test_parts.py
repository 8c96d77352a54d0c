"""Rows in parts: the same sums, the same solver, the same evaluation as rows in one place."""

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.row_parts import PartsHere, parted_shard

from dpadmm.errors import ParameterError
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard, label_signs, piece_rows, summation_error
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train
from dpadmm.solvers.newton import BlockSolver
from dpadmm.solvers.workspace import PartedSolver, Workspace


def make_party(rows, features, seed=0, classes=2, kind="dense"):
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, features))
    if kind == "sparse":
        values *= random.random(size=values.shape) < 0.2
    values /= np.maximum(1.0, np.linalg.norm(values, axis=1, keepdims=True))
    codes = (np.abs(values @ random.normal(size=features)) * 7).astype(np.int64) % classes
    signs = label_signs(codes, 1 if classes == 2 else classes)
    return (sparse.csr_array(values) if kind == "sparse" else values), signs


def site_of(counts, features, loss="logistic", outputs=1, runs=1):
    return Site.of_all(
        np.array(counts),
        build_topology("complete", len(counts)),
        get_loss(loss),
        features=features,
        regularization=0.01,
        outputs=outputs,
        runs=runs,
    )


def uneven(count):
    """Parts of 1 row, of about a third, and the rest."""
    return [1, count // 3, count - 1 - count // 3]


def pieces_each(features):
    step = piece_rows(features)
    return lambda count: [step] * (count // step) + ([count % step] if count % step else [])


@pytest.mark.parametrize(("kind", "loss"), [("dense", "logistic"), ("sparse", "huber-hinge")])
def test_a_pass_over_parts_of_whole_pieces_has_the_bits_of_one_over_one_file(kind, loss):
    features = 210
    step = piece_rows(features) if kind == "dense" else 2048
    party = make_party(2 * step + step // 2, features, kind=kind)
    site = site_of([2 * step + step // 2], features, loss)
    point = np.random.default_rng(5).normal(size=site.shape)
    whole = Workspace(Shard.from_parties([party]), site).gradient(point)
    for heights in ([step, step, step // 2], [2 * step, step // 2]):
        parted = Workspace(parted_shard([party], lambda _, cut=heights: cut), site)
        np.testing.assert_array_equal(parted.gradient(point), whole)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_pass_over_any_parts_keeps_the_bound_that_sensitivities_count_on(kind):
    """Against a sum in extended precision, at a point where every slope is the same."""
    rows, signs = make_party(5000, 8, kind=kind)
    site = site_of([5000], 8)
    shard = parted_shard([(rows, signs)], lambda _: [7, 600, 1, 2600, 1792])
    found = Workspace(shard, site).gradient(np.zeros(site.shape))[0, 0, 0]
    dense = rows.toarray() if kind == "sparse" else rows
    exact = -(signs * dense).astype(np.longdouble).sum(axis=0) / 2 / 5000
    reach = 0.5 * np.linalg.norm(dense, axis=1).mean()
    assert np.linalg.norm(found - exact) <= float(summation_error(5000, 8)) * reach


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("factor_limit", [300, 0])
def test_a_solve_on_parts_reaches_the_solution_of_one_place(kind, classes, factor_limit):
    """With the factor, and by Hessian-vector products; beside a party whose rows are here."""
    parties = [make_party(n, 6, seed=n, classes=classes, kind=kind) for n in (300, 200)]
    outputs = 1 if classes == 2 else classes
    site = site_of([300, 200], 6, outputs=outputs)
    linear = 0.3 * np.random.default_rng(1).normal(size=site.shape)
    convexity = np.array([0.05, 0.08])
    whole = Workspace(Shard.from_parties(parties), site, factor_limit=factor_limit)
    expected = whole.argmin(linear, convexity, 1e-10)
    beside = Shard.from_parties(parties[1:]).beside({0: PartsHere(*parties[0], uneven(300))})
    for shard in (parted_shard(parties, uneven), beside):
        found = Workspace(shard, site, factor_limit=factor_limit).argmin(linear, convexity, 1e-10)
        assert found.residual.max() <= 1e-10
        apart = np.linalg.norm(found.point - expected.point, axis=-1).max(axis=(1, 2))
        # Two points with a gradient of at most tol each are at most 2 tol / m apart.
        assert (apart <= 2e-10 / convexity).all()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_slope_along_a_direction_is_that_of_one_place(kind):
    """What a line search looks at, for several lengths."""
    party, site = make_party(400, 3, kind=kind), site_of([400], 3)
    point, direction = np.random.default_rng(4).normal(size=(2, 1, 1, 3))
    (block,) = Shard.from_parties([party]).blocks
    here = BlockSolver(block, site, None, use_factor=True)
    (parted,) = parted_shard([party], uneven).parted
    there = PartedSolver(parted, site, use_factor=True)
    expected = here.slopes_along(point, direction)
    found = there.slopes_along(point, direction)
    for length in (0.0, 0.5, 40.0):
        at = np.full((1, 1), length)
        np.testing.assert_allclose(found(at), expected(at), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["dp-gd", "pr-admm", "ps-admm", "scas-admm", "r-admm"])
def test_a_run_on_parts_sends_what_a_run_on_one_place_sends(algorithm):
    counts, features = [120, 90, 60], 4
    parties = [make_party(count, features, seed=count) for count in counts]
    topology = "server" if algorithm in ("dp-gd", "ps-admm", "scas-admm") else "complete"
    told = TrainingParameters(
        algorithm, epsilon=8.0, delta=1e-3, rounds=4, topology=topology, penalty="auto"
    )
    planned = plan(told, counts, features=features)
    sent = []
    for shard in (Shard.from_parties(parties), parted_shard(parties, uneven)):
        messages = []
        train(
            planned,
            shard,
            noise=SimulatedNoise(3),
            on_round=lambda done, message, kept=messages: kept.append(message.copy()),
        )
        sent.append(np.stack(messages))
    np.testing.assert_allclose(sent[1], sent[0], rtol=1e-7, atol=1e-9)


def test_scores_come_part_by_part_and_are_those_of_one_place():
    party = make_party(50, 3, classes=3)
    site = site_of([50], 3, outputs=3)
    weights = np.random.default_rng(2).normal(size=(3, 3))
    ((_, scores, codes),) = Workspace(Shard.from_parties([party]), site).scores(weights)
    parts = list(Workspace(parted_shard([party], uneven), site).scores(weights))
    assert [place for place, _, _ in parts] == [0, 0, 0]
    np.testing.assert_allclose(np.concatenate([each for _, each, _ in parts]), scores, atol=1e-15)
    np.testing.assert_array_equal(np.concatenate([each for _, _, each in parts]), codes)


def test_a_checkpoint_knows_the_rows_of_every_part():
    rows, signs = make_party(50, 3)
    site = site_of([50], 3)
    other = rows.copy()
    other[30] *= 0.5
    found = {
        Workspace(parted_shard([(each, signs)], uneven), site).fingerprint()
        for each in (rows, rows.copy(), other)
    }
    assert len(found) == 2


def test_a_part_is_not_looked_at_for_zeros_in_every_pass(monkeypatch):
    """What one process decides once would cost a part a pass each time."""
    rows, signs = make_party(9000, 10)
    rows[:, 1:] = 0.0
    site = site_of([9000], 10)
    point = np.full(site.shape, 0.2)
    sparse_here = Workspace(Shard.from_parties([(rows, signs)]), site).gradient(point)
    shard = parted_shard([(rows, signs)], uneven)

    def refuse(rows):
        assert not rows.size, "a part was looked at"

    monkeypatch.setattr("dpadmm.solvers.block.thin_rows", refuse)
    found = Workspace(shard, site).gradient(point)
    np.testing.assert_allclose(found, sparse_here, atol=1e-15)


def test_repeated_runs_are_for_rows_in_one_place():
    party = make_party(50, 3)
    with pytest.raises(ParameterError, match=r"runs must be 1 where rows lie in parts.*got 4"):
        Workspace(parted_shard([party], uneven), site_of([50], 3, runs=4))
