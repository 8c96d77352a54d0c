"""Random Fourier features: their norm, their kernel, and that they are the same everywhere."""

import hashlib
import math
import tracemalloc
import warnings
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from dpadmm.data.encode import assemble, encode_batch, is_sparse
from dpadmm.data.feature_maps import (
    LARGEST_FEATURES,
    FourierMap,
    default_scale,
    fourier_map,
    frequencies,
    map_rows,
)
from dpadmm.data.schema import Schema
from dpadmm.data.tables import RowsFile
from dpadmm.errors import DataError, ParameterError
from dpadmm.problem.rows import clip_rows

CONTENT = {
    "version": 2,
    "label": {"column": "y", "classes": ["a", "b"]},
    "columns": [
        {"name": "u", "kind": "numeric", "lower": -1, "upper": 3},
        {"name": "k", "kind": "categorical", "levels": ["p", "q"]},
        {"name": "v", "kind": "numeric", "lower": 0, "upper": 10, "missing": False, "fill": 2},
    ],
    "fourier": {"features": 7, "scale": 0.5, "seed": 3},
}
CELLS = {
    "u": ["1", "99", "x", "0"],
    "v": ["5", "-3", "", "inf"],
    "k": ["q", "z", "?", "p"],
    "y": ["b", "a", "b", "a"],
}
# u, v, u is missing, k=p, k=q, k is missing, k is other
COLUMNS = np.array(
    [
        [0.0, 0.0, 0, 0, 1, 0, 0],
        [1.0, -1.0, 0, 0, 0, 0, 1],
        [0.0, -0.6, 1, 0, 0, 1, 0],
        [-0.5, -0.6, 0, 1, 0, 0, 0],
    ]
)


def schema(**changes):
    fourier = {key: value for key, value in (CONTENT["fourier"] | changes).items() if value != ...}
    return Schema.from_dict(CONTENT | {"fourier": fourier})


def encoded(told, layout="auto", cells=CELLS, store=None):
    batch = encode_batch(pa.RecordBatch.from_pydict(cells), told)
    return assemble([batch], told, layout=layout, store=store).rows


# -- the frequencies ------------------------------------------------------------------------------


def test_frequencies_are_the_same_for_all_time():
    """Stored when the map was made: other numbers would be another map for the same schema."""
    first = frequencies(FourierMap(features=3, scale=1.0), 2).T
    stored = [
        [-0.9024289775147175, 0.37249290760438997],
        [-1.0356560351379929, -0.4411962704194578],
        [-1.2322361717597425, -0.04114683668710203],
    ]
    np.testing.assert_allclose(first, stored, rtol=1e-13)
    last = frequencies(FourierMap(features=500, scale=2.0, seed=2**63 - 1), 40)[-1, -3:]
    assert last.tolist() == pytest.approx(
        [-0.003082090348274251, 0.636420573522043, 0.5571471851530745], rel=1e-13
    )


@pytest.mark.parametrize(
    ("seed", "features", "columns"), [(0, 5, 3), (17, 40, 1), (2**63 - 1, 2, 9)]
)
def test_frequencies_follow_from_their_description(seed, features, columns):
    stream = hashlib.shake_256(f"dpadmm-fourier/1 {seed}".encode()).digest(8 * features * columns)
    normal = NormalDist()
    wanted = [
        normal.inv_cdf(((int.from_bytes(stream[at : at + 8], "little") >> 11) + 0.5) / 2**53)
        for at in range(0, len(stream), 8)
    ]
    found = frequencies(FourierMap(features=features, scale=0.25, seed=seed), columns)
    wanted = np.reshape(wanted, (features, columns)).T / 0.25
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_more_frequencies_go_on_from_the_same_ones_and_another_seed_has_others():
    few, many = (frequencies(FourierMap(features=m, scale=1.0), 5) for m in (10, 200))
    np.testing.assert_array_equal(few, many[:, :10])
    other = frequencies(FourierMap(features=200, scale=1.0, seed=1), 5)
    assert np.isin(other, many).sum() == 0
    together = np.concatenate([many.ravel(), other.ravel()])
    assert abs(together.mean()) < 5 / math.sqrt(2000)
    assert abs(together.var() - 1) < 5 * math.sqrt(2 / 2000)
    with pytest.raises(ValueError, match="read-only"):
        many[0, 0] = 0.0


# -- the rows -------------------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
tables = arrays(np.float64, st.tuples(st.integers(1, 5), st.just(3)), elements=finite)


@settings(max_examples=60)
@given(tables, st.integers(1, 60), st.floats(1e-9, 1e9))
def test_a_row_has_norm_one_whatever_it_holds(rows, features, scale):
    told = FourierMap(features=features, scale=scale)
    with warnings.catch_warnings():
        # What rows hold is told by no warning.
        warnings.simplefilter("error")
        mapped = map_rows(rows, told)
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1.0, rtol=0, atol=1e-14)
    assert clip_rows(mapped) is mapped


def test_what_overflows_counts_as_a_row_of_zeros():
    told = FourierMap(features=9, scale=1e-9)
    mapped = map_rows(np.array([[1.7e308, -1.7e308], [0.0, 0.0]]), told)
    np.testing.assert_array_equal(mapped[0], mapped[1])
    np.testing.assert_array_equal(mapped[1], np.repeat([1 / 3, 0.0], 9))


def test_products_of_rows_are_the_kernel():
    scale = 0.7
    rows = np.random.default_rng(0).uniform(-1, 1, (60, 4))
    mapped = map_rows(rows, FourierMap(features=LARGEST_FEATURES, scale=scale, seed=5))
    squares = ((rows[:, None] - rows) ** 2).sum(axis=2)
    kernel = np.exp(-squares / (2 * scale**2))
    error = mapped @ mapped.T - kernel
    # The mean of 4096 cosines, whose variance is (1 - kernel^2)^2 / 2.
    spread = (1 - kernel**2) / math.sqrt(2 * LARGEST_FEATURES)
    assert (np.abs(error) <= 5 * spread + 1e-12).all()
    far = ~np.eye(60, dtype=bool)
    assert 0.5 < (error[far] / spread[far]).std() < 1.5


@pytest.mark.parametrize("features", [1, 3, 13, 150])
def test_a_row_does_not_depend_on_the_others(features):
    rows = np.random.default_rng(1).uniform(-1, 1, (400, 6))
    told = FourierMap(features=features, scale=0.01)
    mapped = map_rows(rows, told)
    for number in range(0, 400, 19):
        np.testing.assert_array_equal(map_rows(rows[number : number + 1], told)[0], mapped[number])
    np.testing.assert_allclose(map_rows(sparse.csr_array(rows), told), mapped, atol=1e-11)


# -- through the schema ---------------------------------------------------------------------------


def test_encoded_columns_become_the_features(tmp_path):
    told = schema()
    wanted = map_rows(COLUMNS, told.fourier)
    np.testing.assert_array_equal(encoded(told), wanted)
    np.testing.assert_array_equal(encoded(told, "sparse").toarray(), wanted)
    with RowsFile(tmp_path / "rows.npy", len(told.feature_names)) as file:
        np.testing.assert_array_equal(encoded(told, store=file), wanted)
    batch = encode_batch(pa.RecordBatch.from_pydict(CELLS), told).take(np.array([3, 1]))
    some = np.zeros((1, 14))
    batch.write_into(some, 1)
    np.testing.assert_array_equal(some[0], wanted[1])


def test_many_rows_are_mapped_in_pieces_of_bounded_size():
    told = schema(features=500)
    cells = {name: values * 1000 for name, values in CELLS.items()}
    batch = encode_batch(pa.RecordBatch.from_pydict(cells), told)
    rows = np.zeros((4000, 1000))
    tracemalloc.start()
    batch.write_into(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes / 10
    np.testing.assert_array_equal(rows, np.tile(encoded(told), (1000, 1)))


def test_the_number_of_features_is_that_of_the_map():
    told = schema()
    assert told.feature_names[:2] == ("cosine 1", "cosine 2")
    assert told.feature_names[-1] == "sine 7"
    assert len(told.feature_names) == told.entries_per_row == 14
    assert told.column_names[:3] == ("u", "v", "u is missing")
    assert not is_sparse(schema(features=4096), 2**40)


def test_a_schema_without_a_scale_has_the_default_one():
    assert schema(scale=...).fourier.scale == math.sqrt(2 / 36 + 1)
    assert schema(scale=...).sha256 == schema(scale=math.sqrt(2 / 36 + 1)).sha256
    # Columns in [0, 1] are half as far apart.
    assert default_scale([2.0, 2.0, 1.0], 0) == pytest.approx(0.25)
    assert fourier_map({"features": 3}, 36) == FourierMap(features=3, scale=1.0, seed=0)
    assert fourier_map({"features": np.int64(3), "scale": np.float64(2)}, 1).scale == 2.0


def test_everything_about_the_map_is_in_the_hash_and_in_the_file():
    known = {schema().sha256}
    for change in ({"features": 8}, {"scale": 0.6}, {"seed": 4}):
        known.add(schema(**change).sha256)
    without = Schema.from_dict({name: CONTENT[name] for name in ("version", "label", "columns")})
    assert len({*known, without.sha256}) == 5
    assert Schema.from_toml(schema().to_toml()) == schema()
    assert "fourier" not in without.to_toml()
    assert "fourier" not in without.model_dump()
    assert schema(seed=...).sha256 == schema(seed=0).sha256


REFUSED = [
    ({"features": 0}, "features must be a whole number from 1 to 4096"),
    ({"features": 4097}, "got 4097: correct it"),
    ({"features": True}, "features must be a whole number"),
    ({"features": 1.5}, "features must be a whole number"),
    ({"features": ...}, "features must be given"),
    ({"scale": 0}, "scale must be a number from 1e-09 to 1e+09"),
    ({"scale": -1.0}, "scale must be a number"),
    ({"scale": math.inf}, "scale must be a number"),
    ({"scale": math.nan}, "scale must be a number"),
    ({"scale": "wide"}, "scale must be a number"),
    ({"seed": -1}, "seed must be a whole number from 0 to 2^63 - 1; got -1: correct it"),
    ({"seed": 2**63}, "seed must be a whole number"),
    ({"seed": 0.5}, "seed must be a whole number"),
    ({"sead": 1}, "sead is not a known key"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_is_no_map_is_refused(changes, words):
    with pytest.raises(DataError) as found:
        schema(**changes)
    assert str(found.value).startswith("schema: fourier, ")
    assert words in str(found.value)
    given = {k: v for k, v in ({"features": 5} | changes).items() if v != ...}
    with pytest.raises(ParameterError) as found:
        fourier_map(given, 3)
    assert str(found.value).startswith("fourier: ")
    assert words in str(found.value)


@pytest.mark.parametrize("constant", [True, 0.5])
def test_a_constant_beside_the_map_is_refused(constant):
    with pytest.raises(DataError, match=r"constant must be false with \[fourier\].*remove one"):
        Schema.from_dict(CONTENT | {"constant": constant})


@pytest.mark.parametrize("given", [5.0, True, "300", [("features", 5)]])
def test_what_an_estimator_cannot_read_is_refused(given):
    with pytest.raises(
        ParameterError, match="fourier must be None, a whole number such as 150 or a mapping"
    ):
        fourier_map(given, 3)
