"""What runs cost: every iteration timed, its solves and passes over the rows counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.train import lay_out
from dpadmm.solvers.workspace import Workspace

__all__ = ["COUNTED", "CostJob"]

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
