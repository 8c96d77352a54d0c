"""From public parameters to a run whose every number is fixed.

:func:`plan` sees public facts only; every refusal happens there, before a row is read.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms import REGISTRY, get_algorithm
from dpadmm.algorithms.base import Algorithm, Budget, Settings
from dpadmm.algorithms.schedules import Course, as_course, first_value
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import Given
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import LEAST_DELTA
from dpadmm.problem.losses import Loss, get_loss
from dpadmm.problem.site import Site
from dpadmm.problem.topologies import Topology, build_topology
from dpadmm.run.choice import Choice, choice_of, settled
from dpadmm.run.conditions import findings
from dpadmm.run.parameters import (
    CALIBRATIONS,
    MOST_ROUNDS,
    PARTY_WEIGHTS,
    ConvergenceWarning,
    PrivacyWarning,
    TrainingParameters,
    too_many_rounds,
)

# auto_penalty without noise: eta V T. Chosen on Adult, twonorm and two features, on rings of 5 and
# 20 parties, complete graphs and servers: within 1% of the pooled optimum after 50 rounds.
_REACH: Final = 0.05

# auto_penalty with noise: how far noise alone may carry the mean of the parties in a run, as a
# norm. Chosen on Adult with 5 and 20 parties, epsilon from 0.1 to 1, and 20 to 50 rounds.
_NOISE_TRAVEL: Final = 15.0


@dataclass(frozen=True)
class Plan:
    """A run whose every parameter is fixed; printable, and without any row.

    ``choice`` says how its algorithm was chosen, where nobody named it.
    """

    algorithm: Algorithm
    site: Site
    settings: Settings
    choice: Choice | None = None

    @property
    def rounds(self) -> int:
        """Number of messages."""
        return self.settings.rounds

    @property
    def penalty(self) -> float:
        """The penalty: in the first round, the mean over parties, where it varies."""
        return self.settings.penalty

    @property
    def budget(self) -> Budget | None:
        """What each party may spend; None without privacy."""
        return self.settings.budget

    def of_party(self, party: int) -> Plan:
        """The share of one party: the same plan, configured for its site alone."""
        site = self.site.of_party(party)
        budget = self.budget
        if budget is not None:
            here = slice(party, party + 1)
            budget = replace(budget, epsilon=budget.epsilon[here], delta=budget.delta[here])
        settings = replace(self.settings, budget=budget)
        algorithm = self.algorithm.of_party(party, site, settings)
        return replace(self, algorithm=algorithm, site=site, settings=settings)


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

    Where it is larger, :func:`plan` takes the algorithm's
    :meth:`~dpadmm.algorithms.base.Algorithm.least_penalty` instead.
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
    parameters = settled(parameters, len(rows))
    algorithm = get_algorithm(parameters.algorithm)
    if len(rows) == 1 and algorithm.needs_neighbours and not one_hand:
        raise _needs_neighbours(algorithm.name)
    site = Site.of_all(
        np.asarray(rows, dtype=np.int64),
        _topology_for(algorithm, parameters.topology, len(rows)),
        _loss_for(algorithm, parameters),
        features=features,
        regularization=positive_number("regularization", parameters.regularization),
        outputs=outputs,
        runs=positive_integer("runs", runs),
        party_weight=_one_of("party_weight", parameters.party_weight, PARTY_WEIGHTS),
    )
    site = replace(site, names=names or site.names)
    settings = _settings_for(algorithm, parameters, site)
    if isinstance(parameters.penalty, str):
        penalty = max(settings.penalty, algorithm.least_penalty(site, settings))
        settings = replace(settings, penalty=penalty)
    choice = None
    if parameters.algorithm_chosen and settings.budget is not None:
        choice = choice_of(site, settings.budget, settings.options)
    planned = Plan(algorithm.configure(site, settings), site, settings, choice)
    # What is chosen automatically, or has no part in the run, is not warned of.
    ours = isinstance(parameters.penalty, str) or not algorithm.uses_penalty
    chosen = None if ours else settings.penalty
    for finding in findings(site, announced(planned), planned.rounds, chosen):
        warnings.warn(str(finding), ConvergenceWarning, stacklevel=2)
    return planned


def _one_of(parameter: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise unknown_name(parameter, value, known)
    return value


def _loss_for(algorithm: type[Algorithm], parameters: TrainingParameters) -> Loss:
    """The loss that the parties minimise; a private algorithm needs one of bounded slope."""
    loss = get_loss(parameters.loss)
    if algorithm.private and not np.isfinite(loss.slope_bound):
        raise ParameterError(
            f"loss must have a bounded slope for the private algorithm {algorithm.name!r}; "
            f"{loss.name!r} has none. Use logistic or huber-hinge."
        )
    return algorithm.training_loss(loss, parameters.algorithm_options)


def _settings_for(
    algorithm: type[Algorithm], parameters: TrainingParameters, site: Site
) -> Settings:
    """What the algorithm is configured from, every number checked."""
    rounds = positive_integer("rounds", parameters.rounds)
    if rounds > MOST_ROUNDS:
        raise ParameterError(f"rounds {too_many_rounds(rounds)}.")
    calibration = _one_of("calibration", parameters.calibration, CALIBRATIONS)
    budget = budget_for(parameters, site) if algorithm.private else None
    penalty, given = _penalty_for(algorithm, parameters, site, rounds, budget)
    tolerance = parameters.tolerance
    return Settings(
        rounds=rounds,
        penalty=penalty,
        tolerance=None if tolerance is None else positive_number("tolerance", tolerance),
        options=dict(parameters.algorithm_options),
        budget=budget,
        calibration=calibration,
        penalties=given,
    )


def _penalty_for(
    algorithm: type[Algorithm],
    parameters: TrainingParameters,
    site: Site,
    rounds: int,
    budget: Budget | None,
) -> tuple[float, Course | None]:
    """The penalty as one number, and as it was given where it varies."""
    given = parameters.penalty
    if isinstance(given, str):
        if given != "auto":
            raise ParameterError(f"penalty must be a positive number or 'auto'; got {given!r}.")
        relative = algorithm.relative_noise(site, parameters.algorithm_options)
        return auto_penalty(site, rounds, budget, relative), None
    if not isinstance(given, Sequence | Mapping | np.ndarray):
        return positive_number("penalty", given, alternative=" or 'auto'"), None
    course = as_course("penalty", given)
    if not algorithm.varies_penalty:
        raise ParameterError(
            f"penalty must be a positive number or 'auto' for {algorithm.name!r}, which has "
            f"none for each round or party; got {given!r}."
        )
    return first_value(course), course


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


def budget_for(parameters: TrainingParameters, site: Site) -> Budget:
    """Check epsilon and delta of every party; warn where delta is no protection."""
    epsilon = _per_party("epsilon", parameters.epsilon, site)
    delta = _per_party("delta", parameters.delta, site)
    if not ((delta >= LEAST_DELTA) & (delta < 1)).all():
        wrong = delta.max() if delta.max() >= 1 else delta.min()
        raise ParameterError(
            f"delta must be at least {LEAST_DELTA:g}, or what samplers are off by would count, and "
            f"below 1; got {wrong}."
        )
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
        central = algorithm.needs_server or algorithm.hears_everybody
        topology = "server" if central else "ring"
    built = build_topology(topology, parties)
    if algorithm.hears_everybody:
        if not (built.server or (built.degrees == parties - 1).all()):
            raise ParameterError(
                f"topology must be 'server' or 'complete' for the algorithm {algorithm.name!r}, "
                f"which hears every party in every round; got {built.name!r}."
            )
    elif built.server != algorithm.needs_server:
        wanted = "'server'" if algorithm.needs_server else "a graph of the parties, such as 'ring'"
        raise ParameterError(
            f"topology must be {wanted} for the algorithm {algorithm.name!r}; got {built.name!r}."
        )
    return built


def announced(planned: Plan) -> tuple[tuple[Event, ...], ...]:
    """What each party will be charged, round by round, before anything is read or drawn.

    Charges are fixed in advance, so that the messages of a run cannot change them; the initial
    state stands in for the states to come.
    """
    state = planned.algorithm.init(planned.site)
    rounds = [planned.algorithm.announce(state, planned.site, t) for t in range(planned.rounds)]
    return tuple(zip(*rounds, strict=True))
