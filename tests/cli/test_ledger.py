"""``dpadmm ledger``: what an owner sees, and one sentence where something is wrong."""

import json
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

from dpadmm.cli.ledger import ledger_app
from dpadmm.errors import BudgetError
from dpadmm.ledger.balance import recompute
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease, PureRelease, SharedGaussian

OPTIONS = ["--dataset", "adult", "--owner", "hospital", "--rows", "1000"]
OPTIONS += ["--epsilon", "1", "--delta", "1e-5"]


def call(*words, code=0):
    result = CliRunner().invoke(ledger_app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def path(tmp_path):
    call("init", tmp_path / "adult.ledger", *OPTIONS)
    ledger = SQLiteLedger(tmp_path / "adult.ledger")
    with ledger, ledger.open_run("first [run]", "mark") as run:
        run.reserve(0, GaussianRelease(1.0, 20.0))
        run.commit(0, np.ones((1, 2)))
    return tmp_path / "adult.ledger"


def test_init_states_the_guarantee(tmp_path):
    output = call("init", tmp_path / "x", *OPTIONS).output
    for words in ("(1, 1e-5)-differential privacy", "may control all other parties"):
        assert output.count(words) == 1
    # The rest is said once, where it is asked for.
    assert len(output.splitlines()) == 5
    whole = call("show", tmp_path / "x").output
    for words in ("fully adaptive", "Adjacency", "Adversary", "Not covered"):
        assert words in whole
    made = call("init", tmp_path / "y", *OPTIONS, "--filter", "renyi", "--json").output
    result = json.loads(made)["result"]
    assert result["policy"]["filter"] == "renyi"
    assert result["policy"]["order"] > 1
    assert result["spent_epsilon"] == 0
    assert result["fitting_epsilon"] == pytest.approx(0.915, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--epsilon", "-1"], "epsilon must be a positive number"),
        (["--delta", "1"], "delta must be at least 1e-19 and below 1"),
        (["--rows", "0"], "rows must be a whole number"),
        (["--filter", "gauss"], "filter must be one of: gaussian, renyi; got 'gauss'"),
        (["--order", "3"], "order must be left out"),
        (["--owner", ""], "owner must be"),
    ],
)
def test_init_refuses_in_one_sentence(tmp_path, change, words):
    result = call("init", tmp_path / "x", *OPTIONS, *change, code=2)
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "x").exists()


def test_init_never_replaces(path):
    before = path.read_bytes()
    assert "must be a new file" in call("init", path, *OPTIONS, code=2).stderr
    assert path.read_bytes() == before


def test_show(path):
    output = call("show", path).output
    for words in ("adult of hospital, 1000 rows", "Spent", "Left", "first [run]", "3.48%", "27"):
        assert words in output
    result = json.loads(call("show", path, "--json").output)["result"]
    assert result["spent"] == pytest.approx(1 / 400)
    assert result["runs"][0] | {"opened": "", "spent": 0} == {
        "run": "first [run]",
        "opened": "",
        "fingerprint": "mark",
        "reserved": 1,
        "committed": 1,
        "spent": 0,
        "more_like_last": 27,
    }
    assert "Smith, Thakurta" in result["filter"]["theorem"]
    assert result["limit"] == pytest.approx(result["spent"] + result["left"])


def test_verify_and_its_noted_head(path):
    output = call("verify", path).output
    assert "4 entries" in output
    head = json.loads(call("verify", path, "--json").output)["result"]["head"]
    assert head in call("verify", path, "--head", head).output
    wrong = call("verify", path, "--head", "9:abc", "--json", code=2)
    assert "must contain the noted head 9:abc" in json.loads(wrong.stdout)["error"]


def test_verify_names_the_first_bad_row(path):
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_stay")
    connection.execute("UPDATE entries SET content = replace(content, '20', '90') WHERE number = 2")
    connection.commit()
    connection.close()
    assert "row 2 was changed" in " ".join(call("verify", path, code=2).stderr.split())


def test_export_recomputes(path):
    lines = call("export", path).output.splitlines()
    with SQLiteLedger(path) as ledger:
        assert recompute(lines).to_dict() == ledger.account.to_dict()
    assert "message" not in lines[-1]
    last = json.loads(call("export", path, "--messages").output.splitlines()[-1])
    assert np.frombuffer(bytes.fromhex(last["message"])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("command", ["show", "verify", "export", "head"])
def test_other_files_are_refused(tmp_path, command):
    missing = call(command, tmp_path / "x", code=2)
    assert "create it with 'dpadmm ledger init'" in " ".join(missing.stderr.split())
    (tmp_path / "text").write_text("hello " * 200)
    assert "is not a ledger" in " ".join(call(command, tmp_path / "text", code=2).stderr.split())


def test_what_is_demanded_of_shared_noise_is_kept_and_said(tmp_path):
    demands = ("--colluders", "9", "--epsilon-alone", "4")
    output = call("init", tmp_path / "x", *OPTIONS, *demands).output
    assert "holds against at least 9 colluders" in output
    assert "epsilon is at most 4 if all others collude" in output
    with SQLiteLedger(tmp_path / "x") as ledger, ledger.open_run("run", "mark") as run:
        run.reserve(0, SharedGaussian(1.0, 40.0, 20, 9))
        with pytest.raises(BudgetError, match="at least 9 colluders"):
            run.reserve(1, SharedGaussian(1.0, 40.0, 20, 8))
    shown = json.loads(call("show", tmp_path / "x", "--json").output)["result"]
    assert shown["policy"]["colluders"] == 9
    assert shown["policy"]["epsilon_alone"] == 4
    assert shown["spent_epsilon"] < shown["spent_epsilon_alone"] < 4
    assert "at most 9 of the 20 parties" in shown["statement"]["Adversary"]


def test_amend_keeps_what_was_spent_and_is_never_looser_unasked(path):
    spent = json.loads(call("show", path, "--json").output)["result"]["spent"]
    change = ("amend", path, "--colluders", "3", "--epsilon-alone", "8")
    refused = " ".join(call(*change, code=2).stderr.split())
    assert "must not become looser without its owner's word, --loosen" in refused
    assert "against 3 colluders only, which held against all others together" in refused
    output = " ".join(call(*change, "--loosen").output.split())
    assert "is amended" in output
    assert "All that was ever spent is counted" in output
    assert "has this policy already" in " ".join(call(*change, "--loosen").output.split())
    shown = json.loads(call("amend", path, "--epsilon", "0.5", "--json").output)
    assert shown["command"] == "ledger amend"
    assert shown["result"]["spent"] == spent
    assert shown["result"]["policy"]["colluders"] == 3
    assert [bool(each["looser"]) for each in shown["result"]["amendments"]] == [True, False]
    assert "must change something" in call("amend", path, code=2).stderr
    assert "6 entries" in call("verify", path).output


def test_no_message_advises_a_ledger_that_begins_at_nothing(tmp_path, path):
    """Whoever follows the advice keeps what was spent."""
    missing = " ".join(call("show", tmp_path / "x", code=2).stderr.split())
    assert "if its data set was never charged. Otherwise put it back" in missing
    with SQLiteLedger(path) as ledger:
        with pytest.raises(BudgetError, match="that was never charged may get a ledger"):
            ledger.check_run([PureRelease(0.1)])
        with pytest.raises(BudgetError, match=r"'dpadmm ledger amend' .* keeps all that was spent"):
            ledger.check_run([SharedGaussian(1.0, 40.0, 20, 9)] * 20)


def test_a_backup_is_whole_private_and_never_replaces(tmp_path, path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    head = call("head", path).output.strip()
    with SQLiteLedger(path) as ledger, ledger.open_run("second", "mark") as run:
        # A node writes meanwhile: its run is open, and a round is reserved.
        run.reserve(0, GaussianRelease(1.0, 30.0))
        told = json.loads(call("backup", path, folder, "--json").output)["result"]
    copy = folder / path.name
    assert told["backup"] == str(copy)
    assert told["head"] == json.loads(call("head", copy, "--json").output)["result"]["head"]
    assert copy.stat().st_mode & 0o777 == 0o600
    call("verify", copy, "--head", head)
    with SQLiteLedger(copy, read_only=True) as restored, SQLiteLedger(path) as ledger:
        assert list(restored.export(messages=True)) == list(ledger.export(messages=True))
    before = copy.read_bytes()
    assert "must be a new file" in call("backup", path, copy, code=2).stderr
    assert copy.read_bytes() == before
    assert list(folder.iterdir()) == [copy]
    assert "Head: " in call("backup", path, tmp_path / "another").output


def test_a_damaged_ledger_is_neither_backed_up_nor_exported(tmp_path, path):
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER entries_stay")
        file.execute("UPDATE entries SET message = x'00' WHERE kind = 'commit'")
    file.close()
    assert "was changed" in call("backup", path, tmp_path / "copy", code=2).stderr
    left = {each.name for each in tmp_path.iterdir()}
    assert not [name for name in left if "copy" in name]
    result = call("export", path, "--json", code=2)
    assert (result.stdout, "was changed" in result.stderr) == ("", True)


def test_the_export_for_an_audit_ends_with_what_was_verified(path):
    *lines, last = call("export", path, "--json").output.splitlines()
    entries, last = [json.loads(line) for line in lines], json.loads(last)
    assert [entry["number"] for entry in entries] == list(range(len(entries)))
    assert last["kind"] == "verified"
    assert last["head"] == f"{entries[-1]['number']}:{entries[-1]['hash']}"
    assert last["head"] == call("head", path).output.strip()
    assert recompute(lines).spent_epsilon == last["spent_epsilon"] > 0
