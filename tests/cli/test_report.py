"""``dpadmm train`` writes a report beside its model, and ``dpadmm report`` makes it again."""

import json
import sqlite3

import pytest

from dpadmm.errors import ParameterError
from dpadmm.run.config import load_config


def edit(folder, old, new, name="run.toml"):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


@pytest.fixture
def private(hospitals):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3')
    return hospitals


@pytest.fixture
def with_ledgers(private, dpadmm):
    """Every party has a ledger that one run of epsilon = 1 uses up."""
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        facts = ("--dataset", "d", "--owner", name, "--rows", rows)
        done = dpadmm(
            "ledger", "init", private / f"{name}.ledger", *facts, "--epsilon", 1, "--delta", 1e-3
        )
        assert done.exit_code == 0
    with (private / "run.toml").open("a") as file:
        file.write("[ledgers]\n" + "".join(f'{n} = "{n}.ledger"\n' for n in ("north", "south")))
        file.write('west = "west.ledger"\n')
    return private


def test_train_names_the_report_beside_the_model(private, dpadmm):
    result = dpadmm("train", private / "run.toml")
    assert result.stdout.splitlines()[-1] == f"Report: {private / 'm.html'}"
    page = (private / "m.html").read_text(encoding="utf-8")
    assert "What is guaranteed" in page


def test_the_report_can_be_elsewhere_or_nowhere(private, dpadmm):
    edit(private, "[result]", '[result]\nreport = "page.html"')
    assert "Report:" in dpadmm("train", private / "run.toml").stdout
    assert (private / "page.html").is_file()
    edit(private, '"page.html"', "false")
    (private / "page.html").unlink()
    result = dpadmm("train", private / "run.toml", "--json")
    assert json.loads(result.stdout)["result"]["report"] is None
    assert not list(private.glob("*.html"))


@pytest.mark.parametrize(
    ("value", "said"),
    [('"m.model"', "is there twice"), ("3", "path of a file"), ('"nowhere/a.html"', "folder")],
)
def test_a_bad_place_is_refused_before_a_row_is_read(private, dpadmm, value, said):
    edit(private, "[result]", f"[result]\nreport = {value}")
    result = dpadmm("train", private / "run.toml")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (private / "m.model").exists()


def test_a_model_named_like_its_report_is_refused(private):
    edit(private, "m.model", "m.html")
    with pytest.raises(ParameterError, match="is there twice"):
        load_config(private / "run.toml")


def test_the_report_is_made_again_from_the_record(private, dpadmm):
    dpadmm("train", private / "run.toml")
    again = private / "again.html"
    assert dpadmm("report", private / "record.json", "-o", again).stdout == f"Report: {again}\n"
    assert again.read_bytes() == (private / "m.html").read_bytes()
    dpadmm("report", private, "-o", private / "folder.html")
    assert (private / "folder.html").read_bytes() == again.read_bytes()


def test_several_runs_side_by_side(private, dpadmm):
    dpadmm("train", private / "run.toml")
    (private / "second").mkdir()
    (private / "record.json").rename(private / "second" / "record.json")
    dpadmm("train", private / "run.toml")
    records = (private / "record.json", private / "second")
    dpadmm("report", *records, "-o", private / "two.html")
    page = (private / "two.html").read_text(encoding="utf-8")
    assert "2 runs side by side" in page
    assert "(2, 0.002)-differential privacy by basic composition" in page


def test_ledgers_are_charged_checked_and_checked_again(with_ledgers, dpadmm):
    folder = with_ledgers
    assert dpadmm("train", folder / "run.toml").exit_code == 0
    page = (folder / "m.html").read_text(encoding="utf-8")
    assert page.count("consistent, at the end of the run") == 3
    assert "Not counted." not in page
    again = ("report", folder / "record.json", "-o", folder / "again.html")
    dpadmm(*again, "--ledger", f"north={folder / 'north.ledger'}")
    page = (folder / "again.html").read_text(encoding="utf-8")
    assert page.count("consistent, when this page was made") == 1
    # Somebody makes what was spent smaller.
    with sqlite3.connect(folder / "north.ledger") as file:
        file.execute("drop trigger entries_stay")
        file.execute("update entries set content = replace(content, '1', '2') where number = 3")
    file.close()
    dpadmm(*again, "--ledger", f"north={folder / 'north.ledger'}")
    page = (folder / "again.html").read_text(encoding="utf-8")
    assert "LEDGER CHECK FAILED." in page


def test_a_refused_run_has_a_page_of_its_own(with_ledgers, dpadmm):
    folder = with_ledgers
    dpadmm("train", folder / "run.toml")
    before = (folder / "m.html").read_bytes()
    edit(folder, "delta = 1e-3", 'delta = 1e-3\nrun_id = "another"')
    for name in ("m.model", "record.json"):
        edit(folder, f'"{name}"', f'"second-{name}"')
    result = dpadmm("train", folder / "run.toml")
    assert result.exit_code == 2
    assert str(folder / "second-m.refused.html") in result.stderr
    page = (folder / "second-m.refused.html").read_text(encoding="utf-8")
    assert "OVER BUDGET: REFUSED." in page
    assert "no row was read" in page
    # The page of the run whose model is there stays.
    assert (folder / "m.html").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.json",), "No such file"),
        (("schema.toml",), "readable JSON"),
        (("record.json", "--ledger", "north"), "PARTY=FILE"),
        (("record.json", "--ledger", "nobody=x"), "must be one of: north, south, west"),
        (("record.json", "record.json", "--ledger", "north=x"), "with one run"),
        (("record.json", "-o", "record.json"), "must not be one of the runs"),
        (("record.json", "-o", "nowhere/a.html"), "folder that exists"),
    ],
)
def test_refusals(private, dpadmm, arguments, said, monkeypatch):
    monkeypatch.chdir(private)
    dpadmm("train", "run.toml")
    result = dpadmm("report", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (private / "report.html").exists()


def test_a_ledger_that_cannot_be_read_is_a_failed_check(private, dpadmm, monkeypatch):
    monkeypatch.chdir(private)
    dpadmm("train", "run.toml")
    assert dpadmm("report", "record.json", "--ledger", "north=schema.toml").exit_code == 0
    assert "LEDGER CHECK FAILED." in (private / "report.html").read_text(encoding="utf-8")
