"""A node before it starts: every file and parameter checked, no row read, no connection opened."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from dpadmm.algorithms import reviewed
from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import check_writable
from dpadmm.errors import ParameterError
from dpadmm.federation.agreed_run import AgreedRun, load_agreed_run
from dpadmm.federation.node_config import NodeConfig
from dpadmm.federation.transport.session import Security
from dpadmm.privacy.accountant import Guarantee
from dpadmm.privacy.figures import AtMost, Given, pair
from dpadmm.privacy.statement import Charges
from dpadmm.run.config import DataSection, PartySection, ResultSection, RunConfig
from dpadmm.run.evaluate import WholePlan
from dpadmm.run.from_files import check_files, check_results, file_schema
from dpadmm.run.parameters import ConvergenceWarning, PrivacyWarning
from dpadmm.run.plan import Plan, announced
from dpadmm.run.preflight import PolicySection


@dataclass(frozen=True)
class NodeSetup:
    """A node whose every file and parameter was checked; no row was read yet.

    Attributes
    ----------
    config, agreed, schema
        What it was told by its owner, what all agreed on, how rows are encoded.
    planned
        The plan of all parties.
    security
        The files of mutual TLS; None on a loopback without.
    warnings
        Sentences about the budget.
    """

    config: NodeConfig
    agreed: AgreedRun
    schema: Schema
    planned: Plan
    security: Security | None
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.config.node.name

    @cached_property
    def run(self) -> bytes:
        """The 32 bytes of the run."""
        return self.agreed.digest(self.schema)

    def whole(self, agreed: AgreedRun | None = None) -> WholePlan:
        """What is agreed on, or what is left of it, with what is asked for beside the training."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (agreed or self.agreed).whole(self.schema)

    @property
    def calibrated(self) -> bool:
        """Whether noise is set here so that what is proven is within what is asked for.

        A paper's formulas, or an algorithm from outside, may spend another epsilon.
        """
        return self.agreed.run.calibration == "proven" and reviewed(self.planned.algorithm.name)

    @cached_property
    def proven(self) -> Guarantee:
        """What is proven of this party's share of the agreed run, its histogram included."""
        place = self.agreed.names.index(self.name)
        own, expected = self.planned.of_party(place), self.whole().expected()
        assert own.budget is not None
        ahead = () if expected is None else announced(expected.of_party(place))
        trained = announced(own)
        if not self.agreed.run.holdout:
            trained, ahead = (tuple(chain(*trained, *ahead)),), ()
        people = own.budget.rows_per_person
        charges = Charges((self.name,), trained, own.budget.delta, people, ahead)
        return charges.guarantees()[self.name]

    def agreed_words(self) -> str:
        """What this party may rely on, whatever became of the agreed run."""
        run = self.agreed.run
        epsilon, delta = (
            float(told[self.name] if isinstance(told, dict) else told)
            for told in (run.epsilon, run.delta)
        )
        # What is asked for in all: the training may be only a part of it.
        if self.calibrated or self.proven.epsilon <= epsilon:
            return f"the agreed budget, ({Given(epsilon)}, {Given(delta)})"
        return f"what is proven of the agreed run, {pair(self.proven.epsilon, delta)}"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the messages of the training, and of an evaluation."""
        expected = self.whole().expected()
        plans = [self.planned] if expected is None else [self.planned, expected]
        return tuple(planned.site.shape[1:] for planned in plans)

    def run_config(self) -> RunConfig:
        """The run as one organisation would write it down for itself."""
        config, name = self.config, self.name
        assert config.node.data is not None
        assert config.result is not None
        simulation = None if config.simulation is None else config.simulation.key
        return RunConfig(
            run=self.agreed.run.model_copy(update={"simulation_key": simulation}),
            data=DataSection(schema=config.node.schema_file, **config.node.told),
            party=(
                PartySection(
                    name=name,
                    file=config.node.data,
                    rows=self.agreed.rows[name],
                    scheduler=config.node.scheduler,
                ),
            ),
            result=ResultSection(
                model=config.result.model,
                record=config.result.record,
                report=config.result.report,
            ),
            ledgers={} if config.node.ledger is None else {name: config.node.ledger},
            policy=PolicySection(preflight=config.policy.preflight),
        )


def prepare_node(
    config: NodeConfig, *, insecure_loopback: bool = False, relayed: bool = False
) -> NodeSetup:
    """Check all that can be checked before a row is read or a connection opened.

    Parameters
    ----------
    config
        What the node was told by its owner.
    insecure_loopback
        Go without TLS, on this machine only.
    relayed
        Another runtime carries its messages: it needs no addresses, and certificates only where
        noise is shared.
    """
    if not relayed:
        security = config.security(insecure_loopback)
    else:
        security = None if config.certificates is None else config.identity()
    agreed = load_agreed_run(config.run)
    schema = load_schema(config.node.schema_file)
    if agreed.schema_sha256 not in (None, schema.sha256):
        raise ParameterError(
            f"schema must be the agreed one, with the sha256 {agreed.schema_sha256}; "
            f"{config.node.schema_file} has {schema.sha256}."
        )
    # What could not be told to other nodes is refused here.
    agreed.told(schema)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        planned = agreed.plan(schema)
    if planned.algorithm.summation is not None and security is None:
        raise ParameterError(
            "noise must be 'own' without TLS: parties that share noise sign their keys with those "
            "of their certificates. "
            + ("Add [certificates]." if relayed else "Leave out --insecure-loopback.")
        )
    config.check(agreed, planned, relayed=relayed)
    setup = NodeSetup(
        config, agreed, schema, planned, security, tuple(str(item.message) for item in caught)
    )
    if config.node.role == "party" and config.simulation is None:
        _check_provable(setup)
    check_writable(config.messages, "messages")
    check_writable(config.preflight_file, "preflight")
    if config.result is not None:
        for what in ("model", "record", "statement"):
            place = getattr(config.result, what)
            if place is not None:
                check_writable(place, what)
        told = setup.run_config()
        places = {"model": told.result.model, "record": told.result.record}
        places |= {"statement": config.result.statement, "report": told.result.report_file}
        check_results(places, setup.run.hex())
        check_files(told, file_schema(schema, told))
    return setup


def _check_provable(setup: NodeSetup) -> None:
    """Refuse noise that is not calibrated here where what is proven of it exceeds the policy."""
    limit = setup.config.policy.epsilon
    assert limit is not None
    if setup.calibrated:
        return
    proven = setup.proven.epsilon
    if not proven <= limit:
        raise ParameterError(
            f"epsilon must be at most what [policy] allows, {Given(limit)}; what is proven of the "
            f"agreed run is {AtMost(proven)}. Nothing more was spent."
        )
