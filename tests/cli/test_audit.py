"""``dpadmm audit``: a table or JSON, and an exit code that says what was found."""

import json

import pytest
import typer
from typer.testing import CliRunner

from dpadmm.cli.audit import REFUTED, audit

app = typer.Typer()
app.command()(audit)
runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, list(arguments))


def test_a_correct_mechanism_stands():
    result = run("--mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5")
    assert result.exit_code == 0
    assert "consistent with the claim" in result.stdout
    assert "Gaussian release" in result.stdout
    assert "cannot prove" in result.stdout
    assert result.stderr == ""


def test_a_broken_mechanism_is_refuted():
    result = run("--mechanism", "gaussian", "--noise-scale", "0.5", "--samples", "5000")
    assert result.exit_code == REFUTED == 3
    assert "Refuted" in result.stdout


def test_the_published_rate_of_dvp_is_refuted():
    result = run("--mechanism", "exp-norm", "--calibration", "published", "--samples", "5000")
    assert result.exit_code == REFUTED


def test_a_run_of_dvp_as_published_is_refuted():
    result = run("--algorithm", "dvp", "--calibration", "published")
    assert result.exit_code == REFUTED


def test_an_algorithm_in_json():
    arguments = (
        *("--algorithm", "pr-admm", "--epsilon", "1", "--delta", "1e-5", "--rounds", "5"),
        *("--samples", "4000", "--confidence", "0.95", "--seed", "7", "--json"),
        *("--features", "3", "--outputs", "1"),
    )
    result = run(*arguments)
    assert result.exit_code == 0
    envelope = json.loads(result.stdout)
    assert (envelope["version"], envelope["command"]) == (1, "audit")
    found = envelope["result"]
    assert found["refuted"] is False
    assert found["confidence"] == 0.95
    assert found["samples"] == 4000
    assert 0 < found["lower_bound"] < found["claimed"]["mu"]
    assert run(*arguments).stdout == result.stdout


def test_an_algorithm_with_half_its_noise_is_refuted():
    result = run("--algorithm", "pr-admm", "--noise-scale", "0.5", "--samples", "6000", "--json")
    assert result.exit_code == REFUTED
    assert json.loads(result.stdout)["result"]["verdict"] == "refuted"


def test_a_setting_is_drawn_and_options_are_given():
    arguments = (
        *("--algorithm", "pr-admm", "--features", "4", "--outputs", "3", "--rows-per-person", "2"),
        *("--option", "schedule=periodic", "--option", "public_norm=true", "--samples", "500"),
        *("--rounds", "2", "--seed", "3"),
    )
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)["result"]
    setting = found["setting"]
    assert (setting["features"], setting["outputs"], setting["rows_per_person"]) == (4, 3, 2)
    assert setting["options"]["schedule"] == "periodic"
    assert setting["options"]["public_norm"] is True
    assert found["noise"]["findings"] == []
    assert found["noise"]["false_alarm"] == pytest.approx(1e-4)
    shown = run(*arguments)
    assert "schedule = periodic" in " ".join(shown.stdout.split())
    assert "as claimed" in shown.stdout


def test_noise_that_is_not_as_claimed_refutes_where_the_attack_does_not():
    arguments = ("--algorithm", "pr-admm", "--noise-scale", "0.9", "--samples", "500")
    small = ("--features", "3", "--outputs", "1", "--rounds", "2")
    result = run(*arguments, *small)
    assert result.exit_code == REFUTED
    assert "too little noise at" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mechanism", "gaussian", "--features", "3"), "features must be left out"),
        (("--mechanism", "gaussian", "--option", "decay=1"), "option must be left out"),
        (("--algorithm", "pr-admm", "--option", "decay"), "option must be NAME=VALUE"),
        (("--algorithm", "pr-admm", "--option", "dekay=1"), "Did you mean 'decay'"),
        (("--algorithm", "pr-admm", "--outputs", "2"), "outputs must be 1"),
        (("--algorithm", "pdml", "--outputs", "3"), "pdml needs two classes"),
        ((), "either --mechanism or --algorithm must be given"),
        (("--mechanism", "gaussian", "--algorithm", "pr-admm"), "and not both"),
        (("--mechanism", "gausian"), "Did you mean 'gaussian'"),
        (("--algorithm", "admm"), "must be a private one"),
        (("--mechanism", "gaussian", "--epsilon", "-1"), "epsilon must be a positive number"),
        (("--mechanism", "gaussian", "--epsilon", "nan"), "epsilon must be a positive number"),
        (("--mechanism", "gaussian", "--delta", "0"), "delta must be between 0 and 1"),
        (("--mechanism", "gaussian", "--samples", "3"), "samples must be at least 40"),
        (("--mechanism", "gaussian", "--confidence", "1"), "confidence must be"),
        (("--mechanism", "gaussian", "--seed", "-1"), "seed must be"),
        (("--mechanism", "exp-norm", "--epsilon", "1e-4"), "epsilon per release must exceed"),
        (("--algorithm", "pr-admm", "--penalty", "0"), "penalty must be a positive number"),
        (("--algorithm", "pr-admm", "--delta", "2"), "delta must be"),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    told = run(*arguments, "--json")
    assert told.exit_code == 2
    assert words in json.loads(told.stdout)["error"]
