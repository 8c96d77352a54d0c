"""Two looks: the second only where the first leaves something open, and never the first again."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from tests.helpers.small_experiments import SMALL

from dpadmm.errors import ParameterError
from dpadmm.experiments.jobs import Job, Result, Store, TrainingJob
from dpadmm.experiments.measures import mean_interval
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import (
    MORE_RUNS,
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    check_findings,
    first_look,
    look_twice,
    ours,
    part_name,
    split,
    summaries,
)
from dpadmm_papers.jobs import join
from dpadmm_papers.statistics import ranges
from dpadmm_papers.verdicts import above


@dataclass(frozen=True)
class Drawn(Job):
    """Normal figures around a mean; leaves a line whenever it is computed."""

    mean: float
    folder: str
    runs: int = 10
    seed: int = 0

    weight = 1.0

    def compute(self):
        with open(f"{self.folder}/computed", "a") as file:
            file.write(f"{self.mean} {self.runs}\n")
        values = np.random.default_rng(self.seed).normal(self.mean, 1.0, self.runs)
        return Result({"value": values}, {"seconds": 1.0})

    def further(self, times):
        return replace(self, runs=times * self.runs, seed=self.seed + 1)


class Drawing(Experiment):
    """Whether three means are above 0."""

    name, citation, part, title = "drawing", "Nobody", "Fig. 0", "Means"
    settings: ClassVar = {"means": ours((5.0, 0.5, 0.0), "far, near, not at all")}
    conclusions = (Conclusion("above", "They are above 0.", "By their intervals."),)

    def __init__(self, folder, named=True):
        self.folder, self.named = str(folder), named

    def cells(self):
        return {f"{mean:g}": Drawn(mean, self.folder) for mean in self["means"]}

    def evaluate(self, results):
        findings = [
            Finding.judged(
                "above",
                label,
                above(mean_interval(result.values["value"])),
                f"{len(result.values['value'])} runs",
                rests_on=(label,) if self.named else (),
            )
            for label, result in results.items()
        ]
        return Evaluation((), {}, tuple(findings))


def test_only_what_is_open_is_run_again(tmp_path):
    look = look_twice(Drawing(tmp_path), Store(tmp_path / "cells"))
    found = {each.calibration: each for each in look.evaluation.findings}
    assert (found["5"].verdict, found["5"].look, found["5"].number) == ("stands", 1, "10 runs")
    assert (found["0.5"].verdict, found["0.5"].look) == ("stands", 2)
    assert (found["0"].verdict, found["0"].number) == ("not decided", "60 runs")
    assert look.extended == {"0.5", "0"}
    lines = (tmp_path / "computed").read_text().splitlines()
    assert sorted(lines) == ["0.0 10", "0.0 50", "0.5 10", "0.5 50", "5.0 10"]
    # The first ten are among the sixty, and everything is kept for the next time.
    first = Drawing(tmp_path).cells()["0"].compute().values["value"]
    np.testing.assert_array_equal(look.results["0"].values["value"][:10], first)
    (tmp_path / "computed").unlink()
    look_twice(Drawing(tmp_path), Store(tmp_path / "cells"))
    assert not (tmp_path / "computed").exists()


class Varied(Drawing):
    """The same, where all but the first mean are variants of the second."""

    conclusions = (Conclusion("above", "They are above 0.", "By their intervals.", ("mean",)),)

    def evaluate(self, results):
        far, near, level = super().evaluate(results).findings
        main = replace(near, calibration="")
        other = replace(level, calibration="", choice="mean", variant="0", rests_on=("0.5", "0"))
        return Evaluation((), {}, (far, main, other))


def test_cells_that_only_variants_rest_on_are_not_run_again(tmp_path):
    look = look_twice(Varied(tmp_path), Store(tmp_path / "cells"))
    assert look.extended == {"0.5"}
    found = {each.variant: each for each in look.evaluation.findings if not each.calibration}
    assert (found[""].verdict, found["0"].verdict) == ("stands", "not decided")


def test_a_variant_without_more_runs_had_no_second_look(tmp_path):
    class Apart(Varied):
        def evaluate(self, results):
            evaluation = super().evaluate(results)
            far, main, other = evaluation.findings
            return replace(evaluation, findings=(far, main, replace(other, rests_on=("0",))))

    look = look_twice(Apart(tmp_path), Store(tmp_path / "cells"))
    found = {each.variant: each for each in look.evaluation.findings if not each.calibration}
    assert look.extended == {"0.5"}
    assert (found[""].look, found["0"].look) == (2, 1)
    assert found["0"].number == "10 runs"


def test_a_variant_that_reads_the_same_cells_is_looked_at_again(tmp_path):
    experiment = Varied(tmp_path)
    results = {label: cell.compute() for label, cell in experiment.cells().items()}

    class Decided(Varied):
        def evaluate(self, results):
            far, main, other = super().evaluate(results).findings
            main = replace(main, verdict="does not stand", rests_on=("0.5", "0"))
            return Evaluation((), {}, (far, main, other))

    assert set(first_look(Decided(tmp_path), results).further) == {"0.5", "0"}


def test_what_the_first_look_decided_stays_decided(tmp_path):
    # All cells get more runs here; the finding at 5 still rests on its first ten.
    look = look_twice(Drawing(tmp_path, named=False), Store(tmp_path / "cells"))
    assert look.extended == {"5", "0.5", "0"}
    found = {each.calibration: each for each in look.evaluation.findings}
    assert (found["5"].look, found["5"].number) == (1, "10 runs")
    assert len(look.results["5"].values["value"]) == 60


PARAMETERS = TrainingParameters("pr-admm", rounds=2, epsilon=5.0, delta=1e-3)
JOB = TrainingJob(SMALL, PARAMETERS, runs=2, seed=7, courses=("average loss",), epsilon_course=True)


@pytest.mark.parametrize("changes", [{}, {"runs": 1, "repeats": 2}])
def test_more_runs_of_a_training_job_have_noise_of_their_own(changes):
    job = replace(JOB, **changes)
    first, more = job.compute(), job.further(MORE_RUNS).compute()
    whole = join(first, more)
    losses = whole.final("test accuracy"), whole.course("average loss")[-1]
    assert [len(each) for each in losses] == [12, 12]
    assert len(set(losses[1].tolist())) == 12
    np.testing.assert_array_equal(losses[1][:2], first.course("average loss")[-1])
    # What is proven is that of a run: it has no axis of runs.
    np.testing.assert_array_equal(whole.values["epsilon"], first.values["epsilon"])
    assert whole.facts["privacy"] == first.facts["privacy"]
    assert whole.facts["seconds"] == first.facts["seconds"] + more.facts["seconds"]


def test_more_draws_are_those_that_more_repeats_would_have_had():
    few = replace(JOB, runs=1, repeats=2)
    many = replace(few, repeats=12).compute()
    whole = join(few.compute(), few.further(MORE_RUNS).compute())
    np.testing.assert_array_equal(whole.final("test accuracy"), many.final("test accuracy"))


def test_what_has_no_noise_is_not_run_again():
    assert replace(JOB, runs=1).further(MORE_RUNS) is None


def test_a_range_is_that_of_the_papers_number_of_runs():
    values = np.arange(60.0)
    np.testing.assert_array_equal(ranges(values, 10), np.full(6, 9.0))
    np.testing.assert_array_equal(ranges(values[:7], 10), [6.0])
    assert ranges(np.ones((3, 25)), 10).shape == (3, 2)
    # Sixty normal runs have about 1.5 times the range of ten.
    draws = np.random.default_rng(0).normal(size=(2000, 60))
    assert np.ptp(draws, axis=1).mean() / ranges(draws, 10).mean() == pytest.approx(1.5, abs=0.05)


def varied(*words):
    """A finding with our settings, and one for each further word."""
    main, *others = words
    return [
        Finding("a", "published", main, ""),
        *(
            Finding("a", "published", word, "", "grid", f"variant {place}")
            for place, word in enumerate(others)
        ),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("stands", "stands"), "stands"),
        (("stands", "does not stand"), "depends on grid"),
        (("stands", "not decided"), "depends on grid"),
        (("not decided", "stands"), "depends on grid"),
        (("not decided", "not decided"), "not decided"),
        (("not decided", "stands", "does not stand"), "depends on grid"),
    ],
)
def test_a_conclusion_depends_on_a_choice_whose_variants_disagree(words, expected):
    (summary,) = summaries(varied(*words))
    assert summary.word == expected
    assert summary.verdict == words[0]


def test_findings_must_be_announced_and_differ(tmp_path):
    experiment = Drawing(tmp_path)
    for finding, message in (
        (Finding("below", "5", "stands", ""), "conclusion must be one of"),
        (Finding("above", "5", "stands", "", "grid", "fine"), "choice must be one of"),
    ):
        with pytest.raises(ParameterError, match=message):
            check_findings(experiment, [finding])
    twice = Finding("above", "5", "stands", "")
    with pytest.raises(ParameterError, match="findings must differ"):
        check_findings(experiment, [twice, twice])
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    assert set(first_look(experiment, results).further) == {"0.5", "0"}


class InParts(Drawing):
    """A claim about two things."""

    conclusions = split(
        Conclusion("above", "Both are above 0.", "By the interval.", ("mean",)), "one", "other"
    )

    def evaluate(self, results):
        far, near, level = super().evaluate(results).findings
        one = replace(far, conclusion=part_name("above", "one"), calibration="")
        other = replace(near, conclusion=part_name("above", "other"), calibration="")
        varied = {"choice": "mean", "variant": "0"}
        return Evaluation(
            (),
            {},
            (
                one,
                other,
                replace(one, **varied),
                replace(level, **{**vars(other), **varied, "verdict": level.verdict}),
            ),
        )


def test_a_claim_about_two_things_has_a_verdict_for_each_and_for_the_whole(tmp_path):
    experiment = InParts(tmp_path)
    assert [each.name for each in experiment.conclusions] == ["above", "above, one", "above, other"]
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    first = {each.what: each for each in first_look(experiment, results).evaluation.findings}
    assert first["above", "", "", ""].verdict == "not decided"
    assert first["above", "", "", ""].number == "one stands; other not decided."
    look = look_twice(experiment, Store(tmp_path / "cells"))
    whole, *rest = look.evaluation.findings
    # The whole is that of its parts as they were decided, and was looked at as often.
    assert (whole.conclusion, whole.verdict, whole.look) == ("above", "stands", 2)
    assert set(whole.rests_on) == {"5", "0.5"}
    assert [each.conclusion for each in rest].count("above") == 1
