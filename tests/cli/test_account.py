"""``dpadmm account`` gives the figures it should, without any data."""

import json

import pytest
from typer.testing import CliRunner

from dpadmm.cli import app, main
from dpadmm.cli.account import _other_counts
from dpadmm.run.options import TrainingParameters

runner = CliRunner()


def account(*words):
    result = runner.invoke(app, ["account", "--json", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)["result"]


def test_a_budget_is_a_mu():
    result = account("--epsilon", "1", "--delta", "1e-5")
    assert result["budget_mu"] == pytest.approx(0.26805, abs=5e-6)
    assert 0.999 < result["parties"][0]["epsilon"] <= 1.0
    assert result["statement"]["adversary"]


def test_a_periodic_schedule_has_its_sum_of_inverse_variances():
    result = account("--release", "gaussian", "--mu", "0.01", "--schedule", "periodic")
    assert result["inverse_variance_sum"] == pytest.approx(595.79, abs=0.005)


@pytest.mark.parametrize(
    ("words", "epsilon"),
    [
        ("--release objective --mu .05 --rows 8000 --convexity 2.01 --delta 1e-5", 1.478),
        ("--release pure --release-epsilon 0.1 --delta 1e-4", 2.479),
        (
            "--release subsampled --batch 1 --population 1000 --noise-multiplier .8 --rounds 5000",
            0.695,
        ),
    ],
)
def test_releases_compose_to_known_figures(words, epsilon):
    assert account(*words.split())["epsilon"] == pytest.approx(epsilon, abs=6e-4)


def test_parties_have_their_own_rows():
    parties = account("--rows", "8000,2000")["parties"]
    assert [party["rows"] for party in parties] == [8000, 2000]
    assert parties[0]["epsilon"] == pytest.approx(parties[1]["epsilon"], rel=1e-6)


def test_a_run_may_have_numbers_of_each_round_and_party():
    words = ["--algorithm", "dvp", "--rounds", "3", "--rows", "8000,8000", "--epsilon", "1"]
    alphas = '{"0": [0.3, 0.2, 0.1], "1": 0.1}'
    options = ["--penalty", "[0.2, 0.3, 0.4]", "--option", f"epsilon_per_round={alphas}"]
    with pytest.warns(Warning, match="2 eta V d"):
        result = account(*words, *options)
    first, second = (party["epsilon_after_round"] for party in result["parties"])
    assert first == pytest.approx([0.3, 0.5, 0.6], abs=0.02)
    assert second == pytest.approx([0.1, 0.2, 0.3], abs=0.02)
    assert result["penalty"] == 0.2
    # A list fits one number of rounds.
    assert [row["rounds"] for row in result["other_rounds"]] == [3]


def test_fewer_rounds_cost_less_and_the_curve_falls():
    result = account("--rounds", "40")
    costs = [row["epsilon_with_this_noise"] for row in result["other_rounds"]]
    assert [row["rounds"] for row in result["other_rounds"]] == [20, 40, 80]
    assert costs == sorted(costs)
    curve = [point["epsilon"] for point in result["curve"]]
    assert curve == sorted(curve)


def test_tables_and_words_are_printed():
    text = runner.invoke(app, ["account", "--verbose"]).stdout
    for word in (
        "penalty",
        "Adversary:",
        "Theorem:",
        "Not covered:",
        "epsilon if the noise stayed",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--epsilon -1", "epsilon must be a positive number"),
        ("--rows 8000,zero", "rows must be whole numbers"),
        ("--penalty much", "penalty must be a positive number or 'auto'"),
        ("--algorithm pr-amdm", "Did you mean 'pr-admm'?"),
        ("--option colour=red", "algorithm_options of 'pr-admm' must be one of"),
        ("--release gaussian", "--mu must be given"),
        ("--topology star,ring", "topology must be one of"),
    ],
)
def test_bad_input_is_one_sentence(words, hint, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["account", *words.split()])
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert hint in printed.err
    assert "Traceback" not in printed.err


def test_a_configuration_is_accounted_without_its_files(hospitals):
    text = (
        (hospitals / "run.toml")
        .read_text()
        .replace('algorithm = "admm"', 'algorithm = "pr-admm"\nepsilon = 0.8\ndelta = 1e-3')
    )
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        text = text.replace(f'file = "{name}.csv"', f'file = "{name}.csv"\nrows = {rows}')
        (hospitals / f"{name}.csv").unlink()
    (hospitals / "run.toml").write_text(text)
    result = account(str(hospitals / "run.toml"))
    assert [party["party"] for party in result["parties"]] == ["north", "south", "west"]
    assert [party["rows"] for party in result["parties"]] == [60, 40, 20]
    assert all(0.799 < party["epsilon"] <= 0.8 for party in result["parties"])


def test_a_configuration_must_declare_rows(hospitals, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["account", str(hospitals / "run.toml")])
    assert stopped.value.code == 2
    assert "rows must be declared" in capsys.readouterr().err


def test_an_algorithm_without_noise_is_infinite():
    assert account("--algorithm", "admm")["parties"][0]["epsilon"] == "infinite"


@pytest.mark.parametrize(
    ("asked", "rows"), [("holdout = 0.25\nevaluate = true", 45), ("probabilities = true", 60)]
)
def test_what_is_asked_beside_a_training_is_accounted(hospitals, dpadmm, asked, rows):
    text = (hospitals / "run.toml").read_text().replace('"admm"', f'"dp-gd"\ndelta = 1e-3\n{asked}')
    for name, count in (("north", 60), ("south", 40), ("west", 20)):
        text = text.replace(f'file = "{name}.csv"', f'file = "{name}.csv"\nrows = {count}')
    (hospitals / "run.toml").write_text(text)
    told = json.loads(dpadmm("account", hospitals / "run.toml", "--json").stdout)["result"]
    assert told["parties"][0]["rows"] == rows
    # The histogram of the same rows is part of the total, and the training alone is less.
    assert 0.999 < told["statement"]["epsilon"] <= 1.0
    course = told["parties"][0]["epsilon_after_round"]
    assert len(course) == told["rounds"] + 1
    assert course[-1] == pytest.approx(told["statement"]["epsilon"], rel=1e-9)
    # At the delta of the run the curve is at what the run guarantees, and so are as many rounds.
    assert told["curve"][0] == {"delta": 1e-3, "epsilon": told["statement"]["epsilon"]}
    same = told["other_rounds"][1]
    assert same["rounds"] == told["rounds"]
    assert same["epsilon_with_this_noise"] == told["statement"]["epsilon"]


def test_a_run_states_what_was_accounted(hospitals, dpadmm):
    # Noise is shared, and that of the smallest party is enough for all in the training alone.
    asked = 'party_weight = "equal"\nholdout = 0.25\nevaluate = true'
    shared = 'algorithm_options = { noise = "shared" }'
    text = (hospitals / "run.toml").read_text()
    text = text.replace('"admm"', f'"dp-gd"\ndelta = 1e-3\nsimulation_key = 1\n{asked}\n{shared}')
    for name, count in (("north", 60), ("south", 40), ("west", 20)):
        text = text.replace(f'file = "{name}.csv"', f'file = "{name}.csv"\nrows = {count}')
    (hospitals / "run.toml").write_text(text)
    told, made = (
        json.loads(dpadmm(command, hospitals / "run.toml", "--json").stdout)["result"]
        for command in ("account", "train")
    )
    assert told["statement"].keys() == made["privacy"].keys()
    for what in told["statement"].keys() - {"details", "noise"}:
        assert told["statement"][what] == made["privacy"][what]


def test_twice_as_many_rounds_are_shown_only_as_far_as_runs_go():
    told = TrainingParameters(algorithm="pr-admm")
    assert _other_counts(told, 50) == (25, 50, 100)
    assert _other_counts(told, 8000) == (4000, 8000, 10_000)
