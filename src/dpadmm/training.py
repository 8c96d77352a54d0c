"""From public parameters to a trained model: checked first, then run.

:func:`plan` sees public facts only and fixes everything; every refusal happens there, before a
row is read. :func:`train` runs the plan on the rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms import REGISTRY, get_algorithm, reviewed
from dpadmm.algorithms.base import Algorithm, Budget, Settings
from dpadmm.algorithms.inputs import as_course, first_value
from dpadmm.arrays import Array, Rows, Shard, Site
from dpadmm.engine import Checkpoint, Outcome, fingerprint, run
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.exchange.base import Exchange
from dpadmm.exchange.in_process import InProcess
from dpadmm.losses import get_loss
from dpadmm.privacy.events import Event
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.ledger import Ledger, MemoryLedger
from dpadmm.privacy.mechanisms import randomize_labels
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.shown import Given
from dpadmm.privacy.sqlite_ledger import LedgerRun, SQLiteLedger
from dpadmm.privacy.statement import PrivacyStatement, make_statement
from dpadmm.solvers.workspace import Workspace
from dpadmm.theory.conditions import findings
from dpadmm.topologies import Topology, build_topology

__all__ = [
    "CALIBRATIONS",
    "PARTY_WEIGHTS",
    "ConvergenceWarning",
    "Plan",
    "PrivacyWarning",
    "TrainingParameters",
    "announced",
    "auto_penalty",
    "check_runs",
    "lay_out",
    "open_runs",
    "plan",
    "state_privacy",
    "train",
    "train_party",
]

CALIBRATIONS: Final = ("proven", "published")

PARTY_WEIGHTS: Final = ("rows", "equal")
# auto_penalty without noise: eta V T. Chosen on Adult, twonorm and two features, on rings of 5 and
# 20 parties, complete graphs and servers: within 1% of the pooled optimum after 50 rounds.
_REACH: Final = 0.05
# auto_penalty with noise: how far noise alone may carry the mean of the parties in a run, as a
# norm. Chosen on Adult with 5 and 20 parties, epsilon from 0.1 to 1, and 20 to 50 rounds.
_NOISE_TRAVEL: Final = 15.0


class PrivacyWarning(UserWarning):
    """A budget that is valid but protects little."""


class ConvergenceWarning(UserWarning):
    """A choice that is valid but makes a run slow, noisy or wasteful."""


@dataclass(frozen=True)
class TrainingParameters:
    """What decides a run, as the estimator and a configuration name it; all of it public."""

    algorithm: str
    topology: str | Iterable[tuple[int, int]] | Topology = "auto"
    rounds: int = 50
    penalty: float | str | Sequence[float] | Mapping[Any, float | Sequence[float]] = "auto"
    regularization: float = 1e-4
    party_weight: str = "rows"
    loss: str = "logistic"
    tolerance: float | None = None
    epsilon: float | Mapping[Any, float] = 1.0
    delta: float | Mapping[Any, float] = 1e-5
    calibration: str = "proven"
    rows_per_person: int = 1
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A run whose every parameter is fixed; printable, and without any row."""

    algorithm: Algorithm
    site: Site
    rounds: int
    penalty: float
    budget: Budget | None
    settings: Settings

    @property
    def calibration(self) -> str:
        """How noise was calibrated: "proven" or "published"."""
        return self.settings.calibration

    def of_party(self, party: int) -> Plan:
        """The share of one party: the same plan, configured for its site alone."""
        site = self.site.of_party(party)
        budget = self.budget
        if budget is not None:
            here = slice(party, party + 1)
            budget = replace(budget, epsilon=budget.epsilon[here], delta=budget.delta[here])
        settings = replace(self.settings, budget=budget)
        algorithm = type(self.algorithm).configure(site, settings)
        return Plan(algorithm, site, self.rounds, self.penalty, budget, settings)


def auto_penalty(
    site: Site, rounds: int, budget: Budget | None, relative_noise: float = 1.0
) -> float:
    r"""Choose the penalty from public facts alone.

    .. math:: \eta = \frac{1}{\bar V}\max\Bigl(\frac{0.05}{T},\; \frac{T a}{2\cdot 15}\Bigr),
        \qquad a = \frac{2 L c \sqrt{d}}{n \mu \sqrt{N}}

    with T rounds, mean degree :math:`\bar V`, and, for a private algorithm, the noise level a:
    the norm of the noise that a round adds to the mean gradient of N parties with n rows each
    (the smallest), d features and a budget of :math:`\mu`-GDP (the smallest); an algorithm whose
    noise is ``relative_noise`` times as long as Gaussian noise has so much more. Without privacy,
    a = 0.

    A round is a noisy gradient step of length :math:`1/(2\eta\bar V)`. The first bound keeps the
    agreement of the parties from falling apart over long runs. The second keeps what noise alone
    could add up to, :math:`T a / (2\eta\bar V)`, at 15: more noise means shorter steps.
    """
    degree = max(1.0, float(site.topology.degrees.mean()))
    noise = 0.0
    if budget is not None:
        mu = gaussian_mu(budget.epsilon, budget.ideal_delta) / budget.rows_per_person
        level = 2 * site.loss.slope_bound * site.weight / site.rows / mu
        noise = float(level.max()) * math.sqrt(site.features * site.outputs / site.parties)
        noise *= relative_noise
    return max(_REACH / rounds, rounds * noise / (2 * _NOISE_TRAVEL)) / degree


def plan(
    parameters: TrainingParameters,
    rows: Sequence[int] | NDArray[np.int64],
    *,
    features: int,
    outputs: int = 1,
    runs: int = 1,
    names: tuple[str, ...] | None = None,
    one_hand: bool = False,
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
    one_hand
        That one party holds all rows is meant, and its regularization chosen for it: what an
        algorithm that needs neighbours is otherwise refused for.
    """
    algorithm = get_algorithm(parameters.algorithm)
    if len(rows) == 1 and algorithm.needs_neighbours and not one_hand:
        raise _needs_neighbours(algorithm.name)
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
    loss = algorithm.training_loss(loss, parameters.algorithm_options)
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
    if parameters.calibration not in CALIBRATIONS:
        raise unknown_name("calibration", parameters.calibration, CALIBRATIONS)
    budget = _budget_for(parameters, site) if algorithm.private else None
    given = None
    if isinstance(parameters.penalty, str):
        if parameters.penalty != "auto":
            raise ParameterError(
                f"penalty must be a positive number or 'auto'; got {parameters.penalty!r}."
            )
        relative = algorithm.relative_noise(site, parameters.algorithm_options)
        penalty = auto_penalty(site, rounds, budget, relative)
    elif isinstance(parameters.penalty, Sequence | Mapping | np.ndarray):
        given = as_course("penalty", parameters.penalty)
        penalty = first_value(given)
        if not algorithm.varies_penalty:
            raise ParameterError(
                f"penalty must be a positive number or 'auto' for {algorithm.name!r}, which has "
                f"none for each round or party; got {parameters.penalty!r}."
            )
    else:
        penalty = positive_number("penalty", parameters.penalty, alternative=" or 'auto'")
    settings = Settings(
        rounds=rounds,
        penalty=penalty,
        tolerance=None
        if parameters.tolerance is None
        else positive_number("tolerance", parameters.tolerance),
        options=dict(parameters.algorithm_options),
        budget=budget,
        calibration=parameters.calibration,
        penalties=given,
    )
    configured = algorithm.configure(site, settings)
    planned = Plan(configured, site, rounds, penalty, budget, settings)
    # What is chosen automatically is not warned of.
    chosen = None if isinstance(parameters.penalty, str) else penalty
    for finding in findings(site, announced(planned), rounds, chosen):
        warnings.warn(str(finding), ConvergenceWarning, stacklevel=2)
    return planned


def _needs_neighbours(name: str) -> ParameterError:
    """The refusal of an algorithm with one party, which names those that serve there."""
    alone = [each for each in REGISTRY.values() if not each.needs_neighbours]
    private = " or ".join(repr(each.name) for each in alone if each.private)
    plain = " or ".join(repr(each.name) for each in alone if not each.private)
    return ParameterError(
        f"parties must be at least 2 for the algorithm {name!r}; got 1. With nobody to agree with, "
        "nothing but the regularization holds its solution against the noise. One party is served "
        f"by {private}, or without privacy by {plain}."
    )


def _budget_for(parameters: TrainingParameters, site: Site) -> Budget:
    """Check epsilon and delta of every party; warn where delta is no protection."""
    epsilon = _per_party("epsilon", parameters.epsilon, site)
    delta = _per_party("delta", parameters.delta, site)
    if not (delta < 1).all():
        raise ParameterError(f"delta must be below 1; got {delta.max()}.")
    for name, value, rows in zip(site.names, delta, site.rows, strict=True):
        if value >= 1 / rows:
            warnings.warn(
                f"delta = {Given(value)} of party {name} is not below 1 / its {rows} rows: "
                "publishing a random row whole would satisfy it. Use a smaller delta.",
                PrivacyWarning,
                stacklevel=2,
            )
    return Budget(epsilon, delta, positive_integer("rows_per_person", parameters.rows_per_person))


def _per_party(parameter: str, value: float | Mapping[Any, float], site: Site) -> Array:
    """One positive number per party, from a number or a mapping of party names."""
    if not isinstance(value, Mapping):
        return np.full(len(site.names), positive_number(parameter, value))
    given = {str(name): number for name, number in value.items()}
    for name in given:
        if name not in site.names:
            raise unknown_name(f"{parameter}'s parties", name, site.names)
    for name in site.names:
        if name not in given:
            raise ParameterError(
                f"{parameter} must have a number for every party; {name} has none."
            )
    return np.array([positive_number(f"{parameter} of {name}", given[name]) for name in site.names])


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


def lay_out(
    planned: Plan,
    parties: Sequence[tuple[Rows, Array]],
    *,
    noise: NoiseSource,
    label_epsilon: Sequence[Array] | None = None,
) -> Shard:
    """Lay out ``(rows, labels)`` of the parties of a plan's site for :func:`train`.

    Where the algorithm asks for randomised labels they are randomised here, row by row and once;
    a plan whose labels come randomised leaves them as they are.

    Parameters
    ----------
    planned, parties
        The run; rows, and labels ``(rows, outputs)`` in {-1, +1}.
    noise
        Where the randomness comes from.
    label_epsilon
        One number for every row of each party, where users have chosen their own; within the
        public bounds of the plan.
    """
    added, site = planned.algorithm.label_noise, planned.site
    if added is None:
        if label_epsilon is not None:
            raise ParameterError(
                f"label_epsilon must be left out for the algorithm {planned.algorithm.name!r}: "
                "it does not randomise labels."
            )
        return Shard.from_parties(parties)
    chosen = [np.full(len(labels), added.epsilon) for _, labels in parties]
    if label_epsilon is not None:
        chosen = [np.asarray(values, dtype=np.float64) for values in label_epsilon]
        everything = np.concatenate(chosen)
        if not ((added.epsilon <= everything) & (everything <= added.largest_epsilon)).all():
            raise ParameterError(
                "label_epsilon of every row must be between the options label_epsilon and "
                f"largest_label_epsilon, {Given(added.epsilon)} and "
                f"{Given(added.largest_epsilon)}; got {Given(everything.min())} to "
                f"{Given(everything.max())}."
            )
    if not added.already_added:
        parties = [
            (rows, randomize_labels(labels, epsilon[:, None], stream)[0])
            for (rows, labels), epsilon, stream in zip(
                parties,
                chosen,
                (noise.generator(0, int(party), 0, "labels") for party in site.index),
                strict=True,
            )
        ]
    if label_epsilon is None:
        return Shard.from_parties(parties)
    # The corrected slope at 0 is l'(0) / tanh(epsilon / 2); the loss has that of the smallest.
    start = float(site.loss.slope(np.zeros(1))[0])
    ratios = [np.tanh(added.epsilon / 2) / np.tanh(epsilon / 2) for epsilon in chosen]
    return Shard.from_parties(parties, [start * (ratio - 1.0) for ratio in ratios])


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
    if checkpoint is not None and not noise.simulated:
        _check_continued(planned, "with a checkpoint")
    if planned.site.runs > 1 and not noise.simulated:
        raise ParameterError(
            f"runs must be 1 with noise that is not simulated: every run would release messages of "
            f"its own, and they are charged once; got {planned.site.runs}."
        )
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


def _check_continued(planned: Plan, what: str) -> None:
    """Refuse a run that may be continued, with labels that would be randomised again."""
    added = planned.algorithm.label_noise
    if added is not None and not added.already_added:
        raise ParameterError(
            f"labels_already_randomized must be true in a run {what}: continued after a crash, it "
            "would randomise labels again. Use dpadmm randomize-labels first."
        )


def train_party(
    planned: Plan,
    party: int,
    shard: Shard,
    *,
    exchange: Exchange,
    noise: NoiseSource,
    ledger: Ledger | None = None,
    on_round: Callable[[int, Array], None] | None = None,
    rounds: int | None = None,
    replayed: Sequence[Array] = (),
) -> Outcome:
    """Run one party of a plan in this process; the others are behind the exchange.

    The plan is the same everywhere; the party's share of it is configured from the same public
    facts, so that every process computes what one process would. ``rounds`` may be fewer than the
    plan's; ``replayed`` as in :func:`dpadmm.engine.run`.
    """
    own = planned.of_party(party)
    return run(
        own.algorithm,
        own.site,
        Workspace(shard, own.site),
        rounds=own.rounds if rounds is None else rounds,
        exchange=exchange,
        ledgers=[ledger or MemoryLedger()],
        noise=noise,
        on_round=on_round,
        replayed=replayed,
    )


def state_privacy(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    noise: NoiseSource,
    *,
    also_not_covered: Sequence[str] = (),
    caveats: Sequence[str] = (),
    by_round: bool = True,
) -> PrivacyStatement:
    """State what a run guarantees: the only maker of statements, for plans and for runs.

    Parameters
    ----------
    planned
        The run.
    events
        What each party was charged (:attr:`~dpadmm.engine.Outcome.events`), or will be
        (:func:`announced`).
    noise
        Where noise comes from, or would.
    also_not_covered, caveats
        What is known of these rows and of how this run went.
    by_round
        Whether to account every round.
    """
    budget, names = planned.budget, planned.site.names
    deltas = np.zeros(len(names)) if budget is None else budget.delta
    name = planned.algorithm.name
    return make_statement(
        name,
        names,
        events,
        deltas,
        rows_per_person=1 if budget is None else budget.rows_per_person,
        noise=noise.description,
        simulated=noise.simulated,
        calibration=planned.calibration,
        reviewed=reviewed(name),
        claim=planned.algorithm.claim(planned.site),
        also_not_covered=(*noise.not_covered, *also_not_covered),
        details=planned.algorithm.statement_details(planned.site, deltas),
        caveats=caveats,
        by_round=by_round,
    )


def announced(planned: Plan) -> tuple[tuple[Event, ...], ...]:
    """What each party will be charged, round by round, before anything is read or drawn.

    Charges are fixed in advance, so that the messages of a run cannot change them; the initial
    state stands in for the states to come.
    """
    state = planned.algorithm.init(planned.site)
    rounds = [planned.algorithm.announce(state, planned.site, t) for t in range(planned.rounds)]
    return tuple(zip(*rounds, strict=True))


def open_runs(
    planned: Plan,
    ledgers: Sequence[SQLiteLedger],
    run_id: str,
    noise: NoiseSource,
    *,
    rounds: range | None = None,
) -> list[LedgerRun]:
    """Open a run in the ledger of every party computed here, for :func:`train`.

    A run that does not fit as a whole is refused at once, with nothing charged anywhere. After a
    crash the same call continues the run: its rounds are not charged, nor drawn, again.

    Parameters
    ----------
    planned
        The run.
    ledgers
        One per party, in their order; each must be about that party's rows.
    run_id
        The name under which the run can be continued.
    noise
        Where its noise will come from: draws that can be repeated protect nobody.
    rounds
        Which rounds of the plan will be charged; all unless given.
    """
    mark, people = check_runs(planned, ledgers, run_id, noise, rounds=rounds)
    opened: list[LedgerRun] = []
    try:
        for ledger in ledgers:
            opened.append(ledger.open_run(run_id, mark, rows_per_person=people))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def check_runs(
    planned: Plan,
    ledgers: Sequence[SQLiteLedger],
    run_id: str,
    noise: NoiseSource,
    *,
    rounds: range | None = None,
) -> tuple[str, int]:
    """Refuse what :func:`open_runs` would, and write nothing.

    Returns
    -------
    str, int
        The fingerprint of the run and the rows per person it was calibrated to.
    """
    site = planned.site
    if noise.simulated:
        raise ParameterError(
            f"noise must not be simulated in a run that is charged to a ledger; got "
            f"{noise.description!r}. Leave random_state out."
        )
    _check_continued(planned, "charged to a ledger")
    if site.runs != 1:
        raise ParameterError(f"runs must be 1 in a run charged to a ledger; got {site.runs}.")
    if len(ledgers) != len(site.index):
        raise ParameterError(
            f"ledgers must be one per party ({len(site.index)}); got {len(ledgers)}."
        )
    for name, rows, ledger in zip(site.names, site.rows.tolist(), ledgers, strict=True):
        if ledger.dataset.rows != rows:
            raise ParameterError(
                f"the ledger of party {name} must be about its {rows} rows; {ledger.path} is about "
                f"{ledger.dataset.rows}."
            )
    for events, ledger in zip(announced(planned), ledgers, strict=True):
        ledger.check_run(events, run_id, rounds=rounds)
    mark = fingerprint(planned.algorithm, site, planned.rounds)
    people = 1 if planned.budget is None else planned.budget.rows_per_person
    for ledger in ledgers:
        ledger.check_parameters(run_id, mark, rows_per_person=people)
    return mark, people
