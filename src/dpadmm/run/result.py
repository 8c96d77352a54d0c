r"""A finished run: what it was told, the model, and the record of it.

The record (:class:`RecordedRun`) has everything public about a run, in the one shape that is
written and read. :meth:`Run.record` makes it, ``dpadmm train`` writes it as JSON beside the model,
and the report is made of it, at once or later. Every field is a function of messages and public
facts.

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

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from dpadmm.data.schema import Schema, column_weights, units_per_column
from dpadmm.durable import FileRefusal, read_json, write_whole
from dpadmm.errors import LedgerError, ParameterError
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.plain import Array, Delta, Epsilon, Finite
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.site import Topology
from dpadmm.run.classifier import Classifier, Quality
from dpadmm.run.config import RunConfig
from dpadmm.run.model import Model
from dpadmm.version import __version__

# What trains is not loaded for whoever only predicts.
if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier


RECORD_VERSION: Final = 1
"""Version of the run record; a field never changes its meaning within a version."""

# How many weights of each output a record shows; the model has all.
_MOST_WEIGHTS: Final = 30

# What a command prints of a record.
_SUMMARY: Final = (
    "run_sha256",
    "schema_sha256",
    "algorithm",
    "rounds",
    "penalty",
    "classes",
    "features",
    "parties",
    "privacy",
    "ledgers",
    "warnings",
    "seconds",
    "federation",
)


# What a command prints of an evaluation, besides its figures.
_KEPT: Final = ("about", "privacy", "threshold", "links")


def _read_quality(value: Any) -> Quality:
    return value if isinstance(value, Quality) else Quality.from_dict(value)


SavedQuality = Annotated[Quality, PlainValidator(_read_quality), PlainSerializer(Quality.to_dict)]


class _Part(BaseModel):
    # Records of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Party(_Part):
    """A party, its public number of rows and, where the record knows it, what it spent."""

    name: str
    rows: Annotated[int, Field(ge=0)]
    epsilon: Epsilon | None = None
    delta: Delta | None = None


class _History(_Part):
    disagreement: tuple[Finite, ...] = ()
    change: tuple[Finite, ...] = ()


class _Links(_Part):
    """Who talked to whom; ``parties`` are all with their rows, where one node speaks for itself."""

    name: str
    server: bool = False
    edges: tuple[tuple[int, int], ...] = ()
    parties: tuple[tuple[str, int], ...] = ()


class _Weight(_Part):
    """How much a feature speaks for a class.

    ``unit`` is how far one unit of a numeric column moves the encoded feature, whose weight is
    ``weight``: together they are the weight of that unit.
    """

    feature: str
    towards: str
    weight: Finite
    unit: Finite | None = None

    @model_serializer(mode="wrap")
    def _without_what_does_not_apply(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A level has no unit."""
        return {name: value for name, value in write(self).items() if value is not None}


class Learnt(_Part):
    """The classes of the model, and its largest weights.

    With ``frequencies`` the columns became Fourier features, whose weights say nothing about a
    column: none is recorded. ``intercepts`` go with weights of whole units, by the class that they
    speak for; ``noise_error`` is the standard error that noise gives the weight of every encoded
    feature (:mod:`dpadmm.run.result`), where it is known.
    """

    label: str
    columns: tuple[str, ...] = ()
    weights: tuple[_Weight, ...] = ()
    frequencies: Annotated[int, Field(ge=1)] | None = None
    intercepts: dict[str, Finite] | None = None
    noise_error: Annotated[Finite, Field(ge=0)] | None = None

    @model_serializer(mode="wrap")
    def _without_what_does_not_apply(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Records of older versions have neither intercepts nor an error."""
        return {name: value for name, value in write(self).items() if value is not None}

    @classmethod
    def of_model(
        cls,
        label: str,
        columns: Sequence[str],
        classes: Sequence[str],
        schema: Schema,
        coef: Array,
        noise_error: float | None = None,
    ) -> Learnt:
        """Take the largest weights of each output; a function of messages.

        Parameters
        ----------
        label, columns
            What is predicted, from which columns of a file.
        classes
            Names of the classes.
        schema
            How rows were encoded.
        coef
            The weights of encoded columns, one row for each output.
        noise_error
            What noise alone does to each of them, where it is known.
        """
        towards = classes[1:] if len(coef) == 1 else classes
        features, numeric = schema.feature_names, len(schema.numeric)
        units = units_per_column(schema).tolist()
        # Beside its products, a unit of a column has no weight of its own.
        linear = schema.feature_map is None
        weights = [
            _Weight(
                feature=features[place],
                towards=name,
                weight=float(row[place]),
                unit=units[place] if linear and place < numeric else None,
            )
            for name, row in zip(towards, coef, strict=True)
            for place in np.argsort(-np.abs(row), kind="stable")[:_MOST_WEIGHTS].tolist()
        ]
        return cls(
            label=label,
            columns=tuple(columns),
            weights=tuple(weights),
            intercepts=_intercepts(schema, coef, towards) if linear else None,
            noise_error=noise_error,
        )


def _intercepts(schema: Schema, coef: Array, towards: Sequence[str]) -> dict[str, float]:
    return dict(zip(towards, column_weights(schema, coef).intercept.tolist(), strict=True))


class _Account(_Part):
    """The account of a ledger, in the form of :meth:`dpadmm.ledger.balance.Account.to_dict`."""

    dataset: dict[str, Any]
    policy: dict[str, Any]
    filter: dict[str, str] = Field(default_factory=dict)
    unit: str = ""
    limit: Finite
    spent: Finite | None = None
    left: Finite
    spent_epsilon: Epsilon
    fitting_epsilon: Epsilon | None = None
    spent_epsilon_alone: Epsilon | None = None
    accounts: tuple[dict[str, Any], ...] = ()
    amendments: tuple[dict[str, Any], ...] = ()
    runs: tuple[dict[str, Any], ...]
    head: str
    statement: dict[str, str] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_what_does_not_apply(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A ledger says what is spent if all others collude only where noise was shared."""
        content: dict[str, Any] = write(self)
        if self.spent_epsilon_alone is None:
            del content["spent_epsilon_alone"]
        for name in ("accounts", "amendments"):
            if not content[name]:
                del content[name]
        return content


class LedgerCheck(_Part):
    """A ledger, and whether recomputing everything in it gave the same.

    The record holds what was found at the end of the run; a report may look again.
    """

    account: _Account | None = None
    error: str | None = None
    when: Literal["end", "now"] = Field(default="end", exclude=True)


class _Federation(_Part):
    """A node's view of the others and of its own run."""

    node: str = ""
    nodes: tuple[str, ...] = ()
    rows: dict[str, int] = Field(default_factory=dict)
    server: str | None = None
    heard: tuple[str, ...] = ()
    rounds_complete: int
    lost: Any = None
    went_on_without: tuple[str, ...] = ()
    changed_run_sha256: str | None = None
    sums_sha256: str | None = None
    agreed_by: tuple[str, ...] = ()
    tls: bool = False


class RecordedRun(_Part):
    """The record of a run; fields that older records lack are None or empty."""

    version: Literal[1]
    dpadmm: str
    python: str = ""
    numpy: str = ""
    ended: str
    command: str | None = None
    config: dict[str, Any]
    run_sha256: str
    schema_sha256: str = ""
    algorithm: str
    rounds: int
    penalty: Finite | None = None
    classes: tuple[str, ...]
    features: int
    parties: tuple[_Party, ...] = Field(min_length=1)
    privacy: Annotated[PrivacyStatement, PlainSerializer(PrivacyStatement.to_dict)]
    ledgers: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: Finite | None = None
    federation: _Federation | None = None
    model_sha256: str = ""
    topology: _Links | None = None
    learnt: Learnt | None = None
    ledger_checks: dict[str, LedgerCheck] = Field(default_factory=dict)
    history: _History = _History()
    epsilon_after_rounds: dict[str, tuple[Epsilon, ...]] = Field(default_factory=dict)
    quality: SavedQuality | None = None

    @classmethod
    def of_classifier(
        cls, classifier: Classifier, topology: Topology, rows: Mapping[str, int], **facts: Any
    ) -> RecordedRun:
        """Record a finished run.

        Parameters
        ----------
        classifier
            What it left.
        topology
            Who talked to whom.
        rows
            Public number of rows of each party that the statement is about.
        **facts
            The other fields of the record.
        """
        privacy = classifier.privacy
        spent = {name: privacy.parties[name] for name in rows}
        others = facts.get("federation")
        return cls(
            version=RECORD_VERSION,
            dpadmm=__version__,
            python=platform.python_version(),
            numpy=np.__version__,
            ended=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            algorithm=privacy.algorithm,
            penalty=classifier.penalty,
            classes=tuple(str(name) for name in classifier.classes),
            parties=tuple(
                _Party(name=name, rows=rows[name], epsilon=each.epsilon, delta=each.delta)
                for name, each in spent.items()
            ),
            privacy=privacy,
            topology=_Links(
                name=topology.name,
                server=topology.server,
                edges=topology.edges,
                # A node knows who the others are and how many rows they have, and nothing more.
                parties=tuple(others["rows"].items()) if others else (),
            ),
            history=_History(**{name: tuple(each) for name, each in classifier.history.items()}),
            epsilon_after_rounds={name: tuple(each) for name, each in privacy.rounds.items()},
            quality=classifier.quality,
            **facts,
        )

    @classmethod
    def from_dict(cls, content: Any, where: str = "record") -> RecordedRun:
        """Check plain data; what is wrong is said in one sentence."""
        try:
            run = cls.model_validate(content)
        except ValidationError as error:
            finding = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in finding["loc"])
            field = f"its field {place!r}" if place else "the whole"
            words = "is missing"
            if finding["type"] != "missing":
                words = f"is not: {finding['msg'].removesuffix('.')}"
            raise ParameterError(
                f"{where} must be a run record of dpadmm; {field} {words}."
            ) from None
        for name in run.names:
            if name not in run.privacy.parties:
                raise ParameterError(f"{where} must have a guarantee of party {name!r}; has none.")
        places = range(len(run.everybody))
        for edge in run.topology.edges if run.topology else ():
            if not set(edge) <= set(places):
                raise ParameterError(f"{where} must link parties of the run; got {edge!r}.")
        return run

    def plain(self) -> dict[str, Any]:
        """The record as data for JSON, without what does not apply to this run."""
        content = self.model_dump(mode="json")
        return {name: value for name, value in content.items() if value is not None}

    def write(self, place: Path) -> None:
        """Write it as JSON, whole or not at all."""
        content = json.dumps(self.plain(), indent=2, allow_nan=False)
        write_whole(place, content.encode(), "record")

    def summary(self) -> dict[str, Any]:
        """What a command prints of it."""
        content = self.plain()
        told: dict[str, Any] = {name: content[name] for name in _SUMMARY if name in content}
        if self.quality is not None:
            kept = {name: value for name, value in content["quality"].items() if name in _KEPT}
            told["evaluation"] = kept | self.quality.evaluation().to_dict()
        return told

    def is_of(self, model: Model) -> bool:
        """Whether the same run, with the same messages, made this record and a model.

        Thresholds and evaluations that came later do not matter.
        """
        followed = {name: tuple(each) for name, each in model.classifier.history.items()}
        same = self.run_sha256 == model.provenance.get("run_sha256")
        return same and self.history == _History(**followed)

    @property
    def everybody(self) -> tuple[_Party, ...]:
        """All who took part; the record of a node has guarantees of its own party alone."""
        if self.topology is None or not self.topology.parties:
            return self.parties
        return tuple(_Party(name=name, rows=rows) for name, rows in self.topology.parties)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in order."""
        return tuple(party.name for party in self.parties)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed."""
        return self.privacy.private

    @property
    def weakest(self) -> tuple[str, ...]:
        """The parties with the largest epsilon; empty where all have the same to four digits."""
        spent = {name: self.privacy.parties[name].epsilon for name in self.names}
        most = max(spent.values())
        found = tuple(name for name, epsilon in spent.items() if epsilon >= most * (1 - 1e-4))
        return () if len(found) == len(spent) else found

    def budget(self, name: str) -> float | None:
        """The epsilon that the configuration allows a party in this run."""
        asked = self.config.get("run", {}).get("epsilon")
        asked = asked.get(name) if isinstance(asked, dict) else asked
        if isinstance(asked, bool) or not isinstance(asked, int | float) or not self.private:
            return None
        return float(asked)


def read_record(path: Path) -> RecordedRun:
    """Read a record from its file."""
    try:
        content = read_json(path)
    except FileRefusal as error:
        raise ParameterError(f"run must be a readable JSON file; got {path}: {error}.") from None
    return RecordedRun.from_dict(content, str(path))


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
    def federation(self) -> dict[str, Any]:
        """Of the run of one node: public facts about the others and how it went."""
        return dict(self.model.provenance["federation"])

    def restated(self, privacy: PrivacyStatement, facts: Mapping[str, Any]) -> Self:
        """With another statement, and more facts about the others."""
        classifier = replace(self.classifier, privacy=privacy)
        come_from = self.model.provenance | {"federation": self.federation | dict(facts)}
        model = replace(self.model, classifier=classifier, provenance=come_from)
        return replace(self, model=model)

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


def ledger_checks(ledgers: Mapping[str, str | Path] | None) -> dict[str, dict[str, Any]]:
    """Recompute every ledger: its account, or what is wrong with it."""
    checks: dict[str, dict[str, Any]] = {}
    for name, path in (ledgers or {}).items():
        try:
            with SQLiteLedger(Path(path), read_only=True) as ledger:
                checks[str(name)] = _check(ledger)
        except LedgerError as error:
            checks[str(name)] = {"account": None, "error": str(error)}
    return checks


def _check(ledger: SQLiteLedger) -> dict[str, Any]:
    """Recompute an open ledger."""
    try:
        account = ledger.verify().to_dict()
    except LedgerError as error:
        return {"account": None, "error": str(error)}
    # When runs were opened, with the time a record ends, would tell how long they took.
    account["runs"] = [
        {key: value for key, value in run.items() if key != "opened"} for run in account["runs"]
    ]
    return {"account": account, "error": None}


def ledger_facts(ledgers: Mapping[str, str | Path] | None) -> dict[str, dict[str, Any]]:
    """What a record keeps of each ledger: policy, rule, spending, balance, and the check.

    Opening a ledger reads it whole, so each is opened once for both.
    """
    words: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    for name, path in (ledgers or {}).items():
        with SQLiteLedger(Path(path), read_only=True) as ledger:
            words[str(name)] = ledger.statement()
            checks[str(name)] = _check(ledger)
    return {"ledgers": words, "ledger_checks": checks}
