"""The figures and tables of the papers, one folder per paper, and the list of them all."""

from __future__ import annotations

from typing import Final

from dpadmm_papers import dvp, pdml, pr_admm, ps_admm, r_admm
from dpadmm_papers.experiment import Experiment

#: Every experiment by name, in the order of the papers.
EXPERIMENTS: Final[dict[str, Experiment]] = {
    experiment.name: experiment
    for paper in (pr_admm, dvp, r_admm, pdml, ps_admm)
    for experiment in paper.EXPERIMENTS
}
