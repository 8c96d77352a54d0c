"""PR-ADMM: the figures of its section V, what its Lemma 5 means for them, and its rate."""

from __future__ import annotations

from typing import Final

from dpadmm_papers.experiment import Experiment
from dpadmm_papers.pr_admm.accuracy import Figures5And6
from dpadmm_papers.pr_admm.convergence import Figure4
from dpadmm_papers.pr_admm.noise import Lemma5
from dpadmm_papers.pr_admm.rates import Theorems5And6
from dpadmm_papers.pr_admm.recursion import Proposition1
from dpadmm_papers.pr_admm.tuning import Figure2, Figure3

EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    Figure2(),
    Figure3(),
    Figure4(),
    Figures5And6(),
    Lemma5(),
    Theorems5And6(),
    Proposition1(),
)
