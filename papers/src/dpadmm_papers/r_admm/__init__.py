"""R-ADMM: the figures of its section VIII, and its claim of less computation."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment
from dpadmm_papers.r_admm.computation import Computation
from dpadmm_papers.r_admm.figure_1 import FigureOne
from dpadmm_papers.r_admm.figure_2 import FigureTwo
from dpadmm_papers.r_admm.figure_3 import FigureThree
from dpadmm_papers.r_admm.figure_4 import FigureFour
from dpadmm_papers.r_admm.figure_5 import FigureFive

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = (
    FigureOne(),
    FigureTwo(),
    FigureThree(),
    FigureFour(),
    FigureFive(),
    Computation(),
)
