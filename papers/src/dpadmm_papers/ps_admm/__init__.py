"""PS-ADMM: the figures of its section 5, its rate and its cost."""

from __future__ import annotations

from dpadmm_papers.experiment import Experiment
from dpadmm_papers.ps_admm.cost import Cost
from dpadmm_papers.ps_admm.figures_2_3 import Figure2, Figure3
from dpadmm_papers.ps_admm.rates import Theorems3And4

EXPERIMENTS: tuple[Experiment, ...] = (Figure2(), Figure3(), Theorems3And4(), Cost())
