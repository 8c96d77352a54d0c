"""A rerun experiment leaves a figure, its data, a manifest and a page that agree."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from tests.helpers.small_experiments import SmallExperiment
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.errors import ParameterError
from dpadmm.experiments import problems
from dpadmm.experiments.jobs import Store
from dpadmm_papers import EXPERIMENTS
from dpadmm_papers.experiment import Finding, Look, get_experiment
from dpadmm_papers.manifests import cell_of, manifest_of, manifest_text
from dpadmm_papers.pages import contents_page, experiment_meaning, page, reproduce
from dpadmm_papers.verdicts import VERDICTS


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    return reproduce(SmallExperiment(), folder / "small", Store(folder / "cells"))


def test_files(done):
    names = {path.name for path in done.folder.iterdir()}
    assert names == {
        "figure.svg",
        "figure.csv",
        "figure.npz",
        "table-1.csv",
        "table-1.npz",
        "manifest.json",
        "report.json",
        "page.md",
        "report.html",
    }
    points = list(csv.DictReader((done.folder / "figure.csv").read_text().splitlines()))
    assert [point["x"] for point in points] == ["1", "2", "3"]
    assert all(float(p["low"]) <= float(p["y"]) <= float(p["high"]) for p in points)
    with np.load(done.folder / "figure.npz", allow_pickle=False) as arrays:
        assert [f"{y:.8g}" for y in arrays["y"]] == [f"{float(p['y']):.8g}" for p in points]
        assert set(arrays["curve"]) == {"accuracy"}


def test_the_manifest_has_settings_with_sources_seeds_and_privacy(done):
    manifest = json.loads((done.folder / "manifest.json").read_text())
    assert manifest["settings"]["rounds"] == {"value": 3, "source": "paper", "why": "section 1"}
    assert manifest["settings"]["runs"]["source"] == "ours"
    cell = cell_of(manifest, "one")
    assert cell["privacy"]["epsilon"] == pytest.approx(50.0, rel=1e-3)
    assert cell["privacy"]["simulated"] is True
    assert cell["seed"] > 0
    assert manifest["data"][0]["dataset"] == "waveform"
    assert manifest["findings"][0]["verdict"] in VERDICTS


def test_the_manifest_says_each_thing_once_and_a_cell_can_be_had_whole(done):
    cells = {
        label: dataclasses.replace(SmallExperiment().cells()["one"], seed=seed)
        for seed, label in enumerate(("one", "two", "three"))
    }
    results = dict.fromkeys(cells, SmallExperiment().cells()["one"].compute())
    look = Look(cells, results, done.evaluation, {}, frozenset({"two"}))
    whole = manifest_of(done.experiment, look, experiment_meaning(results), 1.0)
    read = json.loads(manifest_text(whole))
    assert set(read["cells"]["two"]) == {"kind", "key", "seed"}
    assert read["more_runs"] == {"times": 5, "cells": ["two"]}
    for label, cell in cells.items():
        described = json.loads(json.dumps(cell.description()))
        found = cell_of(read, label)
        assert described == {name: found[name] for name in described}
        assert found["key"] == cell.key
        assert found["privacy"]["epsilon"] == results[label].facts["privacy"]["epsilon"]


def test_the_page_says_criterion_verdict_and_source(done):
    page = (done.folder / "page.md").read_text()
    finding = done.evaluation.findings[0]
    for words in (
        "**It learns.**",
        "The interval of accuracy is above 0.5.",
        f"| Proven | our settings | **{finding.verdict}**",
        f"* Proven: **{finding.verdict}**: learns.",
        f"Rerun with dpadmm {done.manifest['dpadmm']}.",
        finding.number,
        "| rounds | 3 | paper | section 1 |",
        "dpadmm reproduce small-figure-1",
        "last \\| accuracy",
    ):
        assert words in page


def test_the_same_experiment_has_the_same_bytes(done, tmp_path):
    again = reproduce(SmallExperiment(), tmp_path / "small", Store(tmp_path / "cells"))
    for name in ("figure.csv", "figure.svg"):
        assert (again.folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_a_page_says_which_choice_decides(done):
    main = dataclasses.replace(done.evaluation.findings[0], verdict="stands", look=1)
    other = dataclasses.replace(
        main, verdict="does not stand", choice="rounds", variant="1", look=2, number="0.4"
    )
    evaluation = dataclasses.replace(done.evaluation, findings=(main, other))
    text = page(done.experiment, evaluation, experiment_meaning({}), done.manifest)
    # In short and the figure come first, then one table for a conclusion.
    assert "* Proven: **depends on rounds**: learns.\n" in text
    assert text.index("* Proven") < text.index("figure.svg")
    assert text.index("figure.svg") < text.index("## What it concludes")
    assert "| Proven |  | **depends on rounds** |  |" in text
    assert f"|  | our settings | stands | {main.number} |" in text
    assert "|  | rounds: 1 | does not stand (second look, up to 60 runs) | 0.4 |" in text
    manifest = {**done.manifest, "findings": [dataclasses.asdict(each) for each in (main, other)]}
    index = contents_page([manifest])
    # The first lines say it without the tables.
    words = (
        f"Rerun with dpadmm {manifest['dpadmm']}.",
        "1 conclusion of 1 paper came to 1 verdict",
        "**1 depend on a choice that the paper leaves open**: 1 stand with our settings",
        "[SMALL-FIGURE-1](#",
        "* Proven: **0 of 1 stand**; dependent: 1, on rounds, 1 of them standing with our",
        "reproduce --all",
        f"## {manifest['citation']}",
        "| experiment | conclusion | noise | verdict | otherwise | what shows it |",
    )
    places = [index.index(each) for each in words]
    assert places == sorted(places)
    link = "[Fig. 1](small-figure-1/page.md)"
    row = "**stands** | does not stand with rounds: 1 | With rounds: 1: 0.4. |"
    assert f"| {link} | It learns. | proven | {row}" in index
    # Of several experiments of a paper, what their names begin with.
    both = contents_page([manifest, {**manifest, "experiment": "small-table-1"}])
    assert "* Proven: **0 of 2 stand**; dependent: 2, on rounds (2), 2 of them standing" in both
    assert "[SMALL](#" in both


def test_a_page_and_the_index_say_once_what_is_the_same(done):
    main = dataclasses.replace(done.evaluation.findings[0], verdict="stands", look=1, number="0.6")
    same = dataclasses.replace(main, choice="rounds", variant="1")
    evaluation = dataclasses.replace(done.evaluation, findings=(main, same))
    text = page(done.experiment, evaluation, experiment_meaning({}), done.manifest)
    assert "| Proven | our settings; rounds: 1 | **stands** | 0.6 |" in text
    published = dataclasses.replace(main, calibration="published")
    manifest = {
        **done.manifest,
        "findings": [dataclasses.asdict(each) for each in (main, published)],
    }
    assert "| It learns. | proven; as published | **stands** |  |  |" in contents_page([manifest])


def test_the_index_says_why_and_counts_a_claim_of_parts_once(done):
    main = dataclasses.replace(done.evaluation.findings[0], verdict="does not stand", number="0.4")
    part = dataclasses.replace(main, conclusion="learns, alone", verdict="stands")
    fallen = dataclasses.replace(main, conclusion="learns, together", number="0.3")
    told = done.manifest["conclusions"][0]
    manifest = {
        **done.manifest,
        "findings": [dataclasses.asdict(each) for each in (main, part, fallen)],
        "conclusions": [
            {**told, "parts": ["learns, alone", "learns, together"]},
            {**told, "name": "learns, together", "claim": "Of this: together.", "parts": []},
            {**told, "name": "learns, alone", "claim": "Of this: alone.", "parts": []},
        ],
    }
    index = contents_page([manifest])
    link = "[Fig. 1](small-figure-1/page.md)"
    assert f"* Proven: **0 of 1 stand**; does not stand: {link}." in index
    # The part that fell says why; parts have no line of their own.
    assert f"| {link} | It learns. | proven | **does not stand** |  | 0.4 together: 0.3 |" in index
    assert "Of this" not in index


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
    monkeypatch.setattr("dpadmm_papers.experiment.entry_points", lambda group: found)
    assert isinstance(get_experiment("small"), SmallExperiment)
    found.append(Entry({"small": SmallExperiment()}))
    with pytest.raises(ParameterError, match="must have one source; 'elsewhere"):
        get_experiment("small")


def test_without_any_the_command_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr("dpadmm_papers.experiment.entry_points", lambda group: [])
    result = CliRunner().invoke(app, ["reproduce"])
    assert result.exit_code == 2
    assert "Install dpadmm-papers" in result.stderr


@pytest.mark.parametrize("arguments", [["--json"], ["--list", "--json"]])
def test_without_a_name_the_command_lists_them(arguments):
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    known = json.loads(result.stdout)["result"]["known"]
    assert [each["experiment"] for each in known] == list(EXPERIMENTS)
    assert all(each["datasets"] for each in known)


def test_the_list_says_which_data_are_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problems._named.cache_clear()
    result = CliRunner().invoke(app, ["reproduce", "--list", "dvp-figure-2", "--json"])
    (known,) = json.loads(result.stdout)["result"]["known"]
    assert known["experiment"] == "dvp-figure-2"
    assert "archive.ics.uci.edu" in known["datasets"]["adult"]
    problems._named.cache_clear()


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_experiment_is_complete(experiment):
    assert experiment.settings
    assert all(setting.source in ("paper", "ours") for setting in experiment.settings.values())
    # What we chose says why.
    assert all(s.why for s in experiment.settings.values() if s.source == "ours")
    assert experiment.conclusions
    assert all(each.claim and each.criterion for each in experiment.conclusions)
