r"""A finished run: what it was told, the model, and the record of it.

**Noise error**, a public figure: how far the noise of a run alone moves each weight.

.. math:: e^2 = \operatorname{mean}_{r, j}\bigl(w_{r,j} - \bar w_j\bigr)^2\,\frac{R}{R-1}

over R runs r of the same plan with rows of zeros and simulated noise, and features j: noise has the
same variance in every direction. The plan, its noise and its averaging over rounds and parties are
those of the run; no row has a part in it.

Rows that are told apart pull the weights back after noise has moved them, and rows of zeros do not.
So the figure is an upper one on the whole. Against the standard deviation over repeated runs (root
mean square over the weights, 5 parties, huber-hinge, epsilon 0.3 to 3) it was 1.1 to 1.4 times as
large on Adult and on image (``dp-gd`` and ``pr-admm``), and 1.5 to 2.3 times on twonorm, whose
classes are so far apart that rows pull hard. Single weights that many rows speak for are known
better than the others, up to 4 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpadmm.algorithms.base import Algorithm
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.data.schema import Schema
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.rows import RowBlock, Shard
from dpadmm.problem.topologies import Topology
from dpadmm.run.charges import ledger_facts
from dpadmm.run.classifier import Classifier, chosen_output
from dpadmm.run.config import RunConfig
from dpadmm.run.model import Model
from dpadmm.run.plan import Plan
from dpadmm.run.record import Learnt, RecordedRun
from dpadmm.run.train import train

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier


# Algorithms whose noise is in their messages and whose local work takes any rows; others draw
# batches of rows, or change labels.
_SERVED: Final = ("dp-gd", "pr-admm", "dvp", "m-admm", "r-admm", "mr-admm")
# The figure is known to about a thirtieth from so many numbers.
_NUMBERS: Final = 400
# Numbers drawn at most, a few seconds' work; larger runs are left out.
_MOST_DRAWN: Final = 2e7


def noise_error(planned: Plan, output: str = "auto", heard: Sequence[int] = ()) -> float | None:
    """The standard error that noise gives each weight; None where it is not known.

    Parameters
    ----------
    planned
        The run of all parties.
    output
        Which messages the classifier is the mean of, as the estimator has it.
    heard
        Numbers of the parties whose messages it is the mean of; all unless given.
    """
    site = planned.site
    if planned.algorithm.name not in _SERVED:
        return None
    runs = max(2, math.ceil(_NUMBERS / (site.outputs * site.features)))
    if runs * planned.rounds * math.prod(site.shape) / site.runs > _MOST_DRAWN:
        return None
    alike = replace(planned, algorithm=_with_own_noise(planned), site=replace(site, runs=runs))
    parties = len(site.index)
    # One row of zeros acts as any number of them: counts enter by the public facts alone.
    row = RowBlock(
        np.arange(parties),
        np.zeros((parties, 1, site.features)),
        np.zeros((parties, 1, site.outputs)),
    )
    outcome = train(alike, Shard((row,), site.rows), noise=SimulatedNoise(0))
    models = getattr(outcome, chosen_output(planned.algorithm, output))
    mean = models[list(heard) or slice(None)].mean(axis=0)
    return float(np.sqrt(mean.var(axis=0, ddof=1).mean()))


def _with_own_noise(planned: Plan) -> Algorithm:
    """The algorithm, with each party's share of shared noise drawn as its own: the same sum."""
    algorithm = planned.algorithm
    if not isinstance(algorithm, DPGD) or algorithm.shared is None:
        return algorithm
    honest = algorithm.shared.parties - algorithm.shared.colluders
    return replace(algorithm, shared=None, sigma=algorithm.sigma / math.sqrt(honest))


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
        What noise alone does to each weight (:mod:`dpadmm.run.result`), where it is known.
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
        return ledger_facts(self.config.ledgers)

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
