"""Runs of ``dpadmm train`` with a party on a Dask cluster: as from files, and what is refused."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra 'dask' is not installed")

import pyarrow as pa
import pyarrow.parquet
from tests.helpers.clusters import ward_table, write_parts

from dpadmm.data.parts import list_parts
from dpadmm.data.schema import load_schema
from dpadmm.errors import DataError, ParameterError, PreflightStop
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.config import RunConfig, load_config, validated
from dpadmm.run.evaluate_files import EvaluationRequest, evaluate_run
from dpadmm.run.files import Watch, prepare, train_run, write_results

PRIVATE = (
    'algorithm = "dp-gd"\ntopology = "server"\nrounds = 4\nepsilon = 8\ndelta = 1e-3\n'
    "simulation_key = 1\n"
)
LEDGERS = "\n[ledgers]\n" + "".join(f'{n} = "{n}.ledger"\n' for n in ("north", "south", "west"))


def edit(folder, old, new):
    text = (folder / "run.toml").read_text()
    assert old in text
    (folder / "run.toml").write_text(text.replace(old, new, 1))


def trained(folder):
    return train_run(load_config(folder / "run.toml"))


@pytest.fixture
def parted(hospitals, dask_workers):
    """The hospitals, of which the north has its rows on a cluster."""
    write_parts(hospitals / "parts", ward_table(hospitals / "north.csv"), [25, 30, 5])
    scheduler = f'"parts"\nscheduler = "{dask_workers.address}"'
    edit(hospitals, '"north.csv"', scheduler)
    return hospitals


@pytest.mark.parametrize("center", ["off", "on"])
def test_a_party_on_a_cluster_trains_and_is_judged_as_from_its_file(parted, center):
    """Rows kept out lie in the last parts; the histogram counts each of them once."""
    told = PRIVATE + "holdout = 0.2\nevaluate = true\nprobabilities = true\n"
    told += f'algorithm_options = {{ center = "{center}" }}\n'
    edit(parted, 'algorithm = "admm"\nrounds = 12\n', told)
    there = trained(parted)
    write_results(there)
    edit(parted, '"parts"\nscheduler', '"north.csv"\n# scheduler')
    here = trained(parted)
    assert there.rows == here.rows
    assert there.sha256 == here.sha256
    np.testing.assert_allclose(there.estimator.coef_, here.estimator.coef_, atol=1e-13)
    histograms = [run.classifier.quality.histogram.counts for run in (there, here)]
    np.testing.assert_allclose(*histograms, atol=1e-9)
    # Where the machines of a party are stays with it.
    record = json.loads((parted / "record.json").read_text())
    assert record["config"]["party"][0]["file"] == "parts"
    left = (parted / "record.json").read_text() + str((parted / "m.model").read_bytes())
    assert "tcp:" not in left


def test_rows_on_a_cluster_are_looked_at_there_part_by_part(parted):
    """What is found is what is found in a file of the same rows; nothing else comes back."""
    spelt = ward_table(parted / "north.csv").to_pandas()
    spelt.loc[30:, "y"] = "Yes"
    table = pa.Table.from_pandas(spelt, preserve_index=False)
    write_parts(parted / "parts", table, [25, 30, 5])
    with (parted / "run.toml").open("a") as file:
        file.write('[policy]\npreflight = "stop"\n')
    with pytest.raises(PreflightStop):
        trained(parted)
    there = (parted / "m.model.preflight").read_text()
    assert "LOOKS WRONG: north: 30 of 60 labels (50.0%) are no class" in there
    spelt.to_csv(parted / "north.csv", index=False)
    edit(parted, '"parts"\nscheduler', '"north.csv"\n# scheduler')
    with pytest.raises(PreflightStop):
        trained(parted)
    assert (parted / "m.model.preflight").read_text() == there


def test_a_solve_on_a_cluster_agrees_to_its_tolerance_and_goes_on_from_a_checkpoint(parted):
    edit(parted, "rounds = 12", "rounds = 3\ntolerance = 1e-9")
    kept = 'checkpoint = "kept.npz"\ncheckpoint_every = 2'
    edit(parted, 'record = "record.json"', f'record = "record.json"\n{kept}')
    there = trained(parted)
    assert (parted / "kept.npz").exists()
    continued = trained(parted)
    assert np.array_equal(continued.estimator.coef_, there.estimator.coef_)
    edit(parted, '"parts"\nscheduler', '"north.csv"\n# scheduler')
    edit(parted, kept, "")
    here = trained(parted)
    np.testing.assert_allclose(there.estimator.coef_, here.estimator.coef_, atol=1e-6)


def test_a_model_is_evaluated_on_a_cluster(parted):
    edit(parted, 'algorithm = "admm"\nrounds = 12\n', PRIVATE)
    model = trained(parted).model
    asked = EvaluationRequest(epsilon=1.0, delta=1e-3)
    there = evaluate_run(load_config(parted / "run.toml"), model, asked)
    edit(parted, '"parts"\nscheduler', '"north.csv"\n# scheduler')
    here = evaluate_run(load_config(parted / "run.toml"), model, asked)
    found, expected = (each.quality.histogram.counts for each in (there, here))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def more_rows(folder):
    table = pa.table({"age": [5], "ward": ["a"], "y": ["no"]})
    pyarrow.parquet.write_table(table, folder / "parts" / "part-9.parquet")


def other_columns(folder):
    table = ward_table(folder / "north.csv").rename_columns(["years", "ward", "y"])
    pyarrow.parquet.write_table(table, folder / "parts" / "part-001.parquet")


def no_parts(folder):
    for path in (folder / "parts").iterdir():
        path.rename(path.with_suffix(".csv"))


def no_folder(folder):
    (folder / "parts").rename(folder / "elsewhere")


def damaged(folder):
    (folder / "parts" / "part-000.parquet").write_bytes(b"PAR1 private cells PAR1")


@pytest.fixture
def ledgered(parted):
    """The same with noise that counts, declared rows, and a ledger for each party."""
    edit(parted, 'algorithm = "admm"\nrounds = 12\n', PRIVATE.replace("simulation_key = 1\n", ""))
    edit(parted, '"parts"\n', '"parts"\nrows = 60\n')
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        policy = Policy(8.0, 1e-3, filter="gaussian")
        SQLiteLedger.create(
            parted / f"{name}.ledger", ChargedData("rows", name, rows), policy
        ).close()
    (parted / "run.toml").write_text((parted / "run.toml").read_text() + LEDGERS)
    return parted


def charged(folder):
    """Rounds of each run in the north's ledger."""
    with SQLiteLedger(folder / "north.ledger", read_only=True) as ledger:
        return [len(run.events) for run in ledger.account.runs.values()]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (more_rows, "the 4 parts in .* must have 60 rows, as declared, in all; they have 61"),
        (other_columns, r"part-001\.parquet must have the schema's columns; 'age' is not there"),
        (no_parts, r"folder must have files that end in \.parquet or \.pq"),
        (no_folder, "folder must be there, with Parquet files in it"),
        (damaged, r"file must be whole .*part-000\.parquet, which cannot be read"),
    ],
)
def test_parts_that_are_not_as_declared_are_refused_and_nothing_is_spent(ledgered, change, words):
    change(ledgered)
    with pytest.raises(DataError, match=words) as caught:
        trained(ledgered)
    assert "private" not in str(caught.value)
    assert charged(ledgered) == []
    assert not (ledgered / "m.model").exists()


def test_a_folder_that_grows_during_a_run_changes_nothing_and_is_refused_by_the_next(ledgered):
    def grow(done, *rest):
        if done == 1:
            more_rows(ledgered)

    found = train_run(load_config(ledgered / "run.toml"), Watch(on_round=grow))
    assert found.rows["north"] == 60
    assert charged(ledgered) == [4]
    with pytest.raises(DataError, match="must have 60 rows, as declared, in all; they have 61"):
        trained(ledgered)
    assert charged(ledgered) == [4]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('scheduler = "tcp://127.0.0.1', 'scheduler = "tcp://10.0.0.1', "unless it is on this mac"),
        ('scheduler = "tcp', 'delimiter = ";"\nscheduler = "tcp', "parts are Parquet files"),
        ('file = "parts"\nscheduler', 'file = "s3://bucket/parts"\n#', "unless a scheduler is giv"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(parted, old, new, words):
    edit(parted, old, new)
    with pytest.raises(ParameterError, match=words):
        load_config(parted / "run.toml")


def test_labels_that_would_be_randomised_here_are_refused(parted):
    options = 'algorithm = "pdml"\nrounds = 2\nepsilon = 8\nsimulation_key = 1\n'
    edit(parted, 'algorithm = "admm"\nrounds = 12\n', options)
    with pytest.raises(ParameterError, match="labels must come randomised where rows lie on a cl"):
        trained(parted)


def test_parts_at_an_address_are_those_of_the_path(parted):
    """Any file system that fsspec knows; a folder of this machine under its protocol."""
    schema = load_schema(parted / "schema.toml")
    near = list_parts(str(parted / "parts"), schema)
    far = list_parts(f"file://{parted}/parts", schema)
    assert [part.rows for part in far] == [part.rows for part in near] == [25, 30, 5]
    assert all(part.file.address.startswith("file://") for part in far)
    edit(parted, 'file = "parts"', f'file = "file://{parted}/parts"')
    edit(parted, "rounds = 12", "rounds = 1")
    assert trained(parted).rows["north"] == 60
    with pytest.raises(DataError, match="an address that fsspec can open here; got nowhere://x"):
        list_parts("nowhere://x", schema)


def test_a_cluster_is_checked_before_a_row_is_read(parted, monkeypatch):
    address = load_config(parted / "run.toml").party[0].scheduler
    edit(parted, address, "tcp://127.0.0.1:1")
    monkeypatch.setattr("dpadmm.solvers.cluster._CONNECT", 0.5)
    with pytest.raises(ParameterError, match="must be a Dask scheduler that answers"):
        prepare(load_config(parted / "run.toml"))


def test_the_page_shows_configurations_that_are_taken(hospitals):
    from dpadmm.federation.config import NodeSection

    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    tables = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    node, party = tables
    assert validated(NodeSection, node["node"], hospitals, "node").rows == "dask"
    content = {"data": {"schema": "schema.toml"}, "result": {"model": "m.model"}, **party}
    assert RunConfig.from_dict(content, hospitals).files == ()
