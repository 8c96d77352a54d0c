"""``dpadmm schema``: exit codes, warnings, counts only."""

import json

import pytest
from typer.testing import CliRunner

from dpadmm.cli.schema import schema_app
from dpadmm.data.schema import load_schema

SAMPLE = "age,[bold]work,y\n30,a,no\n40,b,yes\n20,a,no\n"


@pytest.fixture
def run():
    runner = CliRunner()

    def run(*arguments):
        result = runner.invoke(schema_app, [str(argument) for argument in arguments])
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def drafted(run, tmp_path):
    sample, schema = tmp_path / "sample.csv", tmp_path / "schema.toml"
    sample.write_text(SAMPLE)
    result = run("draft", sample, "--label", "y", "-o", schema)
    assert result.exit_code == 0
    assert "must be public" in result.stderr
    return schema


def test_a_draft_fits_its_sample(run, drafted, tmp_path):
    result = run("check", drafted, tmp_path / "sample.csv", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)["result"]
    assert report["rows"] == 3
    assert report["bad_labels"] == 0
    assert report["schema_sha256"] == load_schema(drafted).sha256
    nothing = {"missing": 0, "other": 0, "clipped": 0}
    assert report["columns"] == {"age": nothing, "[bold]work": nothing}
    assert "do not share" in report["private"]


def test_check_counts_and_shows_no_cell(run, drafted, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("age,[bold]work,y\nsecret1,a,no\n99,secret2,secret3\n1,2\n30,,yes\n")
    plain = run("check", drafted, rows)
    assert plain.exit_code == 0
    assert "4 rows, 1 of them ragged lines, 2 bad labels" in plain.stdout
    assert "do not share" in plain.stdout
    assert "[bold]work" in plain.stdout
    assert "secret" not in plain.output
    report = json.loads(run("check", drafted, rows, "--json").stdout)["result"]
    assert report["ragged_rows"] == 1
    assert report["columns"]["age"] == {"missing": 2, "other": 0, "clipped": 1}
    assert report["columns"]["[bold]work"] == {"missing": 2, "other": 1, "clipped": 0}


def test_failures_are_one_sentence_and_not_zero(run, drafted, tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("age,y\n1,no\n")
    broken = tmp_path / "broken.toml"
    broken.write_text("[label")
    cases = [
        ("check", drafted, wrong),
        ("check", drafted, tmp_path / "nowhere.csv"),
        ("check", tmp_path / "nowhere.toml", wrong),
        ("check", broken, wrong),
        ("draft", wrong, "--label", "z", "-o", tmp_path / "new.toml"),
        ("draft", wrong, "--label", "y", "-o", drafted),
        ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted),
        ("draft", tmp_path / "sample.csv", "--label", "y", "-o", tmp_path / "no" / "new.toml"),
    ]
    for case in cases:
        result = run(*case)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].startswith("dpadmm: ")
        as_json = run(*case, "--json")
        assert as_json.exit_code == 2
        assert json.loads(as_json.stdout)["error"]
    assert not (tmp_path / "new.toml").exists()


def test_a_draft_of_fourier_features_says_what_rows_become(run, drafted, tmp_path):
    arguments = ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted, "--force")
    for answer in (
        run(*arguments, "--fourier", 20),
        run("check", drafted, tmp_path / "sample.csv"),
    ):
        told = " ".join(answer.stdout.split())
        assert answer.exit_code == 0
        assert "6 encoded columns that become 40 features: the cosines and sines of 20" in told
        assert "scale 1.01" in told
    for answer in (
        run(*arguments, "--fourier", 20, "--json"),
        run("check", drafted, tmp_path / "sample.csv", "--json"),
    ):
        report = json.loads(answer.stdout)["result"]
        assert (report["encoded_columns"], report["features"]) == (6, 40)
        assert report["fourier"] == load_schema(drafted).fourier.model_dump()
    before = drafted.read_text()
    for wrong in (("--fourier", 0), ("--fourier", 5000), ("--fourier", 5, "--constant")):
        refusal = run(*arguments, *wrong)
        assert refusal.exit_code == 2
        assert "must be" in refusal.stderr.splitlines()[-1]
    assert drafted.read_text() == before


def test_a_schema_is_replaced_only_when_told(run, drafted, tmp_path):
    before = drafted.read_text()
    arguments = ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted, "--constant")
    assert run(*arguments).exit_code == 2
    assert drafted.read_text() == before
    result = run(*arguments, "--force", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["result"]["encoded_columns"] == 7
    assert load_schema(drafted).constant
