"""The tables of docs/which-algorithm.md: a cell computed again gives the number printed there."""

import json
from pathlib import Path

import pytest

from dpadmm.experiments.comparison import Comparison, Contender
from dpadmm.experiments.problems import NamedProblem
from dpadmm.run.options import TrainingParameters

FOLDER = Path(__file__).parents[2] / "docs" / "comparison"


def comparison_of(manifest):
    """What was compared, from the manifest."""
    told = manifest["comparison"]
    entries = tuple(
        Contender(each["algorithm"], tuple(map(tuple, each["options"]))) for each in told["entries"]
    )
    tuples = ("epsilons", "topologies", "calibrations", "measured")
    return Comparison(
        NamedProblem(**told["problem"]),
        TrainingParameters(**told["parameters"]),
        entries,
        **{name: tuple(told[name]) for name in tuples},
        **{name: told[name] for name in ("runs", "splits", "seed")},
    )


@pytest.mark.parametrize("name", ["adult", "waveform", "german"])
def test_the_page_shows_what_the_manifest_says(name):
    manifest = json.loads((FOLDER / name / "manifest.json").read_text())
    page = (FOLDER / name / "comparison.md").read_text()
    for line in manifest["lines"]:
        mean = line["figures"]["test accuracy"]["mean"]
        assert any(
            # Which curator it is stands behind it in brackets.
            row.startswith((f"| {line['who']} |", f"| {line['who']} (")) and f"| {mean:.4g}" in row
            for row in page.splitlines()
        )


@pytest.mark.parametrize("who", ["pr-admm", "central AMP"])
def test_a_cell_computed_again_gives_the_same_number(who):
    manifest = json.loads((FOLDER / "waveform" / "manifest.json").read_text())
    told = comparison_of(manifest)
    line = next(row for row in manifest["lines"] if row["who"] == who and row["epsilon"] == 1.0)
    *_, cell = next(
        each for each in told._placed() if each[0].who == who and each[0].epsilon == 1.0
    )
    output = "tail" if who == "pr-admm" else "last"
    found = cell.compute().final("test accuracy", output).mean()
    # Other machines may round otherwise, and a row on the border then changes sides.
    assert found == pytest.approx(line["figures"]["test accuracy"]["mean"], abs=2e-3)
