"""The graph of a model says what the model says, in a runtime that knows nothing of the package."""

import json
import re
import tomllib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpadmm import ADMMClassifier, FederatedClassifier
from dpadmm.data.schema import Schema
from dpadmm.run.export import log_to_mlflow, model_card, onnx_bytes
from dpadmm.run.model import Model, load_model

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 4)) * [1, 2, 0.5, 3]
CODES = (X[:, 0] + RANDOM.normal(size=120) > 0).astype(int) + (X[:, 1] > 1)

SCHEMA = """
version = 2
constant = {constant}
[label]
column = "outcome"
classes = {classes}
[[columns]]
name = "age"
kind = "numeric"
lower = 0
upper = 100
[[columns]]
name = "amount"
kind = "numeric"
lower = 0
upper = 1e5
range = [0, 1]
transform = "log1p"
missing = false
[[columns]]
name = "ward"
kind = "categorical"
levels = ["north", "south", "3"]
aliases = {{ "sud" = "south" }}
[[columns]]
name = "smoker"
kind = "categorical"
levels = ["yes", "no"]
missing = false
other = false
{more}
"""


def answers(model, given):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    session = onnxruntime.InferenceSession(onnx_bytes(model))
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


def agrees(model, rows, given):
    found = answers(model, given)
    assert [str(label) for label in found["label"]] == [str(label) for label in model.predict(rows)]
    scores = model.decision_function(rows)
    np.testing.assert_allclose(found["score"].squeeze(), scores, rtol=0, atol=1e-6)
    if "probability" in found:
        chances = model.predict_proba(rows)
        np.testing.assert_allclose(found["probability"], chances, rtol=0, atol=1e-6)
    return found


@pytest.mark.parametrize(
    ("labels", "parameters"),
    [
        (CODES > 0, {}),
        (CODES, {"loss": "huber-hinge"}),
        (CODES * 7, {"fit_intercept": False, "data_norm": 3.0}),
        (np.array(["x", "yy", "z"])[CODES], {"fourier": 6}),
        (CODES > 0, {"polynomial": 2}),
        (CODES, {"polynomial": 2, "fit_intercept": False}),
    ],
)
def test_a_model_of_arrays(labels, parameters):
    asked = {"algorithm": "admm", "rounds": 4, "n_parties": 3} | parameters
    model = Model.from_estimator(ADMMClassifier(**asked).fit(X, labels))
    found = agrees(model, X, {"X": X})
    assert len(set(map(str, found["label"]))) > 1


@pytest.mark.parametrize("labels", [CODES > 0, CODES])
def test_fitted_probabilities_and_a_threshold(labels):
    estimator = FederatedClassifier(
        epsilon=20.0, delta=1e-3, probabilities=True, n_parties=3, random_state=0, rounds=20
    ).fit(X, labels)
    model = Model.from_estimator(estimator)
    assert "probability" in agrees(model, X, {"X": X})
    if len(estimator.classes_) == 2:
        object.__setattr__(model.classifier.quality, "threshold", 0.05)
        agrees(model, X, {"X": X})


@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
@pytest.mark.parametrize(
    ("constant", "more"),
    [
        ("true", ""),
        ("0.3", ""),
        ("false", ""),
        ("false", "[fourier]\nfeatures = 9\n"),
        ("true", "[polynomial]\ndegree = 2\n"),
    ],
)
def test_a_model_of_a_schema(classes, constant, more):
    schema = Schema.model_validate(
        tomllib.loads(SCHEMA.format(classes=classes, constant=constant, more=more))
    )
    width, outputs = len(schema.feature_names), len(classes)
    codes = RANDOM.integers(len(classes), size=90)
    estimator = ADMMClassifier("admm", rounds=3, n_parties=3, fit_intercept=False)
    estimator.fit(RANDOM.normal(size=(90, width)), np.array(classes)[codes], classes=classes)
    model = Model.from_estimator(estimator, schema=schema)
    assert model.classifier.coef.shape[0] == (1 if outputs == 2 else outputs)
    table = pd.DataFrame(
        {
            "age": [50.0, np.nan, -3.0, 1000.0, 20.5, np.inf],
            "amount": [0.0, 10.0, 1e9, 55.5, np.nan, 3.0],
            "ward": ["north", "sud", "elsewhere", "", "3.0", "south"],
            "smoker": ["yes", "no", "perhaps", "NA", "no", "yes"],
        }
    )
    given = {
        name: table[[name]].to_numpy(np.float64 if name in ("age", "amount") else object)
        for name in table
    }
    agrees(model, table, given)


def test_the_file_carries_the_privacy_statement():
    onnx = pytest.importorskip("onnx")
    estimator = FederatedClassifier(epsilon=1.0, delta=1e-3, n_parties=3, random_state=0)
    model = Model.from_estimator(estimator.fit(X, CODES > 0))
    loaded = onnx.load_from_string(onnx_bytes(model))
    notes = {each.key: each.value for each in loaded.metadata_props}
    assert notes["privacy"] == str(model.privacy)
    assert json.loads(notes["privacy_json"])["epsilon"] == model.privacy.to_dict()["epsilon"]


def test_a_card_carries_every_line_of_the_statement_and_every_figure():
    estimator = FederatedClassifier(
        epsilon=5.0, delta=1e-3, n_parties=3, random_state=0, holdout=0.3, rounds=10
    )
    labels = np.where(CODES > 0, "a|b", "<c>")
    model = Model.from_estimator(estimator.fit(X, labels))
    card = model_card(model, "my model")
    assert card.startswith("# my model\n")
    for heading, words in model.privacy.lines():
        assert f"| {heading} | {words.replace('|', '&#124;')} |" in re.sub(r"\\(.)", r"\1", card)
    for figure in model.classifier.quality.evaluation().estimates:
        assert f"| {figure.name} |" in card
    # Names from anybody make no cell and no markup.
    assert "a&#124;b" in card
    assert "\\<c\\>" in card


def test_a_card_of_a_hostile_file_is_bounded_and_has_no_markup_of_its_own():
    bad = "<img src=x onerror=a()>\n\n# Approved ![x](http://x) | `x` |" + "x" * 10_000
    estimator = ADMMClassifier("admm", rounds=2, n_parties=2).fit(X, CODES > 0)
    model = Model.from_estimator(estimator)
    fitted = replace(
        model.classifier,
        classes=np.array([bad, "yes"]),
        parties=np.array([f"{number} {bad}" for number in range(1000)]),
        privacy=replace(model.privacy, algorithm=bad),
    )
    provenance = {"rows": {bad: bad}, "run_sha256": bad}
    told = replace(model, classifier=fitted, provenance=provenance, created=bad, version=bad)
    card = model_card(told, bad)
    assert len(card) < 60_000
    theirs = card[: card.index("## Use")].replace("`dpadmm evaluate`", "")
    assert not re.search(r"(?<!\\)[<>`!\[]", theirs)
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert [line for line in headings if line.startswith("##")] == [
        "## How good it is",
        "## Privacy",
        "## Use",
    ]
    assert len(headings) == 4


def test_a_card_of_a_model_that_was_not_evaluated_says_so():
    estimator = ADMMClassifier("admm", rounds=2, n_parties=2).fit(X, CODES > 0)
    assert "no evaluation was released" in model_card(Model.from_estimator(estimator))


def test_mlflow_gets_parameters_figures_statement_and_the_file(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    # It would call home.
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}")
    mlflow.set_experiment("wards")
    estimator = FederatedClassifier(
        epsilon=5.0, delta=1e-3, n_parties=3, random_state=0, holdout=0.3, rounds=10
    )
    model = Model.from_estimator(estimator.fit(X, CODES > 0))
    with mlflow.start_run() as run:
        log_to_mlflow(model)
    data = mlflow.get_run(run.info.run_id).data
    assert data.params["epsilon"] == "5.0"
    assert data.metrics["epsilon"] == model.privacy.epsilon
    assert data.metrics["accuracy low"] <= data.metrics["accuracy"]
    files = {path.name: path for path in tmp_path.rglob("artifacts/*")}
    assert set(files) == {"privacy.json", "privacy.txt", "model-card.md", "model.model"}
    assert files["privacy.txt"].read_text() == str(model.privacy)
    assert load_model(files["model.model"]).classifier.coef.shape == model.classifier.coef.shape
