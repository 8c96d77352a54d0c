"""The record of a run: everything public about it, in the one shape that is written and read.

:meth:`~dpadmm.run.result.Run.record` makes it, ``dpadmm train`` writes it as JSON beside the model,
and the report is made of it, at once or later. Every field is a function of messages and public
facts.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

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
from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError
from dpadmm.plain import Array, Delta, Epsilon
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.topologies import Topology
from dpadmm.run.classifier import Classifier, Quality
from dpadmm.run.model import Model
from dpadmm.sentences import Finite
from dpadmm.version import __version__

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
    """A party and its public number of rows; what it spent, where the record knows it."""

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
    """What the model tells apart, and its largest weights.

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
        weights = [
            _Weight(
                feature=features[place],
                towards=name,
                weight=float(row[place]),
                unit=units[place] if place < numeric else None,
            )
            for name, row in zip(towards, coef, strict=True)
            for place in np.argsort(-np.abs(row), kind="stable")[:_MOST_WEIGHTS].tolist()
        ]
        intercept = column_weights(schema, coef).intercept.tolist()
        return cls(
            label=label,
            columns=tuple(columns),
            weights=tuple(weights),
            intercepts=dict(zip(towards, intercept, strict=True)),
            noise_error=noise_error,
        )


class _Account(_Part):
    """What a ledger said, as :meth:`dpadmm.ledger.balance.Account.to_dict` has it."""

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
    """A ledger and whether everything in it could be worked out again.

    What is written was found at the end of the run; a report may look again.
    """

    account: _Account | None = None
    error: str | None = None
    when: Literal["end", "now"] = Field(default="end", exclude=True)


class _Federation(_Part):
    """What a node knows of the others, and how its run went."""

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
    """What a record says of a run; fields that older records lack are None or empty."""

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
        """Record what a run left behind, here and now.

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

    def summary(self) -> dict[str, Any]:
        """What a command prints of it."""
        content = self.plain()
        told: dict[str, Any] = {name: content[name] for name in _SUMMARY if name in content}
        if self.quality is not None:
            kept = {name: value for name, value in content["quality"].items() if name in _KEPT}
            told["evaluation"] = kept | self.quality.evaluation().to_dict()
        return told

    def is_of(self, model: Model) -> bool:
        """Whether it was made with a model: by the same run, whose messages were the same.

        What was chosen or evaluated later does not matter.
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
