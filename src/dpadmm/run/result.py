"""A finished run, and the record of it: functions of messages and public facts."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpadmm.data.schema import Schema
from dpadmm.problem.topologies import Topology
from dpadmm.run.charges import ledger_checks, ledger_statements
from dpadmm.run.classifier import Classifier
from dpadmm.run.config import RunConfig
from dpadmm.run.model import Model
from dpadmm.version import __version__

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier

__all__ = ["RECORD_VERSION", "Run"]

RECORD_VERSION: Final = 1
"""Version of the run record; a field never changes its meaning within a version."""

# How many weights of each output a record shows; the model has all.
_MOST_WEIGHTS: Final = 30


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes
    ----------
    config, schema
        What it was told.
    fitted
        The classifier, for encoded rows, and its statement.
    parameters
        What the estimator would be asked for.
    parties
        Whose messages the classifier is the mean of.
    rows
        Public number of rows of each party.
    topology
        Who talked to whom.
    sha256
        Hash of everything public that decided the run.
    warnings
        Sentences about the budget.
    seconds
        How long it took, reading included; None for a private algorithm, since the time of a
        local solve depends on rows.
    federation
        For the run of one node: public facts about the others and how it went.
    """

    config: RunConfig
    schema: Schema
    fitted: Classifier
    parameters: dict[str, Any]
    parties: tuple[str, ...]
    rows: dict[str, int]
    topology: Topology
    sha256: str
    warnings: tuple[str, ...]
    seconds: float | None
    federation: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """What the command prints and the record begins with."""
        privacy = self.fitted.privacy
        beside: dict[str, Any] = {}
        if self.seconds is not None:
            beside["seconds"] = round(self.seconds, 3)
        if self.federation is not None:
            beside["federation"] = self.federation
        return {
            "run_sha256": self.sha256,
            "schema_sha256": self.schema.sha256,
            "algorithm": self.config.run.algorithm,
            "rounds": self.config.run.rounds,
            "penalty": self.fitted.penalty,
            "classes": list(self.schema.classes),
            "features": len(self.schema.feature_names),
            "parties": [
                {
                    "name": name,
                    "rows": rows,
                    "epsilon": _word(privacy.parties[name].epsilon),
                    "delta": privacy.parties[name].delta,
                }
                for name, rows in self.rows.items()
            ],
            "privacy": privacy.to_dict(),
            "ledgers": ledger_statements(self.config.ledgers),
            "warnings": list(self.warnings),
            **beside,
        }

    def model(self) -> Model:
        """The model with its schema and where it comes from."""
        provenance = {
            "run_sha256": self.sha256,
            "schema_sha256": self.schema.sha256,
            "rows": self.rows,
            "config": self.config.plain(),
        }
        if self.federation is not None:
            provenance["federation"] = self.federation
        return Model.from_run(
            self.fitted,
            self.parameters,
            classes=self.schema.classes,
            parties=self.parties,
            schema=self.schema,
            provenance=provenance,
        )

    @property
    def estimator(self) -> ADMMClassifier:
        """The fitted classifier for encoded rows, as scikit-learn wants it."""
        return self.model().to_estimator()

    def record(self, model_sha256: str) -> dict[str, Any]:
        """Everything public about the run, for the file beside the model and for the report."""
        history = {name: values.tolist() for name, values in self.fitted.history.items()}
        spent = self.fitted.privacy.rounds
        return {
            "version": RECORD_VERSION,
            "dpadmm": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "ended": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "config": self.config.plain(),
            **self.summary(),
            "model_sha256": model_sha256,
            "topology": {
                "name": self.topology.name,
                "server": self.topology.server,
                "edges": [list(edge) for edge in self.topology.edges],
                # A node knows who the others are and how many rows they have, and nothing more.
                "parties": list(self.federation["rows"].items()) if self.federation else [],
            },
            "learnt": _learnt(self),
            "ledger_checks": ledger_checks(self.config.ledgers),
            "history": history,
            "epsilon_after_rounds": {
                name: [_word(value) for value in values.tolist()] for name, values in spent.items()
            },
        }


def _learnt(run: Run) -> dict[str, Any]:
    """What the model tells apart, and its largest weights; a function of messages."""
    schema, weights = run.schema, run.fitted.coef
    towards = schema.classes[1:] if len(weights) == 1 else schema.classes
    names = schema.feature_names
    return {
        "label": schema.label.column,
        "columns": [column.name for column in schema.columns],
        "weights": [
            {"feature": names[place], "towards": name, "weight": float(row[place])}
            for name, row in zip(towards, weights, strict=True)
            for place in np.argsort(-np.abs(row), kind="stable")[:_MOST_WEIGHTS].tolist()
        ],
    }


def _word(value: float) -> float | str:
    return value if np.isfinite(value) else "infinite"
