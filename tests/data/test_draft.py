"""Drafting a schema from a public sample."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpadmm.data.draft import draft, draft_schema
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encode
from dpadmm.errors import DataError

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


def test_words_among_numbers_mark_missing_values_in_every_column():
    rows = 40
    sample = pd.DataFrame(
        {
            "BMI": [f"{20 + number / 7:.1f}".replace(".", ",") for number in range(rows - 2)]
            + ["k.A.", "unbekannt"],
            "children": ["0", "1", "2", "3", "5+"] * 8,
            "smoker": ["ja", "nein", "ja", "k.A."] * 10,
            "y": ["no", "yes"] * 20,
        }
    )
    schema, hints = draft(sample, "y")
    bmi, children, smoker = schema.columns
    assert (bmi.kind, bmi.missing, bmi.upper) == ("numeric", True, 25.3)
    # What has a digit says how many, and is no mark.
    assert children.levels == ("0", "1", "2", "3", "5+")
    assert (smoker.levels, smoker.missing) == (("ja", "nein"), True)
    assert {"k.A.", "unbekannt"} <= set(schema.missing_values)
    assert any(hint.startswith("'k.A.', 'unbekannt' among numbers") for hint in hints)
    assert encode(sample, schema).counts.bad_labels == 0


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


def test_missing_is_proposed_where_the_sample_misses_a_value():
    columns = draft_schema(SAMPLE, "y").columns
    assert {column.name: column.missing for column in columns} == {
        "age": True,
        "work": True,
        "mixed": False,
        "same": False,
        "nothing": True,
    }


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found_by_the_label(tmp_path, delimiter):
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    SAMPLE.to_csv(plain, index=False)
    SAMPLE.to_csv(other, index=False, sep=delimiter)
    expected, found = draft_schema(plain, "y"), draft_schema(other, "y")
    assert found.delimiter == (None if delimiter == "," else delimiter)
    # How a file looks is no part of what runs compare.
    assert found.sha256 == expected.sha256
    assert np.array_equal(encode(other, found).rows, encode(plain, expected).rows)
    assert Schema.from_toml(found.to_toml()) == found


def test_a_label_that_is_no_column_is_refused_with_the_nearest_one(tmp_path):
    """Also behind a semicolon: the columns are listed one by one."""
    SAMPLE.rename(columns={"y": "Readmitted"}).to_csv(tmp_path / "s.csv", index=False, sep=";")
    with pytest.raises(DataError, match=r"columns age, work, .* Did you mean 'Readmitted'\?"):
        draft(tmp_path / "s.csv", "readmited")


def test_a_packed_file_of_tabs_needs_no_delimiter(tmp_path):
    SAMPLE.to_csv(tmp_path / "s.tsv.gz", index=False, sep="\t")
    assert draft_schema(tmp_path / "s.tsv.gz", "y").delimiter is None


def test_decimal_commas_are_found_and_read(tmp_path):
    with_points = pd.DataFrame({"a": ["1.5", "-2", "1e1"], "k": ["x,y", "z", "z"], "y": [0, 1, 0]})
    with_commas = with_points.assign(a=["1,5", "-2", "1e1"])
    point, comma = draft(with_points, "y").schema, draft(with_commas, "y")
    assert (point.decimal, comma.schema.decimal) == (None, ",")
    assert "decimal" in comma.hints[0]
    assert comma.schema.columns == point.columns
    rows = encode(with_points, point).rows
    assert np.array_equal(encode(with_commas, comma.schema).rows, rows)
    # A party that writes points is read as well.
    assert np.array_equal(encode(with_points, comma.schema).rows, rows)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("PatientId", [1.5, 2.5, 1.5] * 10, "looks like an identifier (by its name)"),
        ("code", [f"c{n}" for n in range(30)], "most values differ"),
        ("number", list(range(30)), "nearly all values differ"),
        ("case", [f"c{n // 2}" for n in range(30)], "most values differ"),
        ("zone", [f"z{n // 3}" for n in range(30)], None),
        ("pulse", list(range(40, 130, 3)), None),
        ("weight", [n + 0.5 for n in range(30)], None),
        ("dose", [n % 5 for n in range(30)], None),
        ("seen", ["3.1.2024", "12/31/99", "2024-02-03T10:00"] * 10, "holds dates"),
        ("seen", ["3.1.2024 10:15", "24.12.2023 08:00", "2024-02-03 10:00"] * 10, "holds dates"),
        ("seen", ["3.1.2024", "12/31/99", "later"] * 10, None),
    ],
)
def test_identifiers_and_dates_are_left_out_and_told_of(name, values, words):
    sample = pd.DataFrame({name: values, "paid": [n % 5 for n in range(30)], "y": ["a", "b"] * 15})
    schema, hints = draft(sample, "y")
    if words is None:
        assert hints == schema.ignore == ()
        assert schema.columns[0].name == name
        return
    (hint,) = hints
    assert words in hint
    assert f"column {name!r}" in hint
    assert "leaves it out" in hint
    assert schema.ignore == (name,)
    assert [column.name for column in schema.columns] == ["paid"]
    assert encode(sample, schema).counts.rows == 30


def test_a_sample_of_identifiers_and_dates_alone_is_refused():
    sample = pd.DataFrame({"id": range(30), "seen": ["2024-01-02"] * 30, "y": ["a", "b"] * 15})
    with pytest.raises(DataError, match=r"neither an identifier nor a date; got only 'id', 'seen'"):
        draft(sample, "y")


def skewed(rows=400):
    """Columns as counts, amounts, ages and flags lie between their bounds."""
    draw = np.random.default_rng(5)
    return pa.table(
        {
            "gain": np.where(draw.random(rows) < 0.9, 0, draw.integers(1, 10_000, rows)),
            "income": np.round(np.exp(draw.normal(6, 1.2, rows)), 2),
            "age": draw.integers(18, 90, rows),
            "flag": (draw.random(rows) < 0.2).astype(int),
            "y": np.where(np.arange(rows) % 2, "a", "b"),
        }
    )


def test_a_draft_scales_numbers_by_how_the_sample_lies_and_says_why():
    schema, hints = draft(skewed(), "y", constant=True)
    chosen = {column.name: (column.transform, column.ends) for column in schema.columns}
    assert chosen == {
        "gain": ("log1p", (0.0, 1.0)),
        "income": ("log1p", (-1.0, 1.0)),
        "age": (None, (-1.0, 1.0)),
        "flag": (None, (0.0, 1.0)),
    }
    logs, zeros = (next(hint for hint in hints if words in hint) for words in ("log1p", "[0, 1]"))
    assert logs.startswith(
        "columns 'gain', 'income' have transform = \"log1p\": half of the sample"
    )
    assert zeros.startswith("columns 'gain', 'flag' have range = [0, 1]: half of the sample")
    assert Schema.from_toml(schema.to_toml()) == schema


def test_a_constant_is_half_as_long_as_short_rows():
    table = skewed().select(["gain", "flag", "y"])
    mostly_zero = draft(table, "y", constant=True)
    assert mostly_zero.schema.constant == 0.1
    assert "the constant has the weight 0.1" in mostly_zero.hints[-1]
    draw = np.random.default_rng(0)
    short = pa.table({"a": draw.uniform(-1, 1, 300), "y": table["y"].slice(0, 300)})
    found = draft(short, "y", constant=True)
    assert 0.2 <= found.schema.constant <= 0.3
    # A weight that the caller gives stays, as does 1 beside rows that are long enough.
    assert draft(short, "y", constant=0.7).schema.constant == 0.7
    assert draft(short, "y").schema.constant is False
    long = pa.table({f"c{n}": draw.uniform(-1, 1, 300) for n in range(9)} | {"y": short["y"]})
    assert draft(long, "y", constant=True).schema.constant is True


def test_a_draft_of_many_skewed_columns_names_a_few():
    columns = {f"c{n}": skewed()["income"] for n in range(8)}
    (hint,) = draft(pa.table(columns | {"y": skewed()["y"]}), "y").hints
    assert hint.startswith("columns 'c0', 'c1', 'c2', 'c3', 'c4' and 3 more have transform")
