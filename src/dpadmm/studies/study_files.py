"""A study from a configuration: files in, figures and a record out.

The tables are those of a ``run.toml`` but for ``[study]``, which says what it may cost, and what
each kind of study asks. Everything that can be refused is refused before a row is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from dpadmm.data.schema import Schema, load_schema
from dpadmm.data.study_rows import read_study_rows, study_rows_by_party
from dpadmm.durable import check_writable, written_whole
from dpadmm.errors import DataError, ParameterError, fail, refuse_repeats
from dpadmm.plain import Array, Name, Part, as_tuple
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.config import (
    BudgetSetting,
    DataSection,
    File,
    Page,
    PartySection,
    PolicySection,
    load_toml,
    validated,
)
from dpadmm.run.files import (
    Fault,
    Owner,
    check_files,
    declared_rows,
    file_schema,
    look_first,
    party_schema,
    reading_word,
)
from dpadmm.run.options import DEFAULT, Split
from dpadmm.studies.questions import StudyAnswer, StudyQuestion, ask_rows, check_counts
from dpadmm.studies.study import StudyRows, study_noise


class StudySection(Part):
    """``[study]``: what a study may cost, and whose noise it gets.

    Parameters
    ----------
    epsilon, delta
        Of every party for one person: a number, or a table with one for each party.
    rows_per_person
        How many rows of a party are replaced at once.
    noise, colluders
        "own" or "shared", and how many parties may collude with whoever sees the sum.
    holdout
        Reads the rows that a training with this holdout reads, and leaves the others alone.
    simulation_key
        Makes the noise reproducible, and the study no private one.
    run_id
        Its name in the ledgers; a digest of all that it is told unless given.
    """

    epsilon: BudgetSetting = DEFAULT.epsilon
    delta: BudgetSetting = DEFAULT.delta
    rows_per_person: Annotated[int, Field(ge=1)] = 1
    noise: Literal["own", "shared"] = "own"
    colluders: Annotated[int, Field(ge=1)] | None = None
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    simulation_key: Annotated[int, Field(ge=0)] | None = None
    run_id: Name | None = None

    @property
    def terms(self) -> EvaluationTerms:
        """What it costs."""
        names = ("epsilon", "delta", "rows_per_person", "noise", "colluders")
        return EvaluationTerms(**{name: getattr(self, name) for name in names})


class StudyResult(Part):
    """``[result]``: where results go.

    Parameters
    ----------
    record
        The record (JSON): what was asked, found and spent.
    report
        The page to read (HTML): its place, or false for none. Beside the record unless given.
    schema_file
        ``schema``: where a schema with proposed bounds goes, of a study that looks for bounds.
        Between nodes it goes beside the record, as ``RECORD.schema.toml``.
    """

    record: File
    report: Page = True
    schema_file: File | None = Field(None, alias="schema")

    @property
    def report_file(self) -> Path | None:
        """Where the report goes, if anywhere."""
        if isinstance(self.report, Path):
            return self.report
        return self.record.with_suffix(".html") if self.report else None


class StudyConfig(Part):
    """What every study is told; frozen.

    Parameters
    ----------
    study, data, result
        The tables of the file.
    party
        The ``[[party]]`` tables, if every party has a file of its own.
    ledgers
        ``[ledgers]``: the budget ledger of every party, by its name.
    policy
        ``[policy]``: what the owner of the rows wants.
    """

    study: StudySection = StudySection()
    data: DataSection
    party: Annotated[tuple[PartySection, ...], BeforeValidator(as_tuple)] = ()
    result: StudyResult
    ledgers: dict[str, File] = Field(default_factory=dict)
    policy: PolicySection = Field(default=PolicySection(), exclude=True)

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if (self.data.file is None) == (not self.party):
            raise fail(
                "rows must come from [[party]] tables or from file under [data]; got "
                f"{'both: keep one' if self.party else 'neither: add one'}"
            )
        refuse_repeats(tuple(party.name for party in self.party), "a party must be named once")
        if any(party.scheduler is not None for party in self.party):
            raise fail("scheduler must be left out of a study, whose rows are read here: remove it")
        result = self.result
        places = [party.file for party in self.party] + [self.data.file, self.data.schema_file]
        places += [*self.ledgers.values(), result.record, result.report_file, result.schema_file]
        refuse_repeats(
            tuple(str(place) for place in places if place),
            "results must not overwrite each other or the data",
            "change one",
        )
        return self

    def question(self, schema: Schema) -> StudyQuestion:
        """What is asked, of rows under a schema; refuses what has no public bounds or levels."""
        raise NotImplementedError

    def write_more(self, found: StudyAnswer) -> None:
        """Write what the study makes beside its record."""

    @property
    def preflight_file(self) -> Path:
        """Where the pre-flight says what looks wrong. As private as the rows."""
        return self.result.record.with_name(f"{self.result.record.name}.preflight")


AnyStudy = TypeVar("AnyStudy", bound=StudyConfig)


def load_study(path: str | Path, model: type[AnyStudy]) -> AnyStudy:
    """Read the configuration of a study; paths in it are relative to its folder."""
    return validated(model, load_toml(path, "study"), Path(path).parent, "study")


def study_schema(config: StudyConfig) -> Schema:
    """The schema as it applies to the files at hand."""
    return file_schema(load_schema(config.data.schema_file), config)


def rows_to_plan(config: StudyConfig) -> dict[str, int]:
    """The public number of rows of each party that the study reads, without reading its files."""
    told = {party.name: party.rows for party in config.party if party.rows is not None}
    # Who only plans needs no ledger yet.
    counts = told if config.party and len(told) == len(config.party) else declared_rows(config)
    return {name: Split(config.study.holdout).train_rows(count) for name, count in counts.items()}


def answer_files(config: StudyConfig, owner: Owner | None = None) -> StudyAnswer:
    """Do a study of the files of a configuration, charged to their ledgers; write the record.

    Parameters
    ----------
    config
        What is told.
    owner
        Who sits at a terminal, and alone is told what looks wrong with the rows.
    """
    schema, told = study_schema(config), config.study
    question = config.question(schema)
    _check_places(config)
    check_files(config, schema)
    split = Split(told.holdout)
    means = {**question.public, "reading": reading_word(config, schema)}
    about = StudyRows(config.ledgers, told.run_id, schema, split, means)

    def read() -> dict[str, Array]:
        return read_parties_rows(config, schema)

    def look() -> None:
        place, found = (
            config.preflight_file,
            partial(contradictions, config, schema, question.faults),
        )
        look_first(config, schema, place, owner, found)

    done = ask_rows(
        question,
        told.terms,
        read,
        about,
        parties=[party.name for party in config.party],
        noise=study_noise(told.simulation_key),
        before=look,
    )
    found = question.answer(done)
    if done.privacy.simulated and not config.ledgers:
        parts = ((split.train(len(rows)) or (0, len(rows)), rows) for rows in read().values())
        found = question.compared(found, [rows[slice(*part)] for part, rows in parts])
    write_study(config, found.record())
    config.write_more(found)
    return found


def contradictions(
    config: StudyConfig, schema: Schema, faults: Callable[[Array], Sequence[Fault]]
) -> dict[str, Sequence[Fault]]:
    """The faults in the rows of each party, though a file of all is counted as one."""
    return {name: faults(rows) for name, rows in read_parties_rows(config, schema).items()}


def read_parties_rows(config: StudyConfig, schema: Schema) -> dict[str, Array]:
    """The rows of every party."""
    if config.data.file is not None:
        found = study_rows_by_party(config.data.file, schema)
    else:
        found = {
            party.name: read_study_rows(Path(party.file), party_schema(schema, party))
            for party in config.party
        }
    declared = {party.name: party.rows for party in config.party if party.rows is not None}
    check_counts(found, declared)
    for name, rows in found.items():
        if not len(rows):
            raise DataError(f"party {name!r} must have at least one row; its file has none")
    if not found:
        raise DataError(f"{config.data.file} must have at least one row; got none")
    return found


def _check_places(config: StudyConfig) -> None:
    result = config.result
    places = {"record": result.record, "report": result.report_file, "schema": result.schema_file}
    if config.policy.preflight != "off":
        places["preflight"] = config.preflight_file
    for what, place in places.items():
        if place is not None:
            check_writable(place, what)


def write_study(config: StudyConfig, record: Mapping[str, Any]) -> None:
    """Write the record, whole or not at all."""
    with written_whole(config.result.record, "record") as file:
        file.write((json.dumps(record, indent=1) + "\n").encode())


def read_study(path: str | Path) -> dict[str, Any]:
    """Read a record that :func:`write_study` wrote."""
    from dpadmm.durable import FileRefusal, read_text

    try:
        content = json.loads(read_text(path))
    except (FileRefusal, ValueError) as error:
        raise ParameterError(f"record must be readable JSON; got {path}: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != 1 or "kind" not in content:
        raise ParameterError(f"{path} must be the record of a study; it is not.")
    return content
