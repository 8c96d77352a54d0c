"""DVP: the figures of its section 5."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment
from dpadmm_papers.dvp.figure_2 import Figure2
from dpadmm_papers.dvp.figure_3 import Figure3

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = (Figure2(), Figure3())
