"""A rerun experiment leaves a figure, its data, a manifest and a page that agree."""

import csv
import json

import pytest
from tests.helpers.small_experiments import SmallExperiment
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.errors import ParameterError
from dpadmm.experiments.experiment import Finding, get_experiment
from dpadmm.experiments.pages import reproduce
from dpadmm.experiments.runner import Store
from dpadmm_papers import EXPERIMENTS


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    return reproduce(SmallExperiment(), folder / "small", Store(folder / "cells"))


def test_files(done):
    names = {path.name for path in done.folder.iterdir()}
    assert names == {
        "figure.svg",
        "figure.csv",
        "table-1.csv",
        "manifest.json",
        "report.json",
        "page.md",
        "report.html",
    }
    points = list(csv.DictReader((done.folder / "figure.csv").read_text().splitlines()))
    assert [point["x"] for point in points] == ["1", "2", "3"]
    assert all(float(p["low"]) <= float(p["y"]) <= float(p["high"]) for p in points)


def test_the_manifest_has_settings_with_sources_seeds_and_privacy(done):
    manifest = json.loads((done.folder / "manifest.json").read_text())
    assert manifest["settings"]["rounds"] == {"value": 3, "source": "paper", "why": "section 1"}
    assert manifest["settings"]["runs"]["source"] == "ours"
    cell = manifest["cells"]["one"]
    assert cell["privacy"]["epsilon"] == pytest.approx(50.0, rel=1e-3)
    assert cell["privacy"]["simulated"] is True
    assert cell["seed"] > 0
    assert manifest["data"][0]["dataset"] == "waveform"
    assert manifest["findings"][0]["verdict"] in ("stands", "does not stand")


def test_the_page_says_criterion_verdict_and_source(done):
    page = (done.folder / "page.md").read_text()
    finding = done.evaluation.findings[0]
    for words in (
        "**It learns.**",
        "The interval of accuracy is above 0.5.",
        f"Proven: **{finding.verdict}**. {finding.number}",
        "| rounds | 3 | paper | section 1 |",
        "dpadmm reproduce small-figure-1",
        "last \\| accuracy",
    ):
        assert words in page


def test_the_same_experiment_has_the_same_bytes(done, tmp_path):
    again = reproduce(SmallExperiment(), tmp_path / "small", Store(tmp_path / "cells"))
    for name in ("figure.csv", "figure.svg"):
        assert (again.folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_a_verdict_is_one_of_three():
    with pytest.raises(ParameterError, match="verdict must be one of"):
        Finding("learns", "proven", "maybe", "")


def test_an_unknown_experiment_lists_them():
    with pytest.raises(ParameterError, match="experiment must be one of"):
        get_experiment("figure-0")
    result = CliRunner().invoke(app, ["reproduce", "figure-0"])
    assert result.exit_code == 2
    assert "experiment must be one of" in result.stderr


class Entry:
    """An entry point as an installed package has it."""

    value = "elsewhere:EXPERIMENTS"

    def __init__(self, experiments):
        self.load = lambda: experiments


def test_outside_experiments_come_in_the_same_door(monkeypatch):
    found = [Entry(EXPERIMENTS), Entry({"small": SmallExperiment()})]
    monkeypatch.setattr("dpadmm.experiments.experiment.entry_points", lambda group: found)
    assert isinstance(get_experiment("small"), SmallExperiment)
    found.append(Entry({"small": SmallExperiment()}))
    with pytest.raises(ParameterError, match="must have one source; 'elsewhere"):
        get_experiment("small")


def test_without_any_the_command_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr("dpadmm.experiments.experiment.entry_points", lambda group: [])
    result = CliRunner().invoke(app, ["reproduce"])
    assert result.exit_code == 2
    assert "Install dpadmm-papers" in result.stderr


def test_without_a_name_the_command_lists_them():
    result = CliRunner().invoke(app, ["reproduce", "--json"])
    known = json.loads(result.stdout)["result"]["known"]
    assert [each["experiment"] for each in known] == list(EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_experiment_is_complete(experiment):
    assert experiment.settings
    assert all(setting.source in ("paper", "ours") for setting in experiment.settings.values())
    # What we chose says why.
    assert all(s.why for s in experiment.settings.values() if s.source == "ours")
    assert experiment.conclusions
    assert all(each.claim and each.criterion for each in experiment.conclusions)
