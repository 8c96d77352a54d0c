"""Weights in the units of a file's columns: the score of a row is that of its encoded row."""

import numpy as np
import pyarrow as pa
import pytest

from dpadmm.data.encode import encode_batch
from dpadmm.data.schema import Schema, column_weights, units_per_column

LEVELS = ("a", "b")


def schema(**changes):
    return Schema.from_dict(
        {
            "version": 2,
            "label": {"column": "y", "classes": ["no", "yes"]},
            "columns": [
                {"name": "age", "kind": "numeric", "lower": 18, "upper": 98, "missing": False},
                {"name": "ward", "kind": "categorical", "levels": list(LEVELS)},
                {"name": "dose", "kind": "numeric", "lower": -3, "upper": 1, "range": [0, 1]},
            ],
        }
        | changes
    )


@pytest.mark.parametrize("constant", [False, True, 0.25])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_linear_score_of_cells_is_the_margin_before_the_row_is_scaled_down(constant, outputs):
    draw = np.random.default_rng(0)
    told = schema(constant=constant)
    age, dose = draw.uniform(18, 98, 40), draw.uniform(-3, 1, 40)
    ward = draw.choice(LEVELS, 40)
    cells = pa.table({"age": age, "ward": ward, "dose": dose, "y": ["no"] * 40})
    batch = encode_batch(cells.to_batches()[0], told)
    rows = np.zeros((40, len(told.feature_names)))
    batch.write_into(rows)
    coef = draw.normal(size=(outputs, rows.shape[1]))

    weights, intercept = column_weights(told, coef)
    by_name = dict(zip(told.feature_names, weights.T, strict=True))
    scores = np.outer(age, by_name["age"]) + np.outer(dose, by_name["dose"]) + intercept
    for level in LEVELS:
        scores += np.outer(ward == level, by_name[f"ward={level}"])

    np.testing.assert_allclose(batch.unit[:, None] * scores, rows @ coef.T, atol=1e-12)


def test_a_unit_is_the_part_of_the_range_that_it_is_of_the_bounds():
    assert units_per_column(schema()).tolist()[:2] == [2 / 80, 1 / 4]
    assert set(units_per_column(schema())[2:]) == {1.0}
