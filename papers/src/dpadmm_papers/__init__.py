"""The figures and tables of the papers, one module per paper, and the list of them all."""

from __future__ import annotations

from typing import Final

from dpadmm.errors import unknown_name
from dpadmm.experiments.experiment import Experiment
from dpadmm_papers import dvp, pdml, pr_admm, ps_admm, r_admm

__all__ = ["EXPERIMENTS", "get_experiment"]

#: Every experiment by name, in the order of the papers.
EXPERIMENTS: Final[dict[str, Experiment]] = {
    experiment.name: experiment
    for module in (pr_admm, dvp, r_admm, pdml, ps_admm)
    for experiment in module.EXPERIMENTS
}


def get_experiment(name: str) -> Experiment:
    """An experiment by name, or a refusal that lists them."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
