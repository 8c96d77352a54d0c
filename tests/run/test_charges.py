"""Training that is charged to ledgers, from the estimator and from a configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpadmm import ADMMClassifier
from dpadmm.data.schema import load_schema
from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.balance import RowRange, recompute
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import LedgerRun, SQLiteLedger
from dpadmm.privacy.events import GaussianRelease
from dpadmm.run import charges
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run, write_results
from dpadmm.run.options import PrivacyWarning

ROWS = {"x": 30, "y": 40}


def make_ledgers(folder, rows=ROWS, *, epsilon=1.0, **about):
    paths = {}
    for name, count in rows.items():
        paths[name] = folder / f"{name}.ledger"
        dataset = ChargedData("rows", about.get("owner", name), count, about.get("schema_hash"))
        SQLiteLedger.create(paths[name], dataset, Policy(epsilon, 1e-3)).close()
    return paths


def data():
    random = np.random.default_rng(0)
    rows = random.normal(size=(70, 3))
    return rows, rows[:, 0] > 0, np.repeat(list(ROWS), list(ROWS.values()))


def fit(paths, run_id="first", epsilon=0.6, random_state=None, resume=False, **changes):
    model = ADMMClassifier(
        rounds=4, epsilon=epsilon, delta=1e-3, random_state=random_state, **changes
    )
    return model.fit(*data(), ledgers=paths, run_id=run_id, classes=[False, True], resume=resume)


def spent(path):
    with SQLiteLedger(path, read_only=True) as ledger:
        return ledger.account.spent_epsilon


def test_the_estimator_charges_every_party_once(tmp_path):
    paths = make_ledgers(tmp_path)
    first = fit(paths)
    assert spent(paths["x"]) == pytest.approx(first.privacy_.parties["x"].epsilon, rel=1e-6)
    # The same run again sends the same bytes and spends nothing.
    again = fit(paths, resume=True)
    assert np.array_equal(first.node_coef_, again.node_coef_)
    assert spent(paths["x"]) == pytest.approx(first.privacy_.parties["x"].epsilon, rel=1e-6)


def folds():
    """Three folds, in each as many rows of every party to train on: 20 and 30."""
    rows = np.random.default_rng(1).normal(size=(75, 3))
    test = [np.r_[10 * k : 10 * k + 10, 30 + 15 * k : 45 + 15 * k] for k in range(3)]
    owners = np.repeat(["x", "y"], [30, 45])
    return rows, rows[:, 0] > 0, owners, [(np.setdiff1d(np.arange(75), out), out) for out in test]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cross_validation_under_one_run_id_is_refused_at_its_second_fold(tmp_path, workers):
    rows, labels, owners, cv = folds()
    paths = make_ledgers(tmp_path, {"x": 20, "y": 30})
    model = ADMMClassifier(rounds=4, epsilon=0.6, delta=1e-3, data_norm=2.0)
    asked = {"parties": owners, "ledgers": paths, "run_id": "first", "classes": [False, True]}
    with pytest.warns(FitFailedWarning) as caught:
        scores = cross_val_score(model, rows, labels, cv=cv, params=asked, n_jobs=workers)
    # One fold was charged and trained on; the others are no copies of its model.
    assert np.isnan(scores).sum() == 2
    assert spent(paths["x"]) == pytest.approx(0.6, rel=1e-3)
    text = "".join(str(each.message) for each in caught)
    one_at_a_time = "must be open in one process at a time"
    assert "run_id must be one of a new run; got 'first'" in text or one_at_a_time in text
    if workers == 1:
        assert "Give every fit a run_id of its own" in text
        search = GridSearchCV(model, {"epsilon": [0.6]}, cv=cv, error_score="raise")
        with pytest.raises(ParameterError, match="run_id must be one of a new run; got 'first'"):
            search.fit(rows, labels, **asked)


def test_a_refusal_of_a_repeated_run_does_not_look_at_rows(tmp_path):
    paths, texts = make_ledgers(tmp_path), set()
    fit(paths)
    _, _, owners = data()
    for value in (0.0, np.nan, "text"):
        with pytest.raises(ParameterError) as refused:
            ADMMClassifier(rounds=4, epsilon=0.6, delta=1e-3).fit(
                np.full((70, 3), value, object),
                np.full(70, value, object),
                owners,
                paths,
                "first",
                classes=[False, True],
            )
        texts.add(str(refused.value))
    assert len(texts) == 1


CUT_SHORT = """
import itertools, os, sys
from dpadmm.ledger.sqlite import LedgerRun
from tests.run.test_charges import fit

paths, after, changes = eval(sys.argv[1])
real, messages = LedgerRun.commit, itertools.count(1)

def commit(self, t, message):
    real(self, t, message)
    if next(messages) == after:
        os._exit(7)

LedgerRun.commit = commit
fit(paths, **changes)
"""


def cut_short(paths, after, changes):
    """Fit in a process of its own, which dies after so many messages."""
    told = repr(({name: str(path) for name, path in paths.items()}, after, changes))
    root = Path(__file__).parents[2]
    there = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run([sys.executable, "-c", CUT_SHORT, told], cwd=root, env=there, check=False)
    assert done.returncode == 7


@pytest.mark.parametrize("after", [3, 8])
def test_a_run_that_a_crash_cut_short_goes_on_by_the_same_call(tmp_path, after):
    paths = make_ledgers(tmp_path)
    # Of 8 messages; after the last there is an evaluation to come.
    changes = {} if after == 3 else {"algorithm": "dp-gd", "holdout": 0.1}
    cut_short(paths, after, changes)
    model = fit(paths, **changes)
    assert spent(paths["x"]) == pytest.approx(0.6, rel=1e-3)
    with pytest.raises(ParameterError, match="the ledgers have all of it"):
        fit(paths, **changes)
    again = fit(paths, resume=True, **changes)
    assert np.array_equal(again.node_coef_, model.node_coef_)


def test_a_run_that_failed_here_goes_on_by_an_explicit_word(tmp_path, monkeypatch):
    paths, real = make_ledgers(tmp_path), LedgerRun.commit

    def commit(self, t, message):
        if t == 2:
            raise LedgerError("the disk is full")
        real(self, t, message)

    monkeypatch.setattr(LedgerRun, "commit", commit)
    with pytest.raises(LedgerError, match="the disk is full"):
        fit(paths)
    monkeypatch.undo()
    with pytest.raises(ParameterError, match="a fit of this process has begun it"):
        fit(paths)
    fit(paths, resume=True)
    assert spent(paths["x"]) == pytest.approx(0.6, rel=1e-3)


def test_what_charged_nothing_may_be_tried_again(tmp_path):
    paths = make_ledgers(tmp_path)
    rows, labels, owners = data()
    with pytest.raises(ParameterError, match="label_epsilon"):
        ADMMClassifier(rounds=4, epsilon=0.6, delta=1e-3).fit(
            rows, labels, owners, paths, "first", label_epsilon=[1.0], classes=[False, True]
        )
    fit(paths)


@pytest.mark.parametrize(
    "changes",
    [
        {"data_norm": 2.0},
        {"intercept_scale": 0.5},
        {"regularization": 1e-3},
        {"fourier": {"features": 2, "seed": 1}},
        {"polynomial": 2},
        {"epsilon": 0.5},
    ],
)
def test_a_run_is_not_resumed_with_other_arguments(tmp_path, changes):
    paths = make_ledgers(tmp_path)
    began = {"fourier": {"features": 2}} if "fourier" in changes else {}
    fit(paths, **began)
    with pytest.raises(LedgerError, match="must continue with the parameters it began with"):
        fit(paths, resume=True, **changes)
    # What is made of the same messages may be another mean of them.
    fit(paths, resume=True, output="last", **began)


def test_a_run_of_an_older_ledger_is_resumed(tmp_path, monkeypatch):
    paths = make_ledgers(tmp_path)
    real = SQLiteLedger.open_run
    monkeypatch.setattr(
        SQLiteLedger, "open_run", lambda *a, preparation, **named: real(*a, **named)
    )
    first = fit(paths, data_norm=2.0)
    monkeypatch.undo()
    again = fit(paths, data_norm=2.0, resume=True)
    assert np.array_equal(first.node_coef_, again.node_coef_)


def test_all_runs_on_the_same_rows_count_together(tmp_path):
    paths = make_ledgers(tmp_path)
    fit(paths)
    before = spent(paths["y"])
    with pytest.raises(BudgetError, match="left"):
        fit(paths, run_id="second", epsilon=0.9)
    assert spent(paths["y"]) == before
    fit(paths, run_id="third", epsilon=0.5)
    assert before < spent(paths["y"]) <= 1.0


def test_spent_is_the_same_everywhere(tmp_path):
    paths = make_ledgers(tmp_path)
    model = fit(paths, epsilon=1.0)
    with SQLiteLedger(paths["x"], read_only=True) as ledger:
        exported = recompute(json.dumps(row) for row in ledger.export())
        figures = [
            ledger.account.spent_epsilon,
            exported.spent_epsilon,
            model.privacy_.parties["x"].epsilon,
        ]
    assert figures == pytest.approx([figures[0]] * 3, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"random_state": 3}, "simulated"),
        ({"algorithm": "admm"}, "without noise"),
        ({"rows_per_person": 2}, "rows_per_person"),
        ({"run_id": ""}, "run"),
    ],
)
def test_runs_that_cannot_be_charged_are_refused(changes, hint, tmp_path):
    paths = make_ledgers(tmp_path)
    with pytest.raises((ParameterError, LedgerError), match=hint):
        fit(paths, **changes)
    assert spent(paths["x"]) == 0


def test_a_published_calibration_counts_with_its_proven_value(tmp_path):
    paths = make_ledgers(tmp_path)
    model = fit(paths, epsilon=5.0, calibration="published")
    proven = model.privacy_.parties["x"].epsilon
    # The paper's sensitivity leaves out the number of rows: far more noise than needed.
    assert proven < 1.0 < 5.0
    assert "epsilon = 5" in model.privacy_.claim
    assert spent(paths["x"]) == pytest.approx(proven, rel=1e-6)


def test_a_published_calibration_that_is_proven_too_weak_is_refused(tmp_path):
    paths = {}
    for name, count in ROWS.items():
        paths[name] = tmp_path / f"{name}.ledger"
        policy = Policy(1.0, 1e-3, filter="renyi")
        SQLiteLedger.create(paths[name], ChargedData("rows", name, count), policy).close()
    options = {"epsilon_per_round": 0.25}
    with pytest.raises(BudgetError, match="left"):
        # As printed a round costs more than its alpha: the sum is 1, what is proven 1.16.
        fit(
            paths,
            epsilon=1.0,
            algorithm="dvp",
            calibration="published",
            penalty=0.05,
            algorithm_options=options,
        )
    assert spent(paths["x"]) == 0


def test_a_ledger_of_somebody_else_is_refused(tmp_path):
    with pytest.raises(LedgerError, match="owner"):
        fit(make_ledgers(tmp_path, owner="z"))


def test_a_ledger_about_other_rows_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="30 rows"):
        fit(make_ledgers(tmp_path, {"x": 31, "y": 40}))


def test_every_party_must_have_a_ledger(tmp_path):
    with pytest.raises(ParameterError, match="every party"):
        fit({"x": make_ledgers(tmp_path)["x"]})


@pytest.mark.parametrize("missing", ["parties", "classes"])
def test_what_must_be_public_is_asked_for(missing, tmp_path):
    rows, labels, owners = data()
    given = {"parties": owners, "classes": [False, True]} | {missing: None}
    with pytest.raises(ParameterError, match=f"{missing} must be given"):
        ADMMClassifier().fit(rows, labels, ledgers=make_ledgers(tmp_path), run_id="a", **given)


HOSPITALS = {"north": 60, "south": 40, "west": 20}


def private_config(folder, **about):
    """Make the hospitals' run private and charge it."""
    make_ledgers(folder, HOSPITALS, **about)
    text = (folder / "run.toml").read_text()
    text = text.replace('algorithm = "admm"', 'algorithm = "pr-admm"\nepsilon = 0.8\ndelta = 1e-3')
    lines = [f'{name} = "{name}.ledger"' for name in HOSPITALS]
    (folder / "run.toml").write_text("\n".join([text, "[ledgers]", *lines]))
    return load_config(folder / "run.toml")


def test_a_configured_run_is_charged_and_says_what_is_left(hospitals):
    config = private_config(hospitals, schema_hash=load_schema(hospitals / "schema.toml").sha256)
    run = train_run(config)
    write_results(run)
    for name in HOSPITALS:
        path = hospitals / f"{name}.ledger"
        assert spent(path) == pytest.approx(run.estimator.privacy_.parties[name].epsilon, rel=1e-6)
        assert "left" in run.summary()["ledgers"][name].lower()
    assert json.loads((hospitals / "record.json").read_text())["ledgers"]
    again = train_run(config)
    assert np.array_equal(again.estimator.coef_, run.estimator.coef_)


def test_an_over_budget_run_reads_no_row(hospitals):
    config = private_config(hospitals, epsilon=0.5)
    # Were a row read, the broken file would be told of instead.
    (hospitals / "north.csv").write_text("age,ward,y\n")
    with pytest.raises(BudgetError, match="left"):
        train_run(config)
    assert spent(hospitals / "north.ledger") == 0


def test_a_run_is_not_continued_with_files_that_are_read_otherwise(hospitals):
    """Labels spelt otherwise are mended under another run_id: messages there are of other rows."""
    config = private_config(hospitals)
    train_run(config)
    before = spent(hospitals / "north.ledger")
    path = hospitals / "run.toml"
    text = path.read_text()
    path.write_text(text.replace('"north.csv"', '"north.csv"\n[party.aliases.y]\nJA = "yes"\n', 1))
    (hospitals / "north.csv").write_text("age,ward,y\n")
    with pytest.raises(LedgerError, match="must continue with the parameters it began with"):
        train_run(load_config(path))
    assert spent(hospitals / "north.ledger") == before


def test_a_ledger_of_another_schema_is_refused(hospitals):
    with pytest.raises(LedgerError, match="schema"):
        train_run(private_config(hospitals, schema_hash="0" * 64))


def opened_runs(path):
    with SQLiteLedger(path, read_only=True) as ledger:
        return list(ledger.account.runs)


def test_an_evaluation_that_cannot_follow_is_refused_before_the_training(tmp_path):
    # Of 31 rows as many are trained on as of 30: 27.
    paths = make_ledgers(tmp_path, ROWS | {"x": 31})
    with pytest.raises(ParameterError, match="must be about its 30 rows; it is about 31"):
        fit(paths, algorithm="dp-gd", holdout=0.1)
    (tmp_path / "long").mkdir()
    named = make_ledgers(tmp_path / "long")
    with pytest.raises(ParameterError, match="run_id must leave room for the name of its eval"):
        fit(named, run_id="r" * 190, algorithm="dp-gd", holdout=0.1)
    for path in (*paths.values(), *named.values()):
        assert opened_runs(path) == []


def test_what_a_person_pays_for_both_parts_must_fit_before_the_training(tmp_path):
    paths = {name: tmp_path / f"{name}.ledger" for name in ROWS}
    for name, path in paths.items():
        # Costs of several rows of a person add up over the parts by this filter.
        policy = Policy(1.2, 1e-3, rows_per_person=2, filter="renyi")
        SQLiteLedger.create(path, ChargedData("rows", name, ROWS[name]), policy).close()
    told = {"algorithm": "dp-gd", "rows_per_person": 2, "epsilon": 0.9}
    with pytest.raises(BudgetError):
        fit(paths, holdout=0.2, **told)
    assert opened_runs(paths["x"]) == []
    # The training alone fits.
    fit(paths, **told)


def charge_evaluation(path, run_id, rows, event=None):
    """Another model under the same run was evaluated before."""
    with (
        SQLiteLedger(path) as ledger,
        ledger.open_run(f"{run_id} evaluation {'0' * 16}", "x", rows=rows) as run,
    ):
        run.reserve(0, event or GaussianRelease(1.0, 4.0))


def test_an_evaluation_of_another_model_does_not_stand_for_that_of_this_one(tmp_path):
    paths = make_ledgers(tmp_path)
    charge_evaluation(paths["x"], "first", RowRange(24, 30))
    before = {name: spent(path) for name, path in paths.items()}
    with pytest.raises(BudgetError, match="it was not charged to the ledger of x"):
        fit(paths, algorithm="dp-gd", epsilon=1.0, holdout=0.2)
    assert {name: spent(path) for name, path in paths.items()} == before
    assert "first" not in opened_runs(paths["x"])


def test_an_evaluation_before_the_training_is_complete_everywhere_is_of_another_model(
    tmp_path, monkeypatch
):
    paths = make_ledgers(tmp_path)
    told = {"algorithm": "dp-gd", "epsilon": 1.0}
    stop = SQLiteLedger.charge

    def killed(ledger, run_id, t, event):
        if t == 3 and ledger.path == paths["y"]:
            raise KeyboardInterrupt
        stop(ledger, run_id, t, event)

    monkeypatch.setattr(SQLiteLedger, "charge", killed)
    with pytest.raises(KeyboardInterrupt):
        fit(paths, holdout=0.2, **told)
    monkeypatch.undo()
    # All rounds of x are charged, one of y is left.
    charge_evaluation(paths["x"], "first", RowRange(24, 30))
    before = {name: spent(path) for name, path in paths.items()}
    with pytest.raises(BudgetError, match="it was not charged to the ledger of x"):
        fit(paths, holdout=0.2, **told)
    assert {name: spent(path) for name, path in paths.items()} == before


def test_whatever_was_evaluated_under_a_run_is_counted_by_the_rows_it_read(tmp_path):
    paths = make_ledgers(tmp_path, epsilon=3.0)
    told = {"algorithm": "dp-gd", "epsilon": 1.0, "holdout": 0.2}
    first = fit(paths, **told).privacy_
    assert (first.epsilon <= 1.0, first.caveats) == (True, ())
    charge_evaluation(paths["x"], "first", RowRange(24, 30))
    kept_out = fit(paths, resume=True, **told).privacy_
    assert kept_out.parties["x"].epsilon == pytest.approx(spent(paths["x"]), rel=1e-5)
    assert kept_out.parties["y"].epsilon <= 1.0
    assert "the ledgers have 1 other evaluation under this run" in kept_out.caveats[0]
    # Names that only begin alike are other runs.
    charge_evaluation(paths["x"], "first evaluation of many", None, GaussianRelease(1.0, 50.0))
    charge_evaluation(paths["x"], "first, again", None, GaussianRelease(1.0, 50.0))
    assert fit(paths, resume=True, **told).privacy_.epsilon == kept_out.epsilon
    with (
        SQLiteLedger(paths["y"]) as ledger,
        ledger.open_run(f"first evaluation {'1' * 16}", "x") as run,
    ):
        run.reserve(0, GaussianRelease(1.0, 4.0))
    # One that read all rows adds to both parts.
    everywhere = fit(paths, resume=True, **told).privacy_
    assert everywhere.parties["y"].epsilon == pytest.approx(spent(paths["y"]), rel=1e-5)
    assert "the ledgers have 2 other evaluations under this run" in everywhere.caveats[0]


def test_a_training_that_was_paid_for_is_there_though_another_run_took_the_rest(
    tmp_path, monkeypatch
):
    paths = make_ledgers(tmp_path)
    check = charges.check_evaluation

    def overtaken(*told, **more):
        check(*told, **more)
        with (
            SQLiteLedger(paths["y"]) as ledger,
            ledger.open_run("another", "x", rows=RowRange(32, 40)) as run,
        ):
            run.reserve(0, GaussianRelease(1.0, 4.0))

    monkeypatch.setattr("dpadmm.run.session.check_evaluation", overtaken)
    with pytest.warns(PrivacyWarning, match="trained and not evaluated.* to the ledger of y"):
        model = fit(paths, algorithm="dp-gd", epsilon=1.0, holdout=0.2, probabilities=True)
    assert model.quality_ is None
    assert model.coef_.shape == (1, 3)
    assert "this statement is about the others" in str(model.privacy_)
    # Probabilities that were asked for are not made up.
    assert not hasattr(model, "predict_proba")


def test_a_training_that_was_paid_for_before_is_there_though_its_evaluation_fits_no_more(
    tmp_path, monkeypatch
):
    paths = make_ledgers(tmp_path)
    told = {"algorithm": "dp-gd", "epsilon": 1.0, "holdout": 0.2}
    monkeypatch.setattr("dpadmm.run.session.released_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(paths, **told)
    monkeypatch.undo()
    charge_evaluation(paths["x"], "another", RowRange(24, 30))
    before = {name: spent(path) for name, path in paths.items()}
    with pytest.warns(PrivacyWarning, match="trained and not evaluated"):
        model = fit(paths, resume=True, **told)
    assert model.quality_ is None
    assert model.privacy_.caveats == ()
    assert {name: spent(path) for name, path in paths.items()} == before


def interrupt(*told):
    raise KeyboardInterrupt


def test_a_round_that_does_not_fit_says_so_of_itself(tmp_path):
    """Earlier rounds of its run stay charged: a refusal does not deny that."""
    path = make_ledgers(tmp_path)["x"]
    with SQLiteLedger(path) as ledger, ledger.open_run("first", "x") as run:
        run.reserve(0, GaussianRelease(1.0, 4.0))
        with pytest.raises(BudgetError, match="it was not charged to the ledger of x") as refused:
            run.reserve(1, GaussianRelease(1.0, 2.0))
    assert "nothing was charged" not in str(refused.value)
