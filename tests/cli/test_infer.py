"""``dpadmm infer``: charged once, free when asked again; planned before, a page after."""

import json

import numpy as np
import pandas as pd
import pytest

from dpadmm import FederatedGLM
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

ROWS = {"north": 3000, "south": 2500, "west": 2000}
SCHEMA = """version = 2
[label]
column = "died"
classes = ["no", "yes"]
"""
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
    text = SCHEMA
    for name, (lower, upper) in NUMBERS.items():
        text += f'[[columns]]\nname = "{name}"\nkind = "numeric"\n'
        text += f"lower = {float(lower)}\nupper = {float(upper)}\n"
    text += '[[columns]]\nname = "ward"\nkind = "categorical"\nlevels = ["a", "b"]\n'
    (tmp_path / "schema.toml").write_text(text)

    def write(infer='columns = ["age", "ward"]', settings="", ledgers=None):
        text = f"[study]\n{settings or 'epsilon = 3.0'}\n[data]\nschema = 'schema.toml'\n"
        for name, count in ROWS.items():
            text += f"[[party]]\nname = '{name}'\nfile = '{name}.csv'\nrows = {count}\n"
        text += "[result]\nrecord = 'found.json'\n"
        if ledgers is not None:
            text += "[ledgers]\n"
            for name, count in ROWS.items():
                place = tmp_path / f"{name}.ledger"
                if not place.exists():
                    about = ChargedData("rows", name, count)
                    SQLiteLedger.create(place, about, Policy(ledgers, 1e-5)).close()
                text += f"{name} = '{name}.ledger'\n"
        (tmp_path / "infer.toml").write_text(f"{text}[infer]\n{infer}\n")
        return tmp_path / "infer.toml"

    return write


def result(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def spent(folder, name="north"):
    with SQLiteLedger(folder / f"{name}.ledger") as ledger:
        return ledger.verify().spent_epsilon


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_regression_is_charged_once_and_says_the_same_again(study, dpadmm, tmp_path, noise):
    pytest.importorskip("opendp")
    config = study(settings=f'epsilon = 3.0\nnoise = "{noise}"', ledgers=5.0)
    first = result(dpadmm("infer", config, "--json"))
    assert 2.9 < spent(tmp_path) <= (3.0001 if noise == "own" else 4.5)
    before = spent(tmp_path)
    again = result(dpadmm("infer", config, "--json"))
    assert again["found"] == first["found"]
    assert spent(tmp_path) == before
    names = [each["name"] for each in first["found"]["coefficients"]]
    assert names == ["const", "age", "ward[T.b]"]
    ward = first["found"]["coefficients"][2]
    assert ward["low"] < ward["coefficient"] < ward["high"]
    assert ward["ratio"] == pytest.approx(np.exp(ward["coefficient"]))
    page = (tmp_path / "found.html").read_text()
    for words in ("What was asked?", "odds ratio", "ward[T.b]", "Coefficients with privacy"):
        assert words in page


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
    found = result(dpadmm("infer", config, "--json"))["found"]
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
    planned = result(dpadmm("infer", config, "--plan", "--json"))
    assert planned["expected_width"] > 1
    assert planned["coefficients"] == ["const", "age", "ward[T.b]"]
    tighter = result(dpadmm("infer", config, "--plan", "--width", 1.1, "--json"))
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
    first = result(dpadmm("infer", study('columns = ["age", "ward"]', ledgers=9.0), "--json"))
    once = spent(tmp_path)
    told = 'columns = ["ward", "age"]'
    other = result(dpadmm("infer", study(told, ledgers=9.0), "--json"))
    assert other["run_id"] != first["run_id"]
    assert spent(tmp_path) > once
    same = result(dpadmm("infer", study('columns = ["age", "ward"]', ledgers=9.0), "--json"))
    assert (same["run_id"], same["found"]) == (first["run_id"], first["found"])
    named = 'epsilon = 3.0\nrun_id = "one"'
    result(dpadmm("infer", study('columns = ["age", "ward"]', named, ledgers=9.0), "--json"))
    done = dpadmm("infer", study(told, named, ledgers=9.0))
    assert done.exit_code != 0
    assert "they differ" in " ".join(done.output.split())


@pytest.mark.filterwarnings("default")
def test_a_weak_budget_is_warned_of_in_words_and_not_in_code(study, dpadmm):
    done = dpadmm("infer", study(settings="epsilon = 0.2\ndelta = 1e-6"))
    assert done.exit_code == 0, done.output
    assert "Warning: q = n mu / p^1.5 is" in " ".join(done.stderr.split())
    assert "infer_files.py" not in done.stderr


def test_a_page_opens_with_what_was_found_and_what_it_cost_and_then_the_picture(
    study, dpadmm, tmp_path
):
    assert dpadmm("infer", study()).exit_code == 0
    page = (tmp_path / "found.html").read_text()
    places = [
        page.index('class="headline"'),
        page.index("It cost a row of one party (3, 1e-5)-differential privacy at most."),
        page.index("Coefficients with privacy"),
        page.index("What was asked?"),
    ]
    assert places == sorted(places)
