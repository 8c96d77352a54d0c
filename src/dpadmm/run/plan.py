r"""From public parameters to a run whose every number is fixed.

:func:`plan` sees public facts only; every refusal happens there, before a row is read.

**Conditions** on a run that can be checked before it starts, from public facts alone.

The code that needs a condition for privacy refuses a run without it. The conditions here only keep
a run from being slow, noisy or wasteful. Each finding is one line: what, how much, how much would
do, and what to change.

**Choice.** What "auto" stands for: an algorithm and its number of rounds, from public facts alone.

``dp-gd`` is the more accurate one for the same budget, around a server and on any connected graph,
where sums travel along a tree. The rule was chosen by rows that were held back from the training
rows of eleven data sets, before any test row was looked at (docs/utility.md). It never takes a
weaker adversary by itself: noise is every party's own unless ``noise = "shared"`` is asked for.
What that would bring is said: of N parties
:math:`\tau` may collude, and the noise of the sum becomes smaller by the factor

.. math:: \sqrt{N-\tau}\;\frac{\sqrt{\frac1N\sum_i s_i^2}}{\max_i s_i},
          \qquad s_i = \frac{c_i}{n_i\mu_i}
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
from dpadmm.algorithms.base import Algorithm, Budget, Course, Settings, as_course, first_value
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.algorithms.summed_gaussian import default_colluders
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.privacy.events import (
    Event,
    GaussianRelease,
    InexactSolve,
    PureRelease,
    SharedGaussian,
    single_events,
)
from dpadmm.privacy.figures import Given
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import LEAST_DELTA
from dpadmm.privacy.sensitivity import jacobian_ratio
from dpadmm.problem.losses import Loss, get_loss
from dpadmm.problem.site import SERVER, Site, Topology, build_topology
from dpadmm.run.options import (
    AUTO,
    DEFAULT,
    MOST_ROUNDS,
    ConvergenceWarning,
    PrivacyWarning,
    TrainingParameters,
    one_of,
    too_many_rounds,
)

_LARGEST_KAPPA: Final = 0.1
_LARGEST_SHARE: Final = 0.5


@dataclass(frozen=True)
class Condition:
    """One condition, and the value found for it.

    Attributes
    ----------
    what
        The quantity, and whose it is.
    measured, needed
        Its value, and the largest that is fine.
    advice
        What to do about it.
    """

    what: str
    measured: float
    needed: float
    advice: str

    @property
    def met(self) -> bool:
        """Whether the value is fine."""
        return self.measured <= self.needed

    def __str__(self) -> str:
        return (
            f"{self.what} is {self.measured:.3g}, more than {self.needed:.3g}: {self.advice}"
            if not self.met
            else f"{self.what} is {self.measured:.3g}, at most {self.needed:.3g}"
        )


def penalty_is_not_too_large(site: Site, penalty: float, rounds: int) -> list[Condition]:
    r"""``2 eta V d / (c c1)``, averaged over the parties, is at most the number of rounds.

    A round moves the parties by about :math:`h / (2\eta V)` of the way to the optimum, h being an
    eigenvalue of the pooled loss's Hessian; their mean is at most :math:`c c_1 / d`, with the mean
    of the parties' weights for c: public numbers. A party with few rows does not slow the others.
    """
    curvature = site.weight.mean() * site.loss.curvature_bound / site.features
    steps = 2 * penalty * site.topology.degrees.mean() / curvature
    return [
        Condition(
            "the number of rounds that a step to the optimum takes, 2 eta V d / (c c1),",
            float(steps),
            float(rounds),
            "the run will end far from the optimum; lower the penalty, or use 'auto'.",
        )
    ]


def jacobian_is_small(site: Site, charged: Sequence[Sequence[Event]]) -> list[Condition]:
    """The kappa = c c1 / (n m) of perturbed objectives is at most 0.1 in every round."""
    kappas = {
        (party, event.strong_convexity): float(
            jacobian_ratio(
                site.rows[party],
                event.strong_convexity,
                weight=site.weight[party],
                curvature=site.loss.curvature_bound,
            )
        )
        for party, history in enumerate(charged)
        for event in _parts(history)
        if isinstance(event, InexactSolve)
    }
    if not kappas:
        return []
    worst = max(kappas, key=lambda key: kappas[key])
    return [
        Condition(
            f"kappa = c c1 / (n m) of party {site.names[worst[0]]}",
            kappas[worst],
            _LARGEST_KAPPA,
            "the Jacobian takes much of the budget; raise the penalty, or use 'auto'.",
        )
    ]


def even_spending(site: Site, charged: Sequence[Sequence[Event]]) -> list[Condition]:
    """No round takes more than half of the budget (squared mu, or epsilon of pure releases)."""
    found = []
    for party, history in enumerate(charged):
        costs = np.array([_cost(event) for event in history])
        if len(costs) > 2 and costs.sum() > 0:
            found.append((float(costs.max() / costs.sum()), party, int(np.argmax(costs))))
    if not found:
        return []
    share, party, t = max(found, key=lambda entry: entry[0])
    return [
        Condition(
            f"the part of the budget that round {t + 1} takes of party {site.names[party]}",
            share,
            _LARGEST_SHARE,
            "the other rounds are mostly noise; use a slower decay or a constant schedule.",
        )
    ]


def findings(
    site: Site, charged: Sequence[Sequence[Event]], rounds: int, penalty: float | None
) -> list[Condition]:
    """Every condition that is not met; without ``penalty`` those on a chosen penalty are left out.

    Parameters
    ----------
    site, rounds
        Public facts.
    charged
        What each party will be charged, round by round.
    penalty
        eta where somebody chose it; None where it was chosen automatically.
    """
    conditions = even_spending(site, charged)
    if penalty is not None:
        conditions += penalty_is_not_too_large(site, penalty, rounds)
        conditions += jacobian_is_small(site, charged)
    return [condition for condition in conditions if not condition.met]


def _parts(history: Sequence[Event]) -> list[Event]:
    return [part for event in history for part, _ in single_events(event)]


def _cost(event: Event) -> float:
    """The unit of shares: epsilon for pure releases, otherwise squared mu."""
    parts = _parts([event])
    pure = sum(part.epsilon for part in parts if isinstance(part, PureRelease))
    normal = (part for part in parts if isinstance(part, GaussianRelease | SharedGaussian))
    return pure or sum((part.sensitivity / part.sigma) ** 2 for part in normal)


# A smaller saving is not worth a weaker guarantee, nor a sentence.
_WORTH_SAYING: Final = 1.05


@dataclass(frozen=True)
class Choice:
    """An algorithm that was chosen, in words.

    Attributes
    ----------
    reason
        What was picked, and why.
    advice
        What shared noise would bring, and what it would take; empty where it is little or none.
    """

    reason: str
    advice: str = ""

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a heading and its words, for a statement."""
        advice = (("Not taken by itself", self.advice),) if self.advice else ()
        return (("Algorithm", self.reason), *advice)


def chosen_algorithm(calibration: str = DEFAULT.calibration) -> str:
    """The name of the algorithm that "auto" stands for; or a refusal."""
    if calibration == "published":
        raise ParameterError(
            "algorithm must be named with calibration = 'published', which is that of its own "
            "paper; got 'auto'."
        )
    return DPGD.name


def chosen_rounds(rounds: Any, algorithm: str) -> int:
    """The number of rounds asked for, or that of the algorithm; or a refusal."""
    if isinstance(rounds, str) and rounds == AUTO:
        return get_algorithm(algorithm).default_rounds
    return positive_integer("rounds", rounds, alternative=" or 'auto'")


def _named(parameters: TrainingParameters) -> TrainingParameters:
    """The same run with its algorithm decided."""
    if parameters.algorithm != AUTO:
        return parameters
    name = chosen_algorithm(parameters.calibration)
    return replace(parameters, algorithm=name, algorithm_chosen=True)


def with_options(parameters: TrainingParameters, given: Mapping[str, Any]) -> TrainingParameters:
    """The same run, its algorithm decided, with options that were given by themselves."""
    options = joined_options(parameters.algorithm_options, given)
    parameters = _named(replace(parameters, algorithm_options=options))
    known = get_algorithm(parameters.algorithm).options.model_fields
    for name, value in given.items():
        if name not in known:
            having = [each for each in REGISTRY if name in REGISTRY[each].options.model_fields]
            raise ParameterError(
                f"{name} must be left out for the algorithm {parameters.algorithm!r}, which has no "
                f"such option; got {value!r}. It is one of: {', '.join(having)}."
            )
    return parameters


def joined_options(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``algorithm_options`` with those that were given by themselves; or a refusal."""
    for name, value in given.items():
        if options.get(name, value) != value:
            raise ParameterError(
                f"{name} must be the same where it is given twice; got {value!r}, and "
                f"{options[name]!r} in algorithm_options. Leave one of them out."
            )
    return {**options, **given}


def settled(parameters: TrainingParameters) -> TrainingParameters:
    """The same run with its algorithm, its rounds, its loss and its kind of noise decided."""
    parameters = _named(parameters)
    rounds = chosen_rounds(parameters.rounds, parameters.algorithm)
    return replace(parameters, rounds=rounds).settled()


def choice_of(site: Site, budget: Budget, options: Mapping[str, Any]) -> Choice:
    """What :func:`chosen_algorithm` picked for a run, in words."""
    name = site.topology.name
    if site.parties == 1:
        return Choice(f"{DPGD.name}, chosen automatically: it serves one party by itself")
    reason = (
        f"{DPGD.name}, chosen automatically: every party can be heard in every round (topology "
        f"{name!r}), where on average it is more accurate for the same budget than what hears "
        "neighbours alone"
    )
    shared = "" if options.get("noise") == "shared" else _about_sharing(site, budget)
    return Choice(reason, shared)


def _about_sharing(site: Site, budget: Budget) -> str:
    """The gain from noise = "shared", and against whom it would hold."""
    if site.parties < 3:
        return ""
    colluders = default_colluders(site.parties)
    level = site.weight / site.rows / gaussian_mu(budget.epsilon, budget.ideal_delta)
    saved = math.sqrt((site.parties - colluders) * float(np.mean(level**2))) / float(level.max())
    if saved < _WORTH_SAYING:
        return ""
    return (
        f"noise = 'shared' would make the noise of the sum {saved:.2g} times smaller, but hold "
        f"against the server and at most {colluders} of the {site.parties} parties together "
        "instead of all others"
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
        """The budget of each party; None without privacy."""
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
    least_constant: float | None = None,
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
    least_constant
        The smallest value that the last column, a constant, has in a row once rows are scaled;
        None where rows have no constant.
    """
    parameters = settled(parameters)
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
        party_weight=one_of("party_weight", parameters.party_weight),
        least_constant=least_constant,
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
    # No warning is about what was chosen automatically or has no part in the run.
    ours = isinstance(parameters.penalty, str) or not algorithm.uses_penalty
    chosen = None if ours else settings.penalty
    for finding in findings(site, announced(planned), planned.rounds, chosen):
        warnings.warn(str(finding), ConvergenceWarning, stacklevel=2)
    return planned


def sums_of_all(asked: TrainingParameters, rows: Mapping[str, int]) -> tuple[Site, Settings]:
    """The public facts of rounds in which everybody's sums are heard, and their budget.

    How many numbers a message has is for the algorithm to say. Where every party hears all others
    each averages what it hears, as a server would.

    Parameters
    ----------
    asked
        What it may cost and is told; the algorithm trains nothing.
    rows
        Public number of rows of each party that are read, in the order of the parties.
    """
    counts, loss = np.array(list(rows.values()), dtype=np.int64), get_loss("logistic")
    asked_for = SERVER if asked.topology == AUTO else asked.topology
    topology = build_topology(asked_for, len(counts))
    if topology.complete:
        topology = build_topology(SERVER, len(counts))
    site = Site.of_all(counts, topology, loss, features=1, regularization=1.0)
    site = replace(site, names=tuple(rows))
    options, budget = dict(asked.algorithm_options), budget_for(asked, site)
    return site, Settings(rounds=int(asked.rounds), penalty=0.0, options=options, budget=budget)


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
    """The settings of the algorithm, every number checked."""
    rounds = positive_integer("rounds", parameters.rounds)
    if rounds > MOST_ROUNDS:
        raise ParameterError(f"rounds {too_many_rounds(rounds)}.")
    calibration = one_of("calibration", parameters.calibration)
    if calibration == "published" and algorithm.private and algorithm.claim is Algorithm.claim:
        raise ParameterError(
            f"calibration must be 'proven' for {algorithm.name!r}, which states no claim of a "
            "paper; got 'published'."
        )
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
    """The refusal of an algorithm with one party; it names those that work there."""
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
    if not algorithm.hears_everybody and built.server != algorithm.needs_server:
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


def check_labels_once(planned: Plan, what: str) -> None:
    """Refuse a run that may be continued and would then randomise its labels again."""
    added = planned.algorithm.label_noise
    if added is not None and not added.already_added:
        raise ParameterError(
            f"labels_already_randomized must be true in a run {what}: continued after a crash, it "
            "would randomise labels again. Use dpadmm randomize-labels first."
        )
