"""DVP: the figures of its section 5."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = ()
