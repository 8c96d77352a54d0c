import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard, clip_rows, prepare_rows, thin_rows
from dpadmm.problem.site import Site, build_topology

# -- rows ---------------------------------------------------------------------------------------

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=6)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ROWS = arrays(np.float64, SHAPES, elements=FINITE)
NORMS = st.sampled_from([1e-300, 1e-3, 1.0, 7.5, 1e300])


@given(rows=ROWS, data_norm=NORMS, fit_intercept=st.booleans())
def test_every_row_comes_out_finite_and_of_norm_at_most_one(rows, data_norm, fit_intercept):
    prepared = prepare_rows(rows, data_norm=data_norm, fit_intercept=fit_intercept)
    assert prepared.shape == (rows.shape[0], rows.shape[1] + fit_intercept)
    assert np.isfinite(prepared).all()
    assert (np.linalg.norm(prepared, axis=1) <= 1 + 1e-14).all()


@given(rows=ROWS, data_norm=NORMS, fit_intercept=st.booleans())
def test_sparse_rows_come_out_as_dense_ones(rows, data_norm, fit_intercept):
    dense = prepare_rows(rows, data_norm=data_norm, fit_intercept=fit_intercept)
    given_rows = sparse.csr_array(rows)
    thin = prepare_rows(given_rows, data_norm=data_norm, fit_intercept=fit_intercept)
    assert sparse.issparse(thin)
    np.testing.assert_allclose(thin.toarray(), dense, rtol=1e-13, atol=1e-300)
    np.testing.assert_array_equal(given_rows.toarray(), rows)


@given(rows=ROWS, data_norm=NORMS, fit_intercept=st.booleans(), data=st.data())
def test_no_row_depends_on_another(rows, data_norm, fit_intercept, data):
    kept = data.draw(st.integers(0, len(rows) - 1))
    changed = data.draw(arrays(np.float64, rows.shape, elements=FINITE))
    changed[kept] = rows[kept]
    together = prepare_rows(rows, data_norm=data_norm, fit_intercept=fit_intercept)[kept]
    among_others = prepare_rows(changed, data_norm=data_norm, fit_intercept=fit_intercept)[kept]
    alone = prepare_rows(rows[[kept]], data_norm=data_norm, fit_intercept=fit_intercept)[0]
    np.testing.assert_array_equal(together, among_others)
    np.testing.assert_array_equal(together, alone)


def test_short_rows_keep_their_length_and_long_ones_their_direction():
    rows = np.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    before = rows.copy()
    plain = prepare_rows(rows, data_norm=1.0, fit_intercept=False)
    np.testing.assert_allclose(plain, [[0.3, 0.4], [0.6, 0.8], [0, 0]], rtol=1e-15)
    halved = prepare_rows(rows, data_norm=10.0, fit_intercept=False)
    np.testing.assert_allclose(halved, rows / 10, rtol=1e-15)
    np.testing.assert_array_equal(rows, before)


def test_the_intercept_counts_towards_the_norm():
    rows = np.array([[2.0, 0.0], [0.0, 0.0]])
    prepared = prepare_rows(rows, data_norm=2.0, fit_intercept=True)
    np.testing.assert_allclose(prepared, [[0.5**0.5, 0, 0.5**0.5], [0, 0, 1]], rtol=1e-15)


@pytest.mark.parametrize("size", [1e160, 1e308])
@pytest.mark.parametrize("build", [np.array, sparse.csr_array])
def test_a_huge_row_keeps_its_direction(size, build):
    rows = build(np.array([[0.6 * size, -0.8 * size], [0.1, 0.2]]))
    prepared = prepare_rows(rows, data_norm=1e-3, fit_intercept=True)
    dense = prepared.toarray() if sparse.issparse(prepared) else prepared
    np.testing.assert_allclose(dense[0], [0.6, -0.8, 0.0], atol=1e-12)


def test_sparse_rows_with_repeated_and_stored_zero_entries():
    entries = ([3.0, 1.0, 0.0], ([0, 0, 1], [0, 0, 1]))
    rows = sparse.csr_array(sparse.coo_array(entries, shape=(2, 2)))
    repeated = sparse.csr_array(([3.0, 1.0, 0.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    for thin in (rows, repeated):
        prepared = prepare_rows(thin, data_norm=8.0, fit_intercept=False)
        np.testing.assert_allclose(prepared.toarray(), [[0.5, 0], [0, 0]])


# -- shards -------------------------------------------------------------------------------------


def parties_of(counts, features=3, outputs=2, seed=0):
    random = np.random.default_rng(seed)
    return [
        (
            random.uniform(-0.5, 0.5, size=(n, features)),
            random.choice([-1.0, 1.0], size=(n, outputs)),
        )
        for n in counts
    ]


def assert_holds_exactly(shard, parties):
    seen = []
    for block in shard.blocks:
        for place, node in enumerate(block.nodes):
            rows, labels = parties[node]
            thin = sparse.issparse(block.rows)
            held = block.rows.toarray() if thin else block.rows[place]
            np.testing.assert_array_equal(held[: len(labels)], rows)
            np.testing.assert_array_equal(block.labels[place, : len(labels)], labels)
            assert not held[len(labels) :].any()
            assert not block.labels[place, len(labels) :].any()
            seen.append(int(node))
    assert sorted(seen) == list(range(len(parties)))
    np.testing.assert_array_equal(shard.counts, [len(labels) for _, labels in parties])


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=12), features=st.integers(1, 4))
def test_ragged_parties_are_all_there_in_their_places(counts, features):
    parties = parties_of(counts, features)
    assert_holds_exactly(Shard.from_parties(parties), parties)


def test_parties_of_like_size_share_a_block_and_others_do_not():
    parties = parties_of([100, 10, 101, 11, 1000])
    nodes = sorted(tuple(sorted(block.nodes)) for block in Shard.from_parties(parties).blocks)
    assert nodes == [(0, 2), (1, 3), (4,)]


def test_a_large_party_is_alone_and_not_copied():
    parties = parties_of([20_000, 19_999, 5])
    shard = Shard.from_parties(parties)
    assert_holds_exactly(shard, parties)
    assert sorted(len(block.nodes) for block in shard.blocks) == [1, 1, 1]
    for block in shard.blocks:
        if block.labels.shape[1] > 5:
            assert np.shares_memory(block.rows, parties[block.nodes[0]][0])


def test_little_room_is_spent_on_filling_up():
    random = np.random.default_rng(3)
    parties = parties_of(random.integers(20, 400, size=60))
    blocks = Shard.from_parties(parties).blocks
    held = sum(block.labels.shape[0] * block.labels.shape[1] for block in blocks)
    assert held <= 1.125 * sum(len(labels) for _, labels in parties)


def test_sparse_parties_stay_sparse():
    parties = [(sparse.csr_array(rows), labels) for rows, labels in parties_of([4, 4, 9])]
    shard = Shard.from_parties(parties)
    assert len(shard.blocks) == 3
    assert all(sparse.issparse(block.rows) for block in shard.blocks)
    dense = [(rows.toarray(), labels) for rows, labels in parties]
    assert_holds_exactly(shard, dense)


def test_large_parties_of_mostly_zeros_are_worth_a_sparse_copy(monkeypatch):
    rows = np.zeros((2000, 20))
    rows[:, :4] = 0.5
    copied = thin_rows(rows)
    assert sparse.issparse(copied)
    np.testing.assert_array_equal(copied.toarray(), rows)
    assert thin_rows(rows[:1000]) is None  # too small to matter
    rows[:, 4] = 0.1
    assert thin_rows(rows) is None  # too many numbers that are not zero
    rows[:1900, 4] = 0.0
    assert thin_rows(rows) is None  # the same, but the first rows do not show it
    rows[:, 4] = 0.0
    monkeypatch.setattr("dpadmm.problem.rows._THIN_BYTES", 12 * 7999)
    assert thin_rows(rows) is None  # a copy that is too large


def test_a_party_without_rows_is_refused():
    with pytest.raises(ParameterError, match="at least one row; party 1 has 0"):
        Shard.from_parties(parties_of([3, 0, 2]))


BAD = [[3.0, 4.0, 0.0], [np.nan, 0.1, 0.1], [0.1, -np.inf, 0.1], [1e200, 0.0, 0.0], [0.1, 0.2, 0.3]]


@pytest.mark.parametrize("build", [np.array, sparse.csr_array])
def test_rows_that_break_the_assumption_are_mended_one_by_one(build):
    rows, labels = build(np.array(BAD)), np.array([[1.0], [np.nan], [0.0], [-3.0], [5.0]])
    (block,) = Shard.from_parties([(rows, labels)]).blocks
    held = block.rows.toarray() if sparse.issparse(block.rows) else block.rows[0]
    assert np.isfinite(held).all()
    assert (np.linalg.norm(held, axis=1) <= 1 + 1e-12).all()
    np.testing.assert_allclose(held[0], [0.6, 0.8, 0.0])
    np.testing.assert_array_equal(held[[1, 2]], 0)
    np.testing.assert_array_equal(held[4], BAD[4])
    assert set(block.labels.ravel()) <= {-1.0, 1.0}
    np.testing.assert_array_equal(rows.toarray() if sparse.issparse(rows) else rows, BAD)


# -- sites --------------------------------------------------------------------------------------


def site_of(counts, topology="ring", **extra):
    return Site.of_all(
        np.array(counts),
        build_topology(topology, len(counts)),
        get_loss("logistic"),
        features=3,
        regularization=0.1,
        **extra,
    )


def test_weights_make_the_pooled_rows_count_alike_or_the_parties():
    by_rows = site_of([10, 30, 60])
    np.testing.assert_allclose(by_rows.weight / by_rows.rows, 3 / 100)
    np.testing.assert_allclose(by_rows.weight.sum(), 3)
    np.testing.assert_array_equal(site_of([10, 30, 60], party_weight="equal").weight, 1)


def test_public_facts_of_a_graph_and_of_a_server():
    ring = site_of([5] * 4, runs=2, outputs=6)
    assert ring.parties == 4
    assert ring.shape == (4, 2, 6, 3)
    np.testing.assert_array_equal(ring.degree, 2)
    server = site_of([5] * 4, "server")
    assert server.adjacency.shape == (4, 1)
    np.testing.assert_array_equal(server.degree, 1)
    assert ring.names == ("0", "1", "2", "3")


def test_neighbour_sum_is_the_sum_over_neighbours():
    site = site_of([5] * 6, "random", runs=2)
    inbox = np.random.default_rng(0).normal(size=(6, 2, 1, 3))
    heard = site.neighbour_sum(inbox)
    for party in range(6):
        expected = sum(inbox[j] for j in site.topology.neighbours(party))
        np.testing.assert_allclose(heard[party], expected)


def test_a_topology_of_another_size_is_refused():
    with pytest.raises(ParameterError, match="one node per party; got 3 nodes for 2"):
        Site.of_all(
            np.array([1, 2]),
            build_topology("ring", 3),
            get_loss("logistic"),
            features=1,
            regularization=1.0,
        )


def test_rows_are_clipped_one_by_one():
    X = np.random.default_rng(0).normal(size=(50, 7))
    X[::2] *= 0.05
    rows = clip_rows(X)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-15
    for number in range(50):
        np.testing.assert_array_equal(clip_rows(X[number : number + 1])[0], rows[number])
