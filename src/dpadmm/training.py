"""From public parameters to a trained model: checked first, then run.

:func:`plan` sees public facts only and fixes everything; every refusal happens there, before a
row is read. :func:`train` runs the plan on the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Algorithm, Settings
from dpadmm.arrays import Array, Shard, Site
from dpadmm.engine import Checkpoint, Outcome, run
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.exchange.in_process import InProcess
from dpadmm.losses import get_loss
from dpadmm.privacy.ledger import Ledger, MemoryLedger
from dpadmm.privacy.noise import NoiseSource
from dpadmm.solvers.newton import Workspace
from dpadmm.topologies import Topology, build_topology

__all__ = ["PARTY_WEIGHTS", "Plan", "TrainingParameters", "auto_penalty", "plan", "train"]

PARTY_WEIGHTS: Final = ("rows", "equal")
# auto_penalty: how far, relative to the slope of the loss, a run of any length may travel.
_TRAVEL: Final = 0.05


@dataclass(frozen=True)
class TrainingParameters:
    """What decides a run, as the estimator and a configuration name it; all of it public."""

    algorithm: str
    topology: str | Iterable[tuple[int, int]] | Topology = "auto"
    rounds: int = 50
    penalty: float | str = "auto"
    regularization: float = 1e-4
    party_weight: str = "rows"
    loss: str = "logistic"
    tolerance: float = 1e-8
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A run whose every parameter is fixed; printable, and without any row."""

    algorithm: Algorithm
    site: Site
    rounds: int
    penalty: float


def auto_penalty(site: Site, rounds: int) -> float:
    r"""Choose the penalty from public facts alone.

    .. math:: \eta = 0.05 / (T \bar V)

    with T rounds and mean degree :math:`\bar V`. A party's message moves by at most about
    :math:`L/(2\eta V)` in a round, so that what T rounds can reach stays the same however many
    there are and however many neighbours a party has.
    """
    return _TRAVEL / (rounds * max(1.0, float(site.topology.degrees.mean())))


def plan(
    parameters: TrainingParameters,
    rows: Sequence[int] | NDArray[np.int64],
    *,
    features: int,
    outputs: int = 1,
    runs: int = 1,
    names: tuple[str, ...] | None = None,
) -> Plan:
    """Check every parameter against the public facts and fix the run.

    Parameters
    ----------
    parameters
        What to do.
    rows
        Number of rows of each party.
    features, outputs
        Dimension of a row; columns of the classifier (1 for two classes).
    runs
        Repeated runs, with noise of their own.
    names
        Names of the parties.
    """
    algorithm = get_algorithm(parameters.algorithm)
    loss = get_loss(parameters.loss)
    rounds = positive_integer("rounds", parameters.rounds)
    regularization = positive_number("regularization", parameters.regularization)
    if parameters.party_weight not in PARTY_WEIGHTS:
        raise unknown_name("party_weight", parameters.party_weight, PARTY_WEIGHTS)
    if algorithm.private and not np.isfinite(loss.slope_bound):
        raise ParameterError(
            f"loss must have a bounded slope for the private algorithm {algorithm.name!r}; "
            f"{loss.name!r} has none. Use logistic or huber-hinge."
        )
    site = Site.of_all(
        np.asarray(rows, dtype=np.int64),
        _topology_for(algorithm, parameters.topology, len(rows)),
        loss,
        features=features,
        regularization=regularization,
        outputs=outputs,
        runs=positive_integer("runs", runs),
        party_weight=parameters.party_weight,
        names=names,
    )
    if isinstance(parameters.penalty, str):
        if parameters.penalty != "auto":
            raise ParameterError(
                f"penalty must be a positive number or 'auto'; got {parameters.penalty!r}."
            )
        penalty = auto_penalty(site, rounds)
    else:
        penalty = positive_number("penalty", parameters.penalty, alternative=" or 'auto'")
    settings = Settings(
        rounds=rounds,
        penalty=penalty,
        tolerance=positive_number("tolerance", parameters.tolerance),
        options=dict(parameters.algorithm_options),
    )
    return Plan(algorithm.configure(site, settings), site, rounds, penalty)


def _topology_for(
    algorithm: type[Algorithm], topology: str | Iterable[tuple[int, int]] | Topology, parties: int
) -> Topology:
    if isinstance(topology, str) and topology == "auto":
        topology = "server" if algorithm.needs_server else "ring"
    built = build_topology(topology, parties)
    if built.server != algorithm.needs_server:
        wanted = "'server'" if algorithm.needs_server else "a graph of the parties, such as 'ring'"
        raise ParameterError(
            f"topology must be {wanted} for the algorithm {algorithm.name!r}; got {built.name!r}."
        )
    return built


def train(
    planned: Plan,
    shard: Shard,
    *,
    noise: NoiseSource,
    ledgers: Sequence[Ledger] | None = None,
    checkpoint: Checkpoint | None = None,
    on_round: Callable[[int, Array], None] | None = None,
) -> Outcome:
    """Run a plan with all parties in this process."""
    return run(
        planned.algorithm,
        planned.site,
        Workspace(shard, planned.site),
        rounds=planned.rounds,
        exchange=InProcess(server=planned.site.topology.server),
        ledgers=ledgers or [MemoryLedger() for _ in planned.site.index],
        noise=noise,
        checkpoint=checkpoint,
        on_round=on_round,
    )
