"""DVP: its section 5, the figures and the selection of rho, and its numbers of rows."""

from __future__ import annotations

from dpadmm_papers.dvp.figure_2 import Figure2, SelectionOfRho
from dpadmm_papers.dvp.figure_3 import Figure3
from dpadmm_papers.dvp.sample_size import Theorems2And3
from dpadmm_papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (SelectionOfRho(), Figure2(), Figure3(), Theorems2And3())
