"""The report of ``dpadmm demo``: that of its run at epsilon = 1, with what the others reached."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report import texts
from dpadmm.report.document import Report, Section, Words
from dpadmm.report.plots import Bar, BarPlot, LinePlot
from dpadmm.report.records import RecordedRun
from dpadmm.report.run import course, run_report
from dpadmm.run.engine import Outcome
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan
from dpadmm.version import __version__


@dataclass(frozen=True)
class ShownRun:
    """The run that the report is about, and what it says it guarantees."""

    parameters: TrainingParameters
    planned: Plan
    outcome: Outcome
    statement: PrivacyStatement


def demo_report(
    shown: ShownRun,
    label: tuple[str, tuple[str, str]],
    features: Sequence[str],
    accuracy: Sequence[tuple[str, int, float]],
    histories: Mapping[str, Mapping[str, Sequence[float]]],
    command: str,
) -> Report:
    """Build the page.

    Parameters
    ----------
    shown
        The run it is about.
    label, features
        What is predicted and its two classes; the names of the columns.
    accuracy
        Who trained, on how many rows, the share of held-out rows that were right.
    histories
        Accuracy and disagreement after each round, by budget.
    command
        What makes it again.
    """
    record = RecordedRun.from_dict(_record(shown, label, features, command))
    bars = tuple(Bar(who, 100 * share) for who, _, share in accuracy)
    lines = tuple(
        course(name, [100 * share for share in each["accuracy"]])
        for name, each in histories.items()
    )
    brings = Section(
        texts.ACCURACY,
        (
            Words(texts.ACCURACY_WORDS),
            BarPlot(texts.ACCURACY_TITLE, texts.ACCURACY_WHO, texts.ACCURACY_VALUE, bars),
            LinePlot(texts.ACCURACY_COURSE, texts.ROUND, texts.ACCURACY_VALUE, lines),
        ),
    )
    return run_report(record, more=[brings])


def _record(
    shown: ShownRun, label: tuple[str, tuple[str, str]], features: Sequence[str], command: str
) -> dict[str, Any]:
    """The facts that a run record has, of the first of the repeated runs."""
    planned, outcome, statement = shown.planned, shown.outcome, shown.statement
    site, topology = planned.site, planned.site.topology
    name, classes = label
    weights = outcome.tail[:, 0, 0].mean(axis=0)
    largest = np.argsort(-np.abs(weights), kind="stable")[:12].tolist()
    return {
        "version": 1,
        "dpadmm": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ended": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "command": command,
        "config": {"run": asdict(shown.parameters)},
        "run_sha256": "",
        "algorithm": planned.algorithm.name,
        "rounds": planned.rounds,
        "classes": list(classes),
        "features": site.features,
        "parties": [
            {"name": party, "rows": rows}
            for party, rows in zip(site.names, site.rows.tolist(), strict=True)
        ],
        "privacy": statement.to_dict(),
        "history": {
            "disagreement": outcome.history.disagreement[:, 0].tolist(),
            "change": outcome.history.change[:, 0].tolist(),
        },
        "epsilon_after_rounds": {
            party: values.tolist() for party, values in statement.rounds.items()
        },
        "topology": {"name": topology.name, "server": topology.server, "edges": topology.edges},
        "learnt": {
            "label": name,
            "columns": [],
            "weights": [
                {"feature": features[p], "towards": classes[1], "weight": float(weights[p])}
                for p in largest
            ],
        },
    }
