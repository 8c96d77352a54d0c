"""Data sets by name: against independent computations, and what is said when they are not there."""

import gzip
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpadmm.data import named
from dpadmm.data import named as datasets
from dpadmm.data.dataset import checksum
from dpadmm.errors import DataError

FOLDER = os.environ.get("DPADMM_DATA")
needs_data = pytest.mark.skipif(
    not FOLDER, reason="DPADMM_DATA is not set to a folder with the public data sets"
)
CATEGORICAL = [
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
]
SHAPES = {
    "german": (1000, 20, 300),
    "image": (2086, 18, 1188),
    "ringnorm": (7400, 20, 3664),
    "banana": (5300, 2, 2376),
    "splice": (2991, 60, 1344),
    "twonorm": (7400, 20, 3703),
}


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No files, no network."""

    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.delenv("DPADMM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    fake = SimpleNamespace(fetch=offline)
    monkeypatch.setitem(sys.modules, "skdatasets", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "skdatasets.repositories", SimpleNamespace(raetsch=fake))
    return fake


def pandas_adult():
    frames = [
        pd.read_csv(
            Path(FOLDER) / f"adult.{part}.gz",
            names=list(named.ADULT_COLUMNS),
            skiprows=int(part == "test"),
            skipinitialspace=True,
            na_values="?",
            keep_default_na=False,
        )
        for part in ("data", "test")
    ]
    return pd.concat(frames, ignore_index=True)


@needs_data
def test_adult_equals_an_independent_computation():
    found = datasets.load("adult")
    frame = pandas_adult().dropna()
    numeric = frame.drop(columns=[*CATEGORICAL, "income"]).astype(float)
    # The smallest fnlwgt belongs to a row that is not complete: bounds are public, not learnt.
    lower = numeric.min().where(numeric.columns != "fnlwgt", 12285)
    raw = np.hstack(
        [
            ((numeric - lower) / (numeric.max() - lower)).to_numpy(),
            pd.get_dummies(frame[CATEGORICAL].astype(str)).to_numpy(float),
            np.ones((len(frame), 1)),
        ]
    )
    expected = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1)
    assert found.X.shape == (45_222, 105)
    np.testing.assert_allclose(found.X, expected, rtol=0, atol=1e-15)
    income = frame["income"].str.rstrip(".")
    np.testing.assert_array_equal(found.y, np.where(income == ">50K", 1, -1))
    assert found.feature_names[0] == "age"
    assert found.feature_names[6] == "workclass=Federal-gov"
    assert found.feature_names[-1] == "constant"
    assert found.checksum == checksum(found.X, found.y)
    assert not found.X.flags.writeable


@needs_data
def test_adult_from_openml_has_the_same_rows(nowhere, monkeypatch):
    frame = pandas_adult().rename(columns={"income": "class"})
    frame["class"] = frame["class"].str.rstrip(".")
    frame = frame.astype(dict.fromkeys([*CATEGORICAL, "class"], "category"))
    answer = SimpleNamespace(frame=frame)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *_, **__: answer)
    found = datasets.load("adult")
    assert "OpenML" in found.source
    assert found.checksum == datasets.load("adult", FOLDER).checksum


@needs_data
def test_unpacked_files_do_as_well_and_changed_ones_are_refused(tmp_path):
    for part in ("data", "test"):
        data = gzip.decompress((Path(FOLDER) / f"adult.{part}.gz").read_bytes())
        (tmp_path / f"adult.{part}").write_bytes(data)
    assert datasets.load("adult", tmp_path).checksum == datasets.load("adult", FOLDER).checksum
    (tmp_path / "adult.test").write_bytes(data + b"\n")
    with pytest.raises(DataError, match="md5"):
        datasets.load("adult", tmp_path)
    (tmp_path / "adult.test.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match="readable"):
        datasets.load("adult", tmp_path)


def test_the_shipped_schema_makes_105_columns():
    schema = named.adult_schema()
    assert len(schema.feature_names) == 105
    assert len(schema.numeric) == 6
    assert sum(len(column.levels) for column in schema.categorical) == 98


@needs_data
@pytest.mark.parametrize("name", SHAPES)
def test_keel_copies_have_the_shape_of_the_benchmark_and_say_what_they_are(name):
    found = datasets.load(name)
    rows, columns, positive = SHAPES[name]
    assert found.X.shape == (rows, columns)
    assert len(found.feature_names) == columns
    assert np.count_nonzero(found.y == 1) == positive
    assert set(found.y) == {-1.0, 1.0}
    assert np.linalg.norm(found.X, axis=1).max() <= 1 + 1e-12
    assert "KEEL" in found.source
    assert "not identical" in found.source
    assert found.notes


@needs_data
def test_twonorm_from_keel_and_drawn_are_alike():
    keel, drawn = datasets.load("twonorm"), datasets.load("twonorm", origin="generator", seed=3)
    for data in (keel, drawn):
        means = data.X[data.y == 1].mean(axis=0) * 8
        np.testing.assert_allclose(means, 2 / np.sqrt(20), atol=0.1)


def test_a_wrong_keel_file_is_refused(tmp_path):
    (tmp_path / "banana.dat").write_text("@header\n1.0, 2.0, 1.0\n")
    with pytest.raises(DataError, match=r"5300 rows; got 1"):
        datasets.load("banana", tmp_path)
    (tmp_path / "banana.dat").write_text("one, two, three\n")
    with pytest.raises(DataError, match="must be KEEL's"):
        datasets.load("banana", tmp_path)


@pytest.mark.parametrize("name", ["twonorm", "ringnorm", "waveform"])
def test_what_can_be_drawn_needs_no_files(name, nowhere):
    found = datasets.load(name, seed=7, rows=100)
    assert found.X.shape[0] == 100
    assert "drawn" in found.source
    assert "not the benchmark's own rows" in found.source
    assert found.checksum == datasets.load(name, seed=7, rows=100).checksum
    assert found.checksum != datasets.load(name, seed=8, rows=100).checksum
    assert len(datasets.load(name).y) in (5000, 7400)


@pytest.mark.parametrize("name", ["adult", "german", "image", "banana", "splice"])
@pytest.mark.parametrize("download", [True, False])
def test_data_that_are_not_there_are_refused_with_where_to_get_them(name, download, nowhere):
    with pytest.raises(DataError) as found:
        datasets.load(name, download=download)
    message = str(found.value)
    assert name in message
    assert "DPADMM_DATA" in message
    assert "http" in message


def test_without_the_package_the_message_names_it(nowhere, monkeypatch):
    monkeypatch.setitem(sys.modules, "skdatasets.repositories", None)
    with pytest.raises(DataError, match=r"scikit-datasets.*\'\.\[datasets\]\' in a clone"):
        datasets.load("banana")


def test_the_benchmark_s_own_file_is_scaled_and_named(nowhere):
    X = np.random.default_rng(0).normal(size=(30, 4)) * 50
    X[:, 2] = 7.0
    nowhere.fetch = lambda name, return_X_y: (X, np.where(X[:, 0] > 0, 1, -1))
    found = datasets.load("waveform", origin="raetsch")
    assert "benchmarks.mat" in found.source
    assert np.linalg.norm(found.X, axis=1).max() <= 1
    assert set(found.y) == {-1.0, 1.0}


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    """In one sentence: where a data set can be had is said when it is asked for."""
    with pytest.raises(DataError) as found:
        datasets.load("adlt")
    known = ", ".join(sorted(datasets.NAMES))
    assert str(found.value) == (
        f"data set must be one of: {known}; got 'adlt'. Did you mean 'adult'?"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "adult", "rows": 3}, "leave them out"),
        ({"name": "adult", "origin": "keel"}, "leave them out"),
        ({"name": "banana", "rows": 3}, "rows can be chosen"),
        ({"name": "twonorm", "origin": "moon"}, "origin must be"),
        ({"name": "waveform", "origin": "keel"}, "waveform from 'keel' is not to be had"),
        ({"name": "banana", "origin": "generator"}, "banana from 'generator'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, words, nowhere):
    with pytest.raises(DataError, match=words):
        datasets.load(**arguments)
