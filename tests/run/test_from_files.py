"""Runs from a configuration: the same as the estimator's, resumable, whole results or none."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.wards import FOURIER_SCHEMA

from dpadmm import ADMMClassifier
from dpadmm.data.schema import Schema, load_schema
from dpadmm.data.tables import encode, encode_by_party, encode_party
from dpadmm.errors import DataError, ParameterError
from dpadmm.problem.rows import Shard, label_signs
from dpadmm.report.html import render
from dpadmm.report.run import run_report
from dpadmm.run.config import load_config
from dpadmm.run.files import Watch, prepare, train_run, write_results
from dpadmm.run.model import ModelError, load_model, save_model
from dpadmm.run.predict import predict_file

SOURCE = str(Path(__file__).parents[2] / "src")


def edit(folder, old, new, name="run.toml"):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def trained(folder):
    return train_run(load_config(folder / "run.toml"))


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
def test_a_run_takes_numbers_of_each_round_and_party_and_keeps_them(hospitals):
    """From run.toml to model, record and page; the run's hash knows them."""
    varying = (
        'algorithm = "m-admm"\nrounds = 2\nepsilon = 60\noutput = "mean"\nsimulation_key = 1\n'
        "[run.penalty]\nnorth = 0.1\nsouth = [0.1, 0.2]\nwest = 0.3\n"
        "[run.algorithm_options]\ndual_step = 0.05\nstart = [0.1, 0, 0, 0, 0, 0, 0.2]\n"
        "[run.algorithm_options.noise_rate]\nnorth = 3.0\nsouth = 2.0\nwest = [2.0, 1.0]\n"
    )
    edit(hospitals, 'algorithm = "admm"\nrounds = 12\n', varying)
    run = trained(hospitals)
    write_results(run)
    schema = load_schema(hospitals / "schema.toml")
    parts = [encode(hospitals / f"{n}.csv", schema) for n in ("north", "south", "west")]
    rows = np.concatenate([part.rows for part in parts])
    codes = np.concatenate([part.labels for part in parts])
    given = {"north": 0.1, "south": [0.1, 0.2], "west": 0.3}
    loaded = load_model(hospitals / "m.model").to_estimator()
    assert loaded.penalty == run.estimator.penalty
    assert {name: np.ravel(value).tolist() for name, value in loaded.penalty.items()} == {
        name: np.ravel(value).tolist() for name, value in given.items()
    }
    assert loaded.output == "mean"
    # The parameters that a model keeps train again.
    owners = np.repeat(["north", "south", "west"], [60, 40, 20])
    again = loaded.set_params(random_state=3).fit(rows, np.array(schema.classes)[codes], owners)
    assert again.penalty_ == pytest.approx((0.1 + 0.1 + 0.3) / 3)
    record = json.loads((hospitals / "record.json").read_text())
    assert record["config"]["run"]["penalty"] == given
    assert record["config"]["run"]["algorithm_options"]["noise_rate"]["west"] == [2.0, 1.0]
    first, both = record["epsilon_after_rounds"]["west"]
    # Half the rate in the second round.
    assert 0 < both - first < 0.6 * first
    edit(hospitals, "west = [2.0, 1.0]", "west = [2.0, 1.1]")
    with pytest.raises(ParameterError, match=f"is that of another run, {run.sha256[:12]}"):
        trained(hospitals)


def test_a_run_equals_the_estimator_on_encoded_rows(hospitals):
    run = trained(hospitals)
    write_results(run)
    schema = load_schema(hospitals / "schema.toml")
    parts = [encode(hospitals / f"{n}.csv", schema) for n in ("north", "south", "west")]
    rows = np.concatenate([part.rows for part in parts])
    codes = np.concatenate([part.labels for part in parts])
    owners = np.repeat(["north", "south", "west"], [60, 40, 20])
    expected = ADMMClassifier(algorithm="admm", rounds=12, fit_intercept=False)
    expected.fit(rows, np.array(schema.classes)[codes], owners)
    # A model is made without the estimator; it knows every parameter all the same, but for the
    # map, which is the schema's, and those that are among the algorithm's options.
    apart = {"fourier", "polynomial", "noise", "colluders"}
    assert set(run.model.estimator_parameters) == set(expected.get_params()) - apart
    assert np.allclose(run.estimator.coef_, expected.coef_, atol=1e-12)
    assert run.rows == {"north": 60, "south": 40, "west": 20}

    loaded = load_model(hospitals / "m.model")
    assert np.array_equal(loaded.to_estimator().predict(rows), run.estimator.predict(rows))
    assert loaded.schema.sha256 == schema.sha256
    assert loaded.provenance["run_sha256"] == run.sha256
    record = json.loads((hospitals / "record.json").read_text())
    assert record["run_sha256"] == run.sha256
    assert record["config"]["run"]["algorithm"] == "admm"
    assert len(record["history"]["change"]) == 12
    assert record["epsilon_after_rounds"]["north"] == ["infinite"] * 12
    assert left_behind(hospitals) == []


def test_one_file_with_a_party_column_gives_the_same_run(hospitals):
    lines = []
    for name in ("north", "south", "west"):
        rows = (hospitals / f"{name}.csv").read_text().splitlines()[1:]
        lines += [f"{row},{name}" for row in rows]
    # The order of rows within a party is kept; that of parties does not matter.
    mixed = sorted(lines, key=lambda line: line[0])
    together = sorted(range(len(mixed)), key=lambda place: mixed[place].rsplit(",", 1)[1])
    (hospitals / "all.csv").write_text("\n".join(["age,ward,y,who", *mixed]) + "\n")
    for name in ("north", "south", "west"):
        own = [mixed[p].rsplit(",", 1)[0] for p in together if mixed[p].endswith(name)]
        (hospitals / f"{name}.csv").write_text("\n".join(["age,ward,y", *own]) + "\n")
    apart = trained(hospitals)
    text = (hospitals / "run.toml").read_text()
    start, end = text.index("[[party]]"), text.index("[result]")
    text = text[:start] + text[end:]
    text = text.replace("[data]", '[data]\nfile = "all.csv"\nparty_column = "who"')
    (hospitals / "run.toml").write_text(text)
    common = trained(hospitals)
    assert common.rows == apart.rows
    assert common.sha256 == apart.sha256
    assert np.array_equal(common.estimator.coef_, apart.estimator.coef_)

    edit(hospitals, 'party_column = "who"', "")
    with pytest.raises(DataError, match="party_column must name the column"):
        trained(hospitals)
    edit(hospitals, "[data]", '[data]\nparty_column = "who"')
    (hospitals / "all.csv").write_text("age,ward,y,who\n1,a,no,north\n1,a,no,?\n")
    with pytest.raises(DataError, match="must name its party in the column 'who'"):
        trained(hospitals)
    (hospitals / "all.csv").write_text("age,ward,y,who\n")
    with pytest.raises(DataError, match="at least one row"):
        trained(hospitals)
    many = "\n".join(f"1,a,no,{number}" for number in range(501))
    (hospitals / "all.csv").write_text(f"age,ward,y,who\n{many}\n")
    with pytest.raises(DataError, match="at most 500 parties"):
        trained(hospitals)
    assert left_behind(hospitals) == []


def test_a_party_with_one_class_and_odd_cells_trains(hospitals):
    (hospitals / "west.csv").write_text("age,ward,y\nx,,yes\n999,zzz,\n1\n")
    assert trained(hospitals).rows["west"] == 3


def test_more_than_two_classes_are_one_versus_rest(hospitals):
    edit(hospitals, '["no", "yes"]', '["no", "perhaps", "yes"]', "schema.toml")
    run = trained(hospitals)
    assert run.estimator.coef_.shape == (3, 7)
    assert list(run.estimator.classes_) == ["no", "perhaps", "yes"]


def test_parquet_and_csv_agree(hospitals):
    expected = trained(hospitals)
    lines = (hospitals / "south.csv").read_text().splitlines()[1:]
    age, ward, y = zip(*(line.split(",") for line in lines), strict=True)
    table = pa.table({"y": y, "age": [int(a) for a in age], "ward": ward})
    pq.write_table(table, hospitals / "south.parquet")
    edit(hospitals, "south.csv", "south.parquet")
    assert np.array_equal(trained(hospitals).estimator.coef_, expected.estimator.coef_)


def test_every_party_may_have_a_delimiter_of_its_own(hospitals):
    expected = trained(hospitals)
    for name, delimiter in (("south", ";"), ("west", "|")):
        table = pd.read_csv(hospitals / f"{name}.csv", dtype=str, keep_default_na=False)
        table.to_csv(hospitals / f"{name}.csv", sep=delimiter, index=False)
    with pytest.raises(DataError, match="check the delimiter"):
        trained(hospitals)
    edit(hospitals, '"west.csv"', '"west.csv"\ndelimiter = "|"')
    edit(hospitals, '"south.csv"', '"south.csv"\ndelimiter = ";"')
    run = trained(hospitals)
    assert np.array_equal(run.estimator.coef_, expected.estimator.coef_)
    # What a file looks like is no part of what runs compare.
    assert run.sha256 == expected.sha256
    edit(hospitals, '"|"', '"||"')
    with pytest.raises(ParameterError, match=r"delimiter of party 'west' must be one ASCII char"):
        trained(hospitals)


def test_rows_are_mapped_and_leave_no_name(hospitals):
    schema = load_schema(hospitals / "schema.toml")
    work = hospitals / "work"
    work.mkdir()
    party = encode_party(hospitals / "north.csv", schema, work)
    assert isinstance(party.rows, np.memmap)
    assert list(work.iterdir()) == []
    assert np.array_equal(party.rows, encode(hospitals / "north.csv", schema).rows)
    assert "0." not in repr(party)


def test_large_parties_reach_the_solver_without_a_copy(hospitals):
    schema = load_schema(hospitals / "schema.toml")
    (hospitals / "large.csv").write_text("age,ward,y\n" + "50,a,yes\n99,b,no\n" * 5000)
    party = encode_party(hospitals / "large.csv", schema, hospitals)
    (block,) = Shard.from_parties([(party.rows, label_signs(party.labels, 1))]).blocks
    assert np.shares_memory(block.rows, party.rows)
    assert not block.rows.flags.writeable


def test_wide_one_hot_rows_stay_sparse(tmp_path):
    levels = [str(number) for number in range(3000)]
    column = {"name": "c", "kind": "categorical", "levels": levels}
    content = {"label": {"column": "y", "classes": ["0", "1"]}, "columns": [column], "party": "p"}
    schema = Schema.from_dict(content)
    cells = "\n".join(f"{number % 3000},{number % 2},{number % 3}" for number in range(9000))
    (tmp_path / "all.csv").write_text(f"c,y,p\n{cells}\n")
    parties = encode_by_party(tmp_path / "all.csv", schema, tmp_path)
    assert list(parties) == ["0", "1", "2"]
    assert parties["1"].rows.format == "csr"
    whole = encode(tmp_path / "all.csv", schema, layout="dense")
    assert np.array_equal(parties["1"].rows.toarray(), whole.rows[1::3])
    assert np.array_equal(parties["1"].labels, whole.labels[1::3])


KILLED = """
import os, signal, sys
from dpadmm.run.config import load_config
from dpadmm.run.files import Watch, train_run

def stop(done, rounds):
    if done == 9:
        os.kill(os.getpid(), signal.SIGKILL)

train_run(load_config(sys.argv[1]), Watch(on_round=stop))
"""


def test_a_killed_run_goes_on_to_the_same_result(hospitals):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3\nsimulation_key = 5')
    expected = trained(hospitals)
    assert expected.estimator.privacy_.simulated
    edit(hospitals, "[result]", '[result]\ncheckpoint = "run.checkpoint"\ncheckpoint_every = 4')
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", KILLED, str(hospitals / "run.toml")]
    assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    # Encoded rows of the killed run are gone: their file had no name any more.
    assert list((hospitals / ".m.model.rows").iterdir()) == []
    assert not (hospitals / "m.model").exists()

    rounds = []
    watch = Watch(on_round=lambda done, total: rounds.append(done))
    resumed = train_run(load_config(hospitals / "run.toml"), watch)
    assert rounds == [9, 10, 11, 12]
    assert np.array_equal(resumed.estimator.coef_, expected.estimator.coef_)
    assert np.array_equal(resumed.estimator.node_coef_, expected.estimator.node_coef_)
    assert resumed.estimator.privacy_.epsilon == expected.estimator.privacy_.epsilon
    history = resumed.estimator.history_["change"]
    assert np.array_equal(history, expected.estimator.history_["change"])
    assert (hospitals / "run.checkpoint").exists()
    write_results(resumed)
    assert not (hospitals / "run.checkpoint").exists()
    assert left_behind(hospitals) == []


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("simulation_key = 5", "simulation_key = 6", "run.toml"),
        ("rounds = 12", "rounds = 13", "run.toml"),
        ("upper = 100", "upper = 101", "schema.toml"),
        ("age,ward,y\n", "age,ward,y\n50,a,yes\n", "west.csv"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(hospitals, old, new, name):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 1e-3\nsimulation_key = 5')
    edit(hospitals, "[result]", '[result]\ncheckpoint = "run.checkpoint"\ncheckpoint_every = 4')
    trained(hospitals)
    edit(hospitals, old, new, name)
    with pytest.raises(ParameterError, match=r"checkpoint .* must belong to this run"):
        trained(hospitals)
    (hospitals / "run.checkpoint").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ParameterError, match="checkpoint"):
        trained(hospitals)
    assert left_behind(hospitals) == []


def test_two_runs_do_not_share_a_work_folder(hospitals):
    config = load_config(hospitals / "run.toml")

    def again(done, rounds):
        with pytest.raises(DataError, match="one run at a time"):
            train_run(config)

    train_run(config, Watch(on_round=again))
    assert left_behind(hospitals) == []


def test_a_work_folder_of_somebody_else_is_refused_and_nothing_is_removed(hospitals):
    config, work = load_config(hospitals / "run.toml"), hospitals / ".m.model.rows"
    elsewhere = hospitals / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    kept = elsewhere / "kept"
    kept.write_text("of value")
    work.symlink_to(elsewhere)
    with pytest.raises(DataError, match=r"model must be in a folder .*\(\.m\.model\.rows\)"):
        train_run(config)
    assert kept.read_text() == "of value"
    work.unlink()
    # Others could exchange the rows in it.
    work.mkdir()
    work.chmod(0o755)
    (work / "left").touch()
    with pytest.raises(DataError, match="private to the user who runs this"):
        train_run(config)
    assert (work / "left").exists()
    work.chmod(0o700)
    train_run(config)
    assert left_behind(hospitals) == []


def test_parameters_are_refused_before_a_row_is_read(hospitals):
    stages = []
    for old, new in [
        ('"admm"', '"amdm"'),
        ('"admm"', '"pr-admm"\nepsilon = -1'),
        ('"admm"', '"pr-admm"\nepsilon = {north = 1, south = 2}'),
        ("rounds = 12", "rounds = 0"),
        ("rounds = 12", 'topology = [["north", "south"]]'),
        ("rounds = 12", 'topology = [["north", "east"]]'),
        ("rounds = 12", "algorithm_options = {foo = 1}"),
    ]:
        edit(hospitals, old, new)
        with pytest.raises(ParameterError):
            train_run(load_config(hospitals / "run.toml"), Watch(on_stage=stages.append))
        edit(hospitals, new, old)
    assert set(stages) == {"checking"}


def test_declared_rows_must_be_there(hospitals):
    edit(hospitals, 'file = "west.csv"', 'file = "west.csv"\nrows = 21')
    with pytest.raises(DataError, match="declares, 21; its file has 20"):
        trained(hospitals)
    edit(hospitals, "rows = 21", "rows = 20")
    assert trained(hospitals).rows["west"] == 20


def test_a_large_delta_is_warned_about(hospitals):
    edit(hospitals, '"admm"', '"pr-admm"\ndelta = 0.02')
    run = trained(hospitals)
    assert len(run.warnings) == 1
    assert "delta = 0.02 of party north is not below" in run.warnings[0]


def test_a_model_without_a_schema_reads_no_files(hospitals):
    estimator = ADMMClassifier(algorithm="admm", rounds=2, n_parties=2)
    save_model(hospitals / "m", estimator.fit(np.eye(4), [0, 1, 0, 1]))
    with pytest.raises(ModelError, match="must have a schema"):
        predict_file(load_model(hospitals / "m"), hospitals / "west.csv", hospitals / "out.csv")


def test_files_and_arrays_give_one_model_of_fourier_features(hospitals):
    """The same rows as cells of files and as columns; what is predicted, and what is told of it."""
    (hospitals / "schema.toml").write_text(FOURIER_SCHEMA)
    run = trained(hospitals)
    names = ("north", "south", "west")
    frames = [pd.read_csv(hospitals / f"{name}.csv") for name in names]
    owners = np.repeat(names, [len(frame) for frame in frames])
    table = pd.concat(frames)
    wards = [table["ward"] == level for level in "ab"]
    columns = np.column_stack([table["age"] / 100, 0 * wards[0], *wards, *[0 * wards[0]] * 2])
    told = load_schema(hospitals / "schema.toml").fourier
    assert told.scale == pytest.approx((1 / 144 + 1) ** 0.5)
    estimator = ADMMClassifier(algorithm="admm", rounds=12, fourier=told.model_dump())
    estimator.fit(columns, table["y"], owners, classes=["no", "yes"])
    np.testing.assert_allclose(estimator.coef_, run.classifier.coef, rtol=0, atol=1e-12)
    write_results(run)
    predict_file(load_model(hospitals / "m.model"), hospitals / "west.csv", hospitals / "out.csv")
    scores = pd.read_csv(hospitals / "out.csv")["score"]
    found = estimator.decision_function(columns[owners == "west"])
    np.testing.assert_allclose(scores, found, rtol=0, atol=1e-9)
    page = render(run_report(run.record()))
    assert "encoded as 24 features, the cosines and sines of 12 random frequencies" in page
    assert "None of them says what a column does" in page
    assert "cosine 1" not in page


def test_files_and_arrays_give_one_model_of_products(hospitals):
    """Numbers of files and arrays; the report names products, whose units have no weight."""
    numbers = """
constant = 0.5
version = 2
[label]
column = "y"
classes = ["no", "yes"]
""" + "".join(
        f'[[columns]]\nname = "{name}"\nkind = "numeric"\nlower = {lower}\nupper = {upper}\n'
        "missing = false\n"
        for name, lower, upper in (("age", 0, 100), ("stay", 0, 10))
    )
    (hospitals / "schema.toml").write_text(numbers + "[polynomial]\ndegree = 2\n")
    draw, frames = np.random.default_rng(3), []
    names = ("north", "south", "west")
    for name in names:
        table = pd.read_csv(hospitals / f"{name}.csv").drop(columns="ward")
        table["stay"] = draw.integers(0, 11, len(table))
        table.to_csv(hospitals / f"{name}.csv", index=False)
        frames.append(table)
    run = trained(hospitals)
    owners = np.repeat(names, [len(frame) for frame in frames])
    table = pd.concat(frames)
    columns = np.column_stack([table["age"] / 50 - 1, table["stay"] / 5 - 1])
    estimator = ADMMClassifier(algorithm="admm", rounds=12, polynomial=2, intercept_scale=0.5)
    estimator.fit(columns, table["y"], owners, classes=["no", "yes"])
    coef = np.append(estimator.coef_[0], estimator.intercept_[0] / 0.5)
    np.testing.assert_allclose(coef, run.classifier.coef[0], rtol=0, atol=1e-9)
    write_results(run)
    predict_file(load_model(hospitals / "m.model"), hospitals / "west.csv", hospitals / "out.csv")
    found = pd.read_csv(hospitals / "out.csv")
    wanted = estimator.predict(columns[owners == "west"])
    assert found["label"].tolist() == wanted.tolist()
    record = run.record()
    assert {"age x age", "age x stay", "stay x stay"} <= {w.feature for w in record.learnt.weights}
    assert record.learnt.intercepts is None
    assert all(weight.unit is None for weight in record.learnt.weights)
    assert "age x stay" in render(run_report(record))


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", ["r-admm", "dvp", "pr-admm"])
def test_a_run_is_not_refused_for_rows_that_are_not_there(hospitals, algorithm):
    # Before rows are counted, parameters are checked for very many rows, for which a solve must not
    # have to be more exact than rounding allows.
    told = f'algorithm = "{algorithm}"\nepsilon = 100.0\ncalibration = "published"\npenalty = 0.5\n'
    edit(hospitals, 'algorithm = "admm"\n', told)
    prepare(load_config(hospitals / "run.toml"))


GERMAN_KEYS = """
delimiter = ";"
decimal = ","
missing_marks = ["k. A."]
ignore_case = true
[party.aliases.y]
ja = "yes"
nein = "no"
[party.aliases.ward]
"Station A" = "a"
"""


def german(folder, name, output):
    """Write the rows of a party as a German program does, and plainly with the same numbers."""
    table = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
    table["age"] = [f"{age}.5" if age != "100" else "" for age in table["age"]]
    table.to_csv(folder / f"{name}.csv", index=False)
    table["age"] = [age.replace(".", ",") or "k. A." for age in table["age"]]
    table["ward"] = table["ward"].map({"a": "STATION A", "b": "B"})
    table["y"] = table["y"].map({"yes": "Ja", "no": "NEIN"})
    (folder / output).write_bytes(table.to_csv(index=False, sep=";").encode("utf-8-sig"))


def test_a_german_file_of_one_party_gives_the_model_of_the_plain_one(hospitals):
    edit(hospitals, 'algorithm = "admm"', 'algorithm = "pr-admm"\nepsilon = 5\nsimulation_key = 3')
    german(hospitals, "south", "sued.csv")
    expected = trained(hospitals)
    edit(hospitals, '"south.csv"', '"sued.csv"' + GERMAN_KEYS)
    run = trained(hospitals)
    assert run.estimator.coef_.tobytes() == expected.estimator.coef_.tobytes()
    assert run.sha256 == expected.sha256
    assert run.model.schema == expected.model.schema
    # New files of that party are read so, too; those of the others as ever.
    write_results(run)
    model = load_model(hospitals / "m.model")
    for name, party in (("sued", "south"), ("south", None)):
        source = hospitals / f"{name}.csv"
        assert predict_file(model, source, hospitals / f"{name}-out.csv", party=party) == 40
    assert (hospitals / "sued-out.csv").read_bytes() == (hospitals / "south-out.csv").read_bytes()
    with pytest.raises(ParameterError, match=r"party must be one of: north, south, west; got 'sou"):
        predict_file(model, hospitals / "sued.csv", hospitals / "o.csv", party="sout")


def test_a_model_reads_new_files_as_all_files_of_the_run_were_written(hospitals):
    for name in ("north", "south", "west"):
        german(hospitals, name, f"{name}.csv")
    keys = GERMAN_KEYS.replace("party.", "data.")
    edit(hospitals, 'schema = "schema.toml"\n', f'schema = "schema.toml"\n{keys}')
    model = trained(hospitals).model
    assert model.schema.label.aliases == (("ja", "yes"), ("nein", "no"))
    assert predict_file(model, hospitals / "south.csv", hospitals / "out.csv") == 40


def test_spellings_of_a_party_with_two_meanings_are_refused_before_a_row_is_read(hospitals):
    edit(hospitals, '"west.csv"', '"west.csv"\n[party.aliases.y]\nyes = "no"')
    with pytest.raises(DataError, match=r"party 'west': .*'yes' is 'yes' and 'no'"):
        prepare(load_config(hospitals / "run.toml"))


def test_the_model_is_there_before_what_is_told_of_it(hospitals, monkeypatch):
    run = trained(hospitals)
    monkeypatch.setattr(type(run), "record", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_results(run)
    assert np.array_equal(load_model(hospitals / "m.model").classifier.coef, run.classifier.coef)
    assert not (hospitals / "record.json").exists()
