"""Degree-2 features: their norm, their names, and that a row never depends on the others."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from dpadmm.data.encode import assemble, encode_batch, is_sparse
from dpadmm.data.feature_maps import ProductFeatures, asked_map, polynomial_map
from dpadmm.data.given_rows import Preparation
from dpadmm.data.schema import Schema
from dpadmm.data.tables import RowsFile
from dpadmm.errors import DataError, ParameterError

CONTENT = {
    "version": 2,
    "label": {"column": "y", "classes": ["a", "b"]},
    "columns": [
        {"name": "u", "kind": "numeric", "lower": -1, "upper": 3},
        {"name": "k", "kind": "categorical", "levels": ["p", "q"], "other": False},
        {"name": "v", "kind": "numeric", "lower": 0, "upper": 10, "missing": False, "fill": 2},
    ],
    "constant": 0.5,
    "polynomial": {"degree": 2},
}
CELLS = {
    "u": ["1", "99", "x", "0"],
    "v": ["5", "-3", "", "inf"],
    "k": ["q", "p", "?", "p"],
    "y": ["b", "a", "b", "a"],
}
# u, v, u is missing, k=p, k=q, k is missing
COLUMNS = np.array(
    [
        [0.0, 0.0, 0, 0, 1, 0],
        [1.0, -1.0, 0, 1, 0, 0],
        [0.0, -0.6, 1, 0, 0, 1],
        [-0.5, -0.6, 0, 1, 0, 0],
    ]
)
# A number with itself and with everything of another column; nothing with its own column.
PAIRS = [
    *((0, 0), (0, 1), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5)),
    *((2, 3), (2, 4), (2, 5)),
]


def schema(**changes):
    content = CONTENT | changes
    return Schema.from_dict({key: value for key, value in content.items() if value != ...})


def encoded(told, layout="auto", cells=CELLS, store=None):
    batch = encode_batch(pa.RecordBatch.from_pydict(cells), told)
    return assemble([batch], told, layout=layout, store=store).rows


def expected(columns, constant):
    products = [columns[:, i] * columns[:, j] for i, j in PAIRS]
    rows = np.column_stack([columns, *products, np.full(len(columns), constant)])
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def test_encoded_columns_are_joined_by_their_products(tmp_path):
    told, wanted = schema(), expected(COLUMNS, 0.5)
    found = encoded(told)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(encoded(told, "sparse").toarray(), found)
    with RowsFile(tmp_path / "rows.npy", len(told.feature_names)) as file:
        np.testing.assert_array_equal(encoded(told, store=file), found)
    batch = encode_batch(pa.RecordBatch.from_pydict(CELLS), told).take(np.array([3, 1]))
    some = np.zeros((1, 20))
    batch.write_into(some, 1)
    np.testing.assert_array_equal(some[0], found[1])
    without = encoded(schema(constant=...))
    assert without.shape == (4, 19)


def test_a_constant_is_the_last_feature_and_products_have_names():
    told = schema()
    assert told.feature_names[:7] == (*told.column_names[:-1], "u x u")
    assert told.feature_names[7:9] == ("u x v", "u x k=p")
    assert told.feature_names[-1] == "constant"
    assert len(told.feature_names) == told.entries_per_row == 6 + len(PAIRS) + 1
    assert not is_sparse(told, 2**40)
    assert "k=p x k=q" not in told.feature_names
    assert "k=p x k=p" not in told.feature_names


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_row_does_not_depend_on_the_others(rows):
    cells = {name: (values * 250)[:rows] for name, values in CELLS.items()}
    alone = encoded(schema())
    np.testing.assert_array_equal(encoded(schema(), cells=cells), np.tile(alone, (250, 1))[:rows])
    many = np.random.default_rng(0).normal(size=(rows, 5))
    told = asked_map(None, 2, 5)
    np.testing.assert_array_equal(told.of_rows(many)[-1:], told.of_rows(many[-1:]))
    np.testing.assert_array_equal(told.of_rows(sparse.csr_array(many)), told.of_rows(many))


finite = st.floats(allow_nan=False, allow_infinity=False)
tables = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=finite)


@settings(max_examples=150)
@given(tables, st.sampled_from([None, 1.0, 0.01, 1000.0]), st.booleans())
def test_a_row_has_norm_one_at_most_whatever_it_holds(rows, appended, is_sparse):
    given_rows = sparse.csr_array(rows) if is_sparse else rows
    with warnings.catch_warnings():
        # What rows hold is told by no warning.
        warnings.simplefilter("error")
        prepared = Preparation(1.0, appended, None, 2).rows(given_rows)
    assert np.isfinite(prepared).all()
    assert (np.linalg.norm(prepared, axis=1) <= 1 + 1e-14).all()
    columns = rows.shape[1]
    assert prepared.shape[1] == columns * (columns + 3) // 2 + (appended is not None)


cell = st.one_of(st.floats(), st.integers(-(10**6), 10**6)).map(repr) | st.sampled_from(
    ["", "?", "p", "q", "z"]
)


@settings(max_examples=100)
@given(st.lists(st.tuples(cell, cell, cell), min_size=1, max_size=6), st.floats(1e-3, 1000))
def test_every_cell_of_a_file_becomes_a_row_of_norm_one_at_most(cells, constant):
    told = schema(constant=constant)
    u, v, k = (list(column) for column in zip(*cells, strict=True))
    rows = encoded(told, cells={"u": u, "v": v, "k": k, "y": ["a"] * len(u)})
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-14).all()
    # The constant survives the scaling of every row, whatever the row holds.
    assert (rows[:, -1] > 0).all()


def test_the_map_is_in_the_hash_and_in_the_file_but_its_limit_is_not_in_the_hash():
    assert schema().sha256 != schema(polynomial=...).sha256
    assert schema(polynomial={"degree": 2, "most_columns": 30}).sha256 == schema().sha256
    for told in (schema(), schema(polynomial={"degree": 2, "most_columns": 30})):
        assert Schema.from_toml(told.to_toml()) == told
    assert "polynomial" not in schema(polynomial=...).to_toml()
    assert "most_columns" not in schema().to_toml()


def numeric(count):
    return [
        {"name": f"c{n}", "kind": "numeric", "lower": 0, "upper": 1, "missing": False}
        for n in range(count)
    ]


def test_many_columns_are_refused_with_their_number_and_a_remedy():
    assert len(schema(columns=numeric(16)).feature_names) == 16 + 136 + 1
    with pytest.raises(DataError) as found:
        schema(columns=numeric(17))
    words = str(found.value)
    assert "at most most_columns = 16 encoded columns, the constant aside; got 17" in words
    assert "153 products: raise most_columns (up to 64), leave columns out, or use" in words
    wider = {"degree": 2, "most_columns": 17}
    assert len(schema(columns=numeric(17), polynomial=wider).feature_names) == 17 + 153 + 1
    with pytest.raises(DataError, match="got 65, which make 2145 products: leave columns out"):
        schema(columns=numeric(65), polynomial={"degree": 2, "most_columns": 64})
    with pytest.raises(ParameterError, match=r"most_columns = 16 encoded columns.*got 17"):
        polynomial_map(2, 17)
    assert polynomial_map({"degree": np.int64(2), "most_columns": 17}, 17).most_columns == 17


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"polynomial": {"degree": 3}}, "polynomial, degree must be 2: products of two columns"),
        ({"polynomial": {"degree": True}}, "degree must be 2"),
        ({"polynomial": {}}, "degree must be given"),
        ({"polynomial": {"degree": 2, "most_columns": 0}}, "whole number from 1 to 64"),
        (
            {"fourier": {"features": 3}, "constant": False},
            r"one of \[fourier\] and \[polynomial\]",
        ),
        ({"columns": [*numeric(2), {**numeric(1)[0], "name": "c0 x c1"}]}, "each name once"),
    ],
)
def test_what_is_no_map_is_refused(changes, words):
    with pytest.raises(DataError, match=words):
        schema(**changes)


def test_columns_without_a_product_are_columns_all_the_same():
    told = ProductFeatures(["k=p", "k=q"], sources=["k", "k"], numbers=0)
    assert told.names == ("k=p", "k=q")
    np.testing.assert_array_equal(told.of_rows(np.eye(2)), np.eye(2))
