"""The model file: the same bits after a round trip, and no changed byte goes unnoticed."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm import ADMMClassifier
from dpadmm.errors import DataError
from dpadmm.run.model import Model, ModelError, load_model, model_bytes, pack, save_model, unpack

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 4))
CODES = (X[:, 0] + RANDOM.normal(size=90) > 0).astype(int) + (X[:, 1] > 1)


def fitted(labels, X=X, parties=None, **parameters):
    parameters = {"algorithm": "admm", "rounds": 4, "n_parties": 3} | parameters
    return ADMMClassifier(**parameters).fit(X, labels, parties)


def same(one, two, X=X):
    assert np.array_equal(one.decision_function(X), two.decision_function(X))
    labels, again = one.predict(X), two.predict(X)
    assert labels.dtype == again.dtype
    assert np.array_equal(labels, again)
    if one.loss == "logistic":
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_", "classes_", "parties_"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert str(one.privacy_) == str(two.privacy_)
    assert one.privacy_.parties == two.privacy_.parties
    for name, spent in one.privacy_.rounds.items():
        assert np.array_equal(spent, two.privacy_.rounds[name])
    assert one.penalty_ == two.penalty_
    for name, values in one.history_.items():
        assert np.array_equal(values, two.history_[name])


@pytest.mark.parametrize(
    ("labels", "parameters"),
    [
        (CODES, {}),
        (CODES > 0, {"loss": "huber-hinge"}),
        (CODES * 2.0, {"fit_intercept": False, "data_norm": 3}),
        (np.array(["x", "yy", "z"])[CODES], {"epsilon": np.inf, "algorithm_options": {}}),
        (np.array(["x", "yy", "z"], dtype=object)[CODES], {"topology": "complete"}),
        (CODES > 0, {"algorithm": "pr-admm", "delta": 1e-3, "random_state": 3}),
        (CODES > 0, {"fourier": {"features": 6, "seed": 2}}),
        (CODES > 0, {"fourier": 6}),
        (CODES, {"polynomial": 2}),
        (CODES > 0, {"polynomial": {"degree": 2, "most_columns": 20}, "fit_intercept": False}),
        (CODES > 0, {"topology": [(0, 1), (1, 2)], "regularization": np.float64(0.1)}),
    ],
)
def test_an_estimator_predicts_the_same_bits_after_a_round_trip(tmp_path, labels, parameters):
    estimator = fitted(labels, **parameters)
    save_model(tmp_path / "m", estimator)
    loaded = load_model(tmp_path / "m")
    restored = loaded.to_estimator()
    same(estimator, restored)
    # The loss is saved as it was chosen: a later version may choose otherwise.
    assert restored.loss_ == estimator.loss_
    assert restored.get_params() == estimator.get_params() | {"loss": estimator.loss_}
    assert loaded.schema is None
    save_model(tmp_path / "again", loaded)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_an_older_file_has_weights_of_rows_divided_by_data_norm(tmp_path):
    estimator = fitted(CODES > 0, data_norm=4.0)
    document, arrays = unpack(model_bytes(Model.from_estimator(estimator)), "new")
    assert document["format"] == 2
    for name in ("coef", "node_coef"):
        arrays[name] *= 4.0
    (tmp_path / "old").write_bytes(pack(document | {"format": 1}, arrays, 1))
    same(estimator, load_model(tmp_path / "old").to_estimator())


def test_weights_that_mean_the_same_in_both_formats_are_written_as_before():
    document, _ = unpack(model_bytes(Model.from_estimator(fitted(CODES > 0))), "new")
    assert document["format"] == 1


def test_budgets_by_party_and_names_of_columns_are_kept(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    parties = np.repeat([7, 8, 9], 30)
    epsilon = {7: 1.0, 8: 2, np.int64(9): 0.5}
    estimator = fitted(
        CODES > 0, frame, parties, algorithm="pr-admm", delta=1e-3, epsilon=epsilon, random_state=1
    )
    save_model(tmp_path / "m", estimator)
    restored = load_model(tmp_path / "m").to_estimator()
    same(estimator, restored, frame)
    assert restored.epsilon == {7: 1.0, 8: 2, 9: 0.5}
    assert list(restored.feature_names_in_) == ["a", "b", "c", "d"]
    # A loaded estimator is an estimator like any other.
    assert restored.fit(X, CODES, parties).coef_.shape == (3, 4)


def test_a_generator_is_saved_as_none(tmp_path):
    estimator = fitted(CODES, random_state=np.random.RandomState(0))
    save_model(tmp_path / "m", estimator)
    restored = load_model(tmp_path / "m").to_estimator()
    assert restored.random_state is None
    assert restored.privacy_.simulated


@pytest.fixture(scope="module")
def saved():
    return model_bytes(Model.from_estimator(fitted(CODES)))


@given(data=st.data())
def test_one_changed_byte_anywhere_is_refused(tmp_path_factory, saved, data):
    with zipfile.ZipFile(io.BytesIO(saved)) as file:
        starts = [entry.header_offset for entry in file.infolist()]
        starts.append(file.start_dir)
    # Every region is drawn as often as any other, however long it is.
    regions = list(zip(starts, [*starts[1:], len(saved)], strict=True))
    start, end = data.draw(st.sampled_from([*regions, (len(saved) - 100, len(saved))]))
    place = data.draw(st.integers(start, end - 1))
    changed = bytearray(saved)
    changed[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "changed.model"
    path.write_bytes(changed)
    with pytest.raises(ModelError, match="model must be"):
        load_model(path)


@given(length=st.integers(0, 300), extra=st.binary(min_size=1, max_size=20))
def test_shorter_and_longer_files_are_refused(tmp_path_factory, saved, length, extra):
    path = tmp_path_factory.getbasetemp() / "cut.model"
    for content in (saved[:length], saved[:-1], saved + extra, extra + saved):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="model must be"):
            load_model(path)


def test_another_version_is_named(tmp_path, saved):
    path = tmp_path / "m"
    path.write_bytes(saved.replace(b"dpadmm-model/1 ", b"dpadmm-model/23 "))
    with pytest.raises(ModelError, match=r"must be of format version 1 or 2; .* is of version 23"):
        load_model(path)


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "m"
    for content in (b"", b"PK\x03\x04", b"[run]\n" * 100):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="none or damaged"):
            load_model(path)
    with pytest.raises(ModelError, match="No such file"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="Is a directory"):
        load_model(tmp_path)


def test_a_whole_archive_of_other_content_is_refused(tmp_path):
    path = tmp_path / "m"
    arrays = {"coef": np.zeros((1, 2))}
    for document in ({}, {"objects": ["x"]}, {"objects": [], "schema": 3, "feature_names": None}):
        path.write_bytes(pack(document, arrays))
        with pytest.raises(ModelError, match="lacks something"):
            load_model(path)


def test_no_array_asks_for_more_memory_than_the_file_has():
    header = io.BytesIO()
    content = {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
    np.lib.format.write_array_header_1_0(header, content)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("model.json", "{}")
        file.writestr("a.npy", header.getvalue())
        file.comment = b"dpadmm-model/1 sha256:" + b"0" * 64
    covered = buffer.getvalue()[:-64]
    with pytest.raises(ModelError, match="damaged"):
        unpack(covered + hashlib.sha256(covered).hexdigest().encode(), "forged")


@pytest.mark.parametrize(
    "array", [np.array(["", ""]), np.zeros((0, 3)), np.array(2.5), np.arange(3, dtype=">i4")]
)
def test_arrays_of_odd_shapes_survive(array):
    _, arrays = unpack(pack({}, {"a": array}), "here")
    assert arrays["a"].shape == array.shape
    assert np.array_equal(arrays["a"], array)


def test_what_cannot_be_saved_is_refused_and_nothing_is_left(tmp_path):
    estimator = fitted(CODES)
    estimator.algorithm_options = {"x": object()}
    with pytest.raises(ModelError, match="algorithm_options must be plain data"):
        save_model(tmp_path / "m", estimator)
    with pytest.raises(DataError, match="model must be writable"):
        save_model(tmp_path / "no" / "m", fitted(CODES))
    estimator = fitted(CODES)
    estimator.classes_ = np.array([1, "a\0", None], dtype=object)
    with pytest.raises(ModelError, match="must be numbers or text"):
        save_model(tmp_path / "m", estimator)
    estimator.classes_ = np.array(["b", "a\0"], dtype=object)
    with pytest.raises(ModelError, match="zero character"):
        save_model(tmp_path / "m", estimator)
    assert list(tmp_path.iterdir()) == []


def test_the_document_is_readable_by_anybody(tmp_path, saved):
    with zipfile.ZipFile(io.BytesIO(saved)) as file:
        document = json.loads(file.read("model.json"))
        assert file.testzip() is None
    assert document["format"] == 1
    assert document["arrays"]["coef"] == [3, 4]
    assert document["privacy"]["epsilon"] == "infinite"
    assert document["classes"] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 0},
        {"columns": "many"},
        {"columns": ...},
        {"parameters": {"fourier": {"mapping": [["features", 7]]}}},
        {"parameters": {"fourier": {"mapping": [["features", 10**9]]}}},
        {"parameters": {"polynomial": 2}},
    ],
)
def test_a_fourier_map_that_does_not_fit_the_weights_is_refused(tmp_path, change):
    path = tmp_path / "m.model"
    save_model(path, fitted(CODES > 0, fourier={"features": 6}))
    assert load_model(path).columns == 4
    document, arrays = unpack(path.read_bytes(), "here")
    document |= {**change, "parameters": document["parameters"] | change.get("parameters", {})}
    kept = {name: value for name, value in document.items() if value != ...}
    path.write_bytes(pack(kept, arrays))
    with pytest.raises(ModelError, match="lacks something"):
        load_model(path)


def test_a_fingerprint_covers_what_decides_scores_and_nothing_else(tmp_path):
    estimator = fitted(CODES > 0)
    save_model(tmp_path / "m", estimator)
    model = load_model(tmp_path / "m")
    save_model(tmp_path / "again", estimator, provenance={"run_sha256": "0" * 64})
    again = load_model(tmp_path / "again")
    assert (tmp_path / "m").read_bytes() != (tmp_path / "again").read_bytes()
    assert model.fingerprint == again.fingerprint
    known = {model.fingerprint}
    others = (fitted((CODES > 0).astype(int)), fitted(CODES > 0, rounds=5), fitted(CODES))
    others += (fitted(CODES > 0, fourier={"features": 6, "seed": 2}),)
    others += (fitted(CODES > 0, fourier={"features": 6, "seed": 3}),)
    for other in others:
        found = Model.from_estimator(other).fingerprint
        assert found not in known
        known.add(found)
    moved = replace(model.classifier, coef=np.nextafter(model.classifier.coef, np.inf))
    assert replace(model, classifier=moved).fingerprint not in known
