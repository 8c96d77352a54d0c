"""A finished run: what it was told, the model, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpadmm.data.schema import Schema
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.topologies import Topology
from dpadmm.run.charges import ledger_checks, ledger_statements
from dpadmm.run.classifier import Classifier
from dpadmm.run.config import RunConfig
from dpadmm.run.model import Model
from dpadmm.run.record import Learnt, RecordedRun

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier


def provenance(
    config: RunConfig,
    schema: Schema,
    rows: Mapping[str, int],
    sha256: str,
    federation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Where a model comes from: public facts that its file keeps.

    Parameters
    ----------
    config, schema
        What the run was told.
    rows
        Public number of rows of each party that the model's statement is about.
    sha256
        Hash of everything public that decided the run.
    federation
        For the run of one node: public facts about the others and how it went.
    """
    facts = {
        "run_sha256": sha256,
        "schema_sha256": schema.sha256,
        "rows": dict(rows),
        "config": config.plain(),
    }
    return facts if federation is None else facts | {"federation": dict(federation)}


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes
    ----------
    config
        What it was told.
    model
        The model, with its schema and where it comes from (:func:`provenance`).
    topology
        Who talked to whom.
    warnings
        Sentences about the budget.
    seconds
        How long it took, reading included; None for a private algorithm, since the time of a
        local solve depends on rows.
    noise_error
        What noise alone does to each weight (:mod:`dpadmm.run.noise_error`), where it is known.
    """

    config: RunConfig
    model: Model
    topology: Topology
    warnings: tuple[str, ...]
    seconds: float | None
    noise_error: float | None = None

    @property
    def classifier(self) -> Classifier:
        """The classifier, for encoded rows."""
        return self.model.classifier

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be said about it."""
        return self.model.privacy

    @property
    def sha256(self) -> str:
        """Hash of everything public that decided the run."""
        return str(self.model.provenance["run_sha256"])

    @property
    def rows(self) -> dict[str, int]:
        """Public number of rows of each party that the statement is about."""
        return dict(self.model.provenance["rows"])

    @property
    def estimator(self) -> ADMMClassifier:
        """The fitted classifier for encoded rows, as scikit-learn wants it."""
        return self.model.to_estimator()

    @cached_property
    def _ledgers(self) -> dict[str, Any]:
        """What the ledgers say at the end, in words and worked out again."""
        files = self.config.ledgers
        return {"ledgers": ledger_statements(files), "ledger_checks": ledger_checks(files)}

    def record(self, model_sha256: str = "") -> RecordedRun:
        """Everything public about the run, for the file beside the model and for the report."""
        schema, come_from = self.model.schema, self.model.provenance
        assert schema is not None
        return RecordedRun.of_classifier(
            self.classifier,
            self.topology,
            self.rows,
            config=come_from["config"],
            run_sha256=self.sha256,
            schema_sha256=schema.sha256,
            rounds=self.config.run.rounds,
            features=len(schema.feature_names),
            warnings=self.warnings,
            seconds=None if self.seconds is None else round(self.seconds, 3),
            federation=come_from.get("federation"),
            model_sha256=model_sha256,
            learnt=self._learnt(schema),
            **self._ledgers,
        )

    def _learnt(self, schema: Schema) -> Learnt:
        label, columns = schema.label.column, tuple(column.name for column in schema.columns)
        if schema.fourier is not None:
            return Learnt(label=label, columns=columns, frequencies=schema.fourier.features)
        coef = self.classifier.coef
        return Learnt.of_model(label, columns, schema.classes, schema, coef, self.noise_error)

    def summary(self) -> dict[str, Any]:
        """What the command prints of the record."""
        return self.record().summary()
