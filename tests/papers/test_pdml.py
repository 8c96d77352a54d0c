"""PDML's experiments: small versions of them, and verdicts on made-up results, both ways."""

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.more_runs import every_second, with_more_runs
from tests.helpers.small_experiments import check_epsilons

from dpadmm.experiments.jobs import Result, Store, TrainingJob, compute
from dpadmm.experiments.problems import NamedProblem
from dpadmm_papers.experiment import check_findings, ours
from dpadmm_papers.pdml import EXPERIMENTS
from dpadmm_papers.pdml.comparison import COLUMNS, PRINTED, SETS, cell_by_cell, judge, mean_of_sets
from dpadmm_papers.pdml.figure_3 import Figure3
from dpadmm_papers.pdml.figure_4 import Figure4
from dpadmm_papers.pdml.scheme import SHARED, Variant, convergence_round, final_risk
from dpadmm_papers.pdml.table_1 import Table1
from dpadmm_papers.preparations import StandardizedProblem

SMALL = {
    "data": ours("twonorm", "drawn"),
    "servers": ours(3, "few"),
    "rows per server": ours(40, "few"),
    "rows held back": ours(50, "few"),
    "rounds": ours(6, "few"),
    "draws": ours(2, "few"),
}
LABELS = {name: [f"{name}: a cell"] for name in PRINTED}
WHOLE = NamedProblem("twonorm", 3, 60, 200, drawn_rows=400)


@pytest.fixture(autouse=True)
def no_files(monkeypatch, tmp_path):
    """Draw what can be drawn, wherever the tests run."""
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))


def verdicts(findings):
    """Those with our settings, by what they are about."""
    return {
        (each.conclusion, each.calibration): each.verdict for each in findings if not each.choice
    }


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_every_setting_says_who_chose_it_and_where_or_why(experiment):
    for name, setting in experiment.settings.items():
        assert setting.source in ("paper", "ours"), name
        assert setting.why, name


@pytest.mark.parametrize("kind", [Figure3, Figure4])
def test_a_small_version_finds_for_every_conclusion(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(kind, "settings", kind.settings | SMALL)
    experiment = kind()
    results = compute(experiment.cells(), Store(tmp_path / "cells"))
    evaluation = experiment.evaluate(results)
    check_epsilons(evaluation, results)
    check_findings(experiment, evaluation.findings)
    # A second look has more runs of some cells.
    again = experiment.evaluate(with_more_runs(results, every_second(results)))
    assert [each.what for each in again.findings] == [each.what for each in evaluation.findings]
    found = {(each.conclusion, each.calibration) for each in evaluation.findings}
    for conclusion in experiment.conclusions:
        assert {(conclusion.name, "published"), (conclusion.name, "proven")} <= found
    assert len(evaluation.panels) == (4 if kind is Figure3 else 3)
    guarantees = evaluation.tables["What is guaranteed"]
    rows = {row[0]: row for row in guarantees.rows}
    proven = next(row for name, row in rows.items() if "calibrated" in name or "proven" in name)
    published = next(row for name, row in rows.items() if row[1].startswith("labels: "))
    assert proven[2] == pytest.approx(1.0, rel=1e-3)
    assert published[2] != pytest.approx(1.0, rel=1e-3)


def test_a_small_table_is_compared_cell_by_cell(monkeypatch, tmp_path):
    few = {
        "data sets": ours(("waveform",), "drawn"),
        "rounds": ours(3, "few"),
        "draws": ours(2, "few"),
        "row epsilon, grid": ours((1.0,), "few"),
        "other preparations": ours(Table1.settings["other preparations"].value[:1], "few"),
        "other preparations, draws": ours(1, "few"),
    }
    monkeypatch.setattr(Table1, "settings", Table1.settings | few)
    experiment = Table1()
    results = compute(experiment.cells(), Store(tmp_path / "cells"))
    evaluation = experiment.evaluate(results)
    check_epsilons(evaluation, results)
    table = evaluation.tables["Cell by cell"]
    assert [row[:3] for row in table.rows] == [
        (name, heading, printed)
        for name in ("waveform",)
        for heading, printed in zip(COLUMNS, PRINTED[name], strict=True)
    ]
    assert {row[4] for row in table.rows} <= {"agrees", "differs"}
    check_findings(experiment, evaluation.findings)
    # A second look has more runs of some cells.
    again = experiment.evaluate(with_more_runs(results, every_second(results)))
    assert [each.what for each in again.findings] == [each.what for each in evaluation.findings]
    # Two noises, two conclusions and two other thresholds each, and another spread of eta.
    assert len(evaluation.findings) == 2 * (2 + 2) + 1
    assert [len(panel.curves) for panel in evaluation.panels] == [3]


def test_rows_held_back_are_read_off_the_printed_accuracies():
    def fits(name, held):
        def whole(accuracy):
            near = int(accuracy * held / 100)
            return any(round(100 * right / held, 2) == accuracy for right in (near, near + 1))

        return all(whole(accuracy) for accuracy in PRINTED[name])

    for name, each in SETS.items():
        equal = (held for held in range(1, each.rows) if (each.rows - held) % 10 == 0)
        assert next(held for held in equal if fits(name, held)) == each.test_rows


@pytest.mark.parametrize(
    "variant", [Variant("reference"), Variant("phase 1"), Variant("published", 0.4, 1.0)]
)
def test_the_scale_of_rows_does_not_change_what_is_trained(variant):
    settings = SHARED | {"rounds": ours(8, "few")}
    losses, squares = [], []
    for bound in (9.0, 18.0):
        cell = TrainingJob(
            StandardizedProblem(WHOLE, bound),
            variant.parameters(settings, bound),
            runs=1,
            seed=3,
            finals=("average loss", "average squared norm"),
        )
        result = cell.compute()
        losses.append(result.final("average loss"))
        squares.append(result.final("average squared norm") / bound**2)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert squares[0] == pytest.approx(squares[1], rel=1e-3)


def test_repeats_are_cells_of_their_own_one_after_the_other():
    parameters = Variant("published", 0.4, 1.0).parameters(SHARED | {"rounds": ours(3, "few")})
    cell = TrainingJob(WHOLE, parameters, runs=2, seed=5, courses=("average loss",), repeats=3)
    whole = cell.compute()
    for repeat in range(3):
        one = replace(cell, problem=WHOLE.dealt_again(repeat), seed=5 + repeat, repeats=1).compute()
        places = slice(2 * repeat, 2 * repeat + 2)
        assert np.array_equal(whole.course("average loss")[:, places], one.course("average loss"))
        assert np.array_equal(whole.final("test accuracy")[places], one.final("test accuracy"))
    assert whole.facts["privacy"] == one.facts["privacy"]


def test_the_risk_is_the_paper_s_objective():
    variant = Variant("published", regularization=2.0)
    result = Result(
        {
            "last/average loss": np.array([0.5, 0.25]),
            "last/average squared norm": np.array([4.0, 1.0]),
        },
        {},
    )
    # Ten servers: ten times the mean loss, and (a / 2n) of each one's squared norm.
    assert final_risk(result, variant, 10) == pytest.approx([5 + 4, 2.5 + 1])


def test_convergence_round():
    course = np.array([[9.0, 1.0], [1.005, 1.0], [2.0, 1.0], [1.001, 1.0], [1.0, 1.0]])
    assert convergence_round(course, 0.01).tolist() == [4, 1]


def made_up(variant, risk, settled, distance, rounds=20, draws=6):
    """A result whose risk reaches ``risk`` in the round ``settled``, with a little spread."""
    spread = 1 + 1e-5 * np.arange(draws)
    course = np.where(np.arange(1, rounds + 1)[:, None] < settled, 2 * risk, risk) * spread
    zero = np.zeros((rounds, draws))
    values = {
        "average loss": course / 10,
        "average squared norm": zero + 1.0 if variant.kind == "reference" else zero,
        "largest distance": zero + distance * spread,
        "distance of norms": zero + distance * spread,
        "epsilon": np.linspace(1, 2, rounds),
    }
    for which in ("last", "tail"):
        values |= {
            f"{which}/average loss": course[-1] / 10,
            f"{which}/average squared norm": zero[-1],
            f"{which}/training accuracy": np.full(draws, 0.76),
        }
    claim = "labels: epsilon" if variant.kind == "published" else None
    privacy = {"epsilon": 2.0, "delta": 1e-5, "claim": claim, "details": {}}
    return Result(values, {"privacy": privacy})


def judged(experiment, make):
    """Verdicts on results made up for every variant of an experiment."""
    seen = {}
    for label in experiment.cells():
        kind, *words = label.split(", ")
        numbers = {word.rpartition(" ")[0]: float(word.rpartition(" ")[2]) for word in words}
        seen[label] = make(Variant(kind), numbers)
    return verdicts(experiment.evaluate(seen).findings)


def test_figure_3_judges_both_ways(monkeypatch):
    monkeypatch.setattr(Figure3, "settings", Figure3.settings | {"rounds": ours(20, "few")})

    def good(variant, numbers):
        risk = {"reference": 6.0, "phase 1": 7.1}.get(variant.kind, 7.5)
        settled = 3 if variant.kind in ("reference", "phase 1") else 10
        return made_up(variant, risk, settled, 1e-4)

    def bad(variant, numbers):
        settled = 3 if variant.kind in ("reference", "phase 1") else 19
        return made_up(variant, 6.0, settled, 1.0)

    assert set(judged(Figure3(), good).values()) == {"stands"}
    found = judged(Figure3(), bad)
    for calibration in ("published", "proven"):
        assert found["consensus", calibration] == "does not stand"
        assert found["convergence", calibration] == "does not stand"
        assert found["not the reference", calibration] == "does not stand"
        assert found["longer", calibration] == "stands"

    def quick(variant, numbers):
        return made_up(variant, 6.0, 3, 1.0)

    assert judged(Figure3(), quick)["longer", "published"] == "does not stand"


def test_figure_4_judges_both_ways(monkeypatch):
    monkeypatch.setattr(Figure4, "settings", Figure4.settings | {"rounds": ours(20, "few")})

    def good(variant, numbers):
        if variant.kind == "reference":
            return made_up(variant, 6.0, 5, 0.0)
        risk = 6.0 + 0.1 * (1 - numbers["epsilon"])
        if variant.kind != "phase 1":
            risk += 0.05 + (numbers["R"] - 1) * 0.01
        return made_up(variant, risk, 2 + int(10 * numbers.get("rho", 0)), 0.0)

    def bad(variant, numbers):
        if variant.kind == "reference":
            return made_up(variant, 6.0, 5, 0.0)
        risk = 7.0 + numbers["epsilon"]
        if variant.kind != "phase 1":
            risk -= 0.5 + 0.01 * numbers["R"] + numbers["rho"]
        return made_up(variant, risk, 10, 0.0)

    assert set(judged(Figure4(), good).values()) == {"stands"}
    found = judged(Figure4(), bad)
    assert set(found.values()) == {"does not stand"}


def accuracies(change):
    """The paper's own table with a little spread, changed cell by cell."""
    spread = np.linspace(-0.2, 0.2, 10)
    return {
        name: {
            heading: change(name, heading, printed) + spread
            for heading, printed in zip(COLUMNS, row, strict=True)
        }
        for name, row in PRINTED.items()
    }


def test_the_paper_s_own_table_agrees_and_stands():
    own = accuracies(lambda name, heading, printed: printed)
    rows = cell_by_cell(own, own, 1.0).rows
    assert {row[4] for row in rows if row[0] != "image"} == {"agrees"}
    assert {row[4] for row in rows if row[0] == "image"} == {"cannot be told"}
    # A gap like the paper's own has an interval around it, so one is judged that is smaller.
    nearer = accuracies(lambda name, heading, printed: printed + 0.5 * ("R 9" in heading))
    found = judge("published", nearer, LABELS)
    assert {each.verdict for each in found if not each.choice} == {"stands"}
    # What counts as comparable is ours to say, and half of the paper's gap is not reached.
    strictest = [each for each in found if each.variant == "0.5 times the paper's gap"]
    assert [each.verdict for each in strictest] == ["does not stand"]


def test_another_table_differs_and_does_not_stand():
    def turned(name, heading, printed):
        return {"without privacy": 95.0, "epsilon 0.4, R 9": 70.0}.get(heading, 80.0)

    other = accuracies(turned)
    rows = cell_by_cell(other, other, 1.0).rows
    assert {row[4] for row in rows if row[0] in ("german", "splice")} == {"differs"}
    for calibration in ("published", "proven"):
        found = judge(calibration, other, LABELS)
        assert {each.verdict for each in found if not each.choice} == {"does not stand"}


def test_a_conclusion_rests_on_its_own_data_set_and_draws_that_all_sets_have():
    own = accuracies(lambda name, heading, printed: printed)
    found = {each.conclusion: each for each in judge("published", own, LABELS)}
    assert found["banana"].rests_on == ("banana: a cell",)
    assert set(found["strongest"].rests_on) == {f"{name}: a cell" for name in PRINTED}
    # Banana alone has the draws of a second look: the means over sets are of the first ones.
    more = own | {"banana": {head: np.tile(each, 6) for head, each in own["banana"].items()}}
    assert mean_of_sets(more)["without privacy"] == pytest.approx(
        mean_of_sets(own)["without privacy"]
    )
