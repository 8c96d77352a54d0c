import inspect
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpadmm import ADMMClassifier, FederatedClassifier, load_model
from dpadmm.algorithms import algorithm_names
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import pair
from dpadmm.problem.losses import LOSSES
from dpadmm.problem.rows import prepare_rows, scaled_margins
from dpadmm.problem.site import GRAPHS
from dpadmm.run.model import Model, save_model
from dpadmm.run.options import (
    RepeatedFitWarning,
    ScaleWarning,
    say_repeated_once,
    say_scale_once,
)

PUBLIC = ["admm", "consensus-admm"]


@pytest.fixture(scope="module")
def data():
    return make_classification(
        n_samples=160, n_features=6, n_informative=4, n_clusters_per_class=1, random_state=0
    )


def classifier(**changes):
    settings = {"algorithm": "admm", "n_parties": 3, "rounds": 20, "penalty": 0.02}
    return ADMMClassifier(**{"data_norm": 4.0, "random_state": 0, **settings, **changes})


# -- scikit-learn's own contract ----------------------------------------------------------------


# scikit-learn warns when a check is skipped, and when it has no array API to try.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        ADMMClassifier(algorithm="admm", rounds=10, random_state=0),
        ADMMClassifier(algorithm="consensus-admm", rounds=10, random_state=0),
        ADMMClassifier(),
        FederatedClassifier(rounds=10),
        ADMMClassifier(
            algorithm="admm", rounds=10, random_state=0, fourier={"features": 20, "scale": 2.0}
        ),
    ]
)
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_it_works_inside_a_pipeline_and_a_search(data, algorithm):
    rows, labels = data
    model = make_pipeline(StandardScaler(), classifier(algorithm=algorithm))
    assert cross_val_score(model, rows, labels, cv=3).mean() > 0.7
    search = GridSearchCV(model, {"admmclassifier__regularization": [1e-3, 10.0]}, cv=3)
    search.fit(rows, labels)
    assert search.best_params_ == {"admmclassifier__regularization": 1e-3}


def test_a_clone_is_unfitted_and_fits_to_the_same(data):
    fitted = classifier().fit(*data)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "coef_")
    np.testing.assert_array_equal(copy.fit(*data).coef_, fitted.coef_)


def test_a_pickle_predicts_alike(data):
    fitted = classifier().fit(*data)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        copy.decision_function(data[0]), fitted.decision_function(data[0])
    )


def test_fit_leaves_its_arguments_and_parameters_alone(data):
    rows, labels = data[0].copy(), data[1].copy()
    model = classifier(algorithm_options={}, topology=[(0, 1), (1, 2)])
    before = model.get_params()
    model.fit(rows, labels)
    assert model.get_params() == before
    np.testing.assert_array_equal(rows, data[0])
    np.testing.assert_array_equal(labels, data[1])


# -- the optimum --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_unequal_parties_reach_scikit_learn_s_optimum(data, algorithm):
    rows, labels = data
    parties = np.repeat([0, 1, 2], [20, 50, 90])
    regularization = 0.05
    model = classifier(
        algorithm=algorithm,
        rounds=500,
        penalty=0.03 if algorithm == "admm" else 0.1,
        fit_intercept=False,
        regularization=regularization,
    ).fit(rows, labels, parties=parties)
    prepared = prepare_rows(rows, data_norm=4.0, fit_intercept=False)
    reference = LogisticRegression(
        C=3 / (len(rows) * regularization), fit_intercept=False, tol=1e-10, solver="newton-cholesky"
    ).fit(prepared, labels)
    np.testing.assert_allclose(4.0 * model.coef_, reference.coef_, atol=1e-6)
    everywhere = np.tile(reference.coef_, (3, 1, 1))
    np.testing.assert_allclose(4.0 * model.node_coef_, everywhere, atol=1e-6)
    np.testing.assert_array_equal(model.intercept_, [0.0])
    np.testing.assert_allclose(
        model.predict_proba(rows), reference.predict_proba(prepared), atol=1e-6
    )


def test_the_intercept_is_the_weight_of_an_appended_one(data):
    rows, labels = data
    model = classifier(rounds=500, penalty=0.03, regularization=0.05).fit(rows, labels)
    prepared = prepare_rows(rows, data_norm=4.0, fit_intercept=True)
    reference = LogisticRegression(
        C=3 / (len(rows) * 0.05), fit_intercept=False, tol=1e-10, solver="newton-cholesky"
    ).fit(prepared, labels)
    whole = np.append(4.0 * model.coef_[0], model.intercept_)
    np.testing.assert_allclose(whole, reference.coef_[0], atol=1e-6)
    assert model.node_coef_.shape == (3, 1, 6)
    assert model.node_intercept_.shape == (3, 1)


def test_parties_that_count_alike_pull_harder_than_their_rows(data):
    rows, labels = data
    parties = np.repeat([0, 1, 2], [20, 50, 90])
    settings = {"rounds": 500, "penalty": 0.03, "fit_intercept": False, "regularization": 0.05}
    model = classifier(party_weight="equal", **settings).fit(rows, labels, parties=parties)
    weights = (160 / 3) / np.repeat([20, 50, 90], [20, 50, 90])
    prepared = prepare_rows(rows, data_norm=4.0, fit_intercept=False)
    reference = LogisticRegression(
        C=3 / (160 * 0.05), fit_intercept=False, tol=1e-10, solver="newton-cholesky"
    ).fit(prepared, labels, sample_weight=weights)
    np.testing.assert_allclose(4.0 * model.coef_, reference.coef_, atol=1e-6)


# -- kinds of input -----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_several_classes_are_each_set_against_the_rest(algorithm):
    rows, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    settings = {"algorithm": algorithm, "data_norm": 10.0, "rounds": 100, "penalty": 0.005}
    model = classifier(**settings).fit(rows, names)
    assert model.coef_.shape == (3, 4)
    assert model.node_coef_.shape == (3, 3, 4)
    assert model.decision_function(rows).shape == (150, 3)
    assert model.score(rows, names) > 0.9
    chances = model.predict_proba(rows)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(rows))
    parties = np.arange(150) % 3
    joint = classifier(**settings).fit(rows, names, parties=parties)
    for place, name in enumerate(joint.classes_):
        single = classifier(**settings).fit(rows, names == name, parties=parties)
        np.testing.assert_allclose(joint.coef_[place], single.coef_[0], atol=1e-4)


@pytest.mark.parametrize("algorithm", PUBLIC)
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
def test_sparse_rows_train_as_dense_ones(data, algorithm, container):
    rows = np.where(np.abs(data[0]) > 0.5, data[0], 0.0)
    model = classifier(algorithm=algorithm)
    dense = clone(model).fit(rows, data[1])
    thin = clone(model).fit(container(rows), data[1])
    np.testing.assert_allclose(thin.node_coef_, dense.node_coef_, atol=1e-5)
    np.testing.assert_allclose(
        thin.decision_function(container(rows)), dense.decision_function(rows), atol=1e-5
    )


def test_parties_may_be_called_anything(data):
    rows, labels = data
    owners = np.array(["Lund", "Oslo", "Bern"])[np.arange(160) % 3]
    model = classifier().fit(rows, labels, parties=owners)
    assert list(model.parties_) == ["Bern", "Lund", "Oslo"]
    renamed = classifier().fit(
        rows, labels, parties=[{"Bern": 0, "Lund": 1, "Oslo": 2}[o] for o in owners]
    )
    np.testing.assert_array_equal(model.node_coef_, renamed.node_coef_)


def test_a_party_with_one_class_or_one_row_is_fine(data):
    rows, labels = data
    parties = labels.copy()
    parties[0] = 2
    model = classifier().fit(rows, labels, parties=parties)
    assert model.node_coef_.shape == (3, 1, 6)
    assert np.isfinite(model.node_coef_).all()


def test_rows_are_split_evenly_and_by_the_seed(data):
    first, second = classifier().fit(*data), classifier().fit(*data)
    np.testing.assert_array_equal(first.node_coef_, second.node_coef_)
    other = classifier(random_state=1).fit(*data)
    assert np.abs(first.node_coef_ - other.node_coef_).max() > 1e-6
    np.testing.assert_array_equal(first.parties_, [0, 1, 2])


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_learns_and_only_the_logistic_gives_probabilities(data, loss):
    model = classifier(loss=loss, rounds=60).fit(*data)
    assert model.score(*data) > 0.7
    assert hasattr(model, "predict_proba") == (loss == "logistic")
    assert hasattr(model, "predict_log_proba") == (loss == "logistic")
    if loss == "logistic":
        chances = model.predict_proba(data[0])
        np.testing.assert_allclose(chances[:, 1], expit(margins_of(model, data[0])[:, 0]))
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(data[0])), chances)


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
def test_the_output_is_the_mean_of_the_last_messages_or_of_the_tail_or_of_all(data):
    last = classifier(output="last").fit(*data)
    np.testing.assert_allclose(last.coef_, last.node_coef_.mean(axis=0), atol=1e-15)
    np.testing.assert_array_equal(classifier(output="auto").fit(*data).coef_, last.coef_)
    tail = classifier(output="tail").fit(*data)
    assert np.abs(tail.coef_ - last.coef_).max() > 1e-8
    np.testing.assert_array_equal(tail.node_coef_, last.node_coef_)
    mean = classifier(output="mean").fit(*data)
    early = [classifier(rounds=t, output="last").fit(*data).coef_ for t in range(1, 21)]
    np.testing.assert_allclose(mean.coef_, np.mean(early, axis=0), atol=1e-12)


def test_the_history_has_a_number_per_round(data):
    model = classifier(rounds=7).fit(*data)
    assert {name: len(values) for name, values in model.history_.items()} == {
        "disagreement": 7,
        "change": 7,
    }
    assert model.penalty_ == 0.02


def margins_of(model, rows):
    """Margins of prepared rows, written out once more."""
    longer = np.column_stack([rows / 4.0, np.full(len(rows), model.intercept_scale)])
    length = np.maximum(np.linalg.norm(longer, axis=1), 1.0)
    return (rows @ model.coef_.T + model.intercept_) / length[:, None]


@pytest.mark.parametrize("build", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "changes",
    [{}, {"fit_intercept": False}, {"intercept_scale": 0.5, "data_norm": 0.7}, {"data_norm": 9.0}],
)
@pytest.mark.parametrize("several", [False, True])
def test_scores_are_those_of_a_linear_classifier_on_the_columns_as_given(
    data, build, changes, several
):
    rows, labels = data
    if several:
        labels = labels + (rows[:, 1] > 0.5)
    model = classifier(**changes).fit(rows, labels)
    given = build(rows)
    scores = model.decision_function(given)
    plain = given @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(scores, plain if several else plain[:, 0])
    # What training saw was scaled down row by row: the same side, and the same best class.
    told = {name: getattr(model, name) for name in ("data_norm", "intercept_scale")}
    prepared = prepare_rows(given, fit_intercept=model.fit_intercept, **told)
    weights = model.coef_ * model.data_norm
    if model.fit_intercept:
        weights = np.column_stack([weights, model.intercept_ / model.intercept_scale])
    margins = prepared @ weights.T
    best = margins.argmax(axis=1) if several else (margins[:, 0] > 0).astype(int)
    np.testing.assert_array_equal(model.predict(given), model.classes_[best])
    np.testing.assert_allclose(
        scaled_margins(
            given,
            model.coef_,
            model.intercept_,
            data_norm=model.data_norm,
            intercept_scale=model.intercept_scale if model.fit_intercept else None,
        ),
        margins,
        atol=1e-13,
    )


def test_probabilities_are_of_rows_as_training_saw_them(data):
    model = classifier(intercept_scale=0.5).fit(*data)
    expected = expit(margins_of(model, data[0])[:, 0])
    np.testing.assert_allclose(model.predict_proba(data[0])[:, 1], expected, atol=1e-14)


def test_a_probability_of_zero_has_a_logarithm(data):
    model = classifier().fit(*data)
    model.coef_ = 1e6 * model.coef_
    logarithms = model.predict_log_proba(data[0])
    assert np.isneginf(logarithms).any()
    assert logarithms.max() <= 0


@pytest.mark.parametrize("scale", [0.25, 3.0])
def test_the_intercept_is_the_weight_of_the_appended_number_times_that_number(data, scale):
    rows, labels = data
    model = classifier(intercept_scale=scale).fit(rows, labels)
    appended = np.column_stack([rows / 4.0, np.full(len(rows), scale)])
    appended /= np.maximum(np.linalg.norm(appended, axis=1), 1.0)[:, None]
    # The same training, told what the last column of its rows is.
    told = classifier(fit_intercept=False, data_norm=1.0).fit(appended, labels)
    np.testing.assert_allclose(4.0 * model.coef_, told.coef_[:, :-1], atol=1e-12)
    np.testing.assert_allclose(model.intercept_, scale * told.coef_[:, -1], atol=1e-12)
    np.testing.assert_allclose(model.node_intercept_, scale * told.node_coef_[..., -1], atol=1e-12)
    np.testing.assert_allclose(
        margins_of(model, rows)[:, 0], told.decision_function(appended), atol=1e-12
    )


def test_a_short_constant_leaves_short_rows_their_length():
    rows = np.array([[0.3, 0.4]])
    one = prepare_rows(rows, data_norm=1.0, fit_intercept=True)
    short = prepare_rows(rows, data_norm=1.0, fit_intercept=True, intercept_scale=0.25)
    np.testing.assert_allclose(one, np.array([[0.3, 0.4, 1.0]]) / np.sqrt(1.25))
    np.testing.assert_allclose(short, [[0.3, 0.4, 0.25]])


def test_an_automatic_loss_is_told_and_has_no_probabilities_under_noise(data):
    private = classifier(algorithm="pr-admm", penalty="auto").fit(*data)
    assert (private.loss, private.loss_) == ("auto", "huber-hinge")
    assert not hasattr(private, "predict_proba")
    with pytest.raises(AttributeError) as refusal:
        private._offers_probabilities()
    assert "'huber-hinge', which 'auto' chose" in str(refusal.value)
    assert "Use probabilities=True, which fits them, or loss='logistic'" in str(refusal.value)
    plain = classifier().fit(*data)
    assert plain.loss_ == "logistic"
    assert hasattr(plain, "predict_proba")
    named = classifier(algorithm="pr-admm", penalty="auto", loss="logistic").fit(*data)
    assert named.predict_proba(data[0]).shape == (len(data[0]), 2)


def test_one_party_and_one_round_work(data):
    assert classifier(n_parties=1, rounds=1).fit(*data).node_coef_.shape == (1, 1, 6)


# -- refusals -----------------------------------------------------------------------------------


def refusal(data, kind=ParameterError, fit=None, **changes):
    with pytest.raises(kind) as caught:
        classifier(**changes).fit(*data, **(fit or {}))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_must_be_finite(data, value):
    rows = data[0].copy()
    rows[3, 2] = value
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        classifier().fit(rows, data[1])


def test_there_must_be_two_classes(data):
    assert "y must have at least two classes; got one class, 1.0." in refusal(
        (data[0], np.ones(160))
    )


def test_there_must_be_a_row_per_party(data):
    text = refusal((data[0][:4], [0, 1, 0, 1]), n_parties=5)
    assert "n_parties must be at most the number of rows; got n_parties=5" in text
    assert "4" in text


@pytest.mark.parametrize(
    ("parameter", "value", "known"),
    [
        ("topology", "rings", [*GRAPHS, "server"]),
        ("algorithm", "amdm", algorithm_names()),
        ("loss", "hinge", list(LOSSES)),
        ("party_weight", "row", ["rows", "equal"]),
        ("output", "median", ["auto", "last", "tail", "mean"]),
    ],
)
def test_an_unknown_name_lists_the_known_ones(data, parameter, value, known):
    text = refusal(data, **{parameter: value})
    assert text.startswith(f"{parameter} must be one of: ")
    assert repr(value) in text
    for name in known:
        assert name in text


def test_an_unknown_option_is_refused_with_what_there_is(data):
    text = refusal(data, algorithm_options={"speed": 3})
    assert "algorithm_options of 'admm'" in text
    assert "'speed'" in text
    assert "start" in text


def test_a_disconnected_edge_list_names_its_components(data):
    text = refusal(data, n_parties=4, topology=[(0, 2), (1, 3)])
    assert "topology must be connected" in text
    assert "[0, 2]" in text
    assert "[1, 3]" in text


@pytest.mark.parametrize(
    ("algorithm", "topology"), [("admm", "server"), ("consensus-admm", "ring")]
)
def test_the_topology_must_suit_the_algorithm(data, algorithm, topology):
    text = refusal(data, algorithm=algorithm, topology=topology)
    assert text.startswith("topology must be ")
    assert repr(algorithm) in text
    assert repr(topology) in text


@pytest.mark.parametrize("parameter", ["penalty", "regularization", "data_norm", "intercept_scale"])
@pytest.mark.parametrize("value", [0, -1.5, np.nan, np.inf, None, True, [1.0], np.ones(2), 10**400])
def test_a_number_must_be_positive_and_finite(data, parameter, value):
    text = refusal(data, **{parameter: value})
    assert text.startswith(f"{parameter} must be a positive number")
    assert repr(value) in text


@pytest.mark.parametrize("parameter", ["rounds", "n_parties"])
@pytest.mark.parametrize("value", [0, -3, 2.5, "5", None, True])
def test_a_count_must_be_a_positive_integer(data, parameter, value):
    text = refusal(data, **{parameter: value})
    assert text.startswith(f"{parameter} must be a whole number of at least 1")
    assert repr(value) in text


def test_a_penalty_is_a_number_or_auto(data):
    text = refusal(data, penalty="foo")
    assert text == "penalty must be a positive number or 'auto'; got 'foo'."
    assert "'auto'" in refusal(data, penalty=-1)


@pytest.mark.parametrize("kind", [ADMMClassifier, FederatedClassifier])
@pytest.mark.parametrize("name", ["sample_weight", "class_weight"])
def test_weights_are_refused_with_the_reason(data, name, kind):
    texts = set()
    for given in (
        lambda: kind(**{name: "balanced"}),
        lambda: kind().set_params(**{name: "balanced"}),
        lambda: kind().fit(*data, **{name: np.ones(160)}),
    ):
        with pytest.raises(ParameterError, match=f"^{name} must not be given") as refused:
            given()
        texts.add(str(refused.value))
    (text,) = texts
    advice = {"sample_weight": "party_weight", "class_weight": "dpadmm evaluate --sensitivity"}
    assert advice[name] in text


@pytest.mark.parametrize("kind", [ADMMClassifier, FederatedClassifier])
def test_a_misspelt_argument_is_not_taken_for_a_weight(data, kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'partys'"):
        kind().fit(*data, partys=np.zeros(160))
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilom'"):
        kind(epsilom=1.0)


@pytest.mark.parametrize("parties", [np.zeros(3), np.zeros((160, 2)), "all"])
def test_every_row_must_have_an_owner(data, parties):
    text = refusal(data, fit={"parties": parties})
    assert "parties must name the owner of each of the 160 rows" in text
    assert str(np.asarray(parties).shape) in text


@pytest.mark.parametrize(
    "missing", [None, np.nan, pd.NA, pd.NaT, np.float64("nan"), np.datetime64("NaT", "ns")]
)
@pytest.mark.parametrize("others", ["a", 1, 1.5])
@pytest.mark.parametrize("container", [list, pd.Series, lambda names: np.array(names, object)])
def test_a_row_without_an_owner_is_refused_before_rows_are_looked_at(missing, others, container):
    owners = container([others] * 159 + [missing])
    # Rows that scikit-learn would refuse.
    text = refusal((np.full((160, 2), "x"), np.zeros(160)), fit={"parties": owners})
    assert text.startswith("parties must name the owner of every row; got a missing value")
    assert "Name its owner, or leave the row out." in text


def test_owners_of_several_kinds_are_refused_in_words(data):
    owners = np.array(["a", 1] * 80, dtype=object)
    text = refusal(data, fit={"parties": owners})
    assert text.startswith("parties must be numbers or texts, not both")
    assert "got int, str." in text


def test_refusals_come_before_the_rows_are_looked_at(data):
    # The same sentence whatever the rows: it cannot tell anything about them.
    texts = set()
    for seed in range(3):
        rows = np.random.default_rng(seed).normal(size=(160, 6))
        texts.add(refusal((rows, data[1]), penalty=1e12, regularization=1e-300, rounds=0))
    assert len(texts) == 1


def test_every_sentence_ends_with_a_full_stop_and_names_the_value(data):
    for changes in ({"penalty": -1}, {"topology": "x"}, {"rounds": 0}, {"output": "x"}):
        ((_, value),) = changes.items()
        text = refusal(data, **changes)
        assert re.search(r"[.?]$", text)
        assert repr(value) in text


# -- the general name ---------------------------------------------------------------------------


def test_the_general_name_has_the_same_parameters():
    general, named = (
        inspect.signature(each).parameters for each in (FederatedClassifier, ADMMClassifier)
    )
    assert list(general) == list(named)
    differing = {name for name in named if general[name].default != named[name].default}
    assert differing == {"algorithm", "rounds"}
    assert (named["algorithm"].default, named["rounds"].default) == ("pr-admm", 50)
    assert (general["algorithm"].default, general["rounds"].default) == ("auto", "auto")


@pytest.mark.parametrize(
    ("topology", "picked", "rounds"), [("auto", "dp-gd", 100), ("ring", "dp-gd", 100)]
)
def test_an_algorithm_that_was_chosen_is_named_and_kept(data, tmp_path, topology, picked, rounds):
    told = {"topology": topology, "n_parties": 3, "delta": 1e-3, "data_norm": 4.0}
    model = FederatedClassifier(**told, random_state=0).fit(*data)
    assert (model.algorithm_, model.rounds_) == (picked, rounds)
    assert model.get_params()["algorithm"] == "auto"
    assert dict(model.privacy_.lines())["Algorithm"].startswith(picked)
    named = ADMMClassifier(picked, rounds=rounds, **told, random_state=0).fit(*data)
    np.testing.assert_array_equal(model.coef_, named.coef_)
    assert "Algorithm" not in dict(named.privacy_.lines())
    save_model(tmp_path / "chosen.model", model)
    kept = load_model(tmp_path / "chosen.model").to_estimator()
    assert (kept.algorithm, kept.rounds) == (picked, rounds)
    np.testing.assert_array_equal(kept.predict(data[0]), model.predict(data[0]))


# -- random Fourier features ----------------------------------------------------------------------


def rings(count):
    """Two rings around each other: no straight line tells them apart."""
    draw = np.random.default_rng(7)
    angle, radius = draw.uniform(0, 2 * np.pi, count), np.repeat([0.3, 0.8], count // 2)
    rows = np.column_stack([np.cos(angle), np.sin(angle)]) * radius[:, None]
    return rows + draw.normal(0, 0.05, rows.shape), radius > 0.5


def test_fourier_features_tell_apart_what_no_line_does():
    rows, labels = rings(4000)
    settings = {"epsilon": 3.0, "random_state": 0, "n_parties": 5}
    straight = FederatedClassifier(data_norm=1.5, **settings).fit(rows, labels)
    curved = clone(FederatedClassifier(fourier={"features": 40}, **settings)).fit(rows, labels)
    assert straight.score(rows, labels) < 0.7
    assert curved.score(rows, labels) > 0.95
    assert curved.coef_.shape == (1, 80)
    assert curved.intercept_.tolist() == [0.0]
    assert curved.n_features_in_ == 2
    assert curved.privacy_.parties["0"].epsilon <= 3.0
    again = FederatedClassifier(
        fourier={"features": 40, "scale": 2**0.5 / 6, "seed": 0}, **settings
    )
    np.testing.assert_allclose(again.fit(rows, labels).coef_, curved.coef_, rtol=0, atol=1e-9)


def test_a_row_that_is_not_finite_counts_as_a_row_of_zeros_before_the_map():
    rows, labels = rings(60)
    settings = {"algorithm": "admm", "rounds": 5, "random_state": 0, "fourier": {"features": 5}}
    wrong, zeros = rows.copy(), rows.copy()
    wrong[3, 1], zeros[3] = np.nan, 0.0
    found, wanted = (
        ADMMClassifier(**settings).fit(each, labels, classes=[False, True])
        for each in (wrong, zeros)
    )
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


def test_products_of_columns_tell_rings_apart_in_columns_and_products():
    rows, labels = rings(4000)
    settings = {"epsilon": 3.0, "random_state": 0, "n_parties": 5, "polynomial": 2}
    curved = clone(FederatedClassifier(**settings)).fit(rows, labels)
    assert curved.score(rows, labels) > 0.95
    assert curved.coef_.shape == (1, 5)
    products = np.column_stack([rows, rows[:, [0, 0, 1]] * rows[:, [0, 1, 1]]])
    wanted = products @ curved.coef_[0] + curved.intercept_[0]
    np.testing.assert_allclose(curved.decision_function(rows), wanted, rtol=1e-12, atol=1e-12)
    # The constant has a weight of its own: training saw it as the last column.
    assert curved.intercept_[0] != 0.0
    sparse_scores = curved.decision_function(sparse.csr_array(rows))
    np.testing.assert_allclose(sparse_scores, wanted, rtol=1e-12, atol=1e-12)


def test_a_number_of_frequencies_is_the_map_with_that_many():
    rows, labels = rings(60)
    settings = {"algorithm": "admm", "rounds": 5, "random_state": 0}
    short, long = (
        ADMMClassifier(**settings, fourier=given).fit(rows, labels)
        for given in (5, {"features": 5})
    )
    np.testing.assert_array_equal(short.coef_, long.coef_)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"polynomial": 3}, "polynomial: degree must be 2: products of two columns; got 3"),
        ({"polynomial": "2"}, "polynomial must be None, 2 or a mapping"),
        ({"polynomial": {"degree": 2, "most_columns": 65}}, "a whole number from 1 to 64"),
        ({"polynomial": 2, "fourier": 5}, "only one of fourier and polynomial"),
        ({"polynomial": 2, "data_norm": 2.0}, "data_norm must be 1 with polynomial"),
        ({"fourier": {"features": 0}}, "fourier: features must be a whole number from 1 to 4096"),
        ({"fourier": "300"}, "fourier must be None, a whole number such as 150 or a mapping"),
        ({"fourier": 5000}, "fourier: features must be a whole number from 1 to 4096"),
        ({"fourier": {"features": 5}, "data_norm": 2.0}, "data_norm must be 1 with fourier"),
    ],
)
def test_a_wrong_map_is_refused_before_a_row_is_read(settings, words):
    with pytest.raises(ParameterError, match=words):
        ADMMClassifier(**settings).fit(None, None)


def test_probabilities_are_fitted_within_the_budget(data):
    asked = {"algorithm": "dp-gd", "rounds": 20, "epsilon": 30.0, "delta": 1e-3, "data_norm": 4.0}
    model = ADMMClassifier(random_state=0, **asked, probabilities=True).fit(*data)
    assert 29.9 < model.privacy_.epsilon <= 30.0
    assert model.quality_.about == "trained on"
    # What is said in mu^2 is said in epsilon, too.
    alone = pair(model.quality_.privacy.epsilon, 1e-3)
    words = dict(model.privacy_.details)["Probabilities"]
    assert "10% of the run's mu^2" in words
    assert f"; it is {alone}-differentially private by itself" in words
    chances = model.predict_proba(data[0])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict_log_proba(data[0]), np.log(chances))
    # The more of the second class a score speaks for, the larger its probability.
    order = np.argsort(model._margins(data[0])[:, 0])
    assert (np.diff(chances[order, 1]) >= 0).all()
    assert chances[data[1] == model.classes_[1], 1].mean() > 0.6
    # The training got nine tenths of mu^2: another model than without.
    plain = ADMMClassifier(random_state=0, **asked).fit(*data)
    assert not np.array_equal(plain.coef_, model.coef_)
    assert plain.quality_ is None


def test_rows_kept_out_are_evaluated_on_and_not_trained_on(data):
    rows, labels = data[0].copy(), data[1]
    owners = np.repeat(["x", "y"], [100, 60])
    asked = {"algorithm": "dp-gd", "rounds": 10, "epsilon": 9.0, "delta": 1e-3, "data_norm": 4.0}
    model = ADMMClassifier(random_state=0, **asked, holdout=0.25).fit(rows, labels, owners)
    assert model.quality_.rows == {"x": 25, "y": 15}
    assert model.quality_.about == "held out"
    assert model.privacy_.epsilon <= 9.0
    assert model.quality_.privacy.epsilon <= 9.0
    # Classes were taken from the labels of both parts: neither statement covers that.
    for stated in (model.privacy_, model.quality_.privacy):
        assert any("the list of classes" in words for words in stated.not_covered)
    # Other content of a row that is kept out changes the histogram alone.
    rows[99] = -rows[99]
    other = ADMMClassifier(random_state=0, **asked, holdout=0.25).fit(rows, labels, owners)
    assert np.array_equal(other.coef_, model.coef_)
    moved = other.quality_.histogram.counts - model.quality_.histogram.counts
    assert np.linalg.norm(moved) == pytest.approx(np.sqrt(2), rel=1e-6)
    rows[0] = -rows[0]
    third = ADMMClassifier(random_state=0, **asked, holdout=0.25).fit(rows, labels, owners)
    assert not np.array_equal(third.coef_, model.coef_)
    with pytest.raises(ParameterError, match="holdout must be at least 0"):
        ADMMClassifier(holdout=2.0, data_norm=4.0).fit(*data)


def test_what_a_norm_of_one_means_is_said_once_and_whatever_the_rows_are(data):
    rows, labels = data
    for scale in (1e-9, 1e9):
        say_scale_once.cache_clear()
        with pytest.warns(ScaleWarning, match="data_norm is 1, its default") as caught:
            classifier(data_norm=1.0).fit(scale * rows, labels)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            classifier(data_norm=1).fit(scale * rows, labels)
            classifier(data_norm=4.0).fit(scale * rows, labels)


# -- options that are arguments -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ADMMClassifier, FederatedClassifier])
@pytest.mark.parametrize("given", [{"noise": "shared"}, {"noise": "shared", "colluders": 1}])
def test_noise_and_colluders_are_arguments_and_options_alike(data, tmp_path, kind, given):
    told = {"n_parties": 5, "rounds": 3, "delta": 1e-3, "data_norm": 4.0, "random_state": 0}
    told |= {"algorithm": "dp-gd"} if kind is ADMMClassifier else {}
    model = kind(**told, **given).fit(*data)
    as_options = kind(**told, algorithm_options=given).fit(*data)
    both = kind(**told, **given, algorithm_options=given).fit(*data)
    for other in (as_options, both, clone(model).fit(*data), kind(**told).set_params(**given)):
        np.testing.assert_array_equal(other.fit(*data).coef_, model.coef_)
        assert str(other.privacy_) == str(model.privacy_)
    assert "colluders" in model.get_params()
    assert model.privacy_.alone["0"].epsilon > model.privacy_.epsilon
    # A model file is the same, byte for byte, and readable by releases that knew options only.
    kept = [Model.from_estimator(each) for each in (model, as_options)]
    assert kept[0].estimator_parameters == kept[1].estimator_parameters
    assert not {"noise", "colluders"} & kept[0].estimator_parameters.keys()
    save_model(tmp_path / "m.model", model)
    restored = load_model(tmp_path / "m.model").to_estimator()
    np.testing.assert_array_equal(restored.fit(*data).coef_, model.coef_)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"noise": "shared", "algorithm_options": {"noise": "own"}},
            "noise must be the same where it is given twice; got 'shared', and 'own' in",
        ),
        (
            {"noise": "shared", "colluders": 1, "algorithm_options": {"colluders": 2}},
            "colluders must be the same where it is given twice; got 1, and 2 in",
        ),
        (
            {"algorithm": "pr-admm", "noise": "shared"},
            "noise must be left out for the algorithm 'pr-admm', which has no such option",
        ),
        (
            {"algorithm": "r-admm", "colluders": 1},
            "colluders must be left out for the algorithm 'r-admm', .* It is one of: dp-gd.",
        ),
        ({"algorithm": "dp-gd", "colluders": 1}, "colluders must be left out with noise = 'own'"),
        ({"algorithm": "dp-gd", "noise": "loud"}, "'own' or 'shared'; got 'loud'"),
    ],
)
def test_noise_that_an_algorithm_has_not_is_refused_in_words(data, changes, words):
    told = {"algorithm": "dp-gd", "n_parties": 5, "rounds": 3, "penalty": "auto"} | changes
    assert re.search(words, refusal(data, **told))


# -- repeated fits --------------------------------------------------------------------------------


def test_a_search_on_private_rows_is_warned_of_once_and_whatever_the_rows_are(data):
    rows, labels = data
    asked = {"algorithm": "pr-admm", "penalty": "auto", "rounds": 2, "delta": 1e-3}
    pipeline = make_pipeline(StandardScaler(), classifier(**asked, random_state=None))
    for scale in (1e-9, 1e9):
        say_repeated_once.cache_clear()
        with pytest.warns(RepeatedFitWarning, match="every fit draws noise anew") as caught:
            cross_val_score(pipeline, scale * rows, labels, cv=3)
        assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_val_score(pipeline, rows, labels, cv=3)
        say_repeated_once.cache_clear()
        # Nothing is spent by a simulation or without noise; one fit of one clone is one fit.
        cross_val_score(classifier(**asked), rows, labels, cv=3)
        cross_val_score(classifier(random_state=None), rows, labels, cv=3)
        clone(classifier(**asked, random_state=None)).fit(rows, labels)
    search = GridSearchCV(
        classifier(**asked, random_state=None), {"epsilon": [0.5, 1.0]}, cv=2, refit=False
    )
    with pytest.warns(RepeatedFitWarning):
        search.fit(rows, labels)


def test_a_million_rounds_are_refused_before_a_row_is_read(data):
    with pytest.raises(ParameterError, match="rounds must be at most 10000, since every round"):
        classifier(rounds=1_000_000).fit(*data)


def test_a_notebook_shows_the_statement_and_the_figures(data):
    X, y = data
    model = FederatedClassifier(
        epsilon=5.0, delta=1e-3, n_parties=3, random_state=0, rounds=5, holdout=0.3, data_norm=5.0
    ).fit(X, y)
    shown = model.privacy_._repr_html_()
    for heading, _ in model.privacy_.lines():
        assert f">{heading}</th>" in shown
    for figure in model.quality_.evaluation().estimates:
        assert f">{figure.name}</th>" in model.quality_._repr_html_()


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_error_bars_of_weights_are_the_spread_over_seeds(noise):
    X = np.zeros((300, 4))
    y = np.arange(300) % 2
    fits = [
        ADMMClassifier(
            "dp-gd", epsilon=1.0, delta=1e-3, n_parties=3, random_state=seed, rounds=12,
            data_norm=2.0, noise=noise, algorithm_options={"center": "off"},
        ).fit(X, y, classes=[0, 1])
        for seed in range(40)
    ]  # fmt: skip
    spread = np.std([fit.coef_ for fit in fits])
    # 160 numbers say their spread to 6%.
    assert fits[0].coef_noise_ == pytest.approx(spread, rel=0.25)
    assert fits[0].coef_noise_.shape == fits[0].coef_.shape


def test_error_bars_of_weights_are_not_known_of_a_model_that_was_read(data, tmp_path):
    X, y = data
    model = FederatedClassifier(epsilon=5.0, delta=1e-3, n_parties=3, random_state=0, rounds=5)
    save_model(tmp_path / "my.model", model.fit(X, y))
    assert load_model(tmp_path / "my.model").to_estimator().coef_noise_ is None
