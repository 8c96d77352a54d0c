"""R-ADMM: the figures of its section VIII."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = ()
