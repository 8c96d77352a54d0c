"""``dpadmm federation`` and the certificates of its members, as one types it."""

import json
import stat
from importlib.resources import files

import jsonschema
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.kits import NAMES, Members

SCHEMA = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())


def told(result, definition):
    """The result of a command, in fields that the schema of outputs describes."""
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(output)
    assert set(output["result"]) <= set(SCHEMA["$defs"][definition]["properties"])
    return output["result"]


@pytest.fixture
def members(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Members(tmp_path)


def requested(dpadmm, names=NAMES, folder=""):
    public = ("--federation", "federation.toml")
    for name in names:
        place = ("--folder", f"{name}/{folder}")
        made = told(dpadmm("cert", "request", name, *public, *place, "--json"), "cert_request")
        yield made


def test_from_one_public_file_to_members_that_come_and_go(dpadmm, members):
    public = ("--federation", "federation.toml")
    dpadmm("cert", "authority", "authority")
    for name in NAMES:
        members.place(name)
    requests = list(requested(dpadmm))
    assert stat.S_IMODE((members.folder / "north" / "north.key").stat().st_mode) == 0o600
    paths = [each["request"] for each in requests]
    signed = told(dpadmm("cert", "sign", *paths, *public, "--json"), "cert_sign")["signed"]
    # The same words at both ends of the telephone.
    assert [each["words"] for each in signed] == [each["words"] for each in requests]
    made = told(dpadmm("federation", "init", "federation.toml", "--json"), "federation_kits")
    assert made["kits"]["north"] == "kits-1/north.zip"
    assert made["commands"]["west"] == "dpadmm federation join west.zip"
    kit = ("federation", "join", "kits-1/north.zip", "--folder", "north")
    joined = told(dpadmm(*kit, "--data", "north/rows.csv", "--json"), "federation_join")
    assert joined["words"] == made["words"]
    assert joined["unpinned"] == ["south", "west"]
    shown = dpadmm("federation", "pins", "north").output
    assert all(word in shown for word in made["words"].split())
    pins = told(dpadmm("federation", "pins", "north", "--json"), "federation_pins")
    assert (pins["words"], pins["pinned"]) == (made["words"], False)
    words = ("federation", "pins", "north", "--heard", made["words"])
    assert "Pinned 3 certificates in north/own.toml" in dpadmm(*words).output
    for place in ("federation.toml", "kits-1/south.zip"):
        there = told(dpadmm("federation", "pins", place, "--json"), "federation_pins")
        assert there["words"] == made["words"]
    added = ("federation", "add", "federation.toml", "lake", "--address", "127.0.0.1:7999")
    result = dpadmm(*added, "--rows", "50")
    assert "lake runs: dpadmm cert request lake --federation federation.toml" in result.output
    members.place("lake")
    paths = [each["request"] for each in requested(dpadmm, ["lake", "north"], "2027")]
    assert "2027" in paths[0]
    assert dpadmm("cert", "sign", *paths, *public).exit_code == 0
    removed = ("federation", "remove", "federation.toml", "west", "--revoke", "--json")
    assert told(dpadmm(*removed), "federation_kits")["revision"] == 3
    rotated = dpadmm("federation", "rotate", "federation.toml", "north")
    assert "dpadmm federation join north.zip" in rotated.output
    again = ("--folder", "north", "--key", "north/2027/north.key")
    result = dpadmm("federation", "join", "kits-4/north.zip", *again)
    assert "Not compared yet: lake" in result.output
    assert "own.toml allows a run (1, 0.001) at most, dp-gd" in result.output
    finished = ("federation", "rotate", "federation.toml", "north", "--finish", "--json")
    assert told(dpadmm(*finished), "federation_kits")["run_id"] == "trial-5"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("federation init nowhere.toml", "nowhere.toml: No such file"),
        ("federation init federation.toml", "not there: north, south, west"),
        ("federation join nowhere.zip", "a kit must be a folder or a zip file"),
        ("federation pins north", "a kit must have kit.toml"),
        ("federation pins federation.toml", "not there: north, south, west"),
        ("federation remove federation.toml lake", "name must be one of: north, south, west"),
        ("federation rotate federation.toml north", "makes a request in a new folder"),
        ("federation rotate federation.toml north --revoke", "--revoke must come with --finish"),
        ("federation add federation.toml north --address a:1 --rows 1", "names that differ"),
        ("federation add federation.toml x --address a --rows 1", "must be host:port"),
        ("federation add federation.toml x --address a:1 --rows 1 --link north", "link must be"),
        ("cert request lake --federation federation.toml", "name must be one of: north, south"),
        ("cert sign nowhere.csr --federation federation.toml", "nowhere.csr: No such file"),
    ],
)
def test_what_is_refused_changes_nothing(dpadmm, members, words, says):
    members.place("north")
    before = {file: file.stat().st_mtime_ns for file in members.folder.rglob("*")}
    result = dpadmm(*words.split())
    assert result.exit_code == 2
    assert says in result.output
    assert len(result.output.splitlines()) == 1
    assert {file: file.stat().st_mtime_ns for file in members.folder.rglob("*")} == before
    error = json.loads(dpadmm(*words.split(), "--json").stdout)["error"]
    assert says in error


def test_a_warning_about_a_run_is_said_once(dpadmm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = {"algorithm": "pr-admm", "algorithm_options": {}, "delta": 0.05}
    members = Members(tmp_path, run=own, budget={"epsilon": 9.0, "delta": 0.05})
    members.certify()
    result = dpadmm("federation", "init", "federation.toml")
    assert result.exit_code == 0
    assert result.output.count("Warning: ") == len(set(result.output.split("Warning: "))) - 1 > 0
    joined = dpadmm("federation", "join", "kits-1/north.zip", "--folder", "north", "--data",
                    "north/rows.csv")  # fmt: skip
    assert joined.exit_code == 0, joined.output
    assert joined.output.count("Warning: ") == result.output.count("Warning: ")
