"""Logarithms of skewed numbers: public, within their bounds, and told in the report's units."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadmm import data_norm_from_bounds
from dpadmm.data.encode import assemble, encode_batch
from dpadmm.data.schema import Schema, column_weights
from dpadmm.errors import DataError, ParameterError

NUMERIC = {"name": "v", "kind": "numeric", "lower": 0, "upper": 999, "transform": "log1p"}


def schema(constant=False, **changes):
    column = {key: value for key, value in (NUMERIC | changes).items() if value != ...}
    label = {"column": "y", "classes": ["a", "b"]}
    content = {"version": 2, "label": label, "columns": [column], "constant": constant}
    return Schema.from_dict(content)


def encoded(told, cells):
    batch = pa.RecordBatch.from_pydict({"v": cells, "y": ["a"] * len(cells)})
    return assemble([encode_batch(batch, told)], told).rows


def test_a_logarithm_goes_from_one_end_of_the_range_to_the_other():
    found = encoded(schema(missing=False), ["0", "9", "99", "999", "5000", "-3"])[:, 0]
    np.testing.assert_allclose(found, [-1, -1 / 3, 1 / 3, 1, 1, -1], rtol=0, atol=1e-15)
    found = encoded(schema(missing=False, range=[0, 1]), ["9"])[:, 0]
    np.testing.assert_allclose(found, [1 / 3], rtol=0, atol=1e-15)


def test_a_missing_value_lies_in_the_middle_unless_the_schema_says_otherwise():
    assert encoded(schema(missing=False), [""])[0, 0] == pytest.approx(0, abs=1e-15)
    assert schema().columns[0].fill_value == pytest.approx(10**1.5 - 1)
    assert encoded(schema(missing=False, fill=9), [""])[0, 0] == pytest.approx(-1 / 3)


@settings(max_examples=200)
@given(
    st.floats(0, 1e300),
    st.floats(1e-6, 1e300),
    st.lists(st.floats().map(repr), min_size=1, max_size=5),
    st.sampled_from([(-1.0, 1.0), (0.0, 1.0)]),
)
def test_every_cell_stays_within_the_range(lower, width, cells, ends):
    try:
        told = schema(lower=lower, upper=lower + width, range=ends, missing=False)
    except DataError:
        # Bounds that are the same to the last digit, or have the same logarithm.
        return
    found = encoded(told, cells)
    assert (found >= ends[0]).all()
    assert (found <= ends[1]).all()


def test_the_hash_tells_a_logarithm_and_nothing_without_one():
    assert schema().sha256 != schema(transform=...).sha256
    assert "transform" not in schema(transform=...).to_toml()
    assert Schema.from_toml(schema().to_toml()) == schema()


def test_a_weight_is_that_of_a_unit_of_the_logarithm():
    told = schema(constant=0.5, missing=False)
    assert told.column_names == ("log1p(v)", "constant")
    coef = np.array([[2.0, 3.0]])
    weights = column_weights(told, coef)
    for value in (0.0, 7.0, 999.0):
        row = np.array([2 * math.log1p(value) / math.log(1000) - 1, 0.5])
        score = weights.coef[0, 0] * math.log1p(value) + weights.intercept[0]
        assert score == pytest.approx(float(coef[0] @ row))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower": -1}, r"lower must be 0 or more with transform = 'log1p'; got -1: raise it"),
        ({"lower": 1e300, "upper": 1.0000000000000002e300}, "must have different logarithms"),
        ({"transform": "sqrt"}, "transform"),
    ],
)
def test_what_has_no_logarithm_is_refused(changes, words):
    with pytest.raises(DataError, match=words):
        schema(**changes)


bounds = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted), min_size=1, max_size=9
)


@given(bounds, st.data())
def test_no_row_within_public_bounds_is_longer_than_the_norm(pairs, data):
    low, high = np.array(pairs).T
    if not np.any([low, high]):
        low, high = low - 1, high + 1
    norm = data_norm_from_bounds(low, high)
    row = np.array([data.draw(st.floats(a, b)) for a, b in zip(low, high, strict=True)])
    assert np.linalg.norm(row) <= norm * (1 + 1e-14)
    furthest = np.where(np.abs(low) > np.abs(high), low, high)
    assert np.linalg.norm(furthest) == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([0, 1], [1], "equally many"),
        (0, 1, "one finite number for each column"),
        ([0.0], [math.inf], "one finite number for each column"),
        ([], [], "one finite number for each column"),
        ([0, 3], [1, 2], "low must not exceed high; got 3 and 2 for column 1: swap them"),
        ([0.0], [0.0], "positive and finite; got 0"),
        (["a"], ["b"], "lists of numbers"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(low, high, words):
    with pytest.raises(ParameterError, match=words):
        data_norm_from_bounds(low, high)
