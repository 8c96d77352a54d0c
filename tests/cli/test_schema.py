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
    assert plain.exit_code == 1
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
        assert "4 encoded columns that become 40 features: the cosines and sines of 20" in told
        assert "scale 1.01" in told
    for answer in (
        run(*arguments, "--fourier", 20, "--json"),
        run("check", drafted, tmp_path / "sample.csv", "--json"),
    ):
        report = json.loads(answer.stdout)["result"]
        assert (report["encoded_columns"], report["features"]) == (4, 40)
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
    assert json.loads(result.stdout)["result"]["encoded_columns"] == 5
    assert load_schema(drafted).constant


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("?,a,no\n,b,yes\n", "column 'age' is missing in every row"),
        ("30,,no\n31,?,yes\n", "column '[bold]work' is missing in every row"),
        ("30,a,nein\n31,b,ja\n", "every label is bad"),
    ],
)
def test_a_file_that_is_read_wrongly_fails(run, drafted, tmp_path, rows, sentence):
    (tmp_path / "rows.csv").write_text("age,[bold]work,y\n" + rows)
    result = run("check", drafted, tmp_path / "rows.csv")
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert "does not fit the schema" in result.stdout
    as_json = run("check", drafted, tmp_path / "rows.csv", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["result"]["failures"] == [
        line.removeprefix("Warning: ") for line in result.stderr.splitlines()
    ]


def test_a_file_without_rows_does_not_fail(run, drafted, tmp_path):
    (tmp_path / "rows.csv").write_text("age,[bold]work,y\n")
    assert run("check", drafted, tmp_path / "rows.csv").exit_code == 0


def test_a_draft_tells_what_it_found(run, tmp_path):
    sample, schema = tmp_path / "sample.csv", tmp_path / "schema.toml"
    lines = [
        f"P{n};{n % 7},5;2024-01-{n % 28 + 1:02};{'yes' if n % 2 else 'no'}" for n in range(30)
    ]
    sample.write_text("\n".join(["patient;dose;admitted;y", *lines]) + "\n")
    result = run("draft", sample, "--label", "y", "-o", schema, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["result"]
    assert (told["delimiter"], told["decimal"], told["numeric"]) == (";", ",", ["dose"])
    assert (told["ignored"], told["categorical"]) == (["patient", "admitted"], [])
    assert load_schema(schema).ignore == ("patient", "admitted")
    for hint, words in zip(
        told["hints"], ("with a comma", "'patient' looks like an", "'admitted' holds"), strict=True
    ):
        assert words in hint
        assert hint in result.stderr
    # What it found is enough to read such files.
    assert run("check", schema, sample).exit_code == 0
