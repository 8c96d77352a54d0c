"""A run from a configuration: files in, a model file and a record out.

Everything that can be refused is refused before a row is read: the configuration, the schema, the
parameters, the columns of every file, the places for the results. What a run gives away is the
model and figures that are functions of messages and public facts.

**Pre-flight.** Before anything is spent, rows are read once and counted. What looks wrong goes to a
file that only the owner of the rows may read, and to the terminal where that owner sits. It is in
no log, status, metric, record, report or message, and it changes nothing of a run: the owner's rule
(``[policy] preflight``) decides whether there is one.

* "ask": the owner is asked at the terminal. Without a terminal the run goes on: nobody has said
  that what rows hold may decide what others see.
* "stop": the run does not begin. Whoever waits for it sees that, and no budget covers it.
* "off": rows are not looked at.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from dpadmm.algorithms import get_algorithm
from dpadmm.data.encode import Survey, survey
from dpadmm.data.parts import list_parts
from dpadmm.data.schema import Schema, load_schema
from dpadmm.data.tables import (
    PartyRows,
    check_columns,
    encode_by_party,
    encode_party,
    encoded_batches,
)
from dpadmm.durable import FileRefusal, check_writable, read_json, written_whole
from dpadmm.errors import DataError, ParameterError, PreflightStop
from dpadmm.ledger.base import Ledger
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.plain import canonical_json
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.problem.rows import Shard, label_signs
from dpadmm.run.charges import Part, WholePlan, ledger_accounts, plan_whole
from dpadmm.run.config import (
    DataSection,
    PartySection,
    PolicySection,
    Preflight,
    RunConfig,
    RunSection,
    run_hash,
    training_parameters,
)
from dpadmm.run.engine import Checkpoint
from dpadmm.run.model import Model, ModelError, load_model, model_bytes
from dpadmm.run.options import PrivacyWarning, Wish
from dpadmm.run.plan import Plan
from dpadmm.run.result import RecordedRun, Run, provenance, read_record
from dpadmm.run.session import Charged, Session, lay_out, lay_out_both, noise_error
from dpadmm.solvers.cluster import Cluster, ClusterRows

#: The largest share of bad labels that does not look wrong.
MOST_BAD_LABELS: Final = 0.05
#: The largest share of a column's cells, but for missing ones, that may be no level or out of
#: bounds without looking wrong.
MOST_UNFIT_CELLS: Final = 0.5

#: The owner at a terminal: is shown lines and, where asked whether to go on, answers.
Owner: TypeAlias = Callable[[Sequence[str], bool], bool]

_PRIVATE: Final = (
    "Not covered by the privacy guarantee: do not share this. It is about private rows, and for "
    "the eyes of their owner alone."
)
_ADVICE: Final = (
    "Compare the file with the schema: how labels and levels are spelt, bounds, decimal, delimiter "
    "and missing_values."
)


class RowsConfig(Protocol):
    """What a configuration says of rows, whatever is done with them."""

    @property
    def data(self) -> DataSection:
        """``[data]``."""

    @property
    def party(self) -> tuple[PartySection, ...]:
        """``[[party]]``."""

    @property
    def ledgers(self) -> dict[str, Path]:
        """``[ledgers]``."""

    @property
    def policy(self) -> PolicySection:
        """``[policy]``."""


@dataclass(frozen=True)
class Fault:
    """So many of so many rows are, as words say, odd: or ``contradict`` themselves."""

    words: str
    count: int
    rows: int
    contradict: bool = True


#: What looks for faults in the rows of each party.
Faults: TypeAlias = Callable[[], Mapping[str, Sequence[Fault]]]


@dataclass(frozen=True)
class Findings:
    """What was found in the rows of a run; private, like the rows.

    Attributes
    ----------
    surveys
        What was counted, by the name of the party or of the one file of all.
    faults
        What contradicts itself, by the name of the party.
    """

    # Printing the object must not show what rows hold.
    surveys: Mapping[str, Survey] = field(repr=False)
    faults: Mapping[str, Sequence[Fault]] = field(default_factory=dict, repr=False)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What looks wrong, a sentence each; by the owner's rule it ends a run."""
        return (*self._told(_wrong), *self._faults(MOST_BAD_LABELS))

    @property
    def lines(self) -> tuple[str, ...]:
        """What its owner should know at once: what looks wrong, what is odd, levels not there."""
        wrong = tuple(f"LOOKS WRONG: {each}" for each in self.wrong)
        odd = (*self._faults(0.0, contradict=False), *self._told(_unused))
        return (*wrong, *((_ADVICE,) if wrong else ()), *odd)

    @property
    def text(self) -> str:
        """All of it, with the counts behind it."""
        lines = self.lines or ("Nothing looks wrong.",)
        counts = (*self._told(_counts), *self._faults(-1.0))
        return "\n".join((_PRIVATE, "", *lines, "", *counts)) + "\n"

    def _faults(self, beyond: float, *, contradict: bool = True) -> tuple[str, ...]:
        """Those whose share is larger, a sentence each."""
        return tuple(
            f"{who}: {each.count} of {each.rows} rows {each.words}."
            for who, found in self.faults.items()
            for each in found
            if each.contradict == contradict and each.count > beyond * each.rows
        )

    def _told(self, tell: Callable[[Survey], Iterator[str]]) -> tuple[str, ...]:
        return tuple(
            f"{who}: {told}." for who, found in self.surveys.items() for told in tell(found)
        )


def preflight(
    rule: Preflight, look: Callable[[], Findings], place: Path, owner: Owner | None
) -> None:
    """Look at the rows of a run that has not begun; end the run if the owner's rule says so.

    Parameters
    ----------
    rule
        The owner's (:class:`PolicySection`).
    look
        Reads the rows, of a run whose every public fact was checked.
    place
        The file for what is found; written whatever that is, unless nobody looks.
    owner
        Who sits at a terminal; None if nobody does.

    Raises
    ------
    PreflightStop
        If the rows look wrong, by the rule "stop" or the owner's answer.
    """
    if rule == "off":
        return
    found = look()
    wrong = bool(found.wrong)
    goes_on = tell_owner(found, place, owner, ask=wrong and rule == "ask")
    if wrong and (rule == "stop" or not goes_on):
        raise PreflightStop(
            "the pre-flight ended this run before it began, by its owner's rule (preflight under "
            f"[policy]). Nothing was charged or sent. {place} says why, to its owner alone."
        )


def tell_owner(found: Findings, place: Path, owner: Owner | None, *, ask: bool = False) -> bool:
    """Write the findings for the owner alone, and show them; return whether to go on."""
    with written_whole(place, "preflight", private=True) as file:
        file.write(found.text.encode())
    if owner is None or not found.lines:
        return True
    return owner((*found.lines, f"All counts are in {place}. {_PRIVATE}"), ask)


def _wrong(found: Survey) -> Iterator[str]:
    counts, rows = found.counts, found.counts.rows
    if found.bad_share > MOST_BAD_LABELS:
        first = next(iter(found.classes))
        yield (
            f"{counts.bad_labels} of {rows} labels ({found.bad_share:.1%}) are no class, and are "
            f"taken as {first!r}"
        )
    for name in found.unused_classes:
        yield f"no label says {name!r}"
    for name, cells in counts.columns.items():
        held, unfit = rows - cells.missing, cells.other + cells.clipped
        if rows and not held:
            yield f"column {name!r} is missing in all {rows} rows"
        elif unfit > MOST_UNFIT_CELLS * held:
            what = "no level" if cells.other else "outside the bounds"
            yield f"{unfit} of the {held} cells of column {name!r} are {what}"


def _unused(found: Survey) -> Iterator[str]:
    for name, levels in found.unused_levels.items():
        yield f"levels of column {name!r} that never occur: {', '.join(map(repr, levels))}"


def _counts(found: Survey) -> Iterator[str]:
    counts = found.counts
    yield f"{counts.rows} rows, {counts.ragged_rows} ragged lines, {counts.bad_labels} bad labels"
    for name, cells in counts.columns.items():
        yield (
            f"column {name!r}: {cells.missing} cells missing, {cells.other} no level, "
            f"{cells.clipped} outside the bounds"
        )


# So many that no sensible budget is refused for too few, and not so many that a solve would have to
# be more exact than rounding allows.
_VERY_MANY_ROWS: Final = 2**20
# Results that say whose they are.
_KNOW_THEIRS: Final = ("model", "record")


@dataclass(frozen=True)
class Watch:
    """Callbacks that follow a run; all but the owner's get public facts only.

    Attributes
    ----------
    on_stage, on_round
        Called with the name of a stage, and with how many rounds are done of how many.
    owner
        Who sits at a terminal, and alone is told what looks wrong with the rows; None for nobody.
    """

    on_stage: Callable[[str], None] = lambda stage: None
    on_round: Callable[[int, int], None] = lambda done, rounds: None
    owner: Owner | None = None


def prepare(config: RunConfig) -> Schema:
    """Check all that can be checked before a row is read; return the schema for the files."""
    schema = file_schema(load_schema(config.data.schema_file), config)
    result = config.result
    places = [("model", result.model), ("record", result.record)]
    places += [("report", result.report_file), ("checkpoint", result.checkpoint)]
    if config.policy.preflight != "off":
        places.append(("preflight", result.preflight_file))
    for what, place in places:
        if place is not None:
            check_writable(place, what)
    check_rows(config, schema)
    names = tuple(party.name for party in config.party)
    if not names and isinstance(config.run.topology, str):
        # Whose rows a common file holds is not known yet; any parties show a wrong parameter.
        told, options = config.run, config.run.algorithm_options
        given = [told.epsilon, told.delta, told.penalty]
        given += [options[name] for name in options if name != "start"]
        tables = [table for table in given if type(table) is dict]
        names = tuple(tables[0]) if tables else ("first", "second", "third", "fourth")
    rows = {party.name: party.rows for party in config.party}
    # Noise that does not shrink with the rows would be too large for the solves of very many.
    fixed = "noise_rate" in config.run.algorithm_options
    if names and not (fixed and None in map(rows.get, names)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            plan_config(config, schema, {name: rows.get(name) or _VERY_MANY_ROWS for name in names})
    return schema


def check_results(places: Mapping[str, Path | None], sha256: str) -> None:
    """Refuse to overwrite the results of another run; the same run may be repeated.

    Parameters
    ----------
    places
        Where results go, by their options under ``[result]``: a model and what is told of it.
    sha256
        The hash of the run.
    """
    there = {what: place for what, place in places.items() if place is not None and place.exists()}
    owners = {what: _run_of(what, place) for what, place in there.items() if what in _KNOW_THEIRS}
    for what, place in there.items():
        # A statement or a page does not say whose it is: it is that of the model beside it.
        owner = owners.get(what, sha256 if sha256 in owners.values() else "")
        if owner == sha256:
            continue
        whose = f"that of another run, {owner[:12]}" if owner else "not of this run"
        raise ParameterError(
            f"{what} under [result] must be a new file or one of this run, {sha256[:12]}; {place} "
            f"is {whose}, and is left as it is: name another file there, or move this one away."
        )


def _run_of(what: str, place: Path) -> str:
    """The hash of the run that left a result; empty where none is known."""
    with suppress(ModelError, ParameterError):
        if what == "model":
            return str(load_model(place).provenance.get("run_sha256", ""))
        return read_record(place).run_sha256
    with suppress(FileRefusal, AttributeError):
        # The record of a study between nodes.
        return str(read_json(place).get("run_sha256", ""))
    return ""


def _check_own_results(config: RunConfig, schema: Schema, rows: Mapping[str, int]) -> None:
    result = config.result
    places = {"model": result.model, "record": result.record, "report": result.report_file}
    check_results(places, run_hash(config, schema.sha256, rows))


def check_rows(config: RunConfig, schema: Schema) -> None:
    """Refuse files with other columns than the schema's, and clusters that are not ready."""
    check_files(config, schema)
    for party in config.party:
        if party.scheduler is not None:
            Cluster(party.scheduler).close()


def check_files(config: RowsConfig, schema: Schema) -> None:
    """Refuse files with other columns than the schema's, without reading a row."""
    if config.data.file is not None:
        check_columns(config.data.file, schema)
    for party in config.party:
        own = party_schema(schema, party)
        if party.scheduler is None:
            check_columns(Path(party.file), own)
        else:
            list_parts(str(party.file), own, rows=party.rows)


def spends_anew(config: RunConfig) -> str | None:
    """The warning before a private run is repeated without ledgers; None where none is due.

    The only sign it looks for are the files of an earlier run.
    """
    result, told = config.result, config.run
    left = [place for place in (result.model, result.record) if place is not None]
    earlier = next((place for place in left if place.exists()), None)
    continued = result.checkpoint is not None and result.checkpoint.exists()
    simulated = told.simulation_key is not None or not get_algorithm(told.algorithm).private
    if earlier is None or continued or simulated or config.ledgers:
        return None
    return (
        f"{earlier} is there from an earlier run, and no ledger counts what runs spend on the same "
        "rows: this run spends its epsilon anew, and what both guarantee adds up. Name a ledger "
        "for every party under [ledgers] (dpadmm ledger init) to have it counted."
    )


def declared_rows(config: RowsConfig) -> dict[str, int]:
    """The public number of rows of each party, from the configuration or its ledger alone.

    Raises
    ------
    ParameterError
        If a party's number is not declared: its file is not opened to count.
    """
    rows = {party.name: party.rows for party in config.party}
    for name, place in config.ledgers.items():
        with SQLiteLedger(place, read_only=True) as ledger:
            rows[name] = ledger.dataset.rows
    counts = {name: count for name, count in rows.items() if count is not None}
    if len(counts) < len(rows) or not rows:
        missing = ", ".join(name for name in rows if name not in counts) or "every party"
        raise ParameterError(
            f"rows must be declared, under [[party]] or in a ledger, to account a run without "
            f"reading its files; they are not for {missing}."
        )
    return counts


def train_run(config: RunConfig, watch: Watch | None = None) -> Run:
    """Train as a configuration says; :func:`write_results` then writes what it says.

    Raises
    ------
    ParameterError, DataError
        One sentence: what is wrong with the configuration, a file or the disk.
    PreflightStop
        If rows look wrong and their owner's rule or answer ends the run; nothing was charged.
    """
    watch = watch or Watch()
    start = time.monotonic()
    watch.on_stage("checking")
    schema = prepare(config)
    noise = run_noise(config)
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(config.result.model))
        counted, ledgers = _open_ledgers(config, schema, noise, stack, watch.owner)
        watch.on_stage("encoding")
        parties = read_parties(config, schema, folder, counted, stack)
        rows = {name: len(party) for name, party in parties.items()}
        _check_own_results(config, schema, rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            whole = plan_config(config, schema, rows)
        session, planned = run_session(config, schema, whole, noise), whole.training
        lay_out = partial(lay_out_part, planned, list(parties.values()), noise=noise)
        shard, evaluated = lay_out_both(config.run.wish, lay_out)
        # What was read is laid out now, and may be large.
        del parties, lay_out
        watch.on_stage("training")
        outcome = session.train(
            shard,
            ledgers,
            checkpoint=_checkpoint(config),
            on_round=lambda done, messages: watch.on_round(done, planned.rounds),
        )
        judged = None
        if evaluated is not None:
            watch.on_stage("evaluating")
            with warnings.catch_warnings(record=True) as later:
                warnings.simplefilter("always", PrivacyWarning)
                judged = session.evaluate_paid(outcome, evaluated)
            caught += later
    classifier = session.conclude(
        outcome, judged, classes=schema.classes, parties=planned.site.names
    )
    come_from = provenance(config, schema, rows, run_hash(config, schema.sha256, rows))
    return Run(
        config,
        Model(classifier, estimator_parameters(config.run, tuple(rows)), schema, come_from),
        planned.site.topology,
        warnings=tuple(str(warning.message) for warning in caught),
        seconds=None if planned.algorithm.private else time.monotonic() - start,
        noise_error=noise_error(planned, config.run.output, course=outcome.course),
    )


def lay_out_part(
    planned: Plan, parties: Sequence[PartyRows | ClusterRows], part: Part, noise: NoiseSource
) -> Shard:
    """Lay out a part of every party's rows."""
    read, parted = [], {}
    for place, party in enumerate(parties):
        first, stop = part(len(party)) or (0, len(party))
        if isinstance(party, ClusterRows):
            parted[place] = party.between(first, stop)
            continue
        signs = label_signs(party.labels[first:stop], planned.site.outputs)
        read.append((party.rows[first:stop], signs))
    return lay_out(planned, read, noise=noise, parted=parted)


def write_results(run: Run) -> RecordedRun:
    """Write the model and drop the checkpoint, then write the record; each whole or not at all.

    The model comes first: it is what the budget paid for, and the record describes it. The record
    is returned, whether or not it is written.
    """
    result = run.config.result
    data = model_bytes(run.model)
    with written_whole(result.model, "model") as file:
        file.write(data)
        file.flush()
        if result.checkpoint is not None:
            # Before any result has its name: a run that released its model must not go on from
            # here once more, with other noise.
            result.checkpoint.unlink(missing_ok=True)
    record = run.record(hashlib.sha256(data).hexdigest())
    if result.record is not None:
        record.write(result.record)
    return record


def file_schema(schema: Schema, config: RowsConfig) -> Schema:
    """The schema for these files, written as ``[data]`` says.

    Only a common file has a party column.
    """
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
    schema = Schema.from_dict(schema.model_dump() | {"party": wanted, "ignore": tuple(ignore)})
    return schema.read_as(config.data)


def party_schema(schema: Schema, party: PartySection) -> Schema:
    """The schema of :func:`file_schema` for the file of one party."""
    try:
        return schema.read_as(party)
    except DataError as error:
        raise DataError(f"party {party.name!r}: {error}") from None


def reading_word(config: RowsConfig, schema: Schema) -> str:
    """A word for what rows become: the schema and how the files are read, which no plan contains.

    A run is never continued under another word: its messages belong to rows that were read
    differently.

    Parameters
    ----------
    config
        What is told.
    schema
        That of :func:`file_schema`.
    """
    each = [party_schema(schema, party) for party in config.party] or [schema]
    content = canonical_json([schema.sha256, *(own.reading for own in each)])
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def plan_config(
    config: RunConfig, schema: Schema, rows: Mapping[str, int], wish: Wish | None = None
) -> WholePlan:
    """The run of a configuration, with its own evaluation unless another one is given."""
    return plan_whole(
        config.parameters(tuple(rows)),
        rows,
        features=len(schema.feature_names),
        least_constant=schema.least_constant,
        classes=len(schema.classes),
        wish=wish or config.run.wish,
    )


def run_name(config: RunConfig, schema: Schema, rows: Mapping[str, int]) -> str:
    """The name of the run in the ledgers."""
    return config.run.run_id or run_hash(config, schema.sha256, rows)


def _open_ledgers(
    config: RunConfig, schema: Schema, noise: NoiseSource, stack: ExitStack, owner: Owner | None
) -> tuple[dict[str, int], Sequence[Ledger] | None]:
    """Open the run in its ledgers, which know how many rows there are.

    Every refusal comes before a row is read. Unless the run has begun, the pre-flight looks at the
    rows before anything is written.
    """

    def look() -> None:
        if config.result.checkpoint is None or not config.result.checkpoint.exists():
            look_first(config, schema, config.result.preflight_file, owner)

    if not config.ledgers:
        look()
        return {}, None
    names = [party.name for party in config.party] or sorted(config.ledgers)
    for name in names:
        if name not in config.ledgers:
            raise ParameterError(f"[ledgers] must name every party's ledger; {name!r} has none.")
    accounts = ledger_accounts({name: config.ledgers[name] for name in names})
    rows = {name: account.dataset.rows for name, account in accounts.items()}
    _check_own_results(config, schema, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        whole = plan_config(config, schema, rows)
    session = run_session(config, schema, whole, noise)
    opened = session.charged(before=look, preparation=reading_word(config, schema))
    return rows, stack.enter_context(opened)


def run_session(config: RunConfig, schema: Schema, whole: WholePlan, noise: NoiseSource) -> Session:
    """The run of a configuration."""
    about = Charged(config.ledgers, run_name(config, schema, whole.rows), schema)
    return Session(whole, noise, about, config.run.output, config.run.simulation_key)


def run_noise(config: RunConfig) -> NoiseSource:
    """The source of noise of a configuration's run."""
    key = config.run.simulation_key
    return secure_noise() if key is None else SimulatedNoise(key)


def _checkpoint(config: RunConfig) -> Checkpoint | None:
    result = config.result
    if result.checkpoint is None:
        return None
    return Checkpoint(result.checkpoint, every=result.checkpoint_every)


def estimator_parameters(run: RunSection, names: Sequence[str]) -> dict[str, Any]:
    """What the run was asked for, as the estimator names it."""
    apart = {"tolerance", "simulation_key", "run_id", "evaluate"}
    parameters = run.model_dump(exclude=apart)
    parameters["topology"] = training_parameters(run, tuple(names)).topology
    # Encoded rows have norm 1 at most and a constant of their own, if any.
    encoded = {"n_parties": len(names), "fit_intercept": False, "data_norm": 1.0}
    encoded["intercept_scale"] = 1.0
    parameters |= encoded | {"random_state": run.simulation_key}
    parameters |= {name: getattr(run, name) for name in ("holdout", "probabilities")}
    return dict(sorted(parameters.items()))


def read_party(
    party: PartySection, schema: Schema, folder: Path, stack: ExitStack
) -> PartyRows | ClusterRows:
    """The rows of a party with a file of its own, here or on its cluster.

    Parameters
    ----------
    party, schema
        What is told.
    folder
        Where rows that are encoded here are written.
    stack
        Leaves the cluster.
    """
    own = party_schema(schema, party)
    if party.scheduler is None:
        return encode_party(Path(party.file), own, folder)
    parts = list_parts(str(party.file), own, rows=party.rows)
    return stack.enter_context(Cluster(party.scheduler)).hold(parts, own)


def read_parties(
    config: RunConfig, schema: Schema, folder: Path, counted: dict[str, int], stack: ExitStack
) -> dict[str, PartyRows | ClusterRows]:
    """The rows of every party; how many there are is public, and ``counted`` in its ledger."""
    parties: dict[str, PartyRows | ClusterRows]
    if config.data.file is not None:
        parties = dict(encode_by_party(config.data.file, schema, folder))
    else:
        parties = {party.name: read_party(party, schema, folder, stack) for party in config.party}
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
        found, said = len(party), declared.get(name)
        if not found:
            raise DataError(f"party {name!r} must have at least one row; its file has none")
        if said is not None and said != found:
            raise DataError(
                f"party {name!r} must have the rows that it or its ledger declares, {said}; its "
                f"file has {found}: correct one"
            )
    return parties


def look_at_rows(config: RowsConfig, schema: Schema) -> Findings:
    """Read the rows of every party once and count what they contain, for their owner alone."""
    if config.data.file is not None:
        batches = encoded_batches(config.data.file, schema)
        return Findings({config.data.file.name: survey(batches, schema)})
    found = {}
    for party in config.party:
        own = party_schema(schema, party)
        if party.scheduler is None:
            found[party.name] = survey(encoded_batches(Path(party.file), own), own)
        else:
            parts = list_parts(str(party.file), own, rows=party.rows)
            with Cluster(party.scheduler) as cluster:
                found[party.name] = cluster.survey(parts, own)
    return Findings(found)


def look_first(
    config: RowsConfig,
    schema: Schema,
    place: Path,
    owner: Owner | None,
    faults: Faults = dict,
) -> None:
    """The pre-flight of a run that has not begun (:func:`~dpadmm.run.files.preflight`)."""

    def look() -> Findings:
        return replace(look_at_rows(config, schema), faults=faults())

    preflight(config.policy.preflight, look, place, owner)


@contextmanager
def work_folder(model: Path) -> Iterator[Path]:
    """A folder beside the model for encoded rows; one that a killed run left is emptied.

    In a shared folder somebody else may have put it there, or made it a link: it is then refused,
    and nothing is removed.
    """
    folder = model.with_name(f".{model.name}.rows")
    try:
        found = os.path.lexists(folder)
        folder.mkdir(mode=0o700, exist_ok=found)
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError as error:
        raise DataError(
            f"model must be in a folder that can be written; got {model}: {error.strerror} "
            f"({folder.name})"
        ) from None
    try:
        # Of one that was made here the file system decides: some know neither users nor modes.
        status = os.fstat(handle)
        if found and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
            raise DataError(
                f"{folder} must be private to the user who runs this, for encoded rows; it is not: "
                "remove it, or write the model elsewhere"
            )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"model must be written by one run at a time; another is at work on {model}"
            ) from None
        try:
            for left in os.listdir(handle):
                os.unlink(left, dir_fd=handle)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
