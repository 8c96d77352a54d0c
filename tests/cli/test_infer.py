"""``dpadmm infer``: charged once, free when asked again; planned before, a page after."""

import warnings

import numpy as np
import pandas as pd
import pytest
from tests.helpers.study_files import LABEL, WARD, numeric, result_of, spent, write_study

from dpadmm import FederatedGLM
from dpadmm.studies.effects import InferenceWarning

ROWS = {"north": 3000, "south": 2500, "west": 2000}
NUMBERS = {"age": (20, 100), "stay": (0, 30), "visits": (0, 20), "entry": (0, 4), "exit": (0, 4)}


@pytest.fixture
def study(tmp_path):
    random = np.random.default_rng(0)
    for name, count in ROWS.items():
        age = random.uniform(20, 100, count)
        ward = random.choice(["a", "b"], count)
        eta = 0.03 * (age - 60) + (ward == "b")
        frame = pd.DataFrame(
            {
                "age": age.round(3),
                "stay": (10 + 2 * eta + random.normal(size=count)).round(3),
                "visits": random.poisson(np.exp(eta / 2)),
                "entry": 0,
                "exit": random.integers(1, 5, count),
                "ward": ward,
                "died": np.where(random.random(count) < 1 / (1 + np.exp(-eta)), "yes", "no"),
            }
        )
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    columns = "".join(numeric(name, *ends) for name, ends in NUMBERS.items())
    (tmp_path / "schema.toml").write_text(LABEL + columns + WARD)

    def write(infer='columns = ["age", "ward"]', settings="", ledgers=None):
        about = settings or "epsilon = 3.0"
        asked = f"[infer]\n{infer}\n"
        return write_study(tmp_path, "infer.toml", ROWS, about, asked=asked, ledgers=ledgers)

    return write


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_regression_is_charged_once_and_says_the_same_again(study, dpadmm, tmp_path, noise):
    pytest.importorskip("opendp")
    config = study(settings=f'epsilon = 3.0\nnoise = "{noise}"', ledgers=5.0)
    first = result_of(dpadmm("infer", config, "--json"))
    assert 2.9 < spent(tmp_path) <= (3.0001 if noise == "own" else 4.5)
    before = spent(tmp_path)
    again = result_of(dpadmm("infer", config, "--json"))
    assert again["found"] == first["found"]
    assert spent(tmp_path) == before
    names = [each["name"] for each in first["found"]["coefficients"]]
    assert names == ["const", "age", "ward[T.b]"]
    ward = first["found"]["coefficients"][2]
    assert ward["low"] < ward["coefficient"] < ward["high"]
    assert ward["ratio"] == pytest.approx(np.exp(ward["coefficient"]))
    page = (tmp_path / "found.html").read_text()
    for words in ("What was asked?", "odds ratio", "ward[T.b]", "whole public range"):
        assert words in page
    # What others see says nothing of the rows themselves.
    assert "without_privacy" not in again
    assert "not private" not in page


@pytest.mark.parametrize(
    ("infer", "family", "response"),
    [
        ('columns = ["age", "ward"]', "binomial", "died"),
        ('family = "gaussian"\nresponse = "stay"\ncolumns = ["age", "ward"]', "gaussian", "stay"),
        ('family = "poisson"\nresponse = "visits"\ncolumns = ["age", "ward"]', "poisson", "visits"),
        (
            'family = "survival"\nentry = "entry"\nexit = "exit"\nperiods = 4\n'
            'columns = ["age", "ward"]',
            "survival",
            "died",
        ),
    ],
)
def test_files_and_the_estimator_agree(study, dpadmm, tmp_path, infer, family, response):
    config = study(infer, "epsilon = 3000.0\nsimulation_key = 3")
    found = result_of(dpadmm("infer", config, "--json"))["found"]
    frame = pd.concat([pd.read_csv(tmp_path / f"{name}.csv") for name in ROWS])
    y = frame[response]
    more = {"levels": {"ward": ["a", "b"]}, "epsilon": float("inf")}
    if response == "died":
        y = (y == "yes").astype(int)
    if family == "survival":
        y = pd.DataFrame({"entry": frame.entry, "exit": frame.exit, "event": y})
        more["periods"] = 4
    model = FederatedGLM(family, **more).fit(frame[["age", "ward"]], y)
    for each, error, name in zip(
        model.coef_, model.standard_errors_, model.effect_names_, strict=True
    ):
        (entry,) = [one for one in found["coefficients"] if one["name"] == name]
        assert abs(entry["coefficient"] - each) < 1.5 * error
        assert entry["standard_error"] == pytest.approx(error, rel=0.25)


def test_a_plan_reads_nothing_and_spends_nothing(study, dpadmm, tmp_path):
    config = study(ledgers=3.5)
    for name in ROWS:
        (tmp_path / f"{name}.csv").unlink()
    planned = result_of(dpadmm("infer", config, "--plan", "--json"))
    assert planned["expected_width"] > 1
    assert planned["coefficients"] == ["const", "age", "ward[T.b]"]
    tighter = result_of(dpadmm("infer", config, "--plan", "--width", 1.1, "--json"))
    assert tighter["expected_width"] <= 1.1
    assert spent(tmp_path) == 0
    shown = dpadmm("infer", config, "--plan").stdout
    assert "Nothing was read or spent" in shown
    told = " ".join(shown.split())
    assert "where one row of one party is replaced" in told
    assert "theorem: Gaussian releases compose exactly" in told
    assert planned["privacy"]["epsilon"] <= 3.0
    told = [line for line in shown.splitlines() if not line.startswith("Guarantee: ")]
    assert max(map(len, told)) <= 80


def test_a_hopeless_budget_is_refused_before_anything_is_spent(study, dpadmm, tmp_path):
    config = study(settings="epsilon = 0.01", ledgers=3.5)
    done = dpadmm("infer", config)
    assert done.exit_code != 0
    assert "drown" in done.output
    assert spent(tmp_path) == 0


@pytest.mark.parametrize(
    ("infer", "words"),
    [
        ('family = "gaussian"', "died"),
        ('family = "survival"', "entry, exit and periods"),
        ('columns = ["nobody"]', "nobody"),
        ('columns = ["died"]', "died"),
        ('columns = ["age", "age"]', "named once"),
        ("robust = true", "robust"),
        ('response = "age"', "label"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(study, dpadmm, infer, words):
    done = dpadmm("infer", study(infer, "epsilon = 3.0\nsimulation_key = 1"))
    assert done.exit_code != 0
    assert words in done.output
    assert "Traceback" not in done.output


def test_the_pre_flight_counts_times_and_counts_that_contradict_themselves(study, dpadmm, tmp_path):
    frame = pd.read_csv(tmp_path / "north.csv")
    frame.loc[:199, "entry"] = 4
    frame["exit"] = frame["exit"].astype(object)
    frame.loc[200:206, ["exit", "died"]] = ["", "yes"]
    frame["visits"] = frame["visits"].astype(float)
    frame.loc[:2, "visits"] = 1.5
    frame.to_csv(tmp_path / "north.csv", index=False)
    told = tmp_path / "found.json.preflight"
    config = study(
        'family = "survival"\nentry = "entry"\nexit = "exit"\nperiods = 4\ncolumns = ["age"]'
    )
    done = dpadmm("infer", config)
    assert done.exit_code == 0, done.output
    assert "north: 200 of 3000 rows leave no later than they enter" in told.read_text()
    assert "LOOKS WRONG: north: 200 of 3000 rows leave no later" in told.read_text()
    assert "north: 7 of 3000 rows have an event without an entry or exit" in told.read_text()
    assert "west: 0 of 2000 rows leave no later than they enter" in told.read_text()
    # Nobody else is told.
    assert "leave no later" not in done.output + (tmp_path / "found.json").read_text()
    config = study('family = "poisson"\nresponse = "visits"\ncolumns = ["age"]')
    assert dpadmm("infer", config).exit_code == 0
    assert "north: 3 of 3000 rows have a count that is no whole number" in told.read_text()


def test_other_columns_are_another_study_in_the_same_ledgers(study, dpadmm, tmp_path):
    """As many columns of the same schema: the sums have one form, and must not be mixed up."""
    first = result_of(dpadmm("infer", study('columns = ["age", "ward"]', ledgers=9.0), "--json"))
    once = spent(tmp_path)
    told = 'columns = ["ward", "age"]'
    other = result_of(dpadmm("infer", study(told, ledgers=9.0), "--json"))
    assert other["run_id"] != first["run_id"]
    assert spent(tmp_path) > once
    same = result_of(dpadmm("infer", study('columns = ["age", "ward"]', ledgers=9.0), "--json"))
    assert (same["run_id"], same["found"]) == (first["run_id"], first["found"])
    named = 'epsilon = 3.0\nrun_id = "one"'
    result_of(dpadmm("infer", study('columns = ["age", "ward"]', named, ledgers=9.0), "--json"))
    done = dpadmm("infer", study(told, named, ledgers=9.0))
    assert done.exit_code != 0
    assert "they differ" in " ".join(done.output.split())


def test_a_simulation_is_shown_beside_the_same_rows_without_privacy(study, dpadmm, tmp_path):
    config = study(settings="epsilon = 3.0\nsimulation_key = 1\nholdout = 0.5")
    told = result_of(dpadmm("infer", config, "--json"))
    without = told["without_privacy"]
    assert without["note"] == "not private: simulation only"
    parts = (pd.read_csv(tmp_path / f"{name}.csv")[: count // 2] for name, count in ROWS.items())
    frame = pd.concat(parts)
    model = FederatedGLM("binomial", epsilon=np.inf, levels={"ward": ["a", "b"]})
    model.fit(frame[["age", "ward"]], (frame.died == "yes").astype(int))
    exact = [each["coefficient"] for each in without["coefficients"]]
    np.testing.assert_allclose(exact, model.effects_.coefficients, rtol=1e-6)
    assert [each["span"] for each in told["found"]["coefficients"][1:]] == [80, 1]
    page = (tmp_path / "found.html").read_text()
    for words in ("age, not private", "(not private: simulation only)", "would have cost a row"):
        assert words in page


def test_a_simulation_says_why_it_has_no_regression_without_privacy(study, dpadmm, tmp_path):
    for name in ROWS:
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame["died"] = np.where(frame.age > 60, "yes", "no")
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    config = study('columns = ["age"]', "epsilon = 3.0\nsimulation_key = 1")
    with pytest.warns(InferenceWarning, match="separate the outcomes"):
        told = result_of(dpadmm("infer", config, "--json"))
    assert "separate" in told["without_privacy"]["reason"]
    assert "Without privacy (not private: simulation only)" in (tmp_path / "found.html").read_text()


def test_a_study_has_a_card(study, dpadmm, tmp_path):
    told = result_of(dpadmm("infer", study(settings="epsilon = 3.0"), "--json"))
    assert dpadmm("model", "card", told["record"], "-o", tmp_path / "card.md").exit_code == 0
    card = (tmp_path / "card.md").read_text()
    assert card.startswith("# Binomial regression")
    for words in ("ward\\[T.b\\]", "| Adversary |", "| Theorem | Gaussian releases", "odds ratio"):
        assert words in card
    assert "..." not in card
    (tmp_path / "card.json").write_text('{"format": 1, "kind": "other"}')
    done = dpadmm("model", "card", tmp_path / "card.json")
    assert done.exit_code == 2
    assert "kind of a study must be one of" in done.output


def test_columns_that_say_nothing_are_told_to_their_owner_alone(study, dpadmm, tmp_path):
    frame = pd.read_csv(tmp_path / "north.csv")
    frame["visits"], frame["stay"] = 3, (frame["age"] - 20) * 30 / 80
    frame["died"] = np.where(frame["age"] > 60, "yes", "no")
    frame.to_csv(tmp_path / "north.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        done = dpadmm("infer", study('columns = ["age", "stay", "visits", "ward"]'))
    assert done.exit_code == 0, done.output
    told = (tmp_path / "found.json.preflight").read_text()
    for words in (
        "have one and the same visits",
        "have a stay that only repeats age",
        "have an outcome that age alone separates",
    ):
        assert f"north: 3000 of 3000 rows {words}." in told
        assert f"south: 2500 of 2500 rows {words}." not in told
        assert words not in done.output + (tmp_path / "found.json").read_text()
    assert "LOOKS WRONG" not in told


def test_budgets_may_differ_without_ledgers(study, dpadmm):
    told = result_of(
        dpadmm(
            "infer", study(settings="epsilon = {north = 3.0, south = 4.0, west = 5.0}"), "--json"
        )
    )
    assert told["privacy"]["parties"]["south"]["epsilon"] == pytest.approx(4.0)
    done = dpadmm("infer", study(settings="epsilon = {north = 3.0, south = 4.0}"))
    assert done.exit_code == 2
    assert "west" in done.output


@pytest.mark.filterwarnings("default")
def test_a_weak_budget_is_warned_of_in_words_and_not_in_code(study, dpadmm):
    done = dpadmm("infer", study(settings="epsilon = 0.2\ndelta = 1e-6"))
    assert done.exit_code == 0, done.output
    assert "Warning: q = n mu / p^1.5 is" in " ".join(done.stderr.split())
    assert "infer_files.py" not in done.stderr


def test_a_page_opens_with_what_was_found_and_what_it_cost_and_then_the_picture(
    study, dpadmm, tmp_path
):
    assert dpadmm("infer", study(settings="epsilon = 3.0")).exit_code == 0
    page = (tmp_path / "found.html").read_text()
    told = ('class="headline"', "It cost a row of one party (3, ", "Effects", "What was asked?")
    places = [page.index(words) for words in told]
    assert places == sorted(places)
