"""``dpadmm choose-alpha`` chooses what the Python function does, and refuses other files."""

import json

import pytest
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm_papers.trade_off import PrivacyUtility, design_alpha, fit_loss

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.5)
LOSSES = (0.521, 0.457, 0.416, 0.402, 0.399)


@pytest.fixture
def trials(tmp_path):
    place = tmp_path / "trials.csv"
    # Two runs of each alpha, whose mean counts.
    lines = [f"{a},{b + shift}" for a, b in zip(ALPHAS, LOSSES, strict=True) for shift in (-1, 1)]
    place.write_text("alpha,loss\n" + "\n".join(lines))
    return place


def run(*words):
    return CliRunner().invoke(app, ["choose-alpha", *map(str, words)])


def test_it_chooses_what_the_function_does_and_says_the_total(trials):
    told = run(trials, "--weight", 0.06, "--lowest", 0.01, "--highest", 1, "--json")
    assert told.exit_code == 0
    found = json.loads(told.stdout)["result"]
    loss = fit_loss(ALPHAS, LOSSES)
    own = design_alpha(loss, PrivacyUtility(weight=0.06), lowest=0.01, highest=1.0)
    assert found["alpha"] == pytest.approx(own.alpha, rel=1e-6)
    assert found["inside"]
    # Fifty pure releases cost more than one, and less than their sum.
    assert own.alpha < found["epsilon"] <= 50 * own.alpha * (1 + 1e-9)


def test_an_end_of_the_range_is_warned_of(trials):
    told = run(trials, "--weight", 10)
    assert told.exit_code == 0
    assert "end of the range" in " ".join(told.stderr.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alpha,error\n1,2\n", "lacks loss"),
        ("alpha,loss\n0.1,0.4\nmany,0.3\n", "line 3"),
        ("alpha,loss\n-0.1,0.4\n", "positive finite alpha"),
        ("alpha,loss\n0.1,0.4\n0.2,0.3\n", "at least three different alphas"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    place = tmp_path / "trials.csv"
    place.write_text(text)
    told = run(place, "--json")
    assert told.exit_code != 0
    assert words in json.loads(told.stdout)["error"]
