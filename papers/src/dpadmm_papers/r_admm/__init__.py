"""R-ADMM: the figures of its section VIII, and its claim of less computation."""

from __future__ import annotations

from dpadmm_papers.experiment import Experiment
from dpadmm_papers.r_admm.computation import Computation
from dpadmm_papers.r_admm.figure_1 import FigureOne
from dpadmm_papers.r_admm.figure_5 import FigureFive
from dpadmm_papers.r_admm.sample_size import TheoremsVI
from dpadmm_papers.r_admm.tuning import FigureFour, FigureThree, FigureTwo

EXPERIMENTS: tuple[Experiment, ...] = (
    FigureOne(),
    FigureTwo(),
    FigureThree(),
    FigureFour(),
    FigureFive(),
    Computation(),
    TheoremsVI(),
)
