"""Small cells and an experiment, shared by the tests of experiments."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpadmm.experiments.cells import Cell, Result, TrainingCell
from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    ours,
    paper,
    seed_of,
)
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.problems import NamedProblem
from dpadmm.experiments.statistics import mean_interval
from dpadmm.experiments.tables import Table
from dpadmm.training import TrainingParameters

SMALL = NamedProblem("waveform", 3, 60, 100, drawn_rows=400)


@dataclass(frozen=True)
class Note(Cell):
    """Leaves a line in a file whenever it is computed; may kill its process once."""

    name: str
    folder: str
    deadly: bool = False

    weight = 1.0

    def compute(self):
        with (Path(self.folder) / "computed").open("a") as file:
            file.write(f"{self.name}\n")
        fuse = Path(self.folder) / "fuse"
        if self.deadly and not fuse.exists():
            fuse.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Result({"value": np.arange(3.0)}, {"name": self.name})


class SmallExperiment(Experiment):
    name = "small-figure-1"
    citation = "A. Nobody, A paper"
    part = "Fig. 1"
    title = "Accuracy over rounds"
    settings: ClassVar = {"rounds": paper(3, "section 1"), "runs": ours(2, "enough for a test")}
    conclusions = (Conclusion("learns", "It learns.", "The interval of accuracy is above 0.5."),)

    def cells(self):
        parameters = TrainingParameters("pr-admm", rounds=self["rounds"], epsilon=50.0, delta=1e-3)
        return {
            "one": TrainingCell(
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
            (Finding.judged("learns", "proven", last.low > 0.5, f"{last:.3f}"),),
            ("A remark.",),
        )
