"""Small cells and an experiment, shared by the tests of experiments."""

import math
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem
from dpadmm.privacy.figures import AtMost
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    ours,
    paper,
)
from dpadmm_papers.pages import experiment_meaning
from dpadmm_papers.verdicts import above

SMALL = NamedProblem("waveform", 3, 60, 100, drawn_rows=400)


@dataclass(frozen=True)
class Note(Job):
    """Leaves a line in a file when it is computed; may take a while, or kill its process once."""

    name: str
    folder: str
    deadly: bool = False
    seconds: float = 0.0

    weight = 1.0

    def compute(self):
        with (Path(self.folder) / "computed").open("a") as file:
            file.write(f"{self.name}\n")
        fuse = Path(self.folder) / "fuse"
        if self.deadly and not fuse.exists():
            fuse.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return Result({"value": np.arange(3.0)}, {"name": self.name})


class SmallExperiment(Experiment):
    name = "small-figure-1"
    citation = "A. Nobody, A paper"
    part = "Fig. 1"
    title = "Accuracy over rounds"
    settings: ClassVar = {"rounds": paper(3, "section 1"), "runs": ours(2, "enough for a test")}
    conclusions = (
        Conclusion(
            "learns", "It learns.", "The interval of accuracy is above 0.5.", choices=("rounds",)
        ),
    )

    def cells(self):
        parameters = TrainingParameters("pr-admm", rounds=self["rounds"], epsilon=50.0, delta=1e-3)
        return {
            "one": TrainingJob(
                SMALL,
                parameters,
                runs=self["runs"],
                seed=seed_of("one"),
                courses=("test accuracy",),
            )
        }

    def evaluate(self, results):
        course = results["one"].course("test accuracy")
        curve = Curve.of_runs("accuracy", range(1, 4), course, "proven")
        last = mean_interval(results["one"].final("test accuracy"))
        return Evaluation(
            (Panel("a", "round", "accuracy", (curve,)),),
            {"Numbers": Table.of(("what", "value"), [("last | accuracy", last.mean)])},
            (Finding.judged("learns", "proven", above(last, 0.5), f"{last:.3f}"),),
            ("A remark.",),
        )


#: Words for a number of privacy, and words that say what it is.
NUMBER = re.compile(r"\bepsilon\b|privacy loss")
SAID = re.compile(r"claim|prov|at delta|epsilon [0-9.]+, (R [0-9]|no phase 2)")


def check_epsilons(evaluation, results):
    """Every epsilon of an experiment has theorem, delta, adjacency, adversary; or is a claim."""
    text = experiment_meaning(results).markdown().replace("\\|", "|")
    stated = [result.facts["privacy"] for result in results.values() if "privacy" in result.facts]
    for privacy in stated:
        needed = [privacy["algorithm"]]
        if not isinstance(privacy["epsilon"], str) and math.isfinite(privacy["epsilon"]):
            needed += [privacy[name] for name in ("theorem", "adjacency", "adversary")]
            needed.append(str(AtMost(privacy["delta"])))
        if privacy["calibration"] == "published":
            assert privacy["claim"]
            needed += [privacy["claim"], "what is proven of the same noise"]
        for words in needed:
            assert words in text, words
    for panel in evaluation.panels:
        labels = (panel.title, panel.x_label, panel.y_label)
        shown = any(NUMBER.search(label) for label in labels)
        if shown and any(curve.calibration == "published" for curve in panel.curves):
            assert any(SAID.search(label) for label in labels), labels
    for title, table in evaluation.tables.items():
        for column in table.columns:
            if NUMBER.search(column):
                assert SAID.search(column) or SAID.search(title.lower()), (title, column)
