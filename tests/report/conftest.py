"""Records of real runs, and pages made of them."""

import copy
import random

import pytest
from tests.helpers.small_experiments import SMALL, SmallExperiment

from dpadmm.experiments.comparison import Comparison, parse_entry
from dpadmm.experiments.comparison_pages import write_comparison
from dpadmm.experiments.jobs import Store
from dpadmm.report.html import render
from dpadmm.report.run import run_report
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run, write_results
from dpadmm.run.options import TrainingParameters
from dpadmm.run.result import RecordedRun
from dpadmm_papers.pages import reproduce

SCHEMA = """
constant = true
[label]
column = "readmitted"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
lower = 0
upper = 100
"""


def write_files(folder, names=("north", "south", "west"), run=""):
    """A run.toml with its schema and files."""
    (folder / "schema.toml").write_text(SCHEMA)
    draw = random.Random(0)
    lines = [f"[run]\nrounds = 10\ndelta = 1e-4\n{run}\n[data]\nschema = 'schema.toml'\n"]
    for place, name in enumerate(names):
        cells = ["age,readmitted"]
        for _ in range(60 - 10 * place):
            age = draw.randint(0, 100)
            cells.append(f"{age},{'yes' if age > 50 else 'no'}")
        (folder / f"{place}.csv").write_text("\n".join(cells) + "\n")
        lines.append(f"[[party]]\nname = '{name}'\nfile = '{place}.csv'\n")
    lines.append("[result]\nmodel = 'm.model'\nrecord = 'record.json'\n")
    (folder / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """Records of real runs by what they show."""
    wanted = {
        "private": "",
        "simulated": "simulation_key = 1",
        "published": 'algorithm = "dvp"\ncalibration = "published"',
        "without": 'algorithm = "admm"',
        "shared": (
            'algorithm = "dp-gd"\ntopology = "server"\nsimulation_key = 1\n'
            '[run.algorithm_options]\nnoise = "shared"'
        ),
        "uneven": "epsilon = {north = 0.5, south = 2.0, west = 1.0}",
    }
    found = {}
    for kind, run in wanted.items():
        folder = write_files(tmp_path_factory.mktemp(kind), run=run)
        found[kind] = write_results(train_run(load_config(folder / "run.toml"))).plain()
    return found


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """The folder of a small comparison."""
    folder = tmp_path_factory.mktemp("compared")
    told = Comparison(
        SMALL,
        TrainingParameters("admm", rounds=3, delta=1e-3, regularization=1e-2),
        tuple(parse_entry(entry) for entry in ("admm", "pr-admm", "dvp:noise=gaussian")),
        epsilons=(1.0, 10.0),
        calibrations=("proven", "published"),
        runs=2,
    )
    results = {label: cell.compute() for label, cell in told.cells().items()}
    write_comparison(told, results, folder, "dpadmm compare small")
    return folder


@pytest.fixture(scope="session")
def rerun(tmp_path_factory):
    """The folder of a small experiment."""
    folder = tmp_path_factory.mktemp("rerun")
    return reproduce(SmallExperiment(), folder / "small", Store(folder / "cells")).folder


@pytest.fixture
def record(records):
    """A copy that a test may change."""
    return lambda kind="private": copy.deepcopy(records[kind])


@pytest.fixture
def page():
    """The page of a record."""
    return lambda content: render(run_report(RecordedRun.from_dict(content)))
