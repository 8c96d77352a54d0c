"""Files of an earlier build: what is stored or sent is read, and written again, to the byte.

``tests/golden`` holds a ledger, two messages, a model and the record of a run. They change only
with the version of their format. ``tests/golden/0.2`` holds models of three classes that version
0.2 trained by ``dp-gd``, of columns and of random Fourier features, and what it predicted.
"""

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpadmm.federation.transport.wire import decode_masked, decode_message, encode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.config import load_config
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
