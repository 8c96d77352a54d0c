"""Until the first charged message nothing outside a run depends on what a row holds.

Two neighbouring tables go through the same command. Exit code, output, files and exceptions must
be the same, but for times and for what is computed from messages.
"""

import contextlib
import io
import os
import random
import traceback
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from typer.testing import CliRunner

from dpadmm import ADMMClassifier
from dpadmm.cli import app
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encode, read_table
from dpadmm.errors import DataError
from dpadmm.experiments.problems import FileProblem
from tests.helpers.neighbours import COLUMNS, PLACE, ROWS, masked, masked_record, odd_parquet, pairs
from tests.helpers.wards import SCHEMA

WARDS = Schema.from_toml(SCHEMA)
OTHERS = [number for number in range(len(ROWS)) if number != PLACE]
RUN = """
[run]
algorithm = "pr-admm"
rounds = 2
epsilon = 1.0
delta = 1e-3
penalty = 0.005
regularization = 0.01
simulation_key = 1
[data]
schema = "schema.toml"
[[party]]
name = "north"
file = "{file}"
rows = {rows}
[[party]]
name = "south"
file = "other.csv"
[result]
model = "m.model"
record = "record.json"
report = false
"""
ODD_ROWS = [
    (b"caf\xe9", b"caf\xe9", b"caf\xe9"),
    (b"1", b"\xff", b"yes"),
    (None, None, None),
    (b"1e999", b"\x00", b"\xed\xa0\x80"),
]


def fuzz(examples):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    # A smaller example would take minutes to find.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=checks, phases=phases
    )


def write_folder(folder):
    (folder / "schema.toml").write_text(SCHEMA)
    lines = [b",".join(row) for row in ROWS]
    (folder / "other.csv").write_bytes(b"\n".join([b"age,ward,y", *lines]))


def command(folder, *words):
    """Everything that a command shows and leaves behind."""
    ended = CliRunner().invoke(app, [str(word) for word in words])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    record = folder / "record.json"
    return {
        "code": ended.exit_code,
        "stdout": masked(ended.stdout),
        "stderr": masked(ended.stderr),
        "record": masked_record(record) if record.exists() else None,
        "files": sorted(os.listdir(folder)),
    }


def trained(folder, name, write, rows):
    write_folder(folder)
    write(folder / name)
    (folder / "run.toml").write_text(RUN.format(file=name, rows=rows))
    found = command(folder, "train", folder / "run.toml")
    for path in folder.iterdir():
        path.unlink()
    return found


def check_train(folder, pair):
    name, writers = pair
    for rows in (len(ROWS) + 1, len(ROWS)):
        # The first is refused once all rows were read: the number of rows is public.
        first, second = (trained(folder, name, write, rows) for write in writers)
        assert first == second
        assert first["code"] == (0 if rows == len(ROWS) else 2), first["stderr"]


@pytest.mark.parametrize("cells", ODD_ROWS)
def test_train_does_not_tell_an_odd_row_of_strings(tmp_path, cells):
    tables = [odd_parquet(row) for row in (ROWS[PLACE], cells)]
    writers = [partial(pyarrow.parquet.write_table, table) for table in tables]
    check_train(tmp_path, ("rows.parquet", writers))


@fuzz(15)
@given(pair=pairs)
def test_train_does_not_tell_neighbours_apart(tmp_path, pair):
    check_train(tmp_path, pair)


@pytest.mark.slow
@fuzz(200)
@given(pair=pairs)
def test_train_does_not_tell_many_neighbours_apart(tmp_path, pair):
    check_train(tmp_path, pair)


def check_encode(folder, pair):
    name, writers = pair
    found = []
    for write in writers:
        write(folder / name)
        found.append(encode(folder / name, WARDS))
    first, second = found
    assert second.rows.shape == first.rows.shape == (len(ROWS), len(WARDS.feature_names))
    assert first.rows[OTHERS].tobytes() == second.rows[OTHERS].tobytes()
    assert first.labels[OTHERS].tobytes() == second.labels[OTHERS].tobytes()
    assert np.linalg.norm(second.rows, axis=1).max() <= 1 + 1e-12


@fuzz(150)
@given(pair=pairs)
def test_a_row_changes_no_other_row(tmp_path, pair):
    check_encode(tmp_path, pair)


@pytest.mark.slow
@fuzz(5000)
@given(pair=pairs)
def test_a_row_changes_no_other_row_of_many(tmp_path, pair):
    check_encode(tmp_path, pair)


@pytest.mark.parametrize("cells", ODD_ROWS)
def test_other_commands_do_not_tell_an_odd_row(tmp_path, cells):
    write_folder(tmp_path)
    rows = tmp_path / "rows.parquet"
    shown = []
    for row in (ROWS[PLACE], cells):
        pyarrow.parquet.write_table(odd_parquet(ROWS[PLACE]), rows)
        (tmp_path / "run.toml").write_text(RUN.format(file=rows.name, rows=len(ROWS)))
        assert command(tmp_path, "train", tmp_path / "run.toml")["code"] == 0
        pyarrow.parquet.write_table(odd_parquet(row), rows)
        out = tmp_path / "predicted.csv"
        predicted = command(tmp_path, "predict", tmp_path / "m.model", rows, "-o", out)
        lines = out.read_text().splitlines()[1:]
        problem = FileProblem.of(tmp_path / "run.toml", tmp_path / "other.csv").load()
        member = problem.members[0][0][OTHERS]
        checked = command(tmp_path, "schema", "check", tmp_path / "schema.toml", rows)
        shown.append(
            (predicted, [lines[number] for number in OTHERS], np.asarray(member).tobytes())
        )
        # The owner's own command, for the owner's eyes: a bad label is what it tells.
        assert checked["code"] == (row is cells and cells[-1] != b"yes")
    assert shown[0] == shown[1]


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_what_is_said_of_a_damaged_file_quotes_nothing(tmp_path, compression):
    path = tmp_path / "rows.parquet"
    table = pa.table({"age": ["SECRET"] * 50, "ward": ["SECRET"] * 50, "y": ["SECRET"] * 50})
    pyarrow.parquet.write_table(table, path, compression=compression)
    whole = path.read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(4, len(data) - 8)] = draw.randrange(256)
        path.write_bytes(data)
        for read in (lambda: encode(path, WARDS), lambda: read_table(path)):
            try:
                read()
            except DataError as error:
                refused += 1
                shown = "".join(traceback.format_exception(error))
                assert "SECRET" not in shown
                assert "direct cause" not in shown
                assert "During handling" not in shown
    assert refused


def test_a_table_without_a_header_is_refused_without_its_first_row(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"SECRET,SECRET,no\n1,a,yes\n")
    arguments = ["--label", "y", "--positive", "yes", "--epsilon", "1"]
    for words in (
        ["schema", "check", tmp_path / "schema.toml", tmp_path / "rows.csv"],
        ["randomize-labels", tmp_path / "rows.csv", tmp_path / "out.csv", *arguments],
    ):
        (tmp_path / "schema.toml").write_text(SCHEMA)
        shown = command(tmp_path, *words)
        assert shown["code"] == 2
        assert "SECRET" not in shown["stderr"] + shown["stdout"]


# -- fit ---------------------------------------------------------------------------------------


class Hostile:
    """An object that raises, and warns, whatever is asked of it."""

    def __float__(self):
        warnings.warn("SECRET", RuntimeWarning, stacklevel=1)
        raise RuntimeError("SECRET")

    def __eq__(self, other):
        raise RuntimeError("SECRET")

    def __hash__(self):
        raise RuntimeError("SECRET")

    def __str__(self):
        raise RuntimeError("SECRET")


odd_values = st.one_of(
    st.sampled_from([None, pd.NA, pd.NaT, [1.0], (), {}, 1j, np.datetime64("2020"), True]),
    st.builds(Hostile),
    st.floats(),
    st.sampled_from([np.inf, -np.inf, np.nan, 1e308, -1e308, 10**400, 2**63]),
    st.text(max_size=4),
    st.sampled_from(["SECRET", "1", "nan", "\ud800", b"SECRET", b"\xe9"]),
)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 3))
LABELS = {
    "texts": (np.where(X[:, 0] > 0, "b", "a").astype(object), ["a", "b"]),
    "numbers": ((X[:, 0] > 0).astype(int).astype(object), [0, 1]),
    "booleans": ((X[:, 0] > 0).astype(object), [False, True]),
    "three": (GENERATOR.integers(0, 3, 60).astype(object), [0, 1, 2]),
}


def as_floats(rows):
    # What an array of numbers can hold of it.
    return [[cell if type(cell) is float else np.nan for cell in row] for row in rows]


CONTAINERS = {
    "lists": lambda rows: rows,
    "objects": lambda rows: np.array([*rows, [None] * 3], dtype=object)[:-1],
    "frame": lambda rows: pd.DataFrame(
        dict(zip("pqr", map(list, zip(*rows, strict=True)), strict=True)), dtype=object
    ),
    "floats": lambda rows: np.array(as_floats(rows)),
    "single": lambda rows: np.array(as_floats(rows)).astype(np.float32),
    "sparse": lambda rows: sparse.csr_array(np.array(as_floats(rows))),
}
LABEL_CONTAINERS = {
    "list": list,
    "objects": lambda labels: np.array([*labels, None], dtype=object)[:-1],
    "series": lambda labels: pd.Series(list(labels), dtype=object),
    "column": lambda labels: np.array([[label] for label in [*labels, None]], dtype=object)[:-1],
}


def fitted(rows, labels, classes):
    """All that a caller sees of a fit but what is computed from messages."""
    model = ADMMClassifier(rounds=1, n_parties=3, delta=1e-3, random_state=0, data_norm=3.0)
    streams = io.StringIO(), io.StringIO()
    error = None
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        warnings.simplefilter("always")
        try:
            model.fit(rows, labels, classes=classes)
        except Exception as raised:
            error = repr(raised)
    told = [stream.getvalue() for stream in streams]
    facts = {name: getattr(model, name, None) for name in ("n_features_in_", "penalty_")}
    facts |= {name: np.shape(getattr(model, name, None)) for name in ("coef_", "node_coef_")}
    facts["classes"] = list(getattr(model, "classes_", []))
    facts["privacy"] = str(getattr(model, "privacy_", ""))
    return error, [str(item.message) for item in caught], told, facts


def check_fit(values, label, kind, container, label_container):
    labels, classes = LABELS[kind]
    rows = X.tolist()
    changed_rows = [*rows[:PLACE], list(values), *rows[PLACE + 1 :]]
    changed_labels = [*labels[:PLACE], label, *labels[PLACE + 1 :]]
    make, make_labels = CONTAINERS[container], LABEL_CONTAINERS[label_container]
    with np.errstate(over="ignore"):
        first = fitted(make(rows), make_labels(labels), classes)
        second = fitted(make(changed_rows), make_labels(changed_labels), classes)
    assert first == second
    assert first[0] is None


arguments = {
    "values": st.tuples(*[odd_values] * 3),
    "label": odd_values,
    "kind": st.sampled_from(list(LABELS)),
    "container": st.sampled_from(list(CONTAINERS)),
    "label_container": st.sampled_from(list(LABEL_CONTAINERS)),
}


@pytest.mark.parametrize("container", list(CONTAINERS))
@pytest.mark.parametrize("label", [np.nan, None, "SECRET", 7, b"SECRET", Hostile()])
def test_fit_does_not_tell_an_odd_row(container, label):
    check_fit((np.inf, 1.0, np.nan), label, "numbers", container, "objects")


@fuzz(100)
@given(**arguments)
def test_fit_does_not_tell_neighbours_apart(values, label, kind, container, label_container):
    check_fit(values, label, kind, container, label_container)


@pytest.mark.slow
@fuzz(2000)
@given(**arguments)
def test_fit_does_not_tell_many_neighbours_apart(values, label, kind, container, label_container):
    check_fit(values, label, kind, container, label_container)


def test_a_label_is_the_class_that_it_equals_or_whose_text_it_has():
    rows = np.eye(4)
    for labels, classes in (
        (["a", b"b", " b ", "x"], ["a", "b"]),
        ([0, 1.0, True, None], [0, 1]),
        (np.array([0, 1, 1, "x"]), [0, 1]),
        (np.array([0.0, 1.0, 1.0, np.nan]), [False, True]),
    ):
        model = ADMMClassifier("admm", rounds=1, n_parties=2, random_state=0)
        expected = [classes[code] for code in (0, 1, 1, 0)]
        found = model.fit(rows, labels, classes=classes).coef_
        np.testing.assert_array_equal(found, model.fit(rows, expected, classes=classes).coef_)


@pytest.mark.parametrize(
    ("rows", "labels", "classes", "words"),
    [
        (np.zeros(3), [0, 1, 0], [0, 1], "X must be a table"),
        (np.zeros((3, 0)), [0, 1, 0], [0, 1], "X must be a table"),
        ([[1.0], [1.0, 2.0]], [0, 1], [0, 1], "X must be a table"),
        (np.zeros((3, 2), complex), [0, 1, 0], [0, 1], "of the type complex128"),
        (np.zeros((3, 2)), [0, 1], [0, 1], "y must be one label for each of the 3 rows"),
        (np.zeros((3, 2)), None, [0, 1], "y must be given"),
        (np.zeros((3, 2)), [0, 1, 0], [0], "classes must be at least two"),
        (np.zeros((3, 2)), [0, 1, 0], [0, np.nan], "none of them missing"),
        (np.zeros((3, 2)), [0, 1, 0], [None, 1], "none of them missing"),
    ],
)
def test_the_shape_of_a_table_and_public_classes_are_refused(rows, labels, classes, words):
    with pytest.raises(ValueError, match=words):
        ADMMClassifier(n_parties=2).fit(rows, labels, classes=classes)


def test_a_frame_of_objects_is_read_each_by_itself():
    for odd in (None, "x", b"\xff", 10**5000, [1], Hostile(), True, pd.NA, np.nan):
        found = []
        for cell in (1, odd):
            cells = [1, 0.1, True, "2", b"3", None, cell]
            frame = pd.DataFrame({"age": pd.Series(cells, dtype=object), "ward": "a", "y": "no"})
            found.append(encode(frame, WARDS).rows[:-1].tobytes())
        assert found[0] == found[1]


def test_names_of_columns_are_kept_with_public_classes():
    frame = pd.DataFrame(X, columns=list(COLUMNS))
    model = ADMMClassifier("admm", rounds=1, random_state=0).fit(frame, X[:, 0] > 0, classes=[0, 1])
    assert list(model.feature_names_in_) == list(COLUMNS)
    assert model.predict(frame).shape == (60,)
