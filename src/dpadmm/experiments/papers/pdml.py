"""PDML: the figures and the table of its section VI."""

from __future__ import annotations

from dpadmm.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = ()
