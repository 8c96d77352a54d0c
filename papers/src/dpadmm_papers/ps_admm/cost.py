r"""The claim of a low computational cost, in gradients of single rows.

An iteration of Algorithms 1 and 2 takes, per party,

.. math:: M + 2b(S-1)

of them: the full gradient, and two for every row of every batch but the first, whose difference is
zero. An exact solve of (4) takes M for every pass over the rows. Here it is solved without forming
a matrix, so that every product with the Hessian is a pass that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
)
from dpadmm_papers.iterates import CountJob
from dpadmm_papers.ps_admm.setting import CITATION, CONTROLS, DVP, PS, SETTINGS, control, parameters
from dpadmm_papers.verdicts import Judged, all_below, certain

_EXACT: Final = "ADMM (4) to (6), exact"


class Cost(Experiment):
    """Gradients of single rows: of an iteration, and until a loss is reached."""

    name = "ps-admm-cost"
    citation = CITATION
    part = "abstract and section 2.3: low computational cost"
    title = "Gradients of single rows that PS-ADMM and its rivals compute"
    seconds: ClassVar[float] = 10.0
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "runs": ours(1, "a party computes for one draw of the noise"),
        "repetitions": ours(5, "draws of the noise, each counted by itself"),
        "accuracy of a solve": ours(1e-6, "norm of the gradient at which (4) counts as solved"),
        "rough solve": ours(1e-2, "as little as ADMM gets along with"),
        "as good": ours(1.02, "the loss to be reached: so many times that of exact ADMM at K"),
    }
    conclusions = (
        Conclusion(
            "iteration",
            "PS-ADMM has a low computational cost: an iteration takes less than solving (4), for "
            "which all data points are visited again and again.",
            "The 97.5% interval over draws of the gradients of single rows of a run, over those of "
            "DVP and of exact ADMM with as many iterations, is below 0.5.",
            choices=("accuracy of a solve",),
        ),
        Conclusion(
            "several rows",
            "Distributed SCAS-ADMM just needs to utilise several data points at each iteration "
            "(section 2.3).",
            "An iteration takes fewer gradients than a party has rows.",
        ),
        Conclusion(
            "same loss",
            "Low computation burden without compromising the result.",
            "The 97.5% interval of the gradients of single rows until the loss is within 2% of "
            "exact ADMM's at K, over those of exact ADMM, is below 1.",
            choices=("accuracy of a solve",),
        ),
    )

    def _runs(self) -> dict[str, TrainingParameters]:
        epsilon = max(self["budgets"])
        found = {
            f"{kind.name}, {kind.calibration}": parameters(self, kind, epsilon)
            for kind in (*PS.values(), *DVP.values())
        }
        found |= {name: control(self, calibration) for calibration, name in CONTROLS.items()}
        for name, accuracy in (("", "accuracy of a solve"), (", rough", "rough solve")):
            found[_EXACT + name] = replace(
                control(self, "proven"),
                algorithm="consensus-admm",
                tolerance=self[accuracy],
                algorithm_options={},
            )
        return found

    def cells(self) -> dict[str, Job]:
        """Every algorithm, some draws of the noise each."""
        problem = NamedProblem(self["data"], self["parties"], 0, self["test share"])
        return {
            f"{name}, {number}": CountJob(
                TrainingJob(problem, what, runs=1, seed=seed_of(f"ps-admm cost, {name}, {number}"))
            )
            for name, what in self._runs().items()
            for number in range(self["repetitions"])
        }

    def _draws(self, results: Mapping[str, Result], name: str) -> list[Result]:
        return [results[f"{name}, {number}"] for number in range(self["repetitions"])]

    def _totals(self, results: Mapping[str, Result], name: str) -> Array:
        return np.array([each.values["gradients"][-1, 0] for each in self._draws(results, name)])

    def _until(self, results: Mapping[str, Result], name: str) -> Array:
        """Gradients until the loss is as good as exact ADMM's; infinite where it never is."""
        exact = self._draws(results, _EXACT)[0].values["loss"][-1, 0]
        found = []
        for each in self._draws(results, name):
            reached = each.values["loss"][:, 0] <= self["as good"] * exact
            place = int(np.argmax(reached))
            found.append(each.values["gradients"][place, 0] if reached.any() else np.inf)
        return np.array(found)

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Counts of every algorithm, ratios, and loss over gradients."""
        rows_held = max(next(iter(results.values())).facts["data"]["rows"])
        findings = []
        for calibration, kind in PS.items():
            mine = f"{kind.name}, {calibration}"
            rival = f"{DVP[calibration].name}, {calibration}"
            findings += self._against(results, calibration, mine, [rival, _EXACT])
            findings += self._against(
                results, calibration, mine, [f"{_EXACT}, rough"], variant="rough solve"
            )
            each = float(self._totals(results, mine).mean()) / self["K"]
            number = f"{each:.0f} an iteration; a party has {rows_held} rows."
            findings.append(Finding.judged("several rows", calibration, each < rows_held, number))
        table = [
            (
                name,
                float(self._totals(results, name).mean()) / self["K"] / rows_held,
                float(self._until(results, name).mean()) / rows_held,
                float(np.mean([e.values["loss"][-1, 0] for e in self._draws(results, name)])),
            )
            for name in self._runs()
        ]
        columns = (
            "algorithm",
            "gradients of an iteration, over a party's rows",
            "until the loss is as good as exact ADMM's",
            "loss at the end",
        )
        return Evaluation(
            (self._panel(results, rows_held),),
            {"Gradients of single rows, in passes over a party's rows": Table.of(columns, table)},
            tuple(findings),
            (
                "An exact solve starts from the last solution, so that it takes fewer passes the "
                "less its problem has changed. Gradients of single rows do not depend on the "
                "machine; a pass over all rows is faster than as many rows one by one.",
            ),
        )

    def _against(
        self,
        results: Mapping[str, Result],
        calibration: str,
        mine: str,
        others: list[str],
        variant: str = "",
    ) -> list[Finding]:
        """Both comparisons with the rivals given; the second with exact ADMM alone."""
        choice = "accuracy of a solve" if variant else ""
        ratios = {
            f"over {other}": mean_interval(
                self._totals(results, mine) / self._totals(results, other)
            )
            for other in others
        }
        without, exact = CONTROLS[calibration], others[-1]
        mine_until, other_until = (self._until(results, name) for name in (without, exact))
        if np.isinf(other_until).any() or np.isinf(mine_until).any():
            late = [name for name in (without, exact) if np.isinf(self._until(results, name)).any()]
            words = f"Not reached in {self['K']} iterations: {', '.join(late)}."
            same = Judged(certain(without not in late), words)
        else:
            ratio = mean_interval(mine_until / other_until)
            same = all_below({"without noise, over exact ADMM": ratio}, ".2f", 1.0)
        return [
            Finding.judged(name, calibration, verdict, number, choice=choice, variant=variant)
            for name, (verdict, number) in (
                ("iteration", all_below(ratios, ".3f", 0.5)),
                ("same loss", same),
            )
        ]

    def _panel(self, results: Mapping[str, Result], rows_held: int) -> Panel:
        curves = []
        for name in self._runs():
            draws = self._draws(results, name)
            counts = np.mean([each.values["gradients"][:, 0] for each in draws], axis=0)
            loss = np.mean([each.values["loss"][:, 0] for each in draws], axis=0)
            curves.append(Curve(name, tuple((counts / rows_held).tolist()), tuple(loss.tolist())))
        return Panel(
            "loss over computing",
            "gradients of single rows, in passes over a party's rows",
            "loss (mean over parties)",
            tuple(curves),
            x_scale="log",
            y_scale="log",
        )
