"""Encoding rows: values, what becomes of odd cells, and that rows do not see each other."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.data.encode import assemble, encode_batch, is_sparse
from dpadmm.data.schema import CategoricalColumn, Label, NumericColumn, Schema
from dpadmm.data.values import Spelling, cells_as_numbers, cells_as_text, is_readable
from dpadmm.errors import DataError

SCHEMA = Schema(
    label=Label(column="y", classes=("a", "b", "c")),
    columns=(
        NumericColumn(name="u", lower=-1.0, upper=3.0),
        CategoricalColumn(name="k", levels=("1", "true", "z")),
        NumericColumn(name="v", lower=0.0, upper=10.0, missing=False, fill=2.0),
    ),
    constant=True,
)


def encoded(schema=SCHEMA, layout="dense", **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    return assemble([encode_batch(batch, schema)], schema, layout=layout)


def test_values_are_clipped_scaled_one_hot_and_brought_to_norm_one():
    found = encoded(u=["1", "99", "x"], v=["5", "-3", ""], k=["z", "q", "?"], y=["b", "c", "d"])
    raw = np.array(
        # u, v, u is missing, k=1, k=true, k=z, k is missing, k is other, constant
        [
            [0.5, 0.5, 0, 0, 0, 1, 0, 0, 1],
            [1.0, 0.0, 0, 0, 0, 0, 0, 1, 1],
            [0.5, 0.2, 1, 0, 0, 0, 1, 0, 1],
        ]
    )
    expected = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(found.rows, expected, rtol=1e-15)
    assert found.labels.tolist() == [1, 2, 0]
    counts = found.counts
    assert (counts.rows, counts.bad_labels) == (3, 1)
    assert (counts.columns["u"].missing, counts.columns["u"].clipped) == (1, 1)
    assert (counts.columns["v"].missing, counts.columns["v"].clipped) == (1, 1)
    assert (counts.columns["k"].missing, counts.columns["k"].other) == (1, 1)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_ranges_and_the_constants_weight_are_what_the_schema_says(layout):
    columns = (
        NumericColumn(name="u", lower=-1.0, upper=3.0),
        CategoricalColumn(name="k", levels=("1", "true", "z")),
        NumericColumn(name="v", lower=0.0, upper=10.0, missing=False, range=(0.0, 1.0)),
    )
    schema = Schema(version=2, label=SCHEMA.label, columns=columns, constant=0.25)
    found = encoded(
        schema, layout, u=["1.5", "99", "x"], v=["5", "-3", ""], k=["z", "q", "?"], y=["b"] * 3
    )
    raw = np.array(
        # u, v, u is missing, k=1, k=true, k=z, k is missing, k is other, constant
        [
            [0.25, 0.5, 0, 0, 0, 1, 0, 0, 0.25],
            [1.0, 0.0, 0, 0, 0, 0, 0, 1, 0.25],
            [0.0, 0.5, 1, 0, 0, 0, 1, 0, 0.25],
        ]
    )
    expected = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1)
    rows = found.rows if layout == "dense" else found.rows.toarray()
    np.testing.assert_allclose(rows, expected, rtol=1e-15)


def test_a_short_row_keeps_the_constants_weight():
    columns = (NumericColumn(name="u", lower=0.0, upper=1.0, missing=False),)
    schema = Schema(version=2, label=SCHEMA.label, columns=columns, constant=0.5)
    assert encoded(schema, u=[0.75], y=["a"]).rows.tolist() == [[0.5, 0.5]]


def test_a_short_row_keeps_its_length():
    schema = Schema(
        label=Label(column="y", positive="1"),
        columns=(NumericColumn(name="u", lower=0.0, upper=1.0, missing=False),),
    )
    found = encoded(schema, u=[0.25, 1.0, 7.0], y=[1, 0, None])
    assert found.rows.tolist() == [[0.25], [1.0], [1.0]]
    assert found.signs.tolist() == [1.0, -1.0, -1.0]
    assert found.counts.bad_labels == 1


def test_without_the_levels_missing_and_other_a_cell_is_zeros():
    schema = Schema(
        label=Label(column="y", classes=("0", "1")),
        columns=(CategoricalColumn(name="k", levels=("p", "q"), missing=False, other=False),),
    )
    found = encoded(schema, k=["q", None, "?", "r"], y=["1", "0", "1", "0"])
    assert found.rows.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0]]
    assert (found.counts.columns["k"].missing, found.counts.columns["k"].other) == (2, 1)


@pytest.mark.parametrize(
    "cells",
    [
        ["1", " 1\t", "1", None, "z", "true", "q"],
        pa.array(["1", "1", "1", None, "z", "true", "q"]).dictionary_encode(),
        pa.array([b"1", b"1", b" 1", None, b"z", b"true", b"q"]),
        pa.array(["1", "1", "1", None, "z", "true", "q"], pa.large_string()),
    ],
)
def test_texts_of_every_type_are_read_alike(cells):
    labels = ["a"] * 7
    found = encoded(u=[0] * 7, v=[0] * 7, k=cells, y=labels)
    reference = encoded(u=[0] * 7, v=[0] * 7, k=["1", "1", "1", "", "z", "true", "q"], y=labels)
    np.testing.assert_array_equal(found.rows, reference.rows)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string()])
def test_whole_numbers_are_levels_whatever_their_type(kind):
    found = encoded(u=[0, 0], v=[0, 0], k=pa.array([1, 7]).cast(kind), y=["a", "a"])
    assert (found.rows[:, 3] > 0).tolist() == [True, False]
    assert (found.rows[:, 7] > 0).tolist() == [False, True]


def test_numbers_of_every_type_are_read_alike():
    texts = cells_as_numbers(pa.array(["1", "-2.5", "1e3", "+4", ".5", "6.", " 7 "]))
    np.testing.assert_array_equal(texts, [1, -2.5, 1000, 4, 0.5, 6, 7])
    assert cells_as_numbers(pa.array([True, False])).tolist() == [1.0, 0.0]
    assert cells_as_numbers(pa.array([1, None])).tolist()[0] == 1.0
    assert np.isnan(cells_as_numbers(pa.nulls(2))).all()
    np.testing.assert_array_equal(
        cells_as_numbers(pa.array([1.5, 2.5]).cast(pa.decimal128(5, 2))), [1.5, 2.5]
    )


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,5", "1_0", "0x1", "nan", "inf", "-Infinity", "1e999", "nan(1)", "--1", "1e", "١"],
)
def test_what_is_no_finite_decimal_number_is_missing(text):
    alone = encoded(u=[text], v=["1"], k=["z"], y=["a"])
    assert alone.counts.columns["u"].missing == 1
    among = encoded(u=[text, "1"], v=["1", "1"], k=["z", "z"], y=["a", "a"])
    np.testing.assert_array_equal(among.rows[0], alone.rows[0])


def test_a_number_can_stand_for_missing():
    schema = SCHEMA.model_copy(update={"missing_values": ("-999",)})
    for cells in (["-999", "-999.0", "1"], [-999, -999, 1], [-999.0, -999.0, 1.0]):
        found = encoded(schema, u=cells, v=[1] * 3, k=["z"] * 3, y=["a"] * 3)
        assert found.counts.columns["u"].missing == 2


def test_a_level_may_be_a_text_that_means_missing_elsewhere():
    schema = Schema(
        label=Label(column="y", classes=("NA", "b")),
        columns=(CategoricalColumn(name="k", levels=("NA", "q")),),
    )
    found = encoded(schema, k=["NA", ""], y=["b", "NA"])
    assert found.rows.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert found.counts.bad_labels == 0


def test_cells_that_are_not_utf8_are_latin_1():
    cells = pa.array([b"caf\xe9", "café".encode(), b"\xff\xfe"])
    assert cells_as_text(cells).to_pylist() == ["café", "café", "ÿþ"]


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        (pa.binary(), pa.string()),
        (pa.large_binary(), pa.large_string()),
        (pa.large_binary(), pa.large_binary()),
        (pa.binary_view(), pa.string_view()),
        (pa.binary_view(), pa.binary_view()),
    ],
)
def test_columns_of_strings_may_hold_any_bytes(plain, kind):
    cells = pa.array([b"caf\xe9", b"1", b"\xff", None], plain).view(kind)
    assert cells_as_text(cells).to_pylist() == ["café", "1", "ÿ", None]
    np.testing.assert_array_equal(cells_as_numbers(cells), [np.nan, 1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("kind", "storage"),
    [
        (pa.timestamp("s"), pa.int64()),
        (pa.timestamp("ns", "Asia/Tokyo"), pa.int64()),
        (pa.date32(), pa.int32()),
        (pa.date64(), pa.int64()),
        (pa.time32("s"), pa.int32()),
        (pa.duration("s"), pa.int64()),
    ],
)
def test_moments_out_of_range_are_texts_too(kind, storage):
    bound = 2 ** (storage.bit_width - 1)
    cells = pa.array([0, -bound, bound - 1, None], storage).view(kind)
    for column in (cells, cells.dictionary_encode()):
        found = cells_as_text(column).to_pylist()
        assert [text is None for text in found] == [False, False, False, True]
        assert found[0] == cells_as_text(cells[:1]).to_pylist()[0]


def test_which_types_can_be_read():
    as_text = [pa.null(), pa.bool_(), pa.uint64(), pa.float16(), pa.decimal32(5), pa.decimal256(70)]
    as_text += [pa.string(), pa.large_binary(), pa.string_view(), pa.date32()]
    for kind in as_text:
        assert is_readable(kind, as_number=False)
        assert is_readable(kind, as_number=True) != pa.types.is_temporal(kind)
        assert len(cells_as_text(pa.nulls(2, kind))) == 2
    nowhere = pa.timestamp("s", "No/Where")
    nested = [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.int8(), pa.int8())]
    for kind in [*nested, nowhere, pa.binary(3), pa.uuid(), pa.month_day_nano_interval()]:
        assert not is_readable(kind, as_number=False)
        assert not is_readable(kind, as_number=True)


def test_small_decimals_are_numbers_and_levels():
    cells = pa.array([1, 7, None], pa.decimal32(5, 0))
    assert cells_as_text(cells).to_pylist() == ["1", "7", None]
    np.testing.assert_array_equal(cells_as_numbers(cells), [1, 7, np.nan])


cells = st.one_of(
    st.none(),
    st.sampled_from(["1", "true", "z", "a", "b", "c", "?", "", " z ", "nan", "inf", "1e999"]),
    st.floats().map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.text(max_size=6).filter(lambda text: text.isprintable()),
    st.from_regex(r"[ ]?[+-]?[0-9._]{0,6}([eEdD][+-]?[0-9]{0,4})?", fullmatch=True),
)


@given(st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=12))
def test_a_row_encodes_to_the_same_bits_alone_and_among_others(table):
    columns = dict(zip("ukvy", zip(*table, strict=True), strict=True))
    arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    together = encoded(**arrays)
    for number in range(len(table)):
        alone = encoded(**{name: array.slice(number, 1) for name, array in arrays.items()})
        assert alone.rows.tobytes() == together.rows[number].tobytes()
        assert alone.labels[0] == together.labels[number]
    assert together.rows.shape[0] == len(table)
    assert np.isfinite(together.rows).all()
    assert np.linalg.norm(together.rows, axis=1).max() <= 1 + 1e-12
    thin = encoded(layout="sparse", **arrays)
    np.testing.assert_array_equal(thin.rows.toarray(), together.rows)
    assert thin.rows.has_canonical_format


def test_sparse_or_dense_is_decided_by_public_facts():
    wide = Schema(
        label=Label(column="y", classes=("0", "1")),
        columns=(CategoricalColumn(name="k", levels=tuple(map(str, range(1000)))),),
    )
    assert is_sparse(wide, 10**6)
    assert not is_sparse(wide, 10)
    assert not is_sparse(SCHEMA, 10**9)
    assert is_sparse(SCHEMA, 1, "sparse")
    assert not is_sparse(wide, 10**9, "dense")
    with pytest.raises(DataError, match="layout must be"):
        is_sparse(wide, 1, "thick")


def test_no_rows_make_an_empty_array():
    for layout in ("dense", "sparse"):
        found = assemble([], SCHEMA, layout=layout)
        assert found.rows.shape == (0, 9)
        assert found.labels.shape == (0,)
        assert found.counts.rows == 0


def test_parties_are_read_from_their_column():
    schema = SCHEMA.model_copy(update={"party": "p"})
    part = {"u": [0] * 3, "v": [0] * 3, "k": ["z"] * 3, "y": ["a"] * 3}
    found = encoded(schema, **part, p=["north", None, " north"])
    assert found.parties == ("north", "missing")
    assert found.party_codes.tolist() == [0, 1, 0]
    assert assemble([], schema).parties == ()


def test_printing_shows_nothing_of_the_rows():
    found = encoded(u=[0.123], v=[0.456], k=["z"], y=["b"])
    shown = repr(found) + repr(
        encode_batch(pa.RecordBatch.from_pydict({"u": [1], "v": [1], "k": ["z"]}), SCHEMA)
    )
    assert "array" not in shown
    assert "counts" not in shown


def test_signs_need_two_classes():
    with pytest.raises(DataError, match="3 classes"):
        _ = encoded(u=[0], v=[0], k=["z"], y=["b"]).signs
    with pytest.raises(DataError, match="none"):
        _ = encoded(u=[0], v=[0], k=["z"]).signs


SPELT = Schema(
    label=Label(
        column="y",
        classes=("negative", "positive"),
        aliases={"pos.": "positive", "1": "positive"},
        ignore_case=True,
    ),
    columns=(
        CategoricalColumn(
            name="k",
            levels=("full time", "STRASSE"),
            aliases={"ft": "full time"},
            trim=True,
            ignore_case=True,
        ),
        NumericColumn(name="u", lower=0.0, upper=10.0),
    ),
    decimal=",",
    missing_marks=("k. A.", "-9,5"),
)


def test_labels_and_levels_are_read_however_the_schema_lets_them_be_spelt():
    found = encoded(
        SPELT,
        y=["Positive", " POSITIVE ", "Pos.", "1.0", "negative", "positiv"],
        k=["Full Time\u00a0", "FT", "\ufeffstraße", "K. A.", "\u00a0", "part time"],
        u=["2,5", "k. A.", "-9.5", "-9,5", "2.5", "11"],
    )
    assert found.labels.tolist() == [1, 1, 1, 1, 0, 0]
    assert found.counts.bad_labels == 1
    # u, u is missing, k=full time, k=STRASSE, k is missing, k is other
    assert np.argmax(found.rows[:, 2:], axis=1).tolist() == [0, 0, 1, 2, 2, 3]
    assert found.counts.columns["u"].missing == 3
    plain = encoded(
        Schema.from_dict(SPELT.model_dump() | {"label": {"column": "y", "classes": SPELT.classes}}),
        y=["Positive", "pos.", "positive", "1", "2", "3"],
        k=["ft"] * 6,
        u=["1"] * 6,
    )
    assert plain.labels.tolist() == [0, 0, 1, 0, 0, 0]


def test_only_white_space_of_ascii_is_trimmed_unless_told():
    label = Label(column="y", classes=("a", "b"))
    for told, codes in ((label, [1, 0, 0]), (label.model_copy(update={"trim": True}), [1, 1, 1])):
        schema = Schema(label=told, columns=SPELT.columns)
        found = encoded(schema, y=[" b\t", "\u00a0b", "\u200bb\ufeff"], k=["ft"] * 3, u=["1"] * 3)
        assert found.labels.tolist() == codes


def test_a_positive_value_may_be_spelt_otherwise_too():
    label = Label(column="y", positive="yes", aliases={"ja": "yes"}, ignore_case=True)
    schema = Schema(label=label, columns=SPELT.columns, missing_marks=("k. A.",))
    found = encoded(schema, y=["YES", "Ja", "no", "k. a.", "?"], k=["ft"] * 5, u=["1"] * 5)
    assert found.labels.tolist() == [1, 1, 0, 0, 0]
    assert found.counts.bad_labels == 2


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8))
def test_a_cell_spelt_in_any_way_becomes_what_it_does_alone(cells):
    columns = {"y": cells, "k": cells, "u": cells}
    together = encoded(SPELT, **columns)
    alone = [encoded(SPELT, y=[cell], k=[cell], u=[cell]) for cell in cells]
    assert together.rows.tobytes() == b"".join(each.rows.tobytes() for each in alone)
    assert together.labels.tolist() == [int(each.labels[0]) for each in alone]


def test_trimming_takes_no_longer_where_blanks_stand_inside():
    label = Spelling(trim=True)
    inside = "a" + " \u00a0" * 100_000 + "b"
    # A pattern that looks for an end from every blank would take hours.
    assert label.folded(f"\ufeff\u2003{inside}\u00a0\n") == inside
