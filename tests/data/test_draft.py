"""Drafting a schema from a public sample."""

import pandas as pd
import pytest

from dpadmm.data.draft import draft_schema
from dpadmm.data.tables import encode
from dpadmm.sentences import DataError

SAMPLE = pd.DataFrame(
    {
        "age": [30, 41.5, None, 17],
        "work": ["a", "b", "b", "?"],
        "mixed": ["1", "2", "x", "1"],
        "same": [3, 3, 3, 3],
        "nothing": [None, None, None, None],
        "y": ["no", "yes", "no", "no"],
    }
)


def test_bounds_and_levels_are_those_of_the_sample():
    schema = draft_schema(SAMPLE, "y")
    age, work, mixed, same, nothing = schema.columns
    assert (age.lower, age.upper) == (17.0, 41.5)
    assert (schema.version, age.range) == (2, (-1.0, 1.0))
    assert work.levels == ("a", "b")
    assert mixed.levels == ("1", "2", "x")
    assert same.lower < 3 < same.upper
    assert nothing.levels == ("unknown",)
    assert schema.classes == ("no", "yes")


def test_the_sample_fits_its_own_draft(tmp_path):
    SAMPLE.to_csv(tmp_path / "sample.csv", index=False)
    for source in (SAMPLE, tmp_path / "sample.csv"):
        found = encode(source, draft_schema(source, "y")).counts
        assert (found.rows, found.bad_labels, found.ragged_rows) == (4, 0, 0)
        assert all(not c.other and not c.clipped for c in found.columns.values())
    first, second = draft_schema(SAMPLE, "y"), draft_schema(tmp_path / "sample.csv", "y")
    assert first.sha256 == second.sha256


def test_rare_levels_are_left_to_other():
    sample = pd.DataFrame({"k": list("aaabbbccdefgh"), "y": list("0101010101010")})
    schema = draft_schema(sample, "y", max_levels=3)
    assert schema.columns[0].levels == ("a", "b", "c")
    assert encode(sample, schema).counts.columns["k"].other == 5


def test_a_party_column_is_no_column_to_learn_from():
    schema = draft_schema(SAMPLE, "y", party="work", constant=True)
    assert schema.party == "work"
    assert schema.constant
    assert "work" not in [column.name for column in schema.columns]


@pytest.mark.parametrize(
    ("sample", "arguments", "words"),
    [
        (SAMPLE, {"label": "z"}, "label must be one of"),
        (SAMPLE, {"label": "y", "party": "z"}, "party must be one of"),
        (SAMPLE, {"label": "same"}, "at least two values"),
        (SAMPLE, {"label": "y", "max_levels": 1}, "at most max_levels"),
        (SAMPLE, {"label": "y", "max_levels": 0}, "max_levels must be"),
        (SAMPLE.iloc[:0], {"label": "y"}, "at least one row"),
        (SAMPLE[["y"]], {"label": "y"}, "a column besides the label"),
        ("nowhere.csv", {"label": "y"}, "readable"),
    ],
)
def test_what_cannot_be_drafted_is_refused(sample, arguments, words):
    with pytest.raises(DataError, match=words):
        draft_schema(sample, **arguments)
