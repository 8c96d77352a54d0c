"""What a node is told: the run that all agree on, and its owner's own configuration.

The ``agreed.toml`` is the same at every node (:class:`AgreedRun`). Everything in it is public and
decides what is computed: what is trained, by whom, on how many rows each, over which links.

The ``node.toml`` is the owner's (:class:`NodeConfig`). It says who the node is, where its rows,
keys and ledger are, what its owner is ready to spend and whom it talks to. Nothing in it comes from
anybody else, and no one else sees it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from dpadmm.algorithms import reviewed
from dpadmm.algorithms.summed_gaussian import default_colluders
from dpadmm.data.schema import Schema
from dpadmm.data.values import Reading, Spelling
from dpadmm.errors import ParameterError, fail, refuse_repeats
from dpadmm.federation.agreed_study import (
    STUDY_TABLES,
    AgreedStudy,
    Regressing,
    Wishes,
    plan_asked,
    question_of,
    run_of_study,
)
from dpadmm.federation.identity import check_identity, check_node_name, read_certificate
from dpadmm.federation.pins import Fingerprint, Pinned
from dpadmm.federation.transport.session import Security, check_loopback, split_address
from dpadmm.federation.transport.wire import LONGEST_FACTS, MOST_NUMBERS, check_numbers, ends_of
from dpadmm.plain import Name, Names, Part, as_tuple, canonical_json
from dpadmm.privacy.figures import Given
from dpadmm.problem.site import SpanningTree
from dpadmm.run.charges import WholePlan, plan_whole
from dpadmm.run.config import (
    File,
    Page,
    Preflight,
    RowsPlace,
    RunSection,
    Scheduler,
    load_toml,
    plain_data,
    training_parameters,
    validated,
    with_own,
)
from dpadmm.run.options import CALIBRATIONS
from dpadmm.run.plan import Plan
from dpadmm.version import NUMBERS_FORMAT

# How nodes talk before and beside the rounds: raised when a message of theirs changes.
FORMAT: Final = "dpadmm-federation/4"
_SPELLING: Final[dict[str, bool]] = dict.fromkeys(Spelling.model_fields, True)
_OWN_AFFAIR: Final[dict[str, Any]] = {
    **dict.fromkeys(("party", "ignore", "missing_marks"), True),
    "label": _SPELLING,
    "columns": {"__all__": _SPELLING},
}
# What a node says about all its neighbours fits into one JSON message.
_MOST_NODES: Final = 2000


def _node_name(value: Any) -> Any:
    try:
        return check_node_name(value)
    except ParameterError as error:
        raise fail(f"must be the name of a node: {error}") from None


NodeName = Annotated[str, BeforeValidator(_node_name)]


class AgreedParty(Part):
    """``[[party]]``: who takes part.

    Parameters
    ----------
    name
        The common name of its certificate.
    rows
        Its public number of rows.
    """

    name: NodeName
    rows: Annotated[int, Field(ge=1)]


class AgreedRun(Part):
    """What is trained, or asked, by whom; the same at every node.

    Parameters
    ----------
    study, wish, infer
        ``[study]`` and what it asks, in place of ``[run]``: nothing is trained.
    run
        ``[run]`` as in a ``run.toml``. ``run_id`` must be given: ledgers know the run by it.
    party
        The ``[[party]]`` tables; their order numbers the parties.
    schema_sha256
        The sha256 of the schema that encodes everybody's rows (``dpadmm schema check --json``);
        without it nodes compare the schemas they have.
    server
        With ``topology = "server"``: the node without rows that averages. Without it every party
        hears all others and averages itself.
    simulation
        Every party's noise can be drawn again. With own noise that is each node's own business;
        whoever shares noise counts on that of the others.
    revoked
        The signed parts (sha256) of certificates that count for nothing.
    rotation
        Who is changing its certificate: the sha256 of the present and of the next one, either of
        which counts.
    """

    study: AgreedStudy | None = None
    wish: Wishes = Field(default=(), validate_default=True)
    infer: Regressing = Field(default=None, validate_default=True)
    run: Annotated[RunSection, BeforeValidator(run_of_study)] = Field(
        default=cast(RunSection, None), validate_default=True
    )
    party: Annotated[tuple[AgreedParty, ...], BeforeValidator(as_tuple)]
    schema_sha256: Name | None = None
    server: NodeName | None = None
    simulation: bool = False
    revoked: Annotated[tuple[Fingerprint, ...], BeforeValidator(as_tuple)] = ()
    rotation: Annotated[
        dict[NodeName, Annotated[tuple[Fingerprint, Fingerprint], BeforeValidator(as_tuple)]],
        Field(default_factory=dict),
    ]

    @model_validator(mode="after")
    def _check(self) -> AgreedRun:
        if self.run.run_id is None:
            raise fail("run_id under [run] must be given: ledgers know the run by it; got nothing")
        if self.run.simulation_key is not None:
            raise fail(
                "simulation_key under [run] must not be agreed on: nobody chooses the noise of "
                "another; a node that simulates says so in its own node.toml"
            )
        if len(self.party) < 2:
            raise fail(f"there must be at least two [[party]] tables; got {len(self.party)}")
        if len(self.nodes) > _MOST_NODES:
            raise fail(f"there must be at most {_MOST_NODES} nodes; got {len(self.nodes)}")
        refuse_repeats(self.nodes, "a node must be named once", "change one")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in their order."""
        return tuple(party.name for party in self.party)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The parties, and the server if there is one."""
        return self.names if self.server is None else (*self.names, self.server)

    @property
    def rows(self) -> dict[str, int]:
        """Public number of rows of each party."""
        return {party.name: party.rows for party in self.party}

    def facts(self, schema: Schema) -> dict[str, Any]:
        """Everything public that must be the same at every node."""
        # How a party's own file names parties and spells levels, and which columns it has besides,
        # is its own affair.
        columns = schema.model_dump(mode="json", exclude=_OWN_AFFAIR)
        agreed = {
            "format": FORMAT,
            "numbers": NUMBERS_FORMAT,
            "run": plain_data(self.run.model_dump(exclude={"simulation_key"})),
            "party": {party.name: {"rows": party.rows} for party in self.party},
            "order": list(self.names),
            "server": self.server,
            "schema_sha256": schema.sha256,
            "schema": plain_data(columns),
        }
        if self.study is not None:
            agreed |= plain_data(self.model_dump(include=STUDY_TABLES, exclude_defaults=True))
        if self.colluders is not None:
            agreed["colluders"] = self.colluders
        if self.simulation:
            agreed["simulation"] = True
        # Unsaid where there is nothing: hashes of runs without stay as they were.
        if self.revoked:
            agreed["revoked"] = sorted(self.revoked)
        if self.rotation:
            agreed["rotation"] = plain_data(self.rotation)
        return agreed

    def told(self, schema: Schema) -> dict[str, Any]:
        """The facts as nodes send them; a hash takes the place of a schema that is too long."""
        agreed = self.facts(schema)
        if len(json.dumps(agreed)) > LONGEST_FACTS:
            columns = canonical_json(agreed["schema"]).encode("ascii")
            agreed["schema"] = f"sha256 {hashlib.sha256(columns).hexdigest()}"
        length = len(json.dumps(agreed))
        if length > LONGEST_FACTS:
            raise ParameterError(
                f"the agreed run must be at most {LONGEST_FACTS} bytes, its schema left out; got "
                f"{length}. Give one number for all parties where each has its own, or "
                "shorten their names. Nothing was read or spent."
            )
        return agreed

    @property
    def colluders(self) -> int | None:
        """How many parties shared noise must hold against, given or not; None with own noise."""
        options = self.run.algorithm_options
        if options.get("noise") != "shared":
            return None
        given = options.get("colluders")
        return default_colluders(len(self.party)) if given is None else int(given)

    def digest(self, schema: Schema) -> bytes:
        """The run's 32 bytes, which every message carries."""
        text = canonical_json(self.facts(schema), allow_nan=True)
        return hashlib.sha256(text.encode("ascii")).digest()

    def plan(self, schema: Schema) -> Plan:
        """The plan of all parties; refuses what does not fit together."""
        return self.whole(schema).training

    def whole(self, schema: Schema) -> WholePlan:
        """The plan of all parties, with its evaluation."""
        classes, features = len(schema.classes), len(schema.feature_names)
        if self.study is not None:
            whole = plan_asked(question_of(self, schema), self.run, self.rows, classes)
            check_numbers(1, whole.training.site.features)
        else:
            check_numbers(1 if classes == 2 else classes, features)
            whole = plan_whole(
                training_parameters(self.run, self.names),
                self.rows,
                features=features,
                least_constant=schema.least_constant,
                classes=classes,
                wish=self.run.wish,
            )
        topology, algorithm = whole.training.site.topology, whole.training.algorithm
        one_model = topology.server or topology.complete or algorithm.hears_everybody
        if whole.terms is not None and not one_model:
            raise ParameterError(
                "topology must be 'server' or 'complete' with evaluate or probabilities for the "
                f"algorithm {algorithm.name!r}, with which nodes of other graphs have models of "
                f"their own; got {topology.name!r}. Change it, use dp-gd, or train without and "
                "evaluate on public rows with dpadmm evaluate MODEL --public FILE."
            )
        self._check_parts(whole)
        if self.server is not None and not topology.server:
            raise ParameterError(
                f"server must be left out with the topology {topology.name!r}; got {self.server!r}."
            )
        return whole

    def tree(self, planned: Plan) -> SpanningTree | None:
        """How sums travel between parties that do not all hear each other; None if none need to."""
        topology = planned.site.topology
        if topology.server or topology.complete or not planned.algorithm.hears_everybody:
            return None
        return SpanningTree.of(topology, self.names)

    def _check_parts(self, whole: WholePlan) -> None:
        """Refuse noise of each party's own where too much would travel to the root of a tree."""
        training = whole.training
        if training.algorithm.summation is not None or self.tree(training) is None:
            return
        _, _, outputs, features = training.site.shape
        numbers = outputs * features * len(self.party)
        if numbers > MOST_NUMBERS:
            raise ParameterError(
                f"parties x outputs x features must be at most {MOST_NUMBERS} with noise = 'own' "
                f"and the topology {training.site.topology.name!r}, where messages travel to the "
                f"root of a tree one by one; got {numbers}. Use noise = 'shared', or a server. "
                "Nothing was read or spent."
            )

    def without(self, lost: str, planned: Plan) -> AgreedRun:
        """The run without a node, or a link, over those that are left; refused where none can be.

        Rounds, budgets and options stay: what each release costs is what it would have cost.
        """
        if lost == self.server:
            raise ParameterError(f"a run cannot go on without its server, {lost!r}.")
        ends = set(ends_of(lost))
        run = self.run
        changes: dict[str, Any] = {"run_id": f"{run.run_id} without {lost}"}
        if not planned.site.topology.server:
            pairs = [(self.names[i], self.names[j]) for i, j in planned.site.topology.edges]
            changes["topology"] = tuple(
                pair for pair in pairs if lost not in pair and ends != {*pair}
            )
        for name in ("epsilon", "delta", "penalty"):
            changes[name] = _of_others(getattr(run, name), lost)
        options = {name: _of_others(value, lost) for name, value in run.algorithm_options.items()}
        summation = planned.algorithm.summation
        if summation is not None:
            # Kept also where it is the default: otherwise cutting parties off would lower it.
            options["colluders"] = summation.colluders
        options |= planned.algorithm.decided_options
        changes["algorithm_options"] = options
        parties = tuple(party for party in self.party if party.name != lost)
        if len(parties) < 2:
            raise ParameterError(f"a run must have at least two parties; {lost!r} leaves one.")
        return self.model_copy(update={"run": run.model_copy(update=changes), "party": parties})

    def neighbours(self, name: str, planned: Plan) -> tuple[str, ...]:
        """Who talks to a node."""
        if name == self.server:
            return self.names
        if self.server is not None:
            return (self.server,)
        party = self.names.index(name)
        return tuple(self.names[other] for other in planned.site.of_party(party).heard_parties)


def _of_others(value: Any, lost: str) -> Any:
    """A table of parties without the lost one; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if name != lost}


def _address(value: Any) -> Any:
    try:
        split_address(value if isinstance(value, str) else "")
    except ValueError:
        raise fail(
            "must be host:port, such as node.example.org:7447 or [2001:db8::7]:7447 (an IPv6 "
            f"address in brackets, no 'tls/' before it); got {value!r}: correct it"
        ) from None
    return value


Address = Annotated[str, BeforeValidator(_address)]
Time = Annotated[float, Field(gt=0, le=1e8)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NodeSection(Reading):
    """``[node]``: who this is and what it has.

    Parameters
    ----------
    name
        As in the agreed run and in its certificate.
    role
        "party", or "server": the node without rows that averages.
    listen
        Where it is reached, ``host:port``; left out where another runtime carries its messages.
    data, schema_file
        Its rows and how they are encoded (``data`` and ``schema``). Where its file
        is not written as the schema says, the keys of :class:`~dpadmm.data.values.Reading` say
        how; no other node learns of them.
    rows
        "file", or "dask": ``data`` is a folder of Parquet files, or an address of one that
        ``fsspec`` knows, and the party's own Dask cluster reads and keeps it.
    scheduler
        Where that cluster is reached, ``tls://host:port``.
    ledger
        Its budget ledger, made by ``dpadmm ledger init``.
    messages
        Where it keeps what it heard; beside ``node.toml``, under its name, unless given.
    share_status
        Tell neighbours its state, round and whom it waits for, for their people to see.
    """

    name: NodeName
    role: Literal["party", "server"] = "party"
    listen: Address | None = None
    data: RowsPlace | None = None
    rows: Literal["file", "dask"] = "file"
    scheduler: Scheduler | None = None
    schema_file: File = Field(alias="schema")
    ledger: File | None = None
    messages: File | None = None
    share_status: bool = False


class CertificateSection(Part):
    """``[certificates]``: the files of mutual TLS.

    Parameters
    ----------
    authority, certificate, key
        PEM files; the key must be private to its owner.
    """

    authority: File
    certificate: File
    key: File


class NodePolicy(Part):
    """``[policy]``: what the owner of this node allows, whatever the others agree on.

    Parameters
    ----------
    epsilon, delta
        The most that a run may spend here.
    algorithms
        Which algorithms may run here; any private one of this package unless given.
    calibration
        Which calibrations; "proven" unless given.
    colluders
        The smallest number of colluding parties that shared noise must hold against; must be
        given where noise is shared.
    when_lost
        What to do about a neighbour that never returns: "wait", "stop" or "continue".
    lost_after
        Seconds without its message after which a neighbour counts as lost.
    start_within
        Seconds within which all must have agreed.
    serve_for
        Seconds for which a finished node hands out its last rounds to late neighbours.
    preflight
        What to do where this node's rows look wrong before it connects: "ask" on a terminal, and
        go on without one; "stop", by which others see that it did not start; or "off", which does
        not look.
    """

    epsilon: Limit | None = None
    delta: Limit | None = None
    algorithms: Names | None = None
    calibration: Names = ("proven",)
    colluders: Annotated[int, Field(ge=1)] | None = None
    when_lost: Literal["wait", "stop", "continue"] = "wait"
    lost_after: Time = 3600.0
    start_within: Time = 86400.0
    serve_for: Time = 3600.0
    preflight: Preflight = "ask"

    @model_validator(mode="after")
    def _check(self) -> NodePolicy:
        for word in self.calibration:
            if word not in CALIBRATIONS:
                raise fail(f"calibration must be of {', '.join(CALIBRATIONS)}; got {word!r}")
        return self


class NeighbourSection(Part):
    """``[[neighbour]]``: whom this node talks to.

    Parameters
    ----------
    name, address
        Its name and where it is reached, ``host:port``.
    """

    name: NodeName
    address: Address


class NodeResultSection(Part):
    """``[result]``: where results go.

    Parameters
    ----------
    model, record, statement
        The model file; the run record (JSON) and the privacy statement (text), if wanted. A study
        has no model, and must have a record.
    report
        The page to read (HTML): its place, or false for none. Beside the model, or the record of
        a study, unless given.
    """

    model: File | None = None
    record: File | None = None
    statement: File | None = None
    report: Page = True


class WatchSection(Part):
    """``[watch]``: how the owner watches the node.

    Parameters
    ----------
    log, status, metrics
        A file of JSON lines, a file for ``dpadmm status``, an address for Prometheus.
    metrics_anywhere
        Allow an address for Prometheus that other machines reach.
    token_file
        A file with the token that whoever asks for metrics must show; only its owner may read it.
    report_every
        Seconds between two reports that the node waits for a neighbour.
    lease
        Seconds of silence after which a neighbour counts as gone.
    """

    log: File | None = None
    status: File | None = None
    metrics: str | None = None
    metrics_anywhere: bool = False
    token_file: File | None = None
    report_every: Time = 10.0
    lease: Time = 10.0


class SimulationSection(Part):
    """``[simulation]``: noise that can be drawn again, for tests; it protects nobody.

    Parameters
    ----------
    key
        Any whole number of at least 0.
    """

    key: Annotated[int, Field(ge=0)]


class NodeConfig(Part):
    """The owner's whole configuration of a node; frozen.

    Parameters
    ----------
    run
        The file with the agreed run.
    node, certificates, policy, neighbour, result, watch, simulation
        The tables of the file.
    pins
        ``[pins]``: the sha256 of the certificate of each party, by its name, as its owner said it
        to this one. Noise that parties share needs everybody's: a server could invent parties.
    next_pins
        ``[next_pins]``: those of the next certificates, where the agreed run has a rotation.
    """

    run: File
    node: NodeSection
    certificates: CertificateSection | None = None
    pins: Annotated[dict[NodeName, Fingerprint], Field(default_factory=dict)]
    next_pins: Annotated[dict[NodeName, Fingerprint], Field(default_factory=dict)]
    policy: NodePolicy = NodePolicy()
    neighbour: Annotated[tuple[NeighbourSection, ...], BeforeValidator(as_tuple)] = ()
    result: NodeResultSection | None = None
    watch: WatchSection = WatchSection()
    simulation: SimulationSection | None = None

    @model_validator(mode="after")
    def _check(self) -> NodeConfig:
        names = (self.node.name, *(each.name for each in self.neighbour))
        refuse_repeats(names, "a node must be named once", "change one")
        if self.node.role == "server":
            if self.node.data is not None or self.node.ledger is not None:
                raise fail("a server has no rows: data and ledger under [node] must be left out")
            if self.node.rows != "file" or self.node.scheduler is not None:
                raise fail("a server has no rows: rows and scheduler must be left out")
            if self.simulation is not None:
                raise fail("a server adds no noise: [simulation] must be left out")
        else:
            if self.node.data is None:
                raise fail("data under [node] must be given: the file with this party's rows")
            self._check_rows()
            if self.result is None:
                raise fail("model under [result] must be given: where the model goes")
            if (self.node.ledger is None) == (self.simulation is None):
                raise fail(
                    "ledger under [node] must be given, and left out only in a [simulation], "
                    "which protects nobody and is charged to no ledger"
                )
        return self

    def _check_rows(self) -> None:
        """Refuse half of what a cluster needs, and what only a cluster can read."""
        node = self.node
        if (node.rows == "dask") != (node.scheduler is not None):
            raise fail(
                'scheduler under [node] must be given with rows = "dask", and only with it; got '
                f"rows = {node.rows!r} and scheduler = {node.scheduler!r}: correct one"
            )
        if node.rows == "file" and isinstance(node.data, str):
            raise fail(
                f'data under [node] must be the path of a file unless rows = "dask"; got '
                f"{node.data!r}: correct one"
            )
        if node.rows == "dask" and node.delimiter is not None:
            raise fail('delimiter must be left out with rows = "dask": parts are Parquet files')

    @property
    def addresses(self) -> dict[str, str]:
        """Where each neighbour is reached."""
        return {each.name: each.address for each in self.neighbour}

    @property
    def listen(self) -> str:
        """Where the node is reached."""
        if self.node.listen is None:
            raise ParameterError(
                "listen under [node] must be given, such as 0.0.0.0:7447: where the others reach "
                "this node; got none."
            )
        return self.node.listen

    @property
    def messages(self) -> Path:
        """Where the node keeps what it heard."""
        return self.node.messages or self.run.with_name(f"{self.node.name}.messages")

    @property
    def preflight_file(self) -> Path:
        """Where the pre-flight says what looks wrong with the rows. As private as they are."""
        return self.messages.with_name(f"{self.node.name}.preflight")

    def security(self, insecure_loopback: bool) -> Security | None:
        """The checked files of mutual TLS; None only where the owner asked to go without."""
        addresses = [self.listen, *self.addresses.values()]
        if insecure_loopback:
            check_loopback(addresses)
            return None
        return self.identity()

    def identity(self) -> Security:
        """The checked files by which others know this node."""
        if self.certificates is None:
            raise ParameterError(
                "[certificates] must be given: nodes speak mutual TLS; got none. dpadmm cert makes "
                "them for a trial; --insecure-loopback goes without on 127.0.0.1."
            )
        files = self.certificates
        check_identity(self.node.name, files.certificate, files.key, files.authority)
        return Security(files.authority, files.certificate, files.key)

    def check(self, agreed: AgreedRun, planned: Plan, *, relayed: bool = False) -> None:
        """Refuse a run that this node's owner has not allowed, or that does not know the node.

        Where another runtime carries its messages (``relayed``) it needs no addresses.
        """
        name = self.node.name
        if name not in agreed.nodes:
            raise ParameterError(
                f"the agreed run must have this node, {name!r}; it has {', '.join(agreed.nodes)}."
            )
        if (name == agreed.server) != (self.node.role == "server"):
            raise ParameterError(
                f"role must be what the agreed run says; its server is {agreed.server!r}, and this "
                f"node, {name!r}, has the role {self.node.role!r}."
            )
        wanted, given = set(agreed.neighbours(name, planned)), set(self.addresses)
        if wanted != given and not relayed:
            raise ParameterError(
                f"[[neighbour]] must list those that the agreed run links {name!r} with "
                f"({', '.join(sorted(wanted))}); got {', '.join(sorted(given)) or 'none'}."
            )
        pinned = self.pinned
        pinned.check_agreed(agreed.revoked, agreed.rotation)
        if self.node.role == "party":
            self._check_simulation(agreed, planned)
            if planned.algorithm.summation is not None:
                pinned.check_complete(agreed.names)
            if self.simulation is None:
                self._check_policy(agreed, planned)

    def _check_simulation(self, agreed: AgreedRun, planned: Plan) -> None:
        """Refuse noise that can be drawn again beside noise that counts on it."""
        here = self.simulation is not None
        if agreed.simulation and not here:
            raise ParameterError(
                "simulation in the agreed run must be false at a node with a ledger: the noise of "
                "all others could be drawn again; got true. Nothing more was spent."
            )
        if here and planned.algorithm.summation is not None and not agreed.simulation:
            raise ParameterError(
                "simulation in the agreed run must be true for a node with [simulation] and shared "
                "noise: the others would count on noise that can be drawn again; got false."
            )

    @property
    def pinned(self) -> Pinned:
        """Its own certificate, and those that its owner has pinned."""
        files = self.certificates
        facts = None if files is None else read_certificate(files.certificate)
        own, signed = (None, None) if facts is None else (facts.fingerprint, facts.signed_part)
        return Pinned(self.node.name, own, signed, self.pins, self.next_pins)

    def _check_policy(self, agreed: AgreedRun, planned: Plan) -> None:
        """The owner's limits come first: no neighbour or operator can widen them."""
        policy, run, algorithm = self.policy, agreed.run, planned.algorithm
        if not algorithm.private:
            raise ParameterError(
                "algorithm must be private at a node with a ledger; the agreed run has "
                f"{algorithm.name!r}, which adds no noise."
            )
        if policy.algorithms is None and not reviewed(algorithm.name):
            raise ParameterError(
                f"algorithms under [policy] must name {algorithm.name!r} to allow it: it comes "
                "from another package, and its theorem was not reviewed here."
            )
        if policy.algorithms is not None and run.algorithm not in policy.algorithms:
            raise ParameterError(
                f"algorithm must be one that [policy] allows ({', '.join(policy.algorithms)}); the "
                f"agreed run has {run.algorithm!r}."
            )
        if run.calibration not in policy.calibration:
            raise ParameterError(
                f"calibration must be one that [policy] allows ({', '.join(policy.calibration)}); "
                f"the agreed run has {run.calibration!r}."
            )
        summation = algorithm.summation
        if summation is not None and policy.colluders is None:
            raise ParameterError(
                "colluders under [policy] must be given where noise is shared: how many parties it "
                f"must hold against at least; the agreed run has {summation.colluders} of "
                f"{summation.parties} parties. Nothing more was spent."
            )
        if summation is not None and summation.colluders < (policy.colluders or 1):
            raise ParameterError(
                f"colluders must be at least what [policy] demands, {policy.colluders}; the agreed "
                f"run has {summation.colluders} of {summation.parties} parties. Nothing more was "
                "spent."
            )
        for word in ("epsilon", "delta"):
            # The whole budget that was asked for: the training may be only a part of it.
            told = getattr(run, word)
            asked = float(told[self.node.name] if isinstance(told, dict) else told)
            limit = getattr(policy, word)
            if limit is None:
                raise ParameterError(
                    f"{word} under [policy] must be given: the most that a run may spend here; the "
                    f"agreed run asks for {Given(asked)}."
                )
            if asked > limit:
                raise ParameterError(
                    f"{word} must be at most what [policy] allows, {Given(limit)}; the agreed "
                    f"run asks for {Given(asked)}. Nothing more was spent."
                )


def load_agreed_run(path: str | Path) -> AgreedRun:
    """Read an ``agreed.toml``."""
    content = load_toml(path, "the agreed run")
    return validated(AgreedRun, content, Path(path).parent, "the agreed run")


def load_node_config(path: str | Path) -> NodeConfig:
    """Read a ``node.toml`` and the file that it names as ``own``; paths are relative to its folder.

    What the owner says under ``own`` stands in the place of what the first file says.
    """
    content, folder = load_toml(path, "the node's configuration"), Path(path).parent
    own = content.pop("own", None)
    if own is not None:
        told = load_toml(folder / str(own), "own, the owner's part of the configuration,")
        content = with_own(content, told)
    return validated(NodeConfig, content, folder, "the node's configuration")
