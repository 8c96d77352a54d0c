"""``dpadmm compare``: a table with baselines, which survives being killed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.helpers.small_experiments import SMALL
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.cli.compare import CompareOptions, _comparison
from dpadmm.errors import ParameterError
from dpadmm.experiments.comparison import (
    ALONE,
    BEST_ALONE,
    CENTRAL_GRADIENT,
    CURATOR,
    POOLED,
    PRIVATE_ALONE,
    PRIVATE_BASELINES,
    Comparison,
    Contender,
    Line,
    Place,
    alone_cells,
    default_entries,
    gradient_cell,
    parse_entry,
    pooled_cell,
    private_alone_cells,
    private_cell,
)
from dpadmm.experiments.comparison_pages import headline
from dpadmm.experiments.measures import Interval
from dpadmm.experiments.problems import OnePartyProblem
from dpadmm.run.options import TrainingParameters

SOURCE = str(Path(__file__).parents[2] / "src")
FINALS = ("test accuracy", "log loss")
SHARED = TrainingParameters("admm", rounds=3, delta=1e-3, regularization=1e-2)


def test_baselines_without_privacy_are_scikit_learn_s():
    problem = SMALL.load()
    cells = [
        pooled_cell(SMALL, SHARED, 3, FINALS),
        *alone_cells(SMALL, SHARED, 3, FINALS),
    ]
    data = [
        tuple(np.concatenate(parts) for parts in zip(*problem.members, strict=True)),
        *problem.members,
    ]
    for cell, (rows, labels), parties in zip(cells, data, (3, 1, 1, 1), strict=True):
        strength = parties / (len(labels) * SHARED.regularization)
        model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10)
        model.fit(rows, labels[:, 0] > 0)
        found = cell.compute()
        assert found.final("test accuracy")[0] == model.score(
            problem.test_rows, problem.test_codes > 0
        )
        chances = model.predict_proba(problem.test_rows)
        chosen = chances[np.arange(len(chances)), problem.test_codes]
        assert found.final("log loss")[0] == pytest.approx(-np.log(chosen).mean(), rel=1e-4)


@pytest.mark.parametrize("label", ["central AMP", "central objective perturbation"])
def test_central_baselines_spend_the_same_budget(label):
    cell = private_cell(
        SMALL, SMALL.load(), SHARED, label, epsilon=2.0, runs=2, seed=0, finals=FINALS
    )
    privacy = cell.compute().facts["privacy"]
    assert 0.99 * 2.0 < privacy["epsilon"] <= 2.0
    assert privacy["delta"] == 1e-3


def test_gradients_of_one_party_and_of_all_spend_the_same_budget():
    told = {"epsilon": 2.0, "runs": 2, "seed": 0, "finals": FINALS}
    cells = [
        *private_alone_cells(SMALL, SHARED, **told),
        gradient_cell(OnePartyProblem(SMALL), SHARED, 3, **told),
    ]
    assert len(cells) == 4
    for cell in cells:
        privacy = cell.compute().facts["privacy"]
        assert 0.99 * 2.0 < privacy["epsilon"] <= 2.0
        assert privacy["algorithm"] == "dp-gd"
    # The objective counts the regulariser once and the losses once per party.
    assert [cell.parameters.regularization for cell in cells] == [1e-2, 1e-2, 1e-2, 1e-2 / 3]


def test_the_best_party_and_the_better_curator_are_picked_from_what_is_shown():
    told = Comparison(SMALL, SHARED, (parse_entry("dp-gd"),), epsilons=(1.0, 20.0), runs=3)
    results = {label: cell.compute() for label, cell in told.cells().items()}
    lines = told.lines(results)
    alone = [
        result.final("test accuracy")[0]
        for label, result in results.items()
        if label.startswith(ALONE)
    ]
    found = {(line.place.who, line.place.epsilon): line for line in lines}
    assert len(alone) == 3
    assert found[BEST_ALONE, np.inf].figures["test accuracy"].mean == max(alone)
    assert found[ALONE, np.inf].figures["test accuracy"].mean == pytest.approx(np.mean(alone))
    for epsilon in (1.0, 20.0):
        central = [found[who, epsilon] for who in (CENTRAL_GRADIENT, *PRIVATE_BASELINES)]
        curator = found[CURATOR, epsilon]
        assert curator.figures in [line.figures for line in central]
        assert curator.figures["test accuracy"].mean == max(
            line.figures["test accuracy"].mean for line in central
        )
        assert found[curator.source, epsilon].figures == curator.figures
        assert (PRIVATE_ALONE, epsilon) in found


def test_two_parties_are_not_asked_to_share_noise():
    assert "dp-gd:noise=shared" in default_entries(3)
    assert "dp-gd:noise=shared" not in default_entries(2)
    assert "dp-gd" in default_entries(2)


def test_entries_are_read_as_they_are_shown():
    text = "dvp:noise=gaussian,epsilon_per_round=0.5"
    assert parse_entry(text) == Contender(
        "dvp", (("noise", "gaussian"), ("epsilon_per_round", 0.5))
    )
    assert parse_entry(text).label == text
    with pytest.raises(ParameterError, match="algorithm must be one of"):
        parse_entry("dvpp")
    with pytest.raises(ParameterError, match="a name with options"):
        parse_entry("dvp:gaussian")


def test_what_no_budget_allows_is_refused_before_any_work():
    told = Comparison(SMALL, SHARED, (Contender("pr-admm", (("colour", 1),)),), epsilons=(1.0,))
    with pytest.raises(ParameterError, match=r"pr-admm:colour=1: .*colour"):
        told.check()
    with pytest.raises(ParameterError, match="epsilon must be a positive number"):
        replace(told, epsilons=(-1.0,))


def test_one_that_is_refused_has_its_reason_in_the_table():
    told = Comparison(
        SMALL,
        SHARED,
        (Contender("dvp", (("noise", "gaussian"),)),),
        epsilons=(1.0,),
        calibrations=("proven", "published"),
        runs=2,
    )
    told.check()
    lines = told.lines({label: cell.compute() for label, cell in told.cells().items()})
    refused = {line.place.calibration: line.refused for line in lines if "dvp" in line.place.who}
    assert not refused["proven"]
    assert "exp-norm" in refused["published"]


def test_splits_widen_the_intervals_to_the_choice_of_rows():
    told = Comparison(SMALL, SHARED, (parse_entry("admm"),), epsilons=(1.0,), splits=3, runs=1)
    lines = told.lines({label: cell.compute() for label, cell in told.cells().items()})
    admm = next(line for line in lines if line.place.who == "admm")
    interval = admm.figures["test accuracy"]
    assert np.isfinite(interval.low)
    assert interval.low < interval.mean < interval.high


ARGUMENTS = [
    "compare",
    "waveform",
    *("--rows-per-party", "60", "--test-rows", "100", "--rounds", "3", "--runs", "2"),
    *("--delta", "1e-3", "--epsilon", "1,10", "--jobs", "1"),
    *("--algorithm", "admm", "--algorithm", "pr-admm", "--algorithm", "dvp:noise=gaussian"),
]


def started(folder):
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-m", "dpadmm", *ARGUMENTS, "--output", str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def test_a_killed_comparison_goes_on_and_gives_the_same_table(tmp_path):
    killed = started(tmp_path / "killed")
    cells = tmp_path / "killed" / "cells"
    deadline = time.monotonic() + 60
    while len(list(cells.glob("*.cell"))) < 3 and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    finished = {path: path.stat().st_mtime_ns for path in cells.glob("*.cell")}
    assert len(finished) >= 3
    assert not (tmp_path / "killed" / "comparison.csv").exists()
    for folder in ("killed", "whole"):
        result = CliRunner().invoke(app, [*ARGUMENTS, "--output", str(tmp_path / folder)])
        assert result.exit_code == 0, result.output
        assert "A simulation" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    tables = [(tmp_path / folder / "comparison.csv").read_text() for folder in ("killed", "whole")]
    assert tables[0] == tables[1]
    assert "central AMP" in tables[0]
    # It opens with the headline, in the terminal as on the page.
    headline = json.loads((tmp_path / "whole" / "manifest.json").read_text())["headline"]
    assert " ".join(result.stdout.split()).startswith(headline)
    assert (tmp_path / "whole" / "comparison.md").read_text().startswith(f"**{headline}**")
    assert headline in (tmp_path / "whole" / "report.html").read_text()


def test_the_user_s_own_files(hospitals):
    (hospitals / "public.csv").write_text((hospitals / "west.csv").read_text())
    arguments = ["compare", str(hospitals / "run.toml"), "--delta", "1e-3", "--epsilon", "5"]
    arguments += ["--runs", "2", "--jobs", "1", "--algorithm", "pr-admm", "--json"]
    arguments += ["--output", str(hospitals / "out")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "--public-evaluation must name a file of public rows" in refused.stderr
    arguments += ["--public-evaluation", str(hospitals / "public.csv")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    manifest = json.loads(result.stdout)["result"]
    assert manifest["data"]["rows"] == [60, 40, 20]
    assert "protects nobody" in manifest["notice"]
    line = next(line for line in manifest["lines"] if line["who"] == "pr-admm")
    assert line["provable_epsilon"] == pytest.approx(5.0, rel=1e-2)
    assert 0.3 < line["figures"]["test accuracy"]["mean"] <= 1


@pytest.mark.filterwarnings("ignore")
def test_a_configuration_brings_its_delta(hospitals):
    (hospitals / "public.csv").write_text((hospitals / "west.csv").read_text())
    config = hospitals / "run.toml"
    told = config.read_text()
    asked = CompareOptions(data=str(config), public_evaluation=hospitals / "public.csv")
    config.write_text(told.replace("[run]", "[run]\ndelta = 2e-4", 1))
    assert _comparison(asked).parameters.delta == 2e-4
    assert _comparison(replace(asked, delta=3e-4)).parameters.delta == 3e-4
    assert _comparison(CompareOptions(data="twonorm")).parameters.delta == 1e-5
    each = "[run]\ndelta = {north = 1e-4, south = 1e-4, west = 1e-3}"
    config.write_text(told.replace("[run]", each, 1))
    with pytest.raises(
        ParameterError, match=r"one number for all .* got one for each party. Give --"
    ):
        _comparison(asked)


@pytest.mark.filterwarnings("ignore")
def test_what_a_configuration_leaves_open_is_each_algorithm_s_own(hospitals):
    (hospitals / "public.csv").write_text((hospitals / "west.csv").read_text())
    config = hospitals / "run.toml"
    lines = config.read_text().replace('algorithm = "admm"', 'algorithm = "auto"').splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith("rounds")))
    told = _comparison(
        CompareOptions(
            data=str(config),
            public_evaluation=hospitals / "public.csv",
            algorithm=["pr-admm", "dp-gd"],
            epsilon="5",
            topology="complete",
            delta=1e-3,
        )
    )
    plans = [cell.plan(cell.problem.load())[0] for cell in told.cells().values()]
    rounds = {each.algorithm.name: each.rounds for each in plans if each.rounds > 1}
    assert rounds == {"pr-admm": 50, "dp-gd": 100}
    # Who is compared was named; nothing was chosen.
    assert {each.choice for each in plans} == {None}


def line(who, mean, epsilon=math.inf, calibration="proven", source=""):
    figures = {"test accuracy": Interval(mean, mean - 0.01, mean + 0.01)}
    place = Place(who, calibration, "server" if "dp-gd" in who else "", epsilon)
    return Line(place, None, figures, source=source)


OTHERS = [
    line(POOLED, 0.86),
    line(ALONE, 0.75),
    line(BEST_ALONE, 0.80),
    line(PRIVATE_ALONE, 0.65, 1.0),
    line(CURATOR, 0.85, 1.0, source="central AMP"),
]


def test_it_is_computed_from_the_lines():
    found = headline(
        [
            *OTHERS,
            line("dp-gd", 0.79, 1.0),
            line("dp-gd:noise=shared", 0.83, 1.0),
            line("dp-gd", 0.70, 0.1),
            line("dp-gd", 0.805, 10.0),
        ]
    )
    assert "At epsilon 1 the best of the algorithms compared (dp-gd:noise=shared, server" in found
    assert "gets 83.0% of the held-back rows right" in found
    assert "75.0% on average and 80.0% at best without privacy" in found
    assert "within the same budget 65.0% on average" in found
    assert "85.0% within the same budget (central AMP) and 86.0% without privacy" in found
    assert "cannot be told from the best party alone at epsilon 10" in found
    assert "beats every party alone at epsilon 1;" in found
    assert "does not beat the best party alone at epsilon 0.1." in found


def test_what_does_not_pay_is_not_praised():
    found = headline([*OTHERS, line("dp-gd", 0.78, 1.0)])
    assert "does not beat the best party alone at epsilon 1." in found
    assert "beats every" not in found


def test_noise_as_published_does_not_count():
    found = headline([*OTHERS, line("dp-gd", 0.78, 1.0), line("pr-admm", 0.99, 1.0, "published")])
    assert "99" not in found
    assert headline(OTHERS).startswith("No private algorithm")


def test_a_baseline_is_no_contender():
    # A curator beats everybody alone; that is not training together.
    assert headline([*OTHERS, line("dp-gd", 0.78, 1.0)]).count("85.0%") == 1
    assert "dp-gd" in headline([*OTHERS, line("dp-gd", 0.78, 1.0)])
