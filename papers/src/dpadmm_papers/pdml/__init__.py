"""PDML: the figures and the table of its section VI, its rate and its generalisation error."""

from __future__ import annotations

from dpadmm_papers.experiment import Experiment
from dpadmm_papers.pdml.figure_3 import Figure3
from dpadmm_papers.pdml.figure_4 import Figure4
from dpadmm_papers.pdml.generalization import Generalization
from dpadmm_papers.pdml.rates import Theorems1And2
from dpadmm_papers.pdml.table_1 import Table1

EXPERIMENTS: tuple[Experiment, ...] = (
    Figure3(),
    Figure4(),
    Table1(),
    Theorems1And2(),
    Generalization(),
)
