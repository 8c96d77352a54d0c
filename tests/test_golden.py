"""Files of an earlier build: what is stored or sent is read, and written again, to the byte.

``tests/golden`` holds a ledger, two messages, a model and the record of a run. They change only
with the version of their format. ``tests/golden/0.2`` holds models of three classes that version
0.2 trained by ``dp-gd``, of columns and of random Fourier features, and what it predicted, and
``runs.tar.gz``, the folders of four of its runs: ``pr-admm`` and, of three classes, ``dp-gd``, both
killed by SIGKILL in round 3 of 6, one that ended with an evaluation, and a node's.
"""

import csv
import json
import random
import shutil
import tarfile
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dpadmm.data.schema import load_schema
from dpadmm.errors import LedgerError
from dpadmm.federation.config import AgreedRun
from dpadmm.federation.transport.store import MessageFile
from dpadmm.federation.transport.wire import decode_masked, decode_message, encode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.noise import secure_noise
from dpadmm.run.charges import check_runs
from dpadmm.run.config import load_config, validated
from dpadmm.run.files import train_run, write_results
from dpadmm.run.model import load_model, model_bytes
from dpadmm.run.predict import predict_file
from dpadmm.run.result import read_record
from tests.helpers.wards import SCHEMA, write_ward

GOLDEN = Path(__file__).with_name("golden")
MESSAGE = np.arange(6.0).reshape(1, 2, 3) / 7
WORDS = np.arange(6, dtype=np.uint64).reshape(1, 2, 3) * np.uint64(0x2AAAAAAAAAAAAAAB)
RUN = bytes(range(32))
#: What differs from one machine, day or release to the next.
PASSING = ("ended", "dpadmm", "python", "numpy", "model_sha256")


def test_a_ledger_adds_up_to_the_same(tmp_path):
    path = Path(shutil.copy(GOLDEN / "hospital.ledger", tmp_path))
    with SQLiteLedger(path) as ledger:
        account = json.loads(json.dumps(ledger.verify().to_dict(), default=str))
        assert account == json.loads((GOLDEN / "account.json").read_text())
        with ledger.open_run("first", "mark") as run:
            np.testing.assert_array_equal(run.committed(0), MESSAGE)
            assert run.committed(1) is None
        assert ledger.head == account["head"]


def test_a_message_has_the_same_bytes():
    data = (GOLDEN / "message.bin").read_bytes()
    assert encode_message(RUN, 3, 7, MESSAGE) == data
    found = decode_message(data, run=RUN, party=3, t=7, shape=MESSAGE.shape)
    np.testing.assert_array_equal(found, MESSAGE)


def test_a_record_is_written_again_to_the_byte():
    path = GOLDEN / "record.json"
    written = json.dumps(read_record(path).plain(), indent=2, allow_nan=False)
    assert written == path.read_text()


def test_a_message_of_words_has_the_same_bytes():
    data = (GOLDEN / "words.bin").read_bytes()
    assert encode_message(RUN, 3, 7, WORDS) == data
    found = decode_masked(data, run=RUN, party=3, t=7, shape=WORDS.shape)
    assert found.dtype == np.uint64
    np.testing.assert_array_equal(found, WORDS)


def test_a_model_is_saved_as_it_was():
    path = GOLDEN / "wards.model"
    assert model_bytes(load_model(path)) == path.read_bytes()


@pytest.mark.parametrize("name", ["linear", "fourier"])
def test_a_model_of_version_0_2_predicts_what_it_did(name, tmp_path):
    old = GOLDEN / "0.2"
    model = load_model(old / f"{name}.model")
    assert model_bytes(model) == (old / f"{name}.model").read_bytes()
    predict_file(model, old / "asked.csv", tmp_path / "new.csv")
    found, expected = (
        list(csv.DictReader(path.read_text().splitlines()))
        for path in (tmp_path / "new.csv", old / f"{name}.csv")
    )
    assert len(found) == len(expected) == 25
    for row, other in zip(found, expected, strict=True):
        assert list(row) == list(other)
        assert row.pop("label") == other.pop("label")
        np.testing.assert_allclose(
            [float(value) for value in row.values()],
            [float(value) for value in other.values()],
            rtol=1e-12,
        )


@pytest.fixture
def old_runs(tmp_path):
    with tarfile.open(GOLDEN / "0.2" / "runs.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def spent(folder, owner):
    """Epsilon, and the events of every run."""
    with SQLiteLedger(folder / f"{owner}.ledger") as ledger:
        account = ledger.verify()
        return account.spent_epsilon, {name: run.events for name, run in account.runs.items()}


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_version_0_2_began_goes_on_and_is_charged_once(old_runs):
    folder = old_runs / "pr-admm"
    before = {name: spent(folder, name)[1] for name in ("north", "south")}
    ((run, charged),) = before["north"].items()
    assert len(charged) == 4
    found = write_results(train_run(load_config(folder / "run.toml")))
    assert found.run_sha256 == run
    for name in ("north", "south"):
        _, after = spent(folder, name)
        assert list(after) == [run]
        assert len(after[run]) == 6
        assert all(after[run][t] == event for t, event in before[name][run].items())


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_version_0_2_with_another_calibration_is_refused(old_runs):
    folder = old_runs / "dp-gd"
    before = [spent(folder, name) for name in ("north", "south")]
    with pytest.raises(LedgerError, match=r"4 of its rounds are charged; they differ.*release"):
        train_run(load_config(folder / "run.toml"))
    assert [spent(folder, name) for name in ("north", "south")] == before


@pytest.mark.filterwarnings("ignore")
def test_a_finished_run_of_version_0_2_is_repeated_for_nothing(old_runs):
    folder = old_runs / "evaluated"
    before = [spent(folder, name) for name in ("north", "south")]
    model = load_model(folder / "m.model")
    found = write_results(train_run(load_config(folder / "run.toml")))
    assert found.run_sha256 == model.provenance["run_sha256"]
    again = load_model(folder / "m.model")
    assert again.fingerprint == model.fingerprint
    found, expected = (each.classifier.quality.histogram for each in (again, model))
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert [spent(folder, name) for name in ("north", "south")] == before


def test_a_node_reads_the_messages_of_version_0_2_and_begins_no_run_of_it_again(old_runs):
    folder = old_runs / "node"
    run = bytes.fromhex("78a1b231effe660c3b32c1a8606bd05dcd94d67ae527ad6af046e7b95375804d")
    with MessageFile(folder / "north.messages") as store:
        assert store.rounds(run) == 9
        assert set(store.messages(run, 8)) == {0, 1, 3}
        found = decode_message(store.messages(run, 8)[0], run=run, party=0, t=8, shape=(1, 1, 7))
    content = tomllib.loads((folder / "north.agreed.toml").read_text())
    agreed = validated(AgreedRun, content, folder, "agreed")
    schema = load_schema(folder / "schema.toml")
    assert agreed.digest(schema) != run
    planned = agreed.plan(schema).of_party(0)
    with SQLiteLedger(folder / "north.ledger") as ledger:
        with ledger.open_run("trial", ledger.account.runs["trial"].fingerprint) as kept:
            np.testing.assert_array_equal(kept.committed(8), found)
        with pytest.raises(LedgerError, match="release of dpadmm"):
            check_runs(planned, [ledger], "trial", secure_noise())


@pytest.mark.filterwarnings("ignore")
def test_a_run_leaves_the_same_record_and_model(tmp_path, monkeypatch):
    # The format when the record was made; what it says of such a run has not changed.
    monkeypatch.setattr("dpadmm.run.config.NUMBERS_FORMAT", 1)
    draw = random.Random(0)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        write_ward(tmp_path / f"{name}.csv", draw, rows)
    config = tmp_path / "run.toml"
    # What the default was when the record was made.
    told = (GOLDEN / "run.toml").read_text().replace("[run]", '[run]\nloss = "logistic"')
    config.write_text(told)
    found = write_results(train_run(load_config(config))).plain()
    expected = json.loads((GOLDEN / "record.json").read_text())
    assert list(found) == list(expected)
    # What records tell since, where it applies; those without it are still read and written.
    assert found["learnt"].pop("noise_error") > 0
    assert set(found["learnt"].pop("intercepts")) == {
        weight["towards"] for weight in found["learnt"]["weights"]
    }
    assert [weight["feature"] for weight in found["learnt"]["weights"] if weight.pop("unit", 0)]
    for name in set(expected) - set(PASSING):
        assert close(found[name], expected[name]), name
    paths = (tmp_path / "m.model", GOLDEN / "wards.model")
    model, golden = (load_model(path).classifier for path in paths)
    for name in ("coef", "intercept", "node_coef", "node_intercept"):
        np.testing.assert_allclose(
            getattr(model, name), getattr(golden, name), rtol=1e-9, atol=1e-12
        )


def close(found, expected):
    """Equal, but for the last digits of numbers."""
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(close(found[k], expected[k]) for k in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    return found == expected
