"""``dpadmm train`` and ``dpadmm predict``: files in, files out, refusals in one sentence."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dpadmm.data.tables import encode
from dpadmm.errors import DataError
from dpadmm.run.model import load_model

SOURCE = str(Path(__file__).parents[2] / "src")


def edit(folder, old, new, name="run.toml"):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def files(folder):
    """All files, but for what a pre-flight told its owner: that stays, whatever comes after it."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in found if path.suffix != ".preflight"}


@pytest.fixture
def trained(hospitals, dpadmm):
    assert dpadmm("train", hospitals / "run.toml").exit_code == 0
    return hospitals


def test_train_prints_the_statement_and_what_was_spent(hospitals, dpadmm):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3\nsimulation_key = 1')
    result = dpadmm("train", hospitals / "run.toml")
    assert result.exit_code == 0
    assert "SIMULATION: simulated: reproducible, not private" in result.stdout
    assert "(1, 0.001)-differential privacy of each party" in result.stdout
    written = {"Model": "m.model", "Record": "record.json", "Report": "m.html"}
    places = [f"{kind}: {hospitals / name}" for kind, name in written.items()]
    for word in ("north", "60", "0.001", *places):
        assert word in result.stdout
    # No terminal, so no bar.
    assert result.stderr == ""


def test_a_budget_on_the_command_line_counts_as_if_the_file_said_it(hospitals, dpadmm):
    edit(hospitals, '"admm"', '"pr-admm"\nsimulation_key = 1')
    budget = ("--epsilon", "0.5", "--delta", "1e-3")
    told = json.loads(dpadmm("train", hospitals / "run.toml", *budget, "--json").stdout)["result"]
    edit(hospitals, "simulation_key = 1", "simulation_key = 1\nepsilon = 0.5\ndelta = 1e-3")
    said = json.loads(dpadmm("train", hospitals / "run.toml", "--json").stdout)["result"]
    assert told == said
    assert said["privacy"]["epsilon"] == pytest.approx(0.5, abs=1e-6)
    config = load_model(hospitals / "m.model").provenance["config"]
    assert (config["run"]["epsilon"], config["run"]["delta"]) == (0.5, 1e-3)
    refused = dpadmm("train", hospitals / "run.toml", "--epsilon", "-1")
    assert refused.exit_code == 2
    assert "epsilon must be a positive number" in refused.stderr


def test_a_second_run_without_a_ledger_says_that_it_spends_anew(hospitals, dpadmm):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3')
    assert dpadmm("train", hospitals / "run.toml").stderr == ""
    again = dpadmm("train", hospitals / "run.toml")
    assert again.exit_code == 0
    assert "this run spends its epsilon anew" in again.stderr
    # A run that is refused spends nothing, and says nothing of it.
    refused = dpadmm("train", hospitals / "run.toml", "--epsilon", "0")
    assert refused.stderr == "dpadmm: epsilon must be a positive number; got 0.0.\n"
    edit(hospitals, "delta = 1e-3", "delta = 1e-3\nsimulation_key = 1")
    (hospitals / "m.model").unlink()
    (hospitals / "record.json").unlink()
    (hospitals / "m.html").unlink()
    for _ in range(2):
        assert dpadmm("train", hospitals / "run.toml").stderr == ""


def test_a_run_does_not_take_the_place_of_another(hospitals, dpadmm):
    run = hospitals / "run.toml"
    places = [hospitals / name for name in ("m.model", "record.json", "m.html")]
    assert dpadmm("train", run).exit_code == 0
    # Once more is the same run.
    assert dpadmm("train", run).exit_code == 0
    first = {place: place.read_bytes() for place in places}
    edit(hospitals, "rounds = 12", "rounds = 13")
    for place in places:
        refused = dpadmm("train", run)
        assert refused.exit_code == 2
        option = {".model": "model", ".json": "record", ".html": "report"}[place.suffix]
        assert refused.stderr.startswith(f"dpadmm: {option} under [result] must be a new file")
        assert f"{place} is" in refused.stderr
        assert place.read_bytes() == first[place]
        place.unlink()
    assert dpadmm("train", run).exit_code == 0


def test_what_is_no_model_is_not_overwritten(hospitals, dpadmm):
    (hospitals / "m.model").write_text("notes of somebody")
    refused = dpadmm("train", hospitals / "run.toml")
    assert refused.exit_code == 2
    assert "m.model is not of this run, and is left as it is" in refused.stderr
    assert (hospitals / "m.model").read_text() == "notes of somebody"


def test_a_run_that_would_take_the_place_of_another_charges_nothing(hospitals, dpadmm):
    from dpadmm.ledger.base import ChargedData
    from dpadmm.ledger.filters import Policy
    from dpadmm.ledger.sqlite import SQLiteLedger

    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3')
    assert dpadmm("train", hospitals / "run.toml").exit_code == 0
    before = (hospitals / "m.model").read_bytes()
    ledgers = {name: hospitals / f"{name}.ledger" for name in ("north", "south", "west")}
    for (name, place), rows in zip(ledgers.items(), (60, 40, 20), strict=True):
        SQLiteLedger.create(place, ChargedData("rows", name, rows), Policy(5.0, 1e-3)).close()
    lines = "".join(f'{name} = "{place}"\n' for name, place in ledgers.items())
    with open(hospitals / "run.toml", "a") as file:
        file.write(f"[ledgers]\n{lines}")
    edit(hospitals, "delta = 1e-3", 'delta = 1e-3\nrun_id = "second"')
    assert dpadmm("train", hospitals / "run.toml").exit_code == 2
    assert (hospitals / "m.model").read_bytes() == before
    for place in ledgers.values():
        with SQLiteLedger(place, read_only=True) as ledger:
            assert not ledger.account.runs


def test_what_is_printed_does_not_depend_on_rows(hospitals, dpadmm):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3')

    def printed():
        return dpadmm("train", hospitals / "run.toml").stdout

    before = printed()
    rows = (hospitals / "north.csv").read_text().splitlines()
    (hospitals / "north.csv").write_text("\n".join([rows[0], *[",,?"] * 59, "x"]) + "\n")
    assert printed() == before


def test_train_without_a_record_and_with_a_warning(hospitals, dpadmm):
    edit(hospitals, 'record = "record.json"', "")
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 0.02')
    result = dpadmm("train", hospitals / "run.toml", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: delta = 0.02 of party north")
    assert json.loads(result.stdout)["result"]["record"] is None
    assert not (hospitals / "record.json").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_keep_order_and_number_of_rows(trained, dpadmm, suffix):
    cells = "age,ward\n1,a\n99,b\nx,\n,zzz\n7\n50,a\n"
    (trained / "new.csv").write_text(cells)
    out = trained / f"out.{suffix}"
    result = dpadmm("predict", trained / "m.model", trained / "new.csv", "-o", out)
    assert result.exit_code == 0
    assert result.stdout == f"Wrote {out}: 6 rows.\n"
    assert out.stat().st_mode & 0o077 == 0
    if suffix == "csv":
        with out.open() as file:
            rows = list(csv.DictReader(file))
        labels, scores = [r["label"] for r in rows], [float(r["score"]) for r in rows]
        chances = [float(r["probability"]) for r in rows]
    else:
        table = pq.read_table(out)
        labels, scores, chances = (table[name].to_pylist() for name in table.schema.names)
    model = load_model(trained / "m.model")
    estimator = model.to_estimator()
    encoded = encode(trained / "new.csv", model.schema, require_label=False).rows
    assert labels == list(estimator.predict(encoded))
    assert scores == list(estimator.decision_function(encoded))
    assert chances == list(estimator.predict_proba(encoded)[:, 1])
    assert labels[:2] == ["no", "yes"]


def test_many_rows_are_predicted_in_pieces(trained, dpadmm, monkeypatch):
    monkeypatch.setattr("dpadmm.run.predict._PIECE_BYTES", 7 * 8 * 1000)
    random = np.random.default_rng(0)
    ages = random.integers(0, 100, 150_000)
    pq.write_table(pa.table({"age": ages, "ward": ["a"] * len(ages)}), trained / "new.parquet")
    out = trained / "out.parquet"
    assert dpadmm("predict", trained / "m.model", trained / "new.parquet", "-o", out).exit_code == 0
    scores = pq.read_table(out)["score"].to_numpy()
    assert len(scores) == len(ages)
    _, first = np.unique(ages, return_index=True)
    assert np.allclose(scores, scores[first][ages], atol=1e-14)


def test_predictions_of_several_classes(hospitals, dpadmm):
    edit(hospitals, '["no", "yes"]', '["no", "perhaps", "yes"]', "schema.toml")
    edit(hospitals, '"admm"', '"admm"\nloss = "huber-hinge"')
    assert dpadmm("train", hospitals / "run.toml").exit_code == 0
    result = dpadmm("predict", hospitals / "m.model", hospitals / "west.csv")
    assert result.exit_code == 0
    header, *rows = list(csv.reader(result.stdout.splitlines()))
    assert header == ["label", "score of no", "score of perhaps", "score of yes"]
    assert len(rows) == 20
    for row in rows:
        scores = [float(score) for score in row[1:]]
        assert row[0] == ["no", "perhaps", "yes"][scores.index(max(scores))]


def test_columns_that_a_model_does_not_use_are_not_read(trained, dpadmm):
    header, *rows = (trained / "west.csv").read_text().splitlines()
    numbered = [f"row,{header}", *(f"{number},{row}" for number, row in enumerate(rows))]
    (trained / "numbered.csv").write_text("\n".join(numbered) + "\n")
    plain = dpadmm("predict", trained / "m.model", trained / "west.csv")
    found = dpadmm("predict", trained / "m.model", trained / "numbered.csv")
    assert found.exit_code == plain.exit_code == 0
    assert found.stdout == plain.stdout


IDENTIFIED = 'patient,age,ward\n 007,1,a\nÄ,99,b\n,50,a\n"x,""y""",50,b\n'


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_keep_a_column_that_names_the_rows(trained, dpadmm, suffix):
    (trained / "new.csv").write_text(IDENTIFIED)
    out, plain = trained / f"out.{suffix}", trained / f"plain.{suffix}"
    asked = ("predict", trained / "m.model", trained / "new.csv", "-o")
    assert dpadmm(*asked, plain).exit_code == 0
    result = dpadmm(*asked, out, "--id", "patient", "--json")
    assert result.exit_code == 0
    columns = ["patient", "label", "score", "probability"]
    assert json.loads(result.stdout)["result"]["columns"] == columns
    read = pq.read_table if suffix == "parquet" else pyarrow.csv.read_csv
    kept = {"patient": pa.string()}
    options = pyarrow.csv.ConvertOptions(column_types=kept)
    how = {} if suffix == "parquet" else {"convert_options": options}
    found = read(out, **how)
    assert found.schema.names == columns
    # As they are written in the file, to the last blank.
    assert found["patient"].to_pylist() == [" 007", "Ä", "", 'x,"y"']
    assert found.drop_columns("patient").equals(read(plain))
    # On request alone, and beside what the model uses.
    assert dpadmm(*asked, out, "--id", "ward").exit_code == 0
    assert read(out)["ward"].to_pylist() == ["a", "b", "a", "b"]


def test_kept_numbers_stay_numbers_over_all_pieces(trained, dpadmm, monkeypatch):
    monkeypatch.setattr("dpadmm.run.predict._PIECE_BYTES", 7 * 8 * 1000)
    numbers = pa.array(range(100_000, 0, -1), pa.int32())
    words = {"ward": pa.array(["a"] * 100_000).dictionary_encode(), "age": numbers}
    days = pa.array([0] * 100_000, pa.date32())
    pq.write_table(pa.table({"id": numbers, "day": days, **words}), trained / "new.parquet")
    out = trained / "out.parquet"
    asked = ("predict", trained / "m.model", trained / "new.parquet", "-o", out)
    assert dpadmm(*asked, "--id", "id").exit_code == 0
    assert pq.read_table(out)["id"].equals(pa.chunked_array([numbers]))
    assert dpadmm(*asked, "--id", "day").exit_code == 0
    assert set(pq.read_table(out)["day"].to_pylist()) == {"1970-01-01"}
    (trained / "none.csv").write_text("age,ward,id\n")
    none = ("predict", trained / "m.model", trained / "none.csv", "--id", "id")
    assert dpadmm(*none).stdout == '"id","label","score","probability"\n'


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("patients", "must have the column that is kept; 'patients' is not there"),
        ("label", "must have another name than those of predictions, label, score, probability"),
    ],
)
def test_a_column_that_cannot_be_kept_is_refused(trained, dpadmm, name, sentence):
    (trained / "new.csv").write_text(IDENTIFIED.replace("patient", "patient,label", 1))
    asked = ("predict", trained / "m.model", trained / "new.csv", "-o", trained / "out.csv")
    result = dpadmm(*asked, "--id", name)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert not (trained / "out.csv").exists()


def test_a_loaded_model_predicts_the_raw_table(trained, dpadmm):
    cells = "who,age,ward,y\nx,1,a,\ny,99,b,no\nz,x,,yes\nz,,zzz,?\n"
    (trained / "new.csv").write_text(cells)
    out = trained / "out.parquet"
    assert dpadmm("predict", trained / "m.model", trained / "new.csv", "-o", out).exit_code == 0
    told = pq.read_table(out)
    model = load_model(trained / "m.model")
    frame = pd.read_csv(trained / "new.csv")
    arrow = pa.Table.from_pandas(frame)
    bare = trained / "bare.csv"
    frame[["age", "ward"]].to_csv(bare, index=False)
    encoded = encode(bare, model.schema, require_label=False).rows
    for table in (frame, arrow, trained / "new.csv", str(trained / "new.csv"), encoded):
        assert list(model.predict(table)) == told["label"].to_pylist()
        np.testing.assert_array_equal(model.decision_function(table), told["score"])
        np.testing.assert_array_equal(model.predict_proba(table)[:, 1], told["probability"])
    with pytest.raises(DataError, match="must have the schema's columns; 'ward' is not there"):
        model.predict(frame.drop(columns="ward"))


def test_files_without_rows_are_predicted(trained, dpadmm):
    (trained / "new.csv").write_text("age,ward\n")
    for out in ("out.csv", "out.parquet"):
        result = dpadmm("predict", trained / "m.model", trained / "new.csv", "-o", trained / out)
        assert result.exit_code == 0
    assert (trained / "out.csv").read_text() == '"label","score","probability"\n'
    assert pq.read_table(trained / "out.parquet").num_rows == 0


BAD_RUNS = [
    ("[run]", "[run]\nfoo = 1", "foo under [run] is not a known key"),
    ("rounds = 12", "rounds = '12'", 'rounds under [run] must be a whole number or "auto"'),
    ('name = "west"', 'name = "north"', "a party must be named once"),
    ("schema.toml", "nowhere.toml", "schema must be a readable"),
    ("west.csv", "nowhere.csv", "file must be readable; got"),
    ("west.csv", "missing.csv", "must have the schema's columns; 'age' is not there"),
    ("west.csv", "extra.csv", "must have no columns but the schema's; 'more' is not in it"),
    ("west.csv", "unlabelled.csv", "must have the schema's columns; 'y' is not there"),
    ("west.csv", "broken.parquet", "cannot be read"),
    ("west.csv", "cut.parquet", "cannot be read"),
    ("west.csv", "empty.csv", "party 'west' must have at least one row"),
    ("m.model", "no/m.model", "model must be in a folder that exists"),
    ("record.json", "folder", "record must be a file"),
    ("west.csv", "west.xls", "file name must end in"),
]


@pytest.fixture
def bad_files(hospitals):
    (hospitals / "folder").mkdir()
    (hospitals / "missing.csv").write_text("ward,y\na,no\n")
    (hospitals / "extra.csv").write_text("age,ward,y,more\n1,a,no,2\n")
    (hospitals / "unlabelled.csv").write_text("age,ward\n1,a\n")
    (hospitals / "empty.csv").write_text("age,ward,y\n")
    (hospitals / "broken.parquet").write_bytes(b"PAR1 no PAR1")
    pq.write_table(
        pa.table({"age": range(50_000), "ward": ["a"] * 50_000, "y": ["no"] * 50_000}),
        hospitals / "cut.parquet",
    )
    # Rows are damaged, the columns at the end of the file are not: found while reading.
    whole = bytearray((hospitals / "cut.parquet").read_bytes())
    whole[4:60] = b"\xff" * 56
    (hospitals / "cut.parquet").write_bytes(whole)
    return hospitals


@pytest.mark.parametrize(("old", "new", "sentence"), BAD_RUNS)
def test_a_bad_run_is_refused_and_leaves_nothing(bad_files, dpadmm, old, new, sentence):
    edit(bad_files, old, new)
    before = files(bad_files)
    result = dpadmm("train", bad_files / "run.toml", "--json")
    assert result.exit_code == 2
    answer = json.loads(result.stdout)
    assert sentence in answer["error"]
    assert result.stderr.splitlines() == [f"dpadmm: {answer['error']}"]
    assert files(bad_files) == before
    assert not (bad_files / ".m.model.rows").exists()


def test_bad_predictions_are_refused_and_leave_nothing(bad_files, dpadmm):
    assert dpadmm("train", bad_files / "run.toml").exit_code == 0
    model, out = bad_files / "m.model", bad_files / "out.csv"
    (bad_files / "old.model").write_bytes(model.read_bytes().replace(b"model/1 ", b"model/7 "))
    changed = bytearray(model.read_bytes())
    changed[700] ^= 1
    (bad_files / "changed.model").write_bytes(changed)
    before = files(bad_files)
    cases = [
        ((model, bad_files / "nowhere.csv", "-o", out), "file must be readable"),
        ((model, bad_files / "missing.csv", "-o", out), "'age' is not there"),
        ((model, bad_files / "cut.parquet", "-o", out), "cannot be read"),
        ((model, bad_files / "west.csv", "-o", bad_files / "out.xls"), "output must end in"),
        ((model, bad_files / "west.csv", "-o", bad_files / "no" / "o.csv"), "a folder that exists"),
        ((model, bad_files / "west.csv", "-o", bad_files / "west.csv"), "another file than"),
        ((model, bad_files / "west.csv", "-o", model), "another file than"),
        ((model, bad_files / "west.csv"), "--output must be given with --json"),
        ((bad_files / "nowhere", bad_files / "west.csv", "-o", out), "model must be a readable"),
        ((bad_files / "west.csv", bad_files / "west.csv", "-o", out), "none or damaged"),
        ((bad_files / "old.model", bad_files / "west.csv", "-o", out), "is of version 7"),
        ((bad_files / "changed.model", bad_files / "west.csv", "-o", out), "is damaged"),
    ]
    for arguments, sentence in cases:
        result = dpadmm("predict", *arguments, "--json")
        assert result.exit_code == 2
        assert sentence in json.loads(result.stdout)["error"]
        assert sentence in result.stderr
    assert files(bad_files) == before


FULL = """
import resource, sys
import typer
from dpadmm.cli import predict, train

app = typer.Typer(pretty_exceptions_enable=False)
app.command("train")(train.train_command)
app.command()(predict.predict)
for limit, *words in eval(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        app(args=words)
    except SystemExit as end:
        print(end.code, flush=True)
"""


def test_a_full_disk_is_a_refusal_and_leaves_nothing(trained):
    # A checkpoint is larger than the model here; the record is larger than both.
    edit(trained, "[result]", '[result]\ncheckpoint = "run.checkpoint"\ncheckpoint_every = 1')
    edit(trained, "m.model", "new.model")
    edit(trained, "record.json", "new.json")
    run, model, new = (str(trained / name) for name in ("run.toml", "m.model", "west.csv"))
    steps = [
        (2000, "train", run),
        (6000, "train", run),
        (100, "predict", model, new, "-o", str(trained / "out.csv")),
        (100, "predict", model, new, "-o", str(trained / "out.parquet")),
    ]
    before = files(trained)
    done = subprocess.run(
        [sys.executable, "-c", FULL, repr(steps)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["2"] * 4
    sentences = done.stderr.splitlines()
    assert all("File too large" in sentence for sentence in sentences), done.stderr
    places = ["into", "checkpoint", "output", "output"]
    assert [sentence.split()[1] for sentence in sentences] == places
    assert files(trained) == before
