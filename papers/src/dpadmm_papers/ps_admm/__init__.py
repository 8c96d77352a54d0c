"""PS-ADMM: the figures of its section 5."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment
from dpadmm_papers.ps_admm.figures_2_3 import Figure2, Figure3

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = (Figure2(), Figure3())
