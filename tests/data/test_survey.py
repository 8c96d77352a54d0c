"""What a survey of encoded rows counts; a survey of parts is that of the whole."""

import numpy as np
import pyarrow as pa
import pytest

from dpadmm.data.encode import survey
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encoded_batches

SCHEMA = Schema.from_dict(
    {
        "label": {"column": "y", "classes": ["no", "yes"]},
        "columns": [
            {"name": "age", "kind": "numeric", "lower": 0, "upper": 10},
            {"name": "ward", "kind": "categorical", "levels": ["a", "b"], "other": False},
            {"name": "dose", "kind": "numeric", "lower": 0, "upper": 1, "missing": False},
            {"name": "room", "kind": "categorical", "levels": ["1", "2"], "missing": False},
        ],
        "constant": True,
    }
)
TABLE = pa.table(
    {
        "age": ["1", "", "99", "3"],
        "ward": ["a", "c", "", "a"],
        "dose": ["5", "6", "", "7"],
        "room": ["x", "", "y", "z"],
        "y": ["no", "Yes", "NO", ""],
    }
)


def test_a_survey_counts_what_does_not_fit_and_what_never_occurs():
    found = survey(encoded_batches(TABLE, SCHEMA), SCHEMA)
    assert (found.counts.rows, found.counts.bad_labels, found.bad_share) == (4, 3, 0.75)
    assert found.classes == {"no": 1, "yes": 0}
    assert found.unused_classes == ("yes",)
    assert found.levels == {"ward": {"a": 2, "b": 0}, "room": {"1": 0, "2": 0}}
    assert found.unused_levels == {"ward": ("b",), "room": ("1", "2")}
    assert found.never_fitting == ("dose", "room")
    assert found.all_missing == ()
    assert "yes" not in repr(found)


def test_surveys_of_parts_add_up():
    whole = survey(encoded_batches(TABLE, SCHEMA), SCHEMA)
    parts = survey([], SCHEMA)
    for start in range(4):
        parts += survey(encoded_batches(TABLE.slice(start, 1), SCHEMA), SCHEMA)
    assert parts == whole


@pytest.mark.parametrize("fourier", [None, {"features": 3}])
def test_a_survey_of_many_rows_agrees_with_counting(fourier):
    draw = np.random.default_rng(0)
    wards, labels = draw.choice(["a", "b", "c", ""], 500), draw.choice(["no", "yes", "?"], 500)
    table = pa.table(
        {"age": ["1"] * 500, "ward": wards, "dose": ["0"] * 500, "room": ["1"] * 500, "y": labels}
    )
    schema = Schema.from_dict(
        SCHEMA.model_dump() | {"fourier": fourier, "constant": fourier is None}
    )
    found = survey(encoded_batches(table, schema), schema)
    assert found.levels["ward"] == {name: int((wards == name).sum()) for name in "ab"}
    assert found.classes == {name: int((labels == name).sum()) for name in ("no", "yes")}
    assert found.unused_levels == {"room": ("2",)}


def test_a_table_without_rows_has_nothing_odd():
    found = survey(encoded_batches(TABLE.slice(0, 0), SCHEMA), SCHEMA)
    assert found.bad_share == 0
    assert (found.unused_classes, found.unused_levels) == ((), {})
    assert (found.never_fitting, found.all_missing) == ((), ())
