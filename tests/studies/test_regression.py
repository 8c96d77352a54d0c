"""FederatedGLM: statsmodels without privacy, intervals with it, refusals before it spends."""

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpadmm import FederatedGLM
from dpadmm.errors import ConvergenceError, LedgerError, ParameterError
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.studies.effects import Effects, InferenceWarning
from dpadmm.studies.glm import Coefficients


def _frame(rows=3000, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.uniform(20, 80, rows),
            "dose": random.exponential(2.0, rows),
            "ward": random.choice(["a", "b", "c"], rows),
        }
    )
    eta = 0.02 * (frame.age - 50) - 0.2 * frame.dose + 0.5 * (frame.ward == "b")
    return random, frame, np.asarray(eta)


def _dummies(frame):
    columns = {"age": frame.age, "dose": frame.dose}
    for level in "bc":
        columns[f"ward[T.{level}]"] = (frame.ward == level).astype(float)
    return sm.add_constant(pd.DataFrame(columns))


def _agrees(model, theirs, constants=1):
    def close(ours, their):
        their = np.asarray(their)
        np.testing.assert_allclose(ours, their, rtol=1e-6, atol=1e-9)

    close(model.coef_, theirs.params[constants:])
    close(np.atleast_1d(model.intercept_), theirs.params[:constants])
    close(model.standard_errors_, theirs.bse[constants:])
    close(model.pvalues_, theirs.pvalues[constants:])
    close(model.conf_int(), np.asarray(theirs.conf_int())[constants:])
    close(model.conf_int(0.9), np.asarray(theirs.conf_int(alpha=0.1))[constants:])


OWNERS = np.arange(3000) % 3


def test_linear_agrees_with_statsmodels():
    random, frame, eta = _frame()
    y = eta + random.normal(size=len(eta)) * (0.5 + frame.dose / 4)
    for robust in (False, True):
        kind = {"cov_type": "HC1"} if robust else {}
        theirs = sm.OLS(y, _dummies(frame)).fit(**kind)
        model = FederatedGLM("gaussian", math.inf, levels={"ward": "abc"}, robust=robust)
        model.fit(frame, y, parties=OWNERS)
        _agrees(model, theirs)
        np.testing.assert_allclose(model.predict(frame), theirs.fittedvalues, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.effects_.scale, theirs.scale, rtol=1e-6)


def test_logistic_agrees_with_statsmodels():
    random, frame, eta = _frame()
    y = (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
    theirs = sm.Logit(y, _dummies(frame)).fit(disp=0, tol=1e-12)
    model = FederatedGLM("binomial", math.inf, levels={"ward": "abc"}).fit(frame, y, OWNERS)
    _agrees(model, theirs)
    np.testing.assert_allclose(model.predict(frame), theirs.predict(), rtol=1e-6)
    np.testing.assert_allclose(model.ratios()[:, 0], np.exp(theirs.params[1:]), rtol=1e-6)


def test_poisson_agrees_with_statsmodels():
    random, frame, eta = _frame()
    y = random.poisson(np.exp(eta + 1.5))
    assert y.max() > 20
    theirs = sm.GLM(y, _dummies(frame), family=sm.families.Poisson()).fit(tol=1e-14)
    model = FederatedGLM("poisson", math.inf, levels={"ward": "abc"}).fit(frame, y, OWNERS)
    _agrees(model, theirs)


def _followed(random, eta, periods=5):
    """Entry, exit and event of persons, some of whom enter late or are lost."""
    entry = random.integers(0, 2, len(eta)).astype(float)
    times = np.column_stack([entry, np.full(len(eta), float(periods)), np.zeros(len(eta))])
    lost = random.integers(2, 9, len(eta))
    at_risk = np.ones(len(eta), bool)
    for t in range(periods):
        here = at_risk & (entry <= t)
        event = here & (random.random(len(eta)) < 1 / (1 + np.exp(2 - eta)))
        times[event, 1:] = (t + 1, 1)
        at_risk &= ~event
        leaving = at_risk & (entry <= t) & (lost == t + 1)
        times[leaving, 1] = t + 1
        at_risk &= ~leaving
    return pd.DataFrame(times, columns=["entry", "exit", "event"])


def test_survival_agrees_with_statsmodels_on_periods_of_persons():
    random, frame, eta = _frame()
    times = _followed(random, eta)
    rows, y = [], []
    columns = _dummies(frame).to_numpy()[:, 1:]
    for (entry, stop, event), x in zip(times.to_numpy(), columns, strict=True):
        for t in range(int(entry), int(stop)):
            rows.append(np.concatenate([np.arange(5) == t, x]))
            y.append(event if t == stop - 1 else 0)
    theirs = sm.Logit(np.array(y), np.array(rows)).fit(disp=0, tol=1e-12)
    model = FederatedGLM("survival", math.inf, levels={"ward": "abc"}, periods=5)
    model.fit(frame, times, OWNERS)
    _agrees(model, theirs, constants=5)
    curve = model.predict(frame[:10])
    assert curve.shape == (10, 5)
    assert (np.diff(curve, axis=1) < 0).all()


def test_strong_effects_are_found_without_privacy():
    """Whole Newton steps from zero would leave for infinity."""
    random = np.random.default_rng(3)
    X = np.sqrt(0.5) * (random.normal(size=(20000, 15)) + random.normal(size=(20000, 1)))
    eta = X @ np.linspace(-2, 2, 15) - 2
    y = (random.random(20000) < 1 / (1 + np.exp(-eta))).astype(int)
    theirs = sm.Logit(y, sm.add_constant(X)).fit(disp=0, tol=1e-12, maxiter=200)
    _agrees(FederatedGLM(epsilon=math.inf).fit(X, y), theirs)


def test_the_statement_of_an_infinite_epsilon_says_so():
    random, frame, eta = _frame()
    y = (random.random(len(eta)) < 0.5).astype(int)
    model = FederatedGLM("binomial", math.inf, levels={"ward": "abc"}).fit(frame, y, OWNERS)
    assert not model.privacy_.private
    assert "none (epsilon is infinite)" in str(model.summary())


BOUNDS = {"age": (20, 80), "dose": (0, 20)}


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "survival"])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_private_fit_is_near_what_its_errors_say(family, noise):
    rows = 60000 if (family, noise) == ("survival", "own") else 30000
    random, frame, eta = _frame(rows)
    more = {"gaussian": {"response_bounds": (-8, 8)}, "survival": {"periods": 5}}.get(family, {})
    if family == "gaussian":
        y = eta + random.normal(size=len(eta))
    elif family == "binomial":
        y = (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
    elif family == "poisson":
        y = random.poisson(np.exp(eta))
    else:
        y = _followed(random, eta)
    model = FederatedGLM(
        family,
        epsilon=3.0,
        delta=1e-5,
        bounds=BOUNDS,
        levels={"ward": "abc"},
        noise=noise,
        random_state=0,
        **more,
    )
    model.fit(frame, y, parties=np.arange(len(frame)) % 3)
    exact = clone(model).set_params(epsilon=math.inf, noise="own").fit(frame, y)
    away = (model.coef_ - exact.coef_) / model.standard_errors_
    assert np.abs(away).max() < 4
    assert (model.standard_errors_ > 0.95 * exact.standard_errors_).all()
    assert (model.standard_errors_ < 2.5 * exact.standard_errors_).all()
    assert model.privacy_.epsilon <= 3.0
    assert model.privacy_.simulated
    assert model.effect_names_ == ("age", "dose", "ward[T.b]", "ward[T.c]")
    table = str(model.summary())
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "ward[T.c]" in table
    # No epsilon without its theorem, neighbours and adversary.
    assert "protects nobody" in table
    assert "epsilon" not in table


def test_robust_errors_of_a_private_linear_fit():
    random, frame, eta = _frame(30000)
    y = eta + random.normal(size=len(eta)) * frame.dose / 2
    common = {"bounds": BOUNDS, "levels": {"ward": "abc"}, "response_bounds": (-20, 20)}
    model = FederatedGLM("gaussian", 10.0, random_state=0, **common)
    exact = FederatedGLM("gaussian", math.inf, levels={"ward": "abc"})
    plain, robust = exact, clone(exact).set_params(robust=True)
    # Residuals grow with the dose: its error beside that of the age does, too.
    private, one, other = (
        errors[1] / errors[0]
        for errors in (each.fit(frame, y).standard_errors_ for each in (model, plain, robust))
    )
    assert private > 1.3 * one
    assert other > 1.3 * one
    assert "HC1" in str(model.summary())


def test_it_follows_scikit_learn():
    model = FederatedGLM(bounds={0: (-1, 1)}, random_state=1)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 1)))
    with pytest.raises(NotFittedError):
        model.conf_int()
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (5000, 1))
    y = random.integers(0, 2, 5000)
    model.fit(X, y)
    again = clone(model).fit(X, y)
    assert model.n_features_in_ == 1
    np.testing.assert_array_equal(model.coef_, again.coef_)
    frame = pd.DataFrame(X, columns=["x"])
    named = clone(model).set_params(bounds={"x": (-1, 1)}).fit(frame, y)
    assert list(named.feature_names_in_) == ["x"]
    np.testing.assert_array_equal(model.coef_, named.coef_)
    with pytest.raises(ValueError, match="must have 1 columns"):
        model.predict(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"family": "gamma"}, "family"),
        ({"family": "gaussian"}, "response_bounds must be given"),
        ({"response_bounds": (0, 1)}, "response_bounds must be left out"),
        ({"family": "survival"}, "periods must be given"),
        ({"family": "survival", "periods": [2, 1]}, "periods must be a whole number"),
        ({"periods": 3}, "periods must be given for the family 'survival' and for no other"),
        ({"bounds": {0: (1, 1)}}, "constant"),
        ({"bounds": {0: (0, 1)}}, "x2"),
        ({"bounds": {7: (0, 1)}}, "bounds"),
        ({"levels": {0: ["a"]}, "bounds": {1: (0, 1)}}, "at least two"),
        ({"robust": True}, "robust"),
        ({"epsilon": 0.001}, "drown"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_is_public_is_refused_whatever_the_rows(told, words):
    X, y = np.full((4000, 2), np.nan), np.zeros(4000)
    given = {"bounds": {0: (0, 1), 1: (0, 1)}, **told}
    with pytest.raises(ParameterError, match=words):
        FederatedGLM(**given).fit(X, y, parties=np.arange(4000) % 2)


def test_a_name_twice_is_refused():
    frame = pd.DataFrame(np.zeros((100, 2)), columns=["a", "a"])
    with pytest.raises(ParameterError, match="there twice"):
        FederatedGLM(data_norm=2.0).fit(frame, np.zeros(100))


def test_a_weak_budget_is_warned_of_with_what_would_do():
    random = np.random.default_rng(0)
    X, y = random.uniform(-1, 1, (3000, 4)), random.integers(0, 2, 3000)
    model = FederatedGLM(epsilon=1.0, bounds=dict.fromkeys(range(4), (-1, 1)), random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, y, parties=np.arange(3000) % 2)
    assert re.search("rows, no more than . columns", str(said[0].message))


def test_columns_that_repeat_each_other_get_no_intervals():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (20000, 2))
    X[:, 1] = X[:, 0]
    y = random.integers(0, 2, 20000)
    model = FederatedGLM(epsilon=1.0, bounds={0: (-1, 1), 1: (-1, 1)}, random_state=0)
    with pytest.warns(InferenceWarning, match="no intervals"):
        model.fit(X, y, parties=np.zeros(20000))
    assert np.isnan(model.conf_int()).all()
    assert "nan" in str(model.summary())
    with pytest.raises(ConvergenceError, match="duplicates"):
        model.set_params(epsilon=math.inf).fit(X, y)


def test_a_separable_outcome_is_refused_without_privacy_and_told_of_with_it():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (20000, 2))
    y = (X[:, 0] > 0).astype(int)
    model = FederatedGLM(epsilon=math.inf, bounds={0: (-1, 1), 1: (-1, 1)}, random_state=0)
    with pytest.raises(ConvergenceError, match="separate"):
        model.fit(X, y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.set_params(epsilon=1.0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert any(issubclass(each.category, InferenceWarning) for each in said)


def test_doubts_are_told_where_a_last_step_began_badly():
    found = Coefficients(np.zeros(2), np.eye(2), ratio=9.0)
    effects = Effects("binomial", ("constant", "age"), 1, 5000, found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert effects.warned() is effects
    doubtful = replace(effects, estimate=replace(found, begun=False))
    with pytest.warns(InferenceWarning, match="may cover less .* all but decided"):
        doubtful.warned()
    assert doubtful.given
    assert doubtful.weak
    assert np.isfinite(doubtful.intervals()).all()
    weak = replace(effects, estimate=replace(found, ratio=1.0))
    assert "close to its noise (ratio 1, better 1.5)" in weak.doubt
    assert "needed 0.4" in replace(effects, estimate=replace(found, ratio=0.3)).doubt
    assert "still moved" in replace(effects, estimate=replace(found, settled=False)).doubt


def test_rows_of_any_content_become_something():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (20000, 2)).astype(object)
    y = random.integers(0, 2, 20000).astype(object)
    bad = ["text", None, np.nan, np.inf, -1e300, 1e300, True]
    for place, cell in enumerate(bad):
        X[place, 0] = cell
        y[100 + place] = cell
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FederatedGLM(epsilon=1.0, bounds={0: (-1, 1), 1: (-1, 1)}, random_state=0)
        model.fit(X, y, parties=np.zeros(20000))
    assert np.isfinite(model.conf_int()).all()
    entry = np.column_stack([np.zeros(20000), random.integers(1, 4, 20000), np.zeros(20000)])
    entry[:9000, 2] = 1
    entry[0] = (3, 1, 1)
    entry[1] = (0, np.nan, 1)
    model = FederatedGLM("survival", 1.0, bounds={0: (-1, 1), 1: (-1, 1)}, periods=3)
    model.set_params(random_state=0).fit(X, entry, parties=np.zeros(20000))
    assert np.isfinite(model.coef_).all()


def test_a_formula_is_the_same_as_its_columns():
    random, frame, eta = _frame()
    frame["y"] = (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
    model = FederatedGLM(epsilon=math.inf, levels={"ward": ["a", "b", "c"]})
    model.fit_formula("y ~ age + np.log(dose + 1) + C(ward)", frame, OWNERS)
    logit = sm.Logit.from_formula("y ~ age + np.log(dose + 1) + C(ward)", frame).fit(disp=0)
    coefficients = dict(zip(model.effect_names_, model.coef_, strict=True))
    for name, value in logit.params.items():
        if name != "Intercept":
            assert coefficients[name] == pytest.approx(value, rel=1e-5)
    model.set_params(epsilon=3.0, bounds={}, random_state=0)
    with pytest.raises(ParameterError, match="bounds"):
        model.fit_formula("y ~ age + C(ward)", frame, OWNERS)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ center(age)", "from that row alone"),
        ("y ~ C(dose)", "levels of dose"),
        ("y ~ other", "other"),
        ("age", "response"),
        ("y ~ age - 1", "constant"),
        ("y ~ place", "levels of place"),
    ],
)
def test_a_formula_that_would_learn_from_rows_is_refused(formula, words):
    _, frame, eta = _frame(300)
    frame["y"], frame["place"] = (eta > 0).astype(int), "x"
    model = FederatedGLM(epsilon=math.inf, levels={"ward": ["a", "b", "c"]})
    with pytest.raises(ParameterError, match=words):
        model.fit_formula(formula, frame)


@pytest.mark.parametrize(
    "term",
    [
        "I(age - age.mean())",
        "{age / age.max()}",
        "lag(age)",
        "np.cumsum(age)",
        "np.mean(age)",
        "{age[0]}",
        "poly(age, 2)",
    ],
)
def test_a_formula_that_mixes_rows_is_refused(term):
    """One row would move all of them: no clipping of single rows covers that."""
    _, frame, eta = _frame(2000)
    frame = frame.assign(y=(eta > 0).astype(float))
    with pytest.raises(ParameterError, match="from that row alone"):
        FederatedGLM(epsilon=3.0, delta=1e-5).fit_formula(f"y ~ {term}", frame)


def test_a_formula_whose_response_mixes_rows_is_refused():
    _, frame, eta = _frame(2000)
    frame = frame.assign(y=eta)
    with pytest.raises(ParameterError, match="from that row alone"):
        FederatedGLM("gaussian", response_bounds=(-8, 8)).fit_formula(
            "I(y - y.mean()) ~ age", frame
        )


def test_terms_of_single_rows_are_taken():
    random, frame, eta = _frame(20000)
    frame = frame.assign(y=(random.random(20000) < 1 / (1 + np.exp(-eta))).astype(float))
    terms = {"np.log(dose + 1)": (0, 4), "I(age ** 2)": (0, 6400), "age:dose": (0, 1600)}
    model = FederatedGLM(epsilon=5.0, delta=1e-5, bounds=terms, random_state=0)
    model.fit_formula(f"y ~ {' + '.join(terms)}", frame)
    assert model.effect_names_ == tuple(terms)


def _ledgers(folder, counts, epsilon=20.0):
    places = {}
    for name, rows in counts.items():
        places[name] = folder / f"{name}.ledger"
        about = ChargedData("rows", name, rows)
        SQLiteLedger.create(places[name], about, Policy(epsilon, 1e-3)).close()
    return places


def test_another_question_never_gets_the_releases_of_the_first(tmp_path):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (20000, 2))
    owners = np.repeat(["a", "b"], 10000)
    ledgers = _ledgers(tmp_path, {"a": 10000, "b": 10000})
    chance = 1 / (1 + np.exp(-2 * X[:, 0]))
    y = (random.random(20000) < chance).astype(float)
    asked = {"parties": owners, "ledgers": ledgers}
    model = FederatedGLM(epsilon=2.0, delta=1e-5, bounds={0: (-1, 1), 1: (-1, 1)})
    with pytest.raises(ParameterError, match="run_id"):
        model.fit(X, y, **asked)
    first = model.fit(X, y, **asked, run_id="first").coef_
    # Other responses have no name of their own: the caller must give them one.
    with pytest.raises(ParameterError, match="run_id must be one of a new run"):
        model.fit(X, 1 - y, **asked, run_id="first")
    np.testing.assert_array_equal(
        model.fit(X, y, **asked, run_id="first", resume=True).coef_, first
    )
    # Other bounds are another question, though the sums have the same form.
    wider = clone(model).set_params(bounds={0: (-2, 2), 1: (-1, 1)})
    with pytest.raises(LedgerError, match="they differ"):
        wider.fit(X, y, **asked, run_id="first", resume=True)
    assert model.fit(X, 1 - y, **asked, run_id="second").coef_[0] < 0 < first[0]


def test_ledgers_are_not_passed_over(tmp_path):
    random = np.random.default_rng(0)
    X, y = random.uniform(-1, 1, (2000, 1)), random.integers(0, 2, 2000)
    ledgers = _ledgers(tmp_path, {"a": 1000, "b": 1000})
    named = {"ledgers": ledgers, "run_id": "one"}
    with pytest.raises(ParameterError, match="infinite epsilon"):
        FederatedGLM(epsilon=math.inf).fit(X, y, np.repeat(["a", "b"], 1000), **named)
    with pytest.raises(ParameterError, match="parties must be given"):
        FederatedGLM(epsilon=3.0, data_norm=1.0).fit(X, y, **named)


def test_levels_of_a_frame_are_not_covered():
    _, frame, eta = _frame(20000)
    y = (np.random.default_rng(1).random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    frame = frame.assign(ward=frame["ward"].astype("category"))
    model = FederatedGLM(epsilon=5.0, delta=1e-5, bounds=BOUNDS, random_state=0)
    assert "levels that a frame's" in str(model.fit(frame, y).privacy_)
    told = clone(model).set_params(levels={"ward": "abc"}).fit(frame, y)
    assert "levels that a frame's" not in str(told.privacy_)
