"""The typed configuration of a run, from a ``run.toml``.

A configuration says what is trained (``[run]``), on whose rows (``[data]`` and ``[[party]]``) and
where the results go (``[result]``). Paths are relative to the file. What is wrong with it is said
in one sentence, before a row is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from dpadmm.algorithms import algorithm_names, get_algorithm
from dpadmm.algorithms.base import Course, as_course
from dpadmm.data.values import Reading
from dpadmm.durable import FileRefusal, read_text
from dpadmm.errors import ParameterError, fail, finding, refuse_repeats, shown_value, unknown_name
from dpadmm.plain import Name, Part, as_tuple, canonical_json
from dpadmm.run.options import (
    ALGORITHM,
    ALGORITHM_ROUNDS,
    AUTO,
    DEFAULT,
    MOST_ROUNDS,
    Split,
    TrainingParameters,
    Wish,
    documented,
    too_many_rounds,
)
from dpadmm.run.plan import chosen_algorithm
from dpadmm.solvers.cluster import check_scheduler
from dpadmm.version import NUMBERS_FORMAT

RUN_HASH_PREFIX: Final = "dpadmm-run/1"
#: What to do where rows look wrong before anything is spent.
Preflight: TypeAlias = Literal["ask", "stop", "off"]
Edge: TypeAlias = tuple[int, int] | tuple[str, str]


def _number_or_table(value: Any) -> Any:
    """A number for all parties, or a table of party names; a union would give two complaints."""
    numbers = value.values() if isinstance(value, dict) else [value]
    if not numbers or not all(_is_number(number) for number in numbers):
        raise fail(
            "must be a number, or a table with a number for every party; "
            f"got {shown_value(value)}: correct it"
        )
    return {str(k): float(n) for k, n in value.items()} if isinstance(value, dict) else float(value)


def _is_number(value: Any) -> bool:
    # A whole number in a TOML file may be too large for a float.
    small = not isinstance(value, int) or abs(value) < 2**1000
    return isinstance(value, (int, float)) and not isinstance(value, bool) and small


def _course_or_auto(value: Any) -> Any:
    if value == "auto":
        return value
    if _is_number(value):
        return float(value)
    try:
        return as_course("penalty", value if isinstance(value, list | dict) else None)
    except ParameterError:
        raise fail(
            'must be a number, "auto", a list with a positive number for each round, or a table '
            f"with either for every party; got {shown_value(value)}: correct it"
        ) from None


def _whole_number(value: Any) -> Any:
    """A number of rounds; "auto" was replaced before."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise fail(f'must be a whole number or "auto"; got {shown_value(value)}: correct it')
    if value > MOST_ROUNDS:
        raise fail(too_many_rounds(value))
    return value


def _name_or_edges(value: Any) -> Any:
    if isinstance(value, str):
        return value
    # Pairs that were checked before are tuples: a study hands them on.
    good = isinstance(value, list | tuple) and all(
        isinstance(edge, list | tuple)
        and len(edge) == 2
        and type(edge[0]) is type(edge[1])
        and type(edge[0]) in (int, str)
        for edge in value
    )
    if not good:
        raise fail(
            "must be a name, or a list of pairs of parties (two names or two numbers); "
            f"got {shown_value(value)}: correct it"
        )
    return tuple(tuple(edge) for edge in value)


def _resolved(value: Any, info: ValidationInfo) -> Any:
    """A path relative to the configuration file."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise fail(f"must be the path of a file; got {shown_value(value)}: correct it")
    folder = info.context["folder"] if info.context else Path()
    # Two ways to write one path must not pass for two files.
    return Path(os.path.normpath(folder / value))


def _resolved_or_not(value: Any, info: ValidationInfo) -> Any:
    return value if isinstance(value, bool) else _resolved(value, info)


def _resolved_or_address(value: Any, info: ValidationInfo) -> Any:
    """A path, or an address of a file system elsewhere, which stays as it is."""
    return value if isinstance(value, str) and "://" in value else _resolved(value, info)


def _scheduler(value: Any) -> Any:
    try:
        return check_scheduler(value)
    except ParameterError as error:
        raise fail(str(error).removeprefix("scheduler ")) from None


BudgetSetting = Annotated[float | dict[str, float], BeforeValidator(_number_or_table)]
Rounds = Annotated[int, BeforeValidator(_whole_number)]
PenaltySetting = Annotated[str | Course, BeforeValidator(_course_or_auto)]
Edges = Annotated[str | tuple[Edge, ...], BeforeValidator(_name_or_edges)]
File = Annotated[Path, BeforeValidator(_resolved)]
RowsPlace = Annotated[Path | str, BeforeValidator(_resolved_or_address)]
Scheduler = Annotated[str, BeforeValidator(_scheduler)]
Page = Annotated[Path | bool, BeforeValidator(_resolved_or_not)]


@documented
class RunSection(Part):
    """``[run]``: what is trained; the parameters of :class:`~dpadmm.estimators.ADMMClassifier`.

    <options>
    """

    algorithm: str = DEFAULT.algorithm
    epsilon: BudgetSetting = DEFAULT.epsilon
    delta: BudgetSetting = DEFAULT.delta
    calibration: str = DEFAULT.calibration
    topology: Edges = DEFAULT.topology
    rounds: Rounds = ALGORITHM_ROUNDS
    penalty: PenaltySetting = DEFAULT.penalty
    regularization: float = DEFAULT.regularization
    party_weight: str = DEFAULT.party_weight
    loss: str = DEFAULT.loss
    rows_per_person: int = DEFAULT.rows_per_person
    output: Literal["auto", "last", "tail", "mean"] = DEFAULT.output
    tolerance: float | None = DEFAULT.tolerance
    algorithm_options: dict[str, Any] = Field(default_factory=dict)
    simulation_key: Annotated[int, Field(ge=0)] | None = DEFAULT.simulation_key
    run_id: Name | None = DEFAULT.run_id
    holdout: Annotated[float, Field(ge=0, lt=1)] = DEFAULT.holdout
    evaluate: bool = DEFAULT.evaluate
    probabilities: bool = DEFAULT.probabilities
    _algorithm_chosen: bool = PrivateAttr(False)

    @property
    def algorithm_chosen(self) -> bool:
        """Whether nobody named the algorithm: it was chosen."""
        return self._algorithm_chosen

    @property
    def wish(self) -> Wish:
        """The evaluation asked for with the training."""
        return Wish(Split(self.holdout), self.evaluate, self.probabilities)

    @model_validator(mode="after")
    def _check_wish(self) -> Self:
        try:
            # Refuses what does not go together.
            _ = self.wish
        except ParameterError as error:
            raise fail(str(error)) from None
        return self

    @model_serializer(mode="wrap")
    def _without_what_nobody_asked(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what nobody asked for, so that hashes of runs without it stay as they were."""
        content: dict[str, Any] = write(self)
        for name in ("holdout", "evaluate", "probabilities"):
            if not content.get(name, True):
                del content[name]
        return content

    @model_validator(mode="wrap")
    @classmethod
    def _settle(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Decide here what "auto" leaves open: hashes, records and models tell what it was."""
        if not isinstance(content, dict):
            return handler(content)
        content = {"rounds": AUTO, **content}
        chosen = content.get("algorithm") == AUTO
        if chosen:
            content["algorithm"] = _chosen_algorithm(content)
        if content["rounds"] == AUTO:
            name = content.get("algorithm", ALGORITHM)
            # Where the name is none, that is refused in a sentence of its own.
            known = name if name in algorithm_names() else ALGORITHM
            content["rounds"] = get_algorithm(known).default_rounds
        section = handler(_settled_loss(content))
        section._algorithm_chosen = chosen
        return section


def _chosen_algorithm(table: dict[str, Any]) -> str:
    """The algorithm that "auto" stands for in a ``[run]`` table."""
    try:
        return chosen_algorithm(table.get("calibration", DEFAULT.calibration))
    except ParameterError as error:
        raise fail(str(error)) from None


def _settled_loss(table: dict[str, Any]) -> dict[str, Any]:
    """A ``[run]`` table with the loss and the kind of noise decided."""
    try:
        told = TrainingParameters(
            table.get("algorithm", ALGORITHM),
            loss=table.get("loss", DEFAULT.loss),
            calibration=table.get("calibration", DEFAULT.calibration),
            algorithm_options=table.get("algorithm_options", {}),
        ).settled()
    except (ParameterError, TypeError):
        # Refused later, in a sentence of its own.
        return table
    return {**table, "loss": told.loss, "algorithm_options": told.algorithm_options}


class DataSection(Reading):
    """``[data]``: how rows are read.

    The keys of :class:`~dpadmm.data.values.Reading` say how files are written that do not follow
    the schema's.

    Parameters
    ----------
    schema_file
        ``schema``: the public description of the columns.
    file
        One file with the rows of all parties; without it there are ``[[party]]`` tables.
    party_column
        The column of that file that says whose row it is; the schema's unless given.
    """

    schema_file: File = Field(alias="schema")
    file: File | None = None
    party_column: Name | None = None

    @model_validator(mode="after")
    def _check(self) -> DataSection:
        if self.party_column is not None and self.file is None:
            raise fail("party_column needs file, the one file with all rows; got no file")
        return self


class PartySection(Reading):
    """``[[party]]``: a party with a file of its own.

    The keys of :class:`~dpadmm.data.values.Reading` say how the file is written, if not as
    ``[data]`` and the schema say.

    Parameters
    ----------
    name
        Its public name.
    file
        Its rows: a file or, with a scheduler, a folder of Parquet files, which may be an address
        that ``fsspec`` knows.
    scheduler
        ``tls://host:port`` of the party's own Dask cluster, which then reads and keeps the rows.
    rows
        Its public number of rows; a file with another number is refused.
    """

    name: Name
    file: RowsPlace
    rows: Annotated[int, Field(ge=1)] | None = None
    # Where a party's machines are is nobody's business: not in records, not in models.
    scheduler: Scheduler | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> PartySection:
        if self.scheduler is None and isinstance(self.file, str):
            raise fail(
                f"file must be the path of a file unless a scheduler is given; got "
                f"{shown_value(self.file)}: add scheduler, or correct it"
            )
        if self.scheduler is not None and self.delimiter is not None:
            raise fail("delimiter must be left out with a scheduler: parts are Parquet files")
        return self


class ResultSection(Part):
    """``[result]``: where results go.

    Parameters
    ----------
    model
        The model file.
    record
        The run record (JSON); none unless given.
    report
        The page to read (HTML): its place, or false for none. Beside the model unless given.
    checkpoint
        Where a long run saves itself, to be continued after a crash. As private as the rows.
    checkpoint_every
        How many rounds lie between two saves.
    """

    model: File
    record: File | None = None
    report: Page = True
    checkpoint: File | None = None
    checkpoint_every: Annotated[int, Field(ge=1)] = 10

    @property
    def report_file(self) -> Path | None:
        """Where the report goes, if anywhere."""
        if isinstance(self.report, Path):
            return self.report
        return self.model.with_suffix(".html") if self.report else None

    @property
    def preflight_file(self) -> Path:
        """Where the pre-flight says what looks wrong. As private as the rows."""
        return self.model.with_name(f"{self.model.name}.preflight")


class PolicySection(Part):
    """``[policy]``: what the owner of the rows wants; nobody else sees it.

    Parameters
    ----------
    preflight
        What to do where the rows look wrong before anything is spent: "ask" on a terminal, and go
        on without one; "stop"; or "off", which does not look.
    """

    preflight: Preflight = "ask"


class RunConfig(Part):
    """Everything that a run is told; frozen.

    Parameters
    ----------
    run, data, result
        The tables of the file.
    party
        The ``[[party]]`` tables, if every party has a file of its own.
    ledgers
        ``[ledgers]``: the budget ledger of every party, by its name. Without it nothing counts
        what other runs have spent on the same rows.
    policy
        ``[policy]``: what the owner of the rows wants; in no record and no model.
    """

    run: RunSection = RunSection()
    data: DataSection
    party: Annotated[tuple[PartySection, ...], BeforeValidator(as_tuple)] = ()
    result: ResultSection
    ledgers: dict[str, File] = Field(default_factory=dict)
    policy: PolicySection = Field(default=PolicySection(), exclude=True)

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if self.data.file is None and not self.party:
            raise fail(
                "parties must be given; got none: add [[party]] tables with name = ... and "
                "file = ..., or one file with a party column under [data]"
            )
        if self.data.file is not None and self.party:
            raise fail(
                "rows must come from [[party]] tables or from file under [data]; got both: keep one"
            )
        names = tuple(party.name for party in self.party)
        refuse_repeats(names, "a party must be named once", "change one")
        inputs = [str(party.file) for party in self.party]
        refuse_repeats(tuple(inputs), "every party must have a file of its own", "change one")
        inputs += [str(file) for file in (self.data.schema_file, self.data.file) if file]
        for name in self.ledgers if self.party else ():
            if name not in names:
                raise fail(f"[ledgers] must name parties of this run; got {name!r}: correct it")
        inputs += [str(file) for file in self.ledgers.values()]
        result = self.result
        outputs = [result.model, result.record, result.report_file, result.checkpoint]
        outputs += [result.preflight_file]
        refuse_repeats(
            (*inputs, *(str(file) for file in outputs if file)),
            "results must not overwrite each other or the data",
            "change one",
        )
        return self

    @classmethod
    def from_dict(cls, content: dict[str, Any], folder: Path = Path()) -> RunConfig:
        """Build a configuration from plain data; what is wrong is said in one sentence."""
        return validated(cls, content, folder, "configuration")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files with rows; what a cluster reads is not among them."""
        if self.data.file is not None:
            return (self.data.file,)
        return tuple(
            party.file
            for party in self.party
            if isinstance(party.file, Path) and party.scheduler is None
        )

    def parameters(self, names: Sequence[str]) -> TrainingParameters:
        """What :func:`dpadmm.run.plan.plan` takes, for parties of these names."""
        return training_parameters(self.run, names)

    def plain(self) -> dict[str, Any]:
        """The configuration as data for machines, with the names of files but no folders."""
        content: dict[str, Any] = plain_data(self.model_dump(by_alias=True, exclude_none=True))
        return content


AnyPart = TypeVar("AnyPart", bound=Part)


def validated(model: type[AnyPart], content: dict[str, Any], folder: Path, what: str) -> AnyPart:
    """Build a part of a configuration, or refuse it in one sentence.

    Parameters
    ----------
    model, content
        What to build, from which plain data.
    folder
        Paths are relative to it.
    what
        How a refusal calls it.
    """
    try:
        return model.model_validate(content, context={"folder": folder})
    except ValidationError as error:
        raise ParameterError(
            f"{what}: " + finding(error, partial(_place, content, model))
        ) from None


def training_parameters(run: RunSection, names: Sequence[str]) -> TrainingParameters:
    """What :func:`dpadmm.run.plan.plan` takes, for parties of these names."""
    known = {field.name for field in dataclasses.fields(TrainingParameters)}
    values = {name: getattr(run, name) for name in known - {"topology"}}
    return TrainingParameters(topology=_numbered(run.topology, names), **values)


def _numbered(topology: str | tuple[Edge, ...], names: Sequence[str]) -> Any:
    """Edges by number; the file may name parties or number them."""
    if isinstance(topology, str):
        return topology
    numbers = {name: number for number, name in enumerate(names)}
    edges = []
    for edge in topology:
        for end in edge:
            if isinstance(end, str) and end not in numbers:
                raise unknown_name("topology's parties", end, names)
        edges.append(tuple(numbers[end] if isinstance(end, str) else end for end in edge))
    return edges


def plain_data(value: Any) -> Any:
    """Data for machines: names of files without their folders, lists for tuples."""
    if isinstance(value, Path):
        return value.name
    if isinstance(value, str) and "://" in value:
        return value.rstrip("/").rpartition("/")[2]
    if isinstance(value, Mapping):
        return {key: plain_data(item) for key, item in value.items()}
    return [plain_data(item) for item in value] if isinstance(value, (list, tuple)) else value


def _place(content: dict[str, Any], model: type[Part], location: tuple[int | str, ...]) -> str:
    """Where a finding is: "epsilon under [run]", parties by their name."""
    items = list(location)
    if not items:
        return ""
    if len(items) > 1 and isinstance(items[1], int):
        kind = str(items[0])
        entry = content[kind][items[1]]
        name = entry.get("name") if isinstance(entry, dict) else None
        shown = shown_value(name) if name else f"number {items[1] + 1}"
        inside = ", ".join(str(item) for item in items[2:])
        return f"{inside} of {kind} {shown}" if inside else f"{kind} {shown}"
    if len(items) == 1:
        return f"[{items[0]}]" if items[0] in _tables(model) else str(items[0])
    return f"{'.'.join(str(item) for item in items[1:])} under [{items[0]}]"


def _tables(model: type[Part]) -> set[str]:
    """The keys of a file that are tables."""
    plain = (str, Path, int, float)
    return {name for name, field in model.model_fields.items() if field.annotation not in plain}


def load_config(path: str | Path, run: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a ``run.toml``; paths in it are relative to its folder.

    Parameters
    ----------
    path
        The file.
    run
        What stands instead of entries of its ``[run]`` table, as if the file said it.

    Raises
    ------
    ParameterError
        If the file cannot be read or is no valid configuration.
    """
    content = load_toml(path, "configuration")
    told = content.get("run", {})
    if run and isinstance(told, dict):
        content["run"] = told | dict(run)
    return RunConfig.from_dict(content, Path(path).parent)


def load_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Read a TOML file; a refusal calls it ``what``."""
    path = Path(path)
    try:
        return tomllib.loads(read_text(path))
    except FileRefusal as error:
        raise ParameterError(f"{what} must be a readable UTF-8 file; got {path}: {error}") from None
    # A number of thousands of digits is a ValueError of its own.
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{what} must be valid TOML; got {path}: {error}") from None


def with_own(content: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in which the owner's entries take the place of those of the same name."""
    joined = dict(content)
    for name, told in own.items():
        before = joined.get(name)
        if isinstance(told, dict) and isinstance(before, dict):
            told = {**before, **told}
        joined[name] = told
    return joined


def run_hash(config: RunConfig, schema_sha256: str, rows: Mapping[str, int]) -> str:
    """The sha256 of everything public that decides a run.

    Parameters
    ----------
    config
        Its ``[run]`` table counts; names of files do not.
    schema_sha256
        How rows are encoded.
    rows
        Public number of rows of each party, in the order of the parties.
    """
    content = {
        "format": RUN_HASH_PREFIX,
        "numbers": NUMBERS_FORMAT,
        "run": plain_data(config.run.model_dump()),
        "schema_sha256": schema_sha256,
        "parties": [[name, count] for name, count in rows.items()],
    }
    text = canonical_json(content, allow_nan=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
