"""DVP: its section 5, the figures and the selection of rho."""

from __future__ import annotations

from dpadmm_papers.dvp.figure_2 import Figure2, SelectionOfRho
from dpadmm_papers.dvp.figure_3 import Figure3
from dpadmm_papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (SelectionOfRho(), Figure2(), Figure3())
