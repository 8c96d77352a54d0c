"""``dpadmm randomize-labels``: what a user runs before reporting a label."""

import json
import math

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from dpadmm.cli import app


def run(*arguments):
    result = CliRunner().invoke(app, ["randomize-labels", *map(str, arguments)])
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def table(tmp_path):
    """Four thousand rows, all positive but one."""
    path = tmp_path / "in.csv"
    rows = [f'"north, {k}",{"yes" if k else "no"},{0.5 if k % 2 else 8}' for k in range(4000)]
    path.write_text("\n".join(["ward,sick,epsilon", *rows]) + "\n")
    return path


def labels_of(path):
    read = pyarrow.parquet.read_table if path.suffix == ".parquet" else pyarrow.csv.read_csv
    return read(path).column("sick").to_pylist()


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_it_flips_labels_with_the_probability_of_epsilon_and_nothing_else(table, name):
    out = table.with_name(name)
    result = run(table, out, "--label", "sick", "--positive", "yes", "--epsilon", 1.5)
    assert result.exit_code == 0, result.output
    assert "local differential privacy of each label with epsilon = 1.5" in result.output
    # The other columns are as private as they were.
    assert out.stat().st_mode & 0o077 == 0
    labels = labels_of(out)
    assert set(labels) == {"yes", "no"}
    assert labels.count("no") / 4000 == pytest.approx(1 / (1 + math.exp(1.5)), abs=0.035)
    if name.endswith("csv"):
        before, after = pyarrow.csv.read_csv(table), pyarrow.csv.read_csv(out)
        assert before.column_names == after.column_names
        assert before.drop(["sick"]) == after.drop(["sick"])


def test_each_row_may_have_an_epsilon_of_its_own(table):
    out = table.with_name("out.csv")
    result = run(
        table, out, "--label", "sick", "--positive", "yes", "--epsilon-column", "epsilon", "--json"
    )
    output = json.loads(result.stdout)
    assert output["command"] == "randomize-labels"
    assert output["result"]["epsilon"] == 8
    assert output["result"]["rows"] == 4000
    assert "its own epsilon, at most 8" in output["result"]["guarantee"]
    labels = labels_of(out)
    assert labels[1::2].count("no") / 2000 == pytest.approx(1 / (1 + math.exp(0.5)), abs=0.05)
    assert labels[2::2].count("no") < 10


def test_two_runs_differ_and_there_is_no_seed(table):
    outs = [table.with_name(f"out{k}.csv") for k in range(2)]
    for out in outs:
        run(table, out, "--label", "sick", "--positive", "yes", "--epsilon", 1)
    assert labels_of(outs[0]) != labels_of(outs[1])
    assert "seed" not in run("--help").output


@pytest.mark.parametrize(
    ("values", "positive", "kind"),
    [([1, 0, 1], "1", pa.int64()), ([True, False], "true", pa.bool_()), ([1.0, -1.0], "1", None)],
)
def test_a_parquet_column_keeps_its_type(tmp_path, values, positive, kind):
    made = pa.table({"sick": pa.array(values, kind)})
    pyarrow.parquet.write_table(made, tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    result = run(
        tmp_path / "in.parquet", out, "--label", "sick", "--positive", positive, "--epsilon", 600
    )
    assert result.exit_code == 0, result.output
    assert pyarrow.parquet.read_table(out) == made


def test_one_user_s_one_row_needs_the_name_of_the_other_label(tmp_path):
    (tmp_path / "in.csv").write_text("age,sick\n33,yes\n")
    out = tmp_path / "out.csv"
    arguments = (tmp_path / "in.csv", out, "--label", "sick", "--positive", "yes", "--epsilon", 1)
    assert "--negative" in run(*arguments).stderr
    assert run(*arguments, "--negative", "no").exit_code == 0
    assert labels_of(out)[0] in ("yes", "no")


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("sick\nyes\nno\n", ["--epsilon", "0"], "--epsilon must be a positive number; got 0.0"),
        ("sick\nyes\nno\n", ["--epsilon", "-1"], "--epsilon must be a positive number"),
        ("sick\nyes\nno\n", ["--epsilon", "inf"], "--epsilon must be a positive number"),
        ("sick\nyes\nno\n", [], "either --epsilon or --epsilon-column"),
        (
            "sick\nyes\nno\n",
            ["--epsilon", "1", "--epsilon-column", "e"],
            "either --epsilon or --epsilon-column",
        ),
        ("sick\nyes\nno\nmaybe\n", ["--epsilon", "1"], "it holds 2 others"),
        ("sick\nyes\nno\n", ["--epsilon", "1", "--negative", "yes"], "must differ"),
        ("ill\nyes\nno\n", ["--epsilon", "1"], "must have the column 'sick'"),
        ("sick,e\nyes,1\nno,0\n", ["--epsilon-column", "e"], "row 2 does not"),
        ("sick,e\nyes,a\nno,1\n", ["--epsilon-column", "e"], "row 1 does not"),
        ("sick,e\nyes\nno,1\n", ["--epsilon", "1"], "row 1 holds something else"),
        ("sick\n", ["--epsilon", "1"], "at least one row"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_nothing_is_written(tmp_path, content, arguments, words):
    (tmp_path / "in.csv").write_text(content)
    result = run(
        tmp_path / "in.csv",
        tmp_path / "out.csv",
        "--label",
        "sick",
        "--positive",
        "yes",
        *arguments,
    )
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_with_both_labels_named_no_cell_stops_it(tmp_path, name):
    kind = pa.large_string()
    sick = pa.array([b"yes", b"caf\xe9", None, b"no"], pa.large_binary()).view(kind)
    note = pa.array([b"\xff", None, b'"', b"x"]).view(pa.string())
    pyarrow.parquet.write_table(pa.table({"sick": sick, "note": note}), tmp_path / "in.parquet")
    out = tmp_path / name
    arguments = ["--label", "sick", "--positive", "yes", "--negative", "no", "--epsilon", 600]
    result = run(tmp_path / "in.parquet", out, *arguments)
    assert result.exit_code == 0, result.output
    assert labels_of(out) == ["yes", "no", "no", "no"]


def test_labels_of_another_type_than_the_column_are_refused_in_own_words(tmp_path):
    pyarrow.parquet.write_table(pa.table({"sick": [1, 1]}), tmp_path / "in.parquet")
    arguments = ["--label", "sick", "--positive", "1", "--negative", "no", "--epsilon", 1]
    result = run(tmp_path / "in.parquet", tmp_path / "out.parquet", *arguments)
    assert result.exit_code == 2
    assert "must be of the type of column 'sick', int64; got '1' and 'no'" in result.stderr


def test_a_file_that_is_there_is_not_replaced(table):
    before = table.read_bytes()
    arguments = ("--label", "sick", "--positive", "yes", "--epsilon", 1)
    assert "must be a new file" in run(table, table, *arguments).stderr
    assert "must end in" in run(table, table.with_name("out.xlsx"), *arguments).stderr
    assert table.read_bytes() == before
