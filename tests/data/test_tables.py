"""Files of every kind and state: equal encodings, odd CSV files, full disks."""

import csv
import gzip
import io
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpadmm.data import csv_reader
from dpadmm.data.schema import CategoricalColumn, Label, NumericColumn, Schema
from dpadmm.data.tables import PublicDataWarning, encode, read_table
from dpadmm.errors import DataError

SCHEMA = Schema(
    label=Label(column="y", classes=("no", "yes")),
    columns=(
        NumericColumn(name="u", lower=-1.0, upper=3.0),
        CategoricalColumn(name="k", levels=("p", "q,r", "s\nt")),
    ),
    constant=True,
)
HEADER = b"u,k,y\n"
NORM_LIMIT = 1 + 1e-12


@pytest.fixture
def write(tmp_path):
    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def frame(rows=500):
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "u": generator.normal(size=rows).round(6),
            "k": generator.choice(["p", "q,r", "s\nt", "other", None], rows),
            "y": generator.choice(["no", "yes", None], rows),
        }
    )


def test_csv_parquet_arrow_and_pandas_encode_to_the_same_bits(tmp_path):
    data = frame()
    data.loc[3, "u"] = np.nan
    data.to_csv(tmp_path / "rows.csv", index=False)
    data.to_csv(tmp_path / "rows.csv.gz", index=False)
    data.to_csv(tmp_path / "rows.tsv", index=False, sep="\t")
    data.to_parquet(tmp_path / "rows.parquet")
    table = pa.Table.from_pandas(data, preserve_index=False)
    sources = [
        *(tmp_path / f"rows.{kind}" for kind in ("csv", "csv.gz", "tsv", "parquet")),
        str(tmp_path / "rows.csv"),
        table,
        table.combine_chunks().to_batches()[0],
        data,
        data.astype({"u": object, "k": "category"}),
    ]
    reference = encode(sources[0], SCHEMA)
    assert reference.rows.shape == (500, 8)
    assert reference.counts.columns["u"].missing == 1
    for source in sources[1:]:
        found = encode(source, SCHEMA)
        assert found.rows.tobytes() == reference.rows.tobytes()
        assert found.labels.tobytes() == reference.labels.tobytes()
        assert found.counts == reference.counts


def test_a_frame_with_mixed_kinds_in_a_column_is_read_cell_by_cell():
    data = pd.DataFrame({"u": [1, "2", "x", None, 2.5, True], "k": ["p", 1, 2.0, b"p", None, "p"]})
    data["y"] = ["yes", 0, "no", None, 1.5, "yes"]
    found = encode(data, SCHEMA)
    assert found.counts.columns["u"].missing == 3
    assert found.labels.tolist() == [1, 0, 0, 0, 0, 1]


def test_integer_labels_and_levels_agree_between_csv_and_parquet(tmp_path):
    schema = Schema(
        label=Label(column="y", classes=("0", "1")),
        columns=(CategoricalColumn(name="k", levels=("1", "2")),),
    )
    data = pd.DataFrame({"k": [1.0, 2.0, np.nan], "y": [0, 1, 1]})
    data.to_csv(tmp_path / "a.csv", index=False)
    data.to_parquet(tmp_path / "a.parquet")
    first, second = encode(tmp_path / "a.csv", schema), encode(tmp_path / "a.parquet", schema)
    np.testing.assert_array_equal(first.rows, second.rows)
    assert first.labels.tolist() == second.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("content", "labels", "ragged"),
    [
        (HEADER, [], 0),
        (b"u,k,y", [], 0),
        (b"u,k,y\r\n1,p,yes\r\n2,p,no\r\n", [1, 0], 0),
        (b"u,k,y\r1,p,yes\r2,p,no", [1, 0], 0),
        (b"\xef\xbb\xbf" + HEADER + b"1,p,yes", [1], 0),
        (b"\n\r\n" + HEADER + b"\n1,p,yes\n\n\n2,p,yes\n", [1, 1], 0),
        (b'"u" , "k","y"\n1,p,yes\n', [1], 0),
        (b'u,"k",y\n1,"s\nt",yes\n1,"q,r",yes\n', [1, 1], 0),
        (HEADER + b"1,p\n2,p,yes\n3,p,yes,4\n5,p,yes\n", [0, 1, 0, 1], 2),
        (HEADER + b"1,p\n2\n3,p,yes,4\n", [0, 0, 0], 3),
        (HEADER + b"   \n1,p,yes\n", [0, 1], 1),
        (HEADER + b"1,p,caf\xe9\n2,\xff,yes\n\xfe,p,yes\n", [0, 1, 1], 0),
        (HEADER + b"\x00,p,yes\n1,\x00,yes\n", [1, 1], 0),
    ],
)
def test_odd_files_keep_their_rows(write, content, labels, ragged):
    found = encode(write(content), SCHEMA)
    assert found.labels.tolist() == labels
    assert found.counts.rows == len(labels) == found.rows.shape[0]
    assert found.counts.ragged_rows == ragged


def test_a_ragged_line_changes_no_other_row(write, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    lines = [f"{number % 3},p,{'yes' if number % 2 else 'no'}".encode() for number in range(60)]
    reference = encode(write(HEADER + b"\n".join(lines)), SCHEMA)
    for places in ([0], [59], [10, 11, 12], [7, 30, 58], list(range(60))):
        broken = [b"1,2" if number in places else line for number, line in enumerate(lines)]
        found = encode(write(HEADER + b"\n".join(broken)), SCHEMA)
        assert found.counts.ragged_rows == len(places)
        others = [number for number in range(60) if number not in places]
        np.testing.assert_array_equal(found.rows[others], reference.rows[others])
        np.testing.assert_array_equal(found.labels[others], reference.labels[others])


def test_reading_at_once_and_in_pieces_gives_the_same_rows(write, monkeypatch):
    path = write(frame().to_csv(index=False).encode())
    at_once = encode(path, SCHEMA)
    monkeypatch.setattr(csv_reader, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 512)
    in_pieces = encode(path, SCHEMA)
    assert at_once.rows.tobytes() == in_pieces.rows.tobytes()
    assert at_once.labels.tobytes() == in_pieces.labels.tobytes()
    assert at_once.counts == in_pieces.counts


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b"1,a\n2,b\n", 2),
        (b"1,a\r\n2,b", 2),
        (b"1,a\r2,b\r", 2),
        # No rows: lines of nothing, wherever they are.
        (b"1,a\n\n2,b\n\n\n", 2),
        (b"1,a\r\r\n2,b\n", 2),
        # Rows: lines of anything, be it blanks or empty cells.
        (b"1,a\n  \n2,b\n", 3),
        (b'1,a\n""\n,\n', 3),
        # A line end within a cell: two rows without quotes, one with them.
        (b"1,a\rb\n2,b\n", 3),
        (b'1,"a\rb"\n2,"a\n\nb"\n', 2),
        (b'1,"a\n2,b\n', 2),
        # What others take for line ends is a character here.
        (b"1,a\x0bb\x0cc\x1ed\xc2\x85e\xe2\x80\xa8f\n2,b\n", 2),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_counts_as_a_row(tmp_path, monkeypatch, body, rows, at_once):
    """As docs/guide-files.md says: the number is public, so everybody must count alike."""
    if not at_once:
        monkeypatch.setattr(csv_reader, "AT_ONCE_BYTES", 0)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,y\n" + body)
    header = csv_reader.read_header(path, ",")
    wanted = csv_reader.CsvColumns(path, header, ",", header.names)
    assert sum(batch.num_rows for batch, _ in csv_reader.read_csv(wanted)) == rows


def test_a_line_longer_than_a_block_is_a_row_like_any_other(write, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    lines = [b"1,p,yes"] * 20
    lines[3] = b"1,2"
    lines[15] = b"1,p," + b"z" * 5000
    found = encode(write(HEADER + b"\n".join(lines)), SCHEMA)
    assert found.labels.tolist() == [1, 1, 1, 0, *[1] * 11, 0, *[1] * 4]
    assert found.counts.ragged_rows == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\n\n\n", ["empty"]),
        (b"u,k\n1,p\n", ["'y' is not there"]),
        (b"u;k;y\n1;p;yes\n", ["are not there", "delimiter"]),
        (b"u,k,y,z\n1,p,yes,2\n", ["'z' is not in it", "ignore"]),
        (b"u,k,u,y\n1,p,1,yes\n", ["'u' is there twice"]),
        ("u,k,y\n1,p,yes\n".encode("utf-16"), ["UTF-16"]),
        (b'"u,k,y\n1,p,yes\n', ["not there"]),
        (b"U,k,y\n1,p,yes\n", ["'u' is not there", "It has 'U' for 'u': rename one"]),
        (b"u,k, Y\xc2\xa0\n1,p,yes\n", ["'y' is not there", r"It has 'Y\xa0' for 'y'"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfu,K,y\n1,p,yes\n", [r"It has '\ufeffu' for 'u', 'K' for 'k'"]),
    ],
)
def test_a_wrong_header_is_refused_in_one_sentence(write, content, words):
    with pytest.raises(DataError) as found:
        encode(write(content), SCHEMA)
    assert "\n" not in str(found.value).replace("\\n", "")
    for word in words:
        assert word in str(found.value)


def test_columns_to_ignore_and_a_label_that_is_not_needed(write):
    schema = SCHEMA.model_copy(update={"ignore": ("id",)})
    found = encode(write(b"id,u,k\n7,1,p\n"), schema, require_label=False)
    assert found.labels is None
    assert found.rows.shape == (1, 8)
    with pytest.raises(DataError, match="'y' is not there"):
        encode(write(b"id,u,k\n7,1,p\n"), schema)


def test_files_that_cannot_be_read_are_refused(tmp_path, write):
    cases = [
        tmp_path / "nowhere.csv",
        tmp_path / "nowhere.parquet",
        write(b"PAR1 no parquet at all PAR1", "bad.parquet"),
        write(b"", "empty.parquet"),
        write(b"not packed", "bad.csv.gz"),
        write(gzip.compress(HEADER + b"1,p,yes\n" * 10000)[:-20], "cut.csv.gz"),
        write(b"x", "rows.xlsx"),
        write(b"x", "rows"),
        tmp_path,
        object(),
    ]
    for case in cases:
        with pytest.raises(DataError) as found:
            encode(case, SCHEMA)
        assert "\n" not in str(found.value)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    frame(20000).to_parquet(path)
    data = bytearray(path.read_bytes())
    data[100 : len(data) // 2] = os.urandom(len(data) // 2 - 100)
    path.write_bytes(data)
    with pytest.raises(DataError, match="file must be"):
        encode(path, SCHEMA)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([0], pa.timestamp("s")),
        pa.array([b"1"], pa.binary(1)),
    ],
)
def test_columns_of_an_unusable_type_are_refused(array):
    table = pa.table({"u": array, "k": ["p"], "y": ["no"]})
    with pytest.raises(DataError, match="column 'u' of the table must hold numbers"):
        encode(table, SCHEMA)


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "é"])
def test_a_wrong_delimiter_is_refused(write, delimiter):
    if delimiter:
        with pytest.raises(DataError, match="delimiter"):
            encode(write(HEADER), SCHEMA, delimiter=delimiter)
    else:
        assert encode(write(HEADER), SCHEMA, delimiter=delimiter).counts.rows == 0


def test_leaving_out_incomplete_rows_is_for_public_data(write):
    path = write(HEADER + b"1,p,yes\n?,p,yes\n1,?,no\n1,zzz,no\n")
    with pytest.warns(PublicDataWarning, match="public data only"):
        found = encode(path, SCHEMA, drop_incomplete_public_rows=True)
    assert found.labels.tolist() == [1, 0]
    assert (found.counts.rows, found.counts.dropped_rows) == (2, 2)


def test_rows_go_to_disk_and_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 2048)
    data = frame(3000)
    data.to_csv(tmp_path / "rows.csv", index=False)
    in_memory = encode(tmp_path / "rows.csv", SCHEMA)
    on_disk = encode(tmp_path / "rows.csv", SCHEMA, into=tmp_path / "rows.npy")
    assert isinstance(on_disk.rows, np.memmap)
    assert not on_disk.rows.flags.writeable
    np.testing.assert_array_equal(on_disk.rows, in_memory.rows)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), in_memory.rows)
    assert on_disk.counts == in_memory.counts
    assert (tmp_path / "rows.npy").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.npy"]


def test_an_empty_table_goes_to_disk_too(tmp_path, write):
    found = encode(write(HEADER), SCHEMA, into=tmp_path / "rows.npy")
    assert found.rows.shape == (0, 8)


def test_places_that_cannot_be_written_to_are_refused(tmp_path, write):
    path = write(HEADER + b"1,p,yes\n")
    for into in (tmp_path / "nowhere" / "rows.npy", tmp_path / "rows.bin", "/proc/rows.npy"):
        with pytest.raises(DataError, match="into must be"):
            encode(path, SCHEMA, into=into)
    with pytest.raises(DataError, match="layout must be"):
        encode(path, SCHEMA, into=tmp_path / "rows.npy", layout="sparse")


def test_a_file_that_turns_out_unreadable_leaves_nothing_behind(tmp_path, write):
    path = write(gzip.compress(HEADER + os.urandom(10**6).hex().encode())[:-20], "cut.csv.gz")
    with pytest.raises(DataError):
        encode(path, SCHEMA, into=tmp_path / "rows.npy")
    assert [found.name for found in tmp_path.iterdir()] == ["cut.csv.gz"]


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, write):
    path = write(HEADER + b"1,p,yes\n" * 50_000)
    target = tmp_path / "rows.npy"
    target.write_bytes(b"what was there before")
    program = """
        import resource, sys
        from dpadmm.data.tables import encode
        from dpadmm.data.schema import DataError, load_schema
        schema = load_schema(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            encode(sys.argv[1], schema, into=sys.argv[3])
        except DataError as error:
            sys.exit(f"refused: {error}")
    """
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    arguments = [str(path), str(tmp_path / "schema.toml"), str(target)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("refused: into must be writable with enough room")
    assert target.read_bytes() == b"what was there before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.csv", "rows.npy", "schema.toml"]


def test_reading_all_of_a_table(write):
    table = read_table(write(b"a,b\n1,2\n3\n"))
    assert table.to_pylist() == [{"a": b"1", "b": b"2"}, {"a": None, "b": None}]
    assert read_table(write(b"a,b\n")).num_rows == 0
    with pytest.raises(DataError, match="twice"):
        read_table(write(b"a,a\n1,2\n"))


fuzz = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
cells = st.one_of(
    st.sampled_from(["", "1", "-1e400", "9" * 400, "nan", "inf", "p", "q,r", "s\nt", "yes", '"']),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.floats().map(repr),
)


@fuzz
@given(
    rows=st.lists(st.lists(cells, min_size=2, max_size=5), max_size=15),
    encoding=st.sampled_from(["utf-8", "latin-1", "cp1252", "utf-8-sig"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([32, 256, 2**20]),
)
def test_any_cells_give_as_many_rows_of_norm_at_most_one(
    tmp_path, rows, encoding, quoting, line_end, block
):
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=quoting, lineterminator=line_end)
    if quoting != csv.QUOTE_ALL:
        # Python leaves a lone carriage return unquoted, which other readers take for a line end.
        rows = [[cell.replace("\r", " ") for cell in row] for row in rows]
    writer.writerows([["u", "k", "y"], *rows])
    path = tmp_path / "fuzz.csv"
    path.write_bytes(text.getvalue().encode(encoding, "replace"))
    before, csv_reader.BLOCK_BYTES = csv_reader.BLOCK_BYTES, block
    try:
        found = encode(path, SCHEMA)
    finally:
        csv_reader.BLOCK_BYTES = before
    assert found.rows.shape == (len(rows), 8)
    assert found.counts.ragged_rows == sum(len(row) != 3 for row in rows)
    if rows:
        assert found.labels.shape == (len(rows),)
        assert np.isfinite(found.rows).all()
        assert np.linalg.norm(found.rows, axis=1).max() <= NORM_LIMIT


def split_by_hand(data):
    """Places of lone quotes and the number of rows of a CSV file, byte by byte."""
    lone, rows, place, at_start, is_row = [], 0, 0, True, False
    while place < len(data):
        byte = data[place : place + 1]
        if byte in (b"\r", b"\n"):
            rows += is_row
            at_start, is_row = True, False
        elif byte == b'"' and at_start:
            cell = re.compile(rb'"(?:[^"]|"")*"(?!")').match(data, place)
            after = cell and re.compile(rb"[ \t]{0,8}(?:[,\r\n]|\Z)").match(data, cell.end())
            if cell and (after or not re.search(rb"[\r\n]", cell[0])):
                place = cell.end() - 1
            else:
                lone.append(place)
            at_start, is_row = False, True
        else:
            at_start, is_row = byte == b",", True
        place += 1
    return lone, rows + is_row


@fuzz
@given(
    data=st.text('ab," \t\r\n', max_size=60).map(str.encode),
    piece=st.sampled_from([1, 2, 3, 5, 2**20]),
    at_once=st.booleans(),
)
def test_a_quote_that_opens_no_cell_takes_no_line_along(tmp_path, data, piece, at_once):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(HEADER + data)
    lone, rows = split_by_hand(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_PIECE_BYTES", piece)
        found = csv_reader.lone_quotes(path, len(HEADER), ",")
        assert found == [len(HEADER) + place for place in lone]
        patch.setattr(csv_reader, "AT_ONCE_BYTES", 2**20 if at_once else 0)
        assert encode(path, SCHEMA).counts.rows == rows


def test_lone_quotes_are_found_behind_thousands_of_closed_ones(tmp_path):
    data = b'1,"q,r",yes\n' * 3000 + b'1,"x,no\n' + b'5" pipe,"p",yes\n' * 3000
    path = tmp_path / "long.csv"
    path.write_bytes(HEADER + data)
    lone, _ = split_by_hand(data)
    assert len(lone) == 1
    assert csv_reader.lone_quotes(path, len(HEADER), ",") == [len(HEADER) + lone[0]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("at_once", [0, 2**20])
@pytest.mark.parametrize("hostile", [b'"x', b'"', b'"""', b'"x""', b'x"', b'"x"y', b'""x'])
@pytest.mark.parametrize("other", [b"p", b'"q,r"', b'"s\nt"', b'5" pipe', b'""', b"caf\xe9"])
def test_no_row_is_lost_in_a_quote_of_another(
    tmp_path, monkeypatch, packed, at_once, hostile, other
):
    monkeypatch.setattr(csv_reader, "AT_ONCE_BYTES", at_once)
    line = b"2," + other + b",yes\n"
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")

    def encoded(row):
        content = HEADER + line + row + line + line
        path.write_bytes(gzip.compress(content) if packed else content)
        return encode(path, SCHEMA)

    reference, found = encoded(line), encoded(b"2," + hostile + b",no\n")
    assert found.labels.tolist() == [1, 0, 1, 1]
    np.testing.assert_array_equal(found.rows[[0, 2, 3]], reference.rows[[0, 2, 3]])


def test_a_quote_after_a_tab_is_closed_before_a_tab(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(b'u\tk\ty\n1\t"s\nt"\tyes\n2\t"q\tno\n3\tp\tno\n')
    assert encode(path, SCHEMA).labels.tolist() == [1, 0, 0]


def test_a_quote_inside_a_cell_opens_nothing(write):
    assert len(encode(write(HEADER + b'1,5" pipe,yes\n2,"q""",no\n'), SCHEMA).labels) == 2


@fuzz
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda data: HEADER + data),
        st.text('u,k"\r\n\t0\x00é ', max_size=80).map(lambda t: HEADER + t.encode("latin-1")),
        st.text('uky,"\r\n', max_size=40).map(str.encode),
    ),
    block=st.sampled_from([16, 2**20]),
)
def test_any_bytes_are_encoded_or_refused(tmp_path, content, block):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    before, csv_reader.BLOCK_BYTES = csv_reader.BLOCK_BYTES, block
    try:
        found = encode(path, SCHEMA)
    except DataError:
        # Nothing that follows the header makes a file unreadable.
        assert not content.startswith(HEADER)
        return
    finally:
        csv_reader.BLOCK_BYTES = before
    if found.counts.rows:
        assert np.linalg.norm(found.rows, axis=1).max() <= NORM_LIMIT


@fuzz
@given(content=st.binary(max_size=200))
def test_any_bytes_in_a_parquet_file_are_refused(tmp_path, content):
    path = tmp_path / "fuzz.parquet"
    path.write_bytes(b"PAR1" + content + b"PAR1")
    with pytest.raises(DataError):
        encode(path, SCHEMA)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    # Arrow's own count of what it holds at most, in a process that does nothing else.
    program = """
        import sys
        import pyarrow as pa
        from dpadmm.data import csv_reader
        from dpadmm.data.tables import encode
        from dpadmm.data.schema import load_schema
        csv_reader.AT_ONCE_BYTES = 0
        csv_reader.BLOCK_BYTES = 2**16  # Arrow reads some 32 blocks ahead
        encode(sys.argv[1], load_schema(sys.argv[2]), into=sys.argv[3])
        print(pa.default_memory_pool().max_memory())
    """
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    path = tmp_path / f"rows.{kind}"
    generator = np.random.default_rng(0)
    most = []
    for rows in (100_000, 400_000):
        table = pa.table(
            {
                "u": generator.normal(size=rows),
                "k": generator.choice(["p", "some other text that takes room"], rows),
                "y": generator.choice(["no", "yes"], rows),
            }
        )
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path, row_group_size=20_000, compression="none")
        arguments = [str(path), str(tmp_path / "schema.toml"), str(tmp_path / "rows.npy")]
        found = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
        most.append(int(found.stdout))
    assert most[1] < 1.5 * most[0]


def test_a_polars_frame_is_read_as_the_arrow_table_that_it_is():
    polars = pytest.importorskip("polars")
    table = pa.table({"u": [2.0, None, 9.0], "k": ["p", "q,r", None], "y": ["no", "yes", "no"]})
    expected, found = encode(table, SCHEMA), encode(polars.from_arrow(table), SCHEMA)
    assert np.array_equal(found.rows, expected.rows)
    assert np.array_equal(found.labels, expected.labels)
