"""Neighbouring tables: alike but for the cells of one row, which may hold anything."""

import json
import re
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

#: Rows of the wards' schema (``wards.SCHEMA``): age, ward, y.
ROWS = [
    [b"%d" % (7 * n % 101), b"ab"[n % 2 : n % 2 + 1], (b"no", b"yes")[n % 3 == 0]]
    for n in range(24)
]
COLUMNS = ("age", "ward", "y")
PLACE = 5

#: Bytes that some reader somewhere stumbles over.
ODD_BYTES = [
    b"",
    b" ",
    b"caf\xe9",
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf1",
    b"\xed\xa0\x80",
    b"\x00",
    b"1\x00",
    b"1e999",
    b"-1e400",
    b"9" * 400,
    b"123456789012345678901234567890",
    b"--",
    b"-",
    b"0x1F",
    b"1_000",
    b"1.000,5",
    "١٢٣".encode(),
    "１２".encode(),
    b"nan",
    b"-Infinity",
    b"True",
    b"{}",
    b"%s",
    b"[bold]",
    b"x" * 70_000,
]
#: Of these a CSV writer quotes some; written as they are they break a line in two or open a quote.
ODD_QUOTES = [b'"', b'"x', b'x"', b'""', b'"""', b'"x"y', b"a,b", b",", b",,,,", b'",']
ODD_LINES = [b"\n", b"\r", b"a\nb", b"\r\n", b'"\n']

any_bytes = st.one_of(
    st.sampled_from([*ODD_BYTES, *ODD_QUOTES, *ODD_LINES]), st.binary(max_size=12)
)
raw_bytes = st.one_of(st.sampled_from([*ODD_BYTES, *ODD_QUOTES]), st.binary(max_size=12)).map(
    lambda cell: re.sub(rb"[\r\n]", b"", cell)
)

TEXTS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
NUMBERS = {
    "float64": (pa.float64(), st.floats()),
    "float32": (pa.float32(), st.floats(width=32)),
    "float16": (pa.float16(), st.floats(width=16).map(np.float16)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "decimal128": (pa.decimal128(38, 2), st.integers(1 - 10**36, 10**36 - 1).map(Decimal)),
    "decimal256": (pa.decimal256(76, 0), st.integers(-(10**75), 10**75).map(Decimal)),
    "bool": (pa.bool_(), st.booleans()),
    "null": (pa.null(), st.none()),
}
TIMES = {
    "moment": (pa.timestamp("ms"), pa.int64()),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), pa.int64()),
    "date": (pa.date32(), pa.int32()),
    "time": (pa.time64("us"), pa.int64()),
    "duration": (pa.duration("ns"), pa.int64()),
}


def text_array(kind, cells):
    """Bytes as a column of strings, which nobody checks for UTF-8."""
    plain = pa.array(cells, pa.large_binary() if kind.startswith("large") else pa.binary())
    if kind == "dictionary":
        coded = plain.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.view(pa.string()))
    return plain.view(TEXTS[kind])


@st.composite
def columns(draw, name):
    """Two columns of one type that differ in one cell."""
    number = COLUMNS.index(name)
    cells = [row[number] for row in ROWS]
    kinds = [*TEXTS, *(NUMBERS if name == "age" else {**NUMBERS, **TIMES})]
    kind = draw(st.sampled_from(kinds))
    if kind in TEXTS:
        other = draw(st.one_of(st.none(), any_bytes))
        both = [cells, [*cells[:PLACE], other, *cells[PLACE + 1 :]]]
        return tuple(text_array(kind, cells) for cells in both)
    if kind in NUMBERS:
        arrow, values = NUMBERS[kind]
        other = draw(st.one_of(st.none(), values))
        cells = [
            None if kind == "null" else n % 2 == 0 if kind == "bool" else n % 7
            for n in range(len(ROWS))
        ]
        if kind == "float16":
            cells = [np.float16(cell) for cell in cells]
        both = [cells, [*cells[:PLACE], other, *cells[PLACE + 1 :]]]
        return tuple(pa.array(cells, arrow) for cells in both)
    arrow, storage = TIMES[kind]
    bound = 2 ** (storage.bit_width - 1)
    other = draw(st.one_of(st.none(), st.integers(-bound, bound - 1)))
    cells = list(range(len(ROWS)))
    both = [cells, [*cells[:PLACE], other, *cells[PLACE + 1 :]]]
    return tuple(pa.array(cells, storage).view(arrow) for cells in both)


@st.composite
def parquet_pairs(draw):
    """Two Parquet files, as functions that write them."""
    pairs = [draw(columns(name)) for name in COLUMNS]
    tables = [
        pa.Table.from_arrays([pair[side] for pair in pairs], list(COLUMNS)) for side in (0, 1)
    ]
    return "rows.parquet", [partial(pyarrow.parquet.write_table, table) for table in tables]


def csv_line(cells, quoted):
    if quoted:
        cells = [b'"' + cell.replace(b'"', b'""') + b'"' for cell in cells]
    return b",".join(cells)


@st.composite
def csv_pairs(draw):
    """Two CSV files: cells written as they should be, or one row as its bytes are."""
    quoted = draw(st.booleans())
    cells = draw(st.tuples(*[any_bytes if quoted else raw_bytes] * 3))
    line_end = draw(st.sampled_from([b"\n", b"\r\n"]))
    lines = [csv_line(row, quoted) for row in ROWS]
    changed = [*lines[:PLACE], csv_line(cells, quoted), *lines[PLACE + 1 :]]
    header = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + b"age,ward,y"
    packed = draw(st.sampled_from(["", ".gz", ".zst"]))

    def writer(lines):
        def write(path):
            with pa.output_stream(path, compression="detect") as file:
                file.write(line_end.join([header, *lines, b""]))

        return write

    return f"rows.csv{packed}", [writer(lines), writer(changed)]


pairs = st.one_of(csv_pairs(), parquet_pairs())


def odd_parquet(cells):
    """Like the rows of ROWS, but for one row of any bytes in columns of strings."""
    rows = [*ROWS[:PLACE], cells, *ROWS[PLACE + 1 :]]
    arrays = [text_array("string", list(column)) for column in zip(*rows, strict=True)]
    return pa.Table.from_arrays(arrays, list(COLUMNS))


def masked(text, *private):
    """Text without times, and without the places that differ from one try to the next."""
    for place, word in private:
        text = text.replace(str(place), word)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?", "TIME", text)
    return re.sub(r"\b\d+\.\d+ s\b", "SECONDS", text)


def masked_record(path):
    """A record without times and without functions of the messages."""
    record = json.loads(path.read_text())
    for name in ("ended", "seconds", "model_sha256", "learnt", "history"):
        record.pop(name, None)
    return record
