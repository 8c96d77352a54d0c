"""Commands given files that somebody else made: a sentence and an exit code, and never a hang."""

import hashlib
import io
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dpadmm.cli.output import _shown
from dpadmm.durable import FileRefusal, parse_json, read_regular
from dpadmm.errors import LedgerError
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.base import ChargedData, Entry
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import ModelError, load_model, pack, unpack

DEEP = b"[" * 100_000
COMMANDS = {
    "status": ("status", "{}"),
    "verify": ("ledger", "verify", "{}"),
    "show": ("ledger", "show", "{}"),
    "predict": ("predict", "{}", "rows.csv"),
    "report": ("report", "{}", "-o", "{}.html"),
    "cert": ("cert", "show", "{}"),
    "train": ("train", "{}"),
    "node": ("node", "--config", "{}"),
    "schema": ("schema", "check", "{}", "rows.csv"),
}


@pytest.fixture(autouse=True)
def impatient():
    """Whoever waits for a pipe is woken up, and the test fails."""

    def stop(number, frame):
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 50)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        with path.open("wb") as file:
            file.truncate(10 << 30)
    else:
        path.write_bytes(
            {
                "empty": b"",
                "noise": bytes(range(256)) * 4,
                "deep": DEEP,
                "deeper keys": b'{"a":' * 500 + b"1" + b"}" * 500,
                "no number": b'{"version": NaN}',
                "long number": b'{"version": ' + b"9" * 5000 + b"}",
                "no object": b"[1, 2]",
            }[kind]
        )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "kind",
    ["pipe", "device", "folder", "endless", "empty", "noise", "deep", "deeper keys", "no number",
     "long number", "no object"],
)  # fmt: skip
def test_whatever_the_file_is_the_answer_is_a_sentence(dpadmm, tmp_path, command, kind):
    path = tmp_path / "given"
    make(kind, path)
    words = [word.format(path) for word in COMMANDS[command]]
    result = dpadmm(*words)
    assert result.exit_code == 2
    sentence = result.stderr.strip()
    assert sentence.startswith("dpadmm: ")
    assert len(sentence) < 1000


# Ledgers -----------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "l.ledger"
    SQLiteLedger.create(path, ChargedData("rows", "north", 10), Policy(1.0, 1e-3)).close()
    return path


def edit(path, *statements):
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for (name,) in names:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(
            statement
        )
    connection.commit()
    connection.close()


ENDLESS = (
    "CREATE VIEW entries AS WITH RECURSIVE more(number) AS (SELECT 0 UNION ALL SELECT number FROM "
    "more) SELECT number, 'x' AS kind, '' AS time, NULL AS run, NULL AS round, '{}' AS content, "
    "'' AS hash, NULL AS message FROM more WHERE number = 7"
)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TABLE entries", ENDLESS], "'entries' in it is not as it was made"),
        (["DROP TABLE entries"], "lost its entries"),
        (["CREATE VIEW other AS SELECT 1"], "'other' in it is not as it was made"),
        (
            ["CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN DELETE FROM head; END"],
            "'quiet' in it is not as it was made",
        ),
        (["UPDATE entries SET kind = x'00'"], "its columns have other types"),
        (["UPDATE entries SET content = 7"], "row 0 was changed"),
        (["UPDATE head SET hash = x'00'"], "lost its head"),
        (["UPDATE entries SET content = cast(x'ff' AS TEXT)"], "cannot be used"),
    ],
)
def test_ledgers_with_other_tables_and_types(dpadmm, ledger, statements, words):
    edit(ledger, *statements)
    for command in ("verify", "show", "export"):
        result = dpadmm("ledger", command, ledger)
        assert result.exit_code == 2
        assert words in result.stderr


@pytest.mark.parametrize(
    "content",
    [
        DEEP.decode(),
        "[]",
        '{"version":1,"dataset":[],"policy":{}}',
        '{"version":1,"dataset":{"name":"r","owner":"n","rows":1},"policy":{"epsilon":1e999,'
        '"delta":0.001,"rows_per_person":1,"filter":"gaussian","order":null}}',
        '{"version":1,"dataset":{"name":"r","owner":"n","rows":1},"policy":{"epsilon":NaN,'
        '"delta":0.001,"rows_per_person":1,"filter":"gaussian","order":null}}',
    ],
)
def test_ledgers_whose_hashes_were_worked_out_again(dpadmm, ledger, content):
    """The chain is whole; what it says is not."""
    from dpadmm.ledger import base

    entry = Entry(0, "ledger", "now", None, None, content, "")
    digest = base._chain(None, 0, "ledger", "now", None, None, content)
    assert Entry(*[*vars(entry).values()][:-1], digest).follows(None)
    edit(
        ledger,
        ("UPDATE entries SET time = 'now', content = ?, hash = ?", (content, digest)),
        ("UPDATE head SET hash = ?", (digest,)),
    )
    result = dpadmm("ledger", "verify", ledger)
    assert result.exit_code == 2
    assert "row 0 cannot be read" in result.stderr


def test_a_name_in_a_ledger_does_not_steer_the_terminal(dpadmm, tmp_path):
    path = tmp_path / "l.ledger"
    SQLiteLedger.create(path, ChargedData("ro\x07ws", "no\x9b2Jrth", 10), Policy(1.0, 1e-3)).close()
    for command in ("show", "verify"):
        shown = dpadmm("ledger", command, path)
        assert shown.exit_code == 0
        assert not set("\x07\x9b") & set(shown.output)
    assert "ro\\x07ws of no\\x9b2Jrth" in dpadmm("ledger", "show", path).output


# Models ------------------------------------------------------------------------------------------


def repack(data, *, change=lambda document, arrays: None, compress=zipfile.ZIP_STORED, extra=()):
    """A model file with other content and the right digest: it proves nothing about its maker."""
    document, arrays = unpack(data, "model")
    change(document, arrays)
    with zipfile.ZipFile(io.BytesIO(pack(document, arrays))) as file:
        members = {name: file.read(name) for name in file.namelist()}
    return archive({**members, **dict(extra)}, compress)


def archive(members, compress=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as file:
        for name, content in members.items():
            file.writestr(name, content)
        file.comment = f"dpadmm-model/1 sha256:{'0' * 64}".encode()
    covered = buffer.getvalue()[:-64]
    return covered + hashlib.sha256(covered).hexdigest().encode()


@pytest.fixture
def model(hospitals, dpadmm):
    assert dpadmm("train", hospitals / "run.toml").exit_code == 0
    return hospitals / "m.model"


def header(words):
    text = words.ljust(118).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def with_nan(document, arrays):
    arrays["coef"][0, 0] = np.nan


def with_other_shape(document, arrays):
    arrays["coef"] = arrays["coef"][:, :1]


def with_one_class(document, arrays):
    arrays["classes"] = arrays["classes"][:1]


def with_deep_parameter(document, arrays):
    value = None
    for _ in range(90):
        value = {"list": [value]}
    document["parameters"]["rounds"] = value


@pytest.mark.parametrize(
    "change", [with_nan, with_other_shape, with_one_class, with_deep_parameter]
)
def test_models_whose_parts_do_not_belong_together(dpadmm, model, change):
    model.write_bytes(repack(model.read_bytes(), change=change))
    result = dpadmm("predict", model, model.with_name("north.csv"))
    assert result.exit_code == 2
    assert "model must be" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.json", DEEP),
        ("model.json", b'{"format": 1, "objects": 3}'),
        ("model.json", b"[]"),
        ("coef.npy", header("{'descr': '<U0', 'fortran_order': False, 'shape': (10**15,), }")),
        ("coef.npy", header("{'descr': '<U0', 'fortran_order': False, 'shape': (999999999,), }")),
        ("coef.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 10**40), }")),
        ("coef.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': 'x', }")),
        ("coef.npy", header("[" * 90)),
        ("coef.npy", b""),
    ],
)
def test_models_with_other_members(dpadmm, model, name, content):
    model.write_bytes(repack(model.read_bytes(), extra={name: content}.items()))
    result = dpadmm("predict", model, model.with_name("north.csv"))
    assert result.exit_code == 2
    assert "model must be" in result.stderr


def test_a_small_model_that_unpacks_to_a_large_one_is_refused(model):
    zeros = {"zeros.npy": bytes(50_000_000)}
    bomb = repack(model.read_bytes(), compress=zipfile.ZIP_DEFLATED, extra=zeros.items())
    assert len(bomb) < 1_000_000
    model.write_bytes(bomb)
    with pytest.raises(ModelError, match="is damaged"):
        load_model(model)


def test_class_names_do_not_steer_the_terminal(model):
    def change(document, arrays):
        arrays["classes"] = np.array(["no", "\x1b[2Jyes"])

    hostile = model.with_name("hostile.model")
    hostile.write_bytes(repack(model.read_bytes(), change=change))
    rows = model.with_name("north.csv")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    words = [sys.executable, "-m", "dpadmm", "predict", hostile, rows]
    leader, follower = pty.openpty()
    done = subprocess.run(
        words, env=environment, stdout=follower, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(follower)
    os.close(leader)
    assert done.returncode == 2
    assert b"class names" in done.stderr


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_rows_that_are_no_file(dpadmm, model, kind):
    rows = model.with_name("rows.csv")
    make(kind, rows)
    result = dpadmm("predict", model, rows)
    assert result.exit_code == 2
    assert "data must be a file" in result.stderr


# Status files and records ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("process", -1), ("process", True), ("round", 10**30), ("rounds", -1),
        ("waiting", {"a": {}}), ("waiting", {"a": 10**400}), ("waiting", {"a": True}),
        ("epsilon_spent", []), ("updated", "2026-01-01T00:00:00"), ("updated", 7),
        ("last_event", {"event": 1, "facts": {}}),
        ("node", None), ("unreachable", []), ("unreachable", {"a": 7}),
        ("events", [7]), ("events", {}), ("graph", {"nodes": [], "links": [["a"]], "server": None}),
        ("graph", []), ("others", {"a": {}}), ("others", []),
        ("others", {"a": {"state": "", "round": 0, "waiting": [], "heard": "2026-01-01"}}),
    ],
)  # fmt: skip
def test_a_status_file_with_other_types(dpadmm, tmp_path, field, value):
    file = tmp_path / "north.status.json"
    Watcher("north", log=tmp_path / "log", status=file).close()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "running", field: value}))
    result = dpadmm("status", tmp_path)
    assert result.exit_code == 2
    assert "a status file must be" in result.stderr


def test_a_record_with_other_content(dpadmm, model, tmp_path):
    record = json.loads(model.with_name("record.json").read_text())
    for field in record:
        for value in (7, "x\x9b", {"a": {"b": []}}):
            path = tmp_path / "changed.json"
            path.write_text(json.dumps(record | {field: value}))
            result = dpadmm("report", path, "-o", tmp_path / "page.html")
            assert result.exit_code in (0, 2), (field, value)
            assert "\x9b" not in result.stderr


def test_a_manifest_whose_parts_contradict_each_other(dpadmm, tmp_path):
    manifest = {
        "kind": "experiment", "dpadmm": "1", "command": "c", "citation": "c", "part": "p",
        "title": "t", "settings": {}, "conclusions": [], "meaning": {"facts": [], "tables": {}},
        "findings": [{"conclusion": "x", "calibration": "", "verdict": "v", "number": "1"}],
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    result = dpadmm("report", tmp_path, "-o", tmp_path / "page.html")
    assert result.exit_code == 2
    assert result.stderr.startswith("dpadmm: ")


# The one place -----------------------------------------------------------------------------------


def test_what_does_not_say_how_long_it_is_is_read_to_the_bound():
    assert read_regular("/proc/self/status").startswith(b"Name:")
    with pytest.raises(FileRefusal, match="more than the 10 bytes"):
        read_regular("/proc/self/status", largest=10)
    with pytest.raises(FileRefusal, match="null byte"):
        read_regular("a\0b")


def test_json_is_finite_and_shallow():
    assert parse_json('{"a": [1, 2.5, "x", null]}') == {"a": [1, 2.5, "x", None]}
    for text in ("NaN", "-Infinity", "1e999", "[" * 101 + "]" * 101, "{", "\x00"):
        with pytest.raises(FileRefusal):
            parse_json(text)


def test_control_characters_are_written_out():
    assert _shown("a\x1b[31m\r\x9b\N{RIGHT-TO-LEFT OVERRIDE}é\n") == (
        "a\\x1b[31m\\r\\x9b\\u202eé\n"
    )


def test_errors_of_ledgers_stay_errors_of_ledgers(ledger):
    edit(ledger, "UPDATE entries SET hash = x'00'")
    with pytest.raises(LedgerError):
        SQLiteLedger(ledger)
