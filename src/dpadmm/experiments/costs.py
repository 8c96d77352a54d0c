"""What runs cost: iterations timed, solves, passes and gradients of single rows counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.exchange import InProcess
from dpadmm.run.train import lay_out
from dpadmm.solvers.workspace import Workspace

__all__ = ["COUNTED", "CostJob", "CountJob"]

#: The names of what is measured: CPU seconds, local solves, passes over the rows.
COUNTED: Final = ("seconds", "solves", "passes")


@final
@dataclass(frozen=True)
class CostJob(Job):
    """Runs of one algorithm whose every iteration is timed and counted.

    Attributes
    ----------
    training
        What is run; its runs are done one after the other, with draws of the noise of their own.
    """

    training: TrainingJob

    @property
    def weight(self) -> float:
        """That of the runs."""
        return self.training.weight

    def further(self, times: int) -> CostJob | None:
        """More draws of the noise."""
        more = self.training.further(times)
        return None if more is None else CostJob(more)

    def compute(self) -> Result:
        """CPU seconds, solves and passes ``(iterations, runs)``, all parties together."""
        start = time.monotonic()
        job = self.training
        taken = np.stack([self._count(job.seed + run) for run in range(job.runs)], axis=-1)
        counts = dict(zip(COUNTED, np.moveaxis(taken, 1, 0), strict=True))
        facts = {"data": job.problem.load().facts, "seconds": time.monotonic() - start}
        return Result(counts, facts)

    def _count(self, seed: int) -> Array:
        """``(iterations, 3)`` of one run."""
        problem = self.training.problem.load()
        planned, _ = replace(self.training, runs=1).plan(problem)
        noise = SimulatedNoise(seed)
        workspace = Workspace(lay_out(planned, problem.members, noise=noise), planned.site)
        algorithm, site = planned.algorithm, planned.site
        state = algorithm.init(site)
        solves = 0
        solve = workspace.argmin

        def counted(*arguments: Any) -> Any:
            nonlocal solves
            solves += 1
            return solve(*arguments)

        vars(workspace)["argmin"] = counted
        rows = []
        for t in range(planned.rounds):
            before, began = (solves, workspace.passes), time.process_time()
            algorithm.announce(state, site, t)
            values = algorithm.local_step(state, workspace, site, noise, t).values
            state = algorithm.absorb(state, values, values, site, t)
            seconds = time.process_time() - began
            rows.append((seconds, solves - before[0], workspace.passes - before[1]))
        return np.array(rows, dtype=np.float64)


@final
@dataclass(frozen=True)
class CountJob(Job):
    """A run whose gradients of single rows are counted: per party, after every iteration.

    Solves form no matrix, so that every product with a Hessian is a pass over the rows that counts.
    Values are ``gradients`` and ``loss``, ``(iterations, 1)``.
    """

    training: TrainingJob

    @property
    def weight(self) -> float:
        """That of the run."""
        return self.training.weight

    def compute(self) -> Result:
        """Train with a solver that counts all it does as passes, and follow the loss."""
        began = time.monotonic()
        problem = self.training.problem.load()
        planned, _ = self.training.plan(problem)
        noise = SimulatedNoise(self.training.seed)
        algorithm, site = planned.algorithm, planned.site
        shard = lay_out(planned, problem.members, noise=noise)
        workspace = Workspace(shard, site, factor_limit=0)
        descend, inner = workspace.svrg, [0]

        def counted(start: Array, linear: Array, loop: Any, drawn: Any) -> Array:
            inner[0] += 2 * max(batches.size for batches in drawn.batches)
            return descend(start, linear, loop, drawn)

        vars(workspace)["svrg"] = counted
        exchange = InProcess(server=site.topology.server)
        state, counts, losses = algorithm.init(site), [], []
        for t in range(planned.rounds):
            algorithm.announce(state, site, t)
            message = algorithm.local_step(state, workspace, site, noise, t)
            state = algorithm.absorb(state, message.values, exchange(message, t), site, t)
            # A pass over a block is one over the rows of each of its parties.
            passes = workspace.passes / len(shard.blocks)
            counts.append([passes * max(problem.counts) + inner[0]])
            losses.append(get_measure("average loss")(message.values, problem))
        values = {"gradients": np.array(counts, dtype=np.float64), "loss": np.array(losses)}
        facts = {"data": problem.facts, "seconds": time.monotonic() - began}
        return Result(values, facts)
