"""Records of real runs, and pages made of them."""

import copy
import random

import pytest

from dpadmm.config import load_config
from dpadmm.report.from_run import run_report
from dpadmm.report.records import RecordedRun
from dpadmm.report.render import render
from dpadmm.runs import train_run, write_results

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
        "uneven": "epsilon = {north = 0.5, south = 2.0, west = 1.0}",
    }
    found = {}
    for kind, run in wanted.items():
        folder = write_files(tmp_path_factory.mktemp(kind), run=run)
        found[kind] = write_results(train_run(load_config(folder / "run.toml")))
    return found


@pytest.fixture
def record(records):
    """A copy that a test may change."""
    return lambda kind="private": copy.deepcopy(records[kind])


@pytest.fixture
def page():
    """The page of a record."""
    return lambda content: render(run_report(RecordedRun.from_dict(content)))
