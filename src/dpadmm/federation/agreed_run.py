"""The run that all nodes agree on, from an ``agreed.toml`` that all of them have.

Everything in it is public and decides what is computed: what is trained, by whom, on how many rows
each, over which links. Where a party's rows, keys and ledger are, what it is ready to spend and
whether it simulates is its own business and stands in its ``node.toml``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator

from dpadmm.algorithms.summed_gaussian import default_colluders
from dpadmm.data.schema import Schema
from dpadmm.data.values import Spelling
from dpadmm.errors import ParameterError
from dpadmm.federation.identity import check_node_name
from dpadmm.federation.transport.wire import LONGEST_FACTS, check_numbers
from dpadmm.plain import canonical_json
from dpadmm.run.config import RunSection, load_toml, plain_data, training_parameters, validated
from dpadmm.run.evaluate import WholePlan, plan_whole
from dpadmm.run.plan import Plan
from dpadmm.sentences import Name, Part, as_tuple, fail, refuse_repeats
from dpadmm.version import NUMBERS_FORMAT

# How nodes talk before and beside the rounds: raised when a message of theirs changes.
FORMAT: Final = "dpadmm-federation/3"
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
    """What is trained by whom; the same at every node.

    Parameters
    ----------
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
    """

    run: RunSection
    party: Annotated[tuple[AgreedParty, ...], BeforeValidator(as_tuple)]
    schema_sha256: Name | None = None
    server: NodeName | None = None
    simulation: bool = False

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
        if self.colluders is not None:
            agreed["colluders"] = self.colluders
        if self.simulation:
            agreed["simulation"] = True
        return agreed

    def told(self, schema: Schema) -> dict[str, Any]:
        """The facts as nodes tell each other: of a schema that is too long, its hash."""
        agreed = self.facts(schema)
        if _length(agreed) > LONGEST_FACTS:
            columns = canonical_json(agreed["schema"]).encode("ascii")
            agreed["schema"] = f"sha256 {hashlib.sha256(columns).hexdigest()}"
        if _length(agreed) > LONGEST_FACTS:
            raise ParameterError(
                f"the agreed run must be at most {LONGEST_FACTS} bytes, its schema left out; got "
                f"{_length(agreed)}. Give one number for all parties where each has its own, or "
                "shorten their names. Nothing was read or spent."
            )
        return agreed

    @property
    def colluders(self) -> int | None:
        """How many parties shared noise must hold against, said or not; None with own noise."""
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
        check_numbers(1 if classes == 2 else classes, features)
        whole = plan_whole(
            training_parameters(self.run, self.names),
            self.rows,
            features=features,
            classes=classes,
            wish=self.run.wish,
        )
        planned = whole.training
        topology = planned.site.topology
        everybody = topology.server or (topology.degrees == len(self.party) - 1).all()
        if whole.terms is not None and not everybody:
            raise ParameterError(
                "topology must be 'server' or 'complete' with evaluate or probabilities, for which "
                f"every node hears every other; got {topology.name!r}. Change it, or train without "
                "and evaluate on public rows with dpadmm evaluate MODEL --public FILE."
            )
        if self.server is not None and not planned.site.topology.server:
            raise ParameterError(
                f"server must be left out with the topology {planned.site.topology.name!r}; got "
                f"{self.server!r}."
            )
        return whole

    def without(self, lost: str, planned: Plan) -> AgreedRun:
        """The run of the others over the links that are left; refused where they cannot go on.

        Rounds, budgets and options stay: what each release costs is what it would have cost.
        """
        if lost == self.server:
            raise ParameterError(f"a run cannot go on without its server, {lost!r}.")
        run = self.run
        changes: dict[str, Any] = {"run_id": f"{run.run_id} without {lost}"}
        if not planned.site.topology.server:
            pairs = [(self.names[i], self.names[j]) for i, j in planned.site.topology.edges]
            changes["topology"] = tuple(pair for pair in pairs if lost not in pair)
        for name in ("epsilon", "delta", "penalty"):
            changes[name] = _of_others(getattr(run, name), lost)
        options = {name: _of_others(value, lost) for name, value in run.algorithm_options.items()}
        summation = planned.algorithm.summation
        if summation is not None:
            # Kept also where it is the default: otherwise cutting parties off would lower it.
            options["colluders"] = summation.colluders
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

    def links(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """Every pair of nodes that talk to each other, once."""
        pairs = {
            tuple(sorted((name, other)))
            for name in self.nodes
            for other in self.neighbours(name, planned)
        }
        return tuple((first, second) for first, second in sorted(pairs))


def _length(agreed: dict[str, Any]) -> int:
    return len(json.dumps(agreed))


def _of_others(value: Any, lost: str) -> Any:
    """A table of parties without the lost one; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if name != lost}


def load_agreed_run(path: str | Path) -> AgreedRun:
    """Read an ``agreed.toml``."""
    content = load_toml(path, "the agreed run")
    return validated(AgreedRun, content, Path(path).parent, "the agreed run")
