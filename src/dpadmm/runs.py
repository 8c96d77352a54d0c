"""A run from a configuration: files in, a model file and a record out.

Everything that can be refused is refused before a row is read: the configuration, the schema, the
parameters, the columns of every file, the places for the results. What a run gives away is the
model and figures that are functions of messages and public facts.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.charging import charged, ledger_statements
from dpadmm.config import RunConfig, run_hash
from dpadmm.datasets.files import check_columns
from dpadmm.datasets.party_rows import PartyRows, encode_by_party, encode_party
from dpadmm.datasets.whole_file import check_writable, written_whole
from dpadmm.engine import Checkpoint
from dpadmm.errors import ParameterError
from dpadmm.estimators import ADMMClassifier, label_signs
from dpadmm.model import Model, model_bytes
from dpadmm.privacy.ledger import Ledger
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.privacy.sqlite_ledger import SQLiteLedger
from dpadmm.schema import DataError, Schema, load_schema
from dpadmm.training import Plan, PrivacyWarning, lay_out, plan, train
from dpadmm.version import __version__

__all__ = [
    "RECORD_VERSION",
    "TrainedRun",
    "Watch",
    "estimator_parameters",
    "file_schema",
    "prepare",
    "train_run",
    "work_folder",
    "write_results",
]

RECORD_VERSION: Final = 1
"""Version of the run record; a field never changes its meaning within a version."""

# More rows never make a plan less feasible, so what is refused for this many is refused for all.
_VERY_MANY_ROWS: Final = 2**30


@dataclass(frozen=True)
class Watch:
    """Whom to tell how a run gets on; told public facts only."""

    on_stage: Callable[[str], None] = lambda stage: None
    on_round: Callable[[int, int], None] = lambda done, rounds: None


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Attributes
    ----------
    config, schema
        What it was told.
    estimator
        The fitted classifier, for encoded rows.
    rows
        Public number of rows of each party.
    sha256
        Hash of everything public that decided the run.
    warnings
        Sentences about the budget.
    seconds
        How long it took, reading included.
    federation
        For the run of one node: public facts about the others and how it went.
    """

    config: RunConfig
    schema: Schema
    estimator: ADMMClassifier
    rows: dict[str, int]
    sha256: str
    warnings: tuple[str, ...]
    seconds: float
    federation: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """What the command prints and the record begins with."""
        privacy = self.estimator.privacy_
        beside = {} if self.federation is None else {"federation": self.federation}
        return {
            "run_sha256": self.sha256,
            "schema_sha256": self.schema.sha256,
            "algorithm": self.config.run.algorithm,
            "rounds": self.config.run.rounds,
            "penalty": self.estimator.penalty_,
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
            "seconds": round(self.seconds, 3),
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
        return Model.from_estimator(self.estimator, schema=self.schema, provenance=provenance)


def prepare(config: RunConfig) -> Schema:
    """Check all that can be checked before a row is read; return the schema for the files."""
    schema = file_schema(load_schema(config.data.schema_file), config)
    places = [("model", config.result.model), ("record", config.result.record)]
    places += [("checkpoint", config.result.checkpoint)]
    for what, place in places:
        if place is not None:
            check_writable(place, what)
    files = [party.file for party in config.party]
    for file in [config.data.file] if config.data.file else files:
        check_columns(file, schema, delimiter=config.data.delimiter)
    names = tuple(party.name for party in config.party)
    if not names and isinstance(config.run.topology, str):
        # Whose rows a common file holds is not known yet; any parties show a wrong parameter.
        tables = [table for table in (config.run.epsilon, config.run.delta) if type(table) is dict]
        names = tuple(tables[0]) if tables else ("first", "second", "third", "fourth")
    if names:
        rows = {party.name: party.rows for party in config.party}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            _plan(config, schema, {name: rows.get(name) or _VERY_MANY_ROWS for name in names})
    return schema


def train_run(config: RunConfig, watch: Watch | None = None) -> TrainedRun:
    """Train as a configuration says; :func:`write_results` then writes what it says.

    Raises
    ------
    ParameterError, DataError
        One sentence: what is wrong with the configuration, a file or the disk.
    """
    watch = watch or Watch()
    start = time.monotonic()
    watch.on_stage("checking")
    schema = prepare(config)
    noise = _noise(config)
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(config.result.model))
        counted, ledgers = _open_ledgers(config, schema, noise, stack)
        watch.on_stage("encoding")
        parties = _encode(config, schema, folder, counted)
        rows = {name: len(party.labels) for name, party in parties.items()}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            planned = _plan(config, schema, rows)
        outputs = planned.site.outputs
        shard = lay_out(
            planned,
            [(party.rows, label_signs(party.labels, outputs)) for party in parties.values()],
            noise=noise,
        )
        del parties
        watch.on_stage("training")
        outcome = train(
            planned,
            shard,
            noise=noise,
            ledgers=ledgers,
            checkpoint=_checkpoint(config),
            on_round=lambda done, messages: watch.on_round(done, planned.rounds),
        )
    estimator = ADMMClassifier.from_run(
        planned, outcome, noise, classes=schema.classes, **estimator_parameters(config, rows)
    )
    return TrainedRun(
        config=config,
        schema=schema,
        estimator=estimator,
        rows=rows,
        sha256=run_hash(config, schema.sha256, rows),
        warnings=tuple(str(warning.message) for warning in caught),
        seconds=time.monotonic() - start,
    )


def write_results(run: TrainedRun) -> None:
    """Write the model and the record, whole or not at all, and drop the checkpoint."""
    result = run.config.result
    data = model_bytes(run.model())
    with written_whole(result.model, "model") as file:
        file.write(data)
        file.flush()
        if result.checkpoint is not None:
            # Before any result has its name: a run that released its model must not go on from
            # here once more, with other noise.
            result.checkpoint.unlink(missing_ok=True)
        if result.record is not None:
            record = _record(run, hashlib.sha256(data).hexdigest())
            with written_whole(result.record, "record") as beside:
                beside.write(json.dumps(record, indent=2, allow_nan=False).encode())


def _record(run: TrainedRun, model_sha256: str) -> dict[str, Any]:
    history = {name: values.tolist() for name, values in run.estimator.history_.items()}
    spent = run.estimator.privacy_.rounds
    return {
        "version": RECORD_VERSION,
        "dpadmm": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ended": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "config": run.config.plain(),
        **run.summary(),
        "model_sha256": model_sha256,
        "history": history,
        "epsilon_after_rounds": {
            name: [_word(value) for value in values.tolist()] for name, values in spent.items()
        },
    }


def _word(value: float) -> float | str:
    return value if np.isfinite(value) else "infinite"


def file_schema(schema: Schema, config: RunConfig) -> Schema:
    """The schema as it applies to the files at hand: only a common file has a party column."""
    wanted = None
    if config.data.file is not None:
        wanted = config.data.party_column or schema.party
        if wanted is None:
            raise DataError(
                "party_column must name the column of the file that says whose row it is; neither "
                "the configuration nor the schema does: add party_column under [data]"
            )
    ignore = [name for name in schema.ignore if name != wanted]
    if schema.party not in (None, wanted):
        ignore.append(str(schema.party))
    return Schema.from_dict(schema.model_dump() | {"party": wanted, "ignore": tuple(ignore)})


def _plan(config: RunConfig, schema: Schema, rows: dict[str, int]) -> Plan:
    names = tuple(rows)
    classes = len(schema.classes)
    return plan(
        config.parameters(names),
        list(rows.values()),
        features=len(schema.feature_names),
        outputs=1 if classes == 2 else classes,
        names=names,
    )


def _open_ledgers(
    config: RunConfig, schema: Schema, noise: NoiseSource, stack: ExitStack
) -> tuple[dict[str, int], Sequence[Ledger] | None]:
    """Charge the run to its ledgers, before a row is read: they know how many rows there are."""
    if not config.ledgers:
        return {}, None
    names = [party.name for party in config.party] or sorted(config.ledgers)
    rows = {}
    for name in names:
        if name not in config.ledgers:
            raise ParameterError(f"[ledgers] must name every party's ledger; {name!r} has none.")
        with SQLiteLedger(config.ledgers[name], read_only=True) as ledger:
            rows[name] = ledger.dataset.rows
    run_id = config.run.run_id or run_hash(config, schema.sha256, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        planned = _plan(config, schema, rows)
    opened = charged(planned, config.ledgers, run_id, noise, schema_sha256=schema.sha256)
    return rows, stack.enter_context(opened)


def _noise(config: RunConfig) -> NoiseSource:
    key = config.run.simulation_key
    return secure_noise() if key is None else SimulatedNoise(key)


def _checkpoint(config: RunConfig) -> Checkpoint | None:
    result = config.result
    if result.checkpoint is None:
        return None
    return Checkpoint(result.checkpoint, every=result.checkpoint_every)


def estimator_parameters(config: RunConfig, names: Iterable[str]) -> dict[str, Any]:
    """What the run was asked for, as the estimator names it."""
    parameters = config.run.model_dump(exclude={"tolerance", "simulation_key", "run_id"})
    parameters["topology"] = config.parameters(tuple(names)).topology
    return parameters | {"random_state": config.run.simulation_key}


def _encode(
    config: RunConfig, schema: Schema, folder: Path, counted: dict[str, int]
) -> dict[str, PartyRows]:
    """The rows of every party; how many there are is public, and ``counted`` in its ledger."""
    delimiter = config.data.delimiter
    if config.data.file is not None:
        parties = encode_by_party(config.data.file, schema, folder, delimiter=delimiter)
    else:
        parties = {
            party.name: encode_party(party.file, schema, folder, delimiter=delimiter)
            for party in config.party
        }
    if not parties:
        raise DataError(f"{config.data.file} must have at least one row; got none")
    if counted and set(counted) != set(parties):
        raise DataError(
            f"[ledgers] must name the parties of the file, {', '.join(sorted(parties))}; got "
            f"{', '.join(counted)}"
        )
    parties = {name: parties[name] for name in counted or parties}
    declared = {party.name: party.rows for party in config.party} | counted
    for name, party in parties.items():
        found, said = len(party.labels), declared.get(name)
        if not found:
            raise DataError(f"party {name!r} must have at least one row; its file has none")
        if said is not None and said != found:
            raise DataError(
                f"party {name!r} must have the rows that it or its ledger declares, {said}; its "
                f"file has {found}: correct one"
            )
    return parties


@contextmanager
def work_folder(model: Path) -> Iterator[Path]:
    """A folder beside the model for encoded rows; one that a killed run left is emptied."""
    folder = model.with_name(f".{model.name}.rows")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DataError(
            f"model must be in a folder that can be written; got {model}: {error.strerror}"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"model must be written by one run at a time; another is at work on {model}"
            ) from None
        try:
            for left in folder.iterdir():
                left.unlink()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
