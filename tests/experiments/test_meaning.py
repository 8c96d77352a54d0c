"""No epsilon is shown without its theorem, adjacency and adversary; a claim is called one."""

import csv
import json
import re

import pytest
from tests.helpers.small_experiments import SMALL, SmallExperiment
from typer.testing import CliRunner

from dpadmm.algorithms import REGISTRY
from dpadmm.cli import app
from dpadmm.experiments.comparison import (
    ALONE_ADVERSARY,
    BASELINES,
    CENTRAL_ADVERSARY,
    CENTRAL_GRADIENT,
    CURATOR,
    PRIVATE_ALONE,
    PRIVATE_BASELINES,
    Comparison,
    parse_entry,
)
from dpadmm.experiments.comparison_pages import write_comparison
from dpadmm.experiments.jobs import Store
from dpadmm.experiments.meaning import RELEASES, Shown, meaning_of
from dpadmm.privacy.events import EVENT_KINDS
from dpadmm.privacy.statement import ADVERSARY, adjacency_words
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.pages import contents_page, reproduce

# Published PDML is told its noise, which the proven one refuses: each is refused once.
PDML = ("pdml:label_epsilon=1", "pdml:label_epsilon=1,initial_noise=1.0")

CENTRAL = (CENTRAL_GRADIENT, *PRIVATE_BASELINES, CURATOR)
ADVERSARIES = dict.fromkeys(CENTRAL, CENTRAL_ADVERSARY) | {PRIVATE_ALONE: ALONE_ADVERSARY}


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    """A comparison of every registered algorithm in both calibrations."""
    folder = tmp_path_factory.mktemp("everybody")
    told = Comparison(
        SMALL,
        TrainingParameters("admm", rounds=2, delta=1e-3, regularization=1e-2),
        tuple(parse_entry(name) for name in (*REGISTRY, *PDML) if name != "pdml"),
        epsilons=(4.0,),
        calibrations=("proven", "published"),
        runs=2,
    )
    results = {label: cell.compute() for label, cell in told.cells().items()}
    return folder, write_comparison(told, results, folder, "dpadmm compare small")


def shown_rows(text):
    """The cells of the table of a page in Markdown, which stands below the headline."""
    table = text.split("\n\n")[1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_names_stay_as_they_are_written(everybody):
    """On the page and in the figure: "Admm" is no algorithm."""
    folder, _ = everybody
    texts = [
        path.read_text() for path in folder.iterdir() if path.suffix in (".html", ".svg", ".md")
    ]
    assert len(texts) == 3
    for name in (*REGISTRY, *BASELINES):
        assert not any(re.search(rf"\b{name.capitalize()}\b", text) for text in texts), name


def test_every_line_says_what_its_epsilon_rests_on(everybody):
    folder, manifest = everybody
    text = (folder / "comparison.md").read_text()
    seen = {line["who"].partition(":")[0] for line in manifest["lines"]}
    assert seen == {*REGISTRY, *BASELINES}
    rows = shown_rows(text)
    assert len(rows) == len(manifest["lines"])
    ran = set()
    for line, row in zip(manifest["lines"], rows, strict=True):
        name = line["who"].partition(":")[0]
        if line["refused"]:
            # There is no paper whose noise dp-gd could have.
            assert name == "pdml" or (name, line["calibration"]) == ("dp-gd", "published")
            assert row[2] == "4 asked for"
            continue
        ran.add((name, line["calibration"]))
        if line["epsilon"] == "infinite":
            assert line["theorem"].startswith("no guarantee")
            assert row[2] == "no guarantee"
            continue
        assert line["theorem"]
        assert line["releases"]
        assert line["delta"] == 1e-3
        assert line["adjacency"] == adjacency_words(1)
        assert line["adversary"] == ADVERSARIES.get(line["who"], ADVERSARY)
        assert row[2].endswith(line["mark"])
        assert f"| {line['mark']} | {line['theorem']} | " in text
        published = line["calibration"] == "published"
        # The paper of PDML gives no number for rows.
        claimed = f"claimed {'none' if name == 'pdml' else 4}, proven "
        assert row[2].startswith(claimed if published else "4 [")
        assert published == bool(line["claim"])
    private = {name for name, kind in REGISTRY.items() if kind.private}
    assert ran >= {(name, "proven") for name in private}
    assert ran >= {(name, "published") for name in private - {"dp-gd"}}
    for words in (adjacency_words(1), ADVERSARY, CENTRAL_ADVERSARY, "**Delta**: 0.001"):
        assert words in text


def test_the_table_for_machines_has_the_same_grounds(everybody):
    folder, manifest = everybody
    with (folder / "comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for line, row in zip(manifest["lines"], rows, strict=True):
        for name in ("theorem", "releases", "adjacency", "adversary", "claim", "source"):
            assert row[name] == (line[name] or "")


def test_labels_have_a_guarantee_of_their_own(everybody):
    folder, manifest = everybody
    line = next(each for each in manifest["lines"] if each["who"].startswith("pdml"))
    assert line["details"]["Label against its own server"].startswith("1-local differential")
    assert (
        "Label against its own server | 1-local differential"
        in (folder / "comparison.md").read_text()
    )


def test_axes_and_report_say_what_is_claimed(everybody):
    folder, manifest = everybody
    assert {panel["x_label"] for panel in manifest["panels"]} == {
        "epsilon, claimed (published) or proven"
    }
    report = (folder / "report.html").read_text()
    for words in ("What the epsilons mean", "As published, not proven", "Koskela et al. 2020"):
        assert words in report


def test_what_is_refused_is_not_shown_as_a_guarantee():
    told = Comparison(
        SMALL,
        TrainingParameters("admm", rounds=2, delta=1e-3),
        (parse_entry("dvp:noise=gaussian"),),
        epsilons=(1.0,),
        calibrations=("published",),
    )
    lines = told.lines({label: cell.compute() for label, cell in told.cells().items()})
    refused = next(line for line in lines if line.refused)
    assert set(refused.grounds.values()) == {None}


@pytest.mark.parametrize("entries", [("dp-gd",), ("dp-gd:noise=shared",), ("dp-gd", "both")])
def test_what_is_said_of_all_lines_is_true_of_all(tmp_path, entries):
    entries = tuple(entry.replace("both", "dp-gd:noise=shared") for entry in entries)
    told = Comparison(
        SMALL,
        TrainingParameters("admm", rounds=2, delta=1e-3, regularization=1e-2),
        tuple(map(parse_entry, entries)),
        epsilons=(4.0,),
        calibrations=("proven",),
        runs=2,
    )
    results = {label: cell.compute() for label, cell in told.cells().items()}
    manifest = write_comparison(told, results, tmp_path, "dpadmm compare small")
    lines = [line for line in manifest["lines"] if line["who"] in entries]
    assert len(lines) == len(entries)
    for line in lines:
        shared = "shared" in line["who"]
        assert ("parties together with it" in line["adversary"]) == shared
        assert ("for whom their mu add up" in line["not_covered"][0]) == shared
        for name in ("adversary", "not_covered"):
            if len(lines) == 1:
                assert manifest["privacy"][name] == line[name]
            else:
                assert "each line has its own" in str(manifest["privacy"][name])


def test_the_command_prints_it(tmp_path):
    arguments = ["compare", "waveform", "--rows-per-party", "50", "--test-rows", "50", "--runs"]
    arguments += ["2", "--rounds", "2", "--epsilon", "1", "--delta", "1e-3", "--jobs", "1"]
    arguments += ["--algorithm", "pr-admm", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.replace("│", " ").split())
    assert "What the epsilons mean" in text
    assert f"Adjacency: {adjacency_words(1)}." in text
    for words in (ADVERSARY, CENTRAL_ADVERSARY, "Delta: 0.001.", "Dong, Roth, Su 2022"):
        assert words in text


@pytest.fixture(scope="module")
def rerun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerun")
    return reproduce(SmallExperiment(), folder / "small", Store(folder / "cells"))


def test_the_page_and_the_index_of_an_experiment_say_it(rerun):
    index = contents_page([rerun.manifest])
    page = (rerun.folder / "page.md").read_text()
    assert "## What the epsilons mean" in page
    assert "| pr-admm | proven | 50 | 0.001 | [1] |" in page
    for text in (page, index, (rerun.folder / "report.html").read_text()):
        for words in (
            "Dong, Roth, Su 2022",
            "ne row of one party is replaced",
            "ees every message",
        ):
            assert words in text


def test_reproduce_prints_it(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "dpadmm_papers.experiment.known_experiments", lambda: {"small": SmallExperiment()}
    )
    arguments = ["reproduce", "small", "--jobs", "1", "--output", str(tmp_path)]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0, printed.output
    text = " ".join(printed.stdout.replace("│", " ").split())
    for words in (adjacency_words(1), ADVERSARY, "Delta: 0.001.", "Dong, Roth, Su 2022"):
        assert words in text
    # A page from before is not listed as if it said so.
    manifest = tmp_path / "small" / "manifest.json"
    old = json.loads((tmp_path / "small-figure-1" / "manifest.json").read_text())
    old["version"] = 1
    manifest.parent.mkdir()
    manifest.write_text(json.dumps(old))
    again = CliRunner().invoke(app, arguments)
    assert "small-figure-1 is left out of the index" in again.stderr
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["result"]
    facts = dict(told["experiments"][0]["meaning"]["facts"])
    assert facts["Adversary"] == ADVERSARY


def test_every_kind_of_release_has_words():
    assert set(RELEASES) == set(EVENT_KINDS)


def test_what_differs_is_said_of_whom():
    cells = Comparison(
        SMALL,
        TrainingParameters("admm", rounds=2, delta=1e-3),
        (parse_entry("pr-admm"),),
        epsilons=(1.0,),
    ).cells()
    label = next(label for label in cells if label.startswith("pr-admm"))
    privacy = cells[label].compute().facts["privacy"]
    outside = {**privacy, "delta": 1e-6, "reviewed": False}
    meaning = meaning_of([Shown("one", privacy), Shown("two", outside)])
    facts = dict(meaning.facts)
    assert facts["Delta (one)"] == "0.001"
    assert facts["Delta (two)"] == "1e-6"
    assert "Adjacency" in facts
    assert meaning.mark(privacy) != meaning.mark(outside)
    assert "not reviewed" in meaning.markdown()
    nothing = {**privacy, "epsilon": "infinite", "claim": "everything is private"}
    meaning = meaning_of([Shown("three", nothing)])
    assert meaning.mark(nothing) == ""
    assert "| three | everything is private | epsilon infinite at delta 0.001 |" in (
        meaning.markdown()
    )
