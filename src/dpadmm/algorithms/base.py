"""The interface of an algorithm, the same in a simulation and in a hospital.

An algorithm is a frozen dataclass of its parameters with pure methods. Its state is a NamedTuple of
arrays with the axes ``(nodes, runs, outputs, features)``. The state is a function of messages alone
and therefore public: after a crash a node rebuilds it from the stored messages. The
:class:`~dpadmm.solvers.workspace.Workspace` holds everything that a party keeps about its rows
between rounds.

**Objective release.** The public description of one release by objective perturbation.

**Input forms.** A *course* is a number, a list with one number for each round, or a table with
either for every party: alpha_p(t) of DVP, alpha_i(k) and eta_i(k) of R-ADMM, alpha_i(t) and
eta_i(t) of M-ADMM. A *start* is the public y_i^0, which every neighbour knows: a number, a list
with one for each feature, or ``{"seed": 1, "spread": 0.5}`` for a separate normal vector for every
party.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from scipy.special import gammainccinv

from dpadmm.errors import ParameterError, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.privacy.calibration import gaussian_sigma
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import (
    SOLVED_TO,
    ObjectivePerturbation,
    Released,
    release_objective,
)
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import Summation, argmin_sensitivity
from dpadmm.problem.losses import Loss
from dpadmm.problem.site import Site
from dpadmm.solvers.newton import Solution
from dpadmm.solvers.workspace import Workspace, check_reachable, reachable_tolerance

# The probability that noise exceeds the size that the solver was checked for. Over a billion
# releases this is far below what the smallest delta leaves for samplers, 1e-28.
_EXCESS: Final = 1e-40


@final
@dataclass(frozen=True)
class ObjectiveRelease:
    r"""The minimiser of each party's problem under noise b in its gradient, sent through AMP.

    .. math:: \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k) + \tfrac{m_i}{2}\|w\|^2
              + \langle \mathrm{lin}_i + b_i,\, w\rangle

    Everything here is public: only solving it reads the rows.

    Attributes
    ----------
    linear
        lin, a function of messages, shaped as ``site.shape``.
    perturbation
        m and the noise.
    """

    linear: Array
    perturbation: ObjectivePerturbation

    def announce(self, site: Site) -> tuple[Event, ...]:
        """Return the cost; refuse messages that are too large to solve for, noise included.

        A solve that failed because of its noise would truncate the noise and break the guarantee.
        Noise has no bound, but it exceeds the size checked here with a probability of 1e-40.
        """
        noise = self.perturbation
        solved_to = SOLVED_TO * noise.tolerance
        check_reachable(site, self.linear, noise.convexity, solved_to)
        # The norm of the noise follows a gamma or a chi distribution. scipy.stats has both, but
        # importing it would double the start-up time and memory.
        if noise.kind == "exp-norm":
            radius = float(gammainccinv(site.features, _EXCESS))
        else:
            radius = float(np.sqrt(2 * gammainccinv(site.features / 2, _EXCESS)))
        largest = noise.scale * radius
        size = np.linalg.norm(self.linear, axis=-1, keepdims=True) + site.per_node(largest)
        check_reachable(site, size, noise.convexity, solved_to)
        return noise.events()

    def release(self, workspace: Workspace, site: Site, noise: NoiseSource, t: int) -> Released:
        """Draw the noise of round ``t``, solve and send."""
        solved_to = SOLVED_TO * self.perturbation.tolerance

        def solve(drawn: Array) -> Solution:
            return workspace.argmin(self.linear + drawn, self.perturbation.convexity, solved_to)

        return release_objective(solve, self.perturbation, site.shape, site.index, noise, t)


Numbers: TypeAlias = float | tuple[float, ...]
Course: TypeAlias = Numbers | dict[str, Numbers]

_WORDS = "a positive number, a list with one for each round, or a table of either for every party"


class OptimumWarning(UserWarning):
    """The run converges to another point than the optimum of the pooled objective."""


def as_course(parameter: str, value: Any) -> Course:
    """Return the value as plain data with positive finite numbers, or refuse."""
    if isinstance(value, Mapping) and value:
        return {
            str(name): _numbers(f"{parameter} of party {name}", each)
            for name, each in value.items()
        }
    return _numbers(parameter, value)


def _numbers(parameter: str, value: Any) -> Numbers:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and value:
        return tuple(
            positive_number(f"number {place} of {parameter}", each)
            for place, each in enumerate(value, start=1)
        )
    try:
        return positive_number(parameter, value)
    except ParameterError:
        raise ParameterError(f"{parameter} must be {_WORDS}; got {value!r}.") from None


#: The type of an option that is a course; None leaves it to the algorithm.
CourseOption = Annotated[
    Any,
    BeforeValidator(
        lambda value, info: value if value is None else as_course(info.field_name, value)
    ),
]


def _as_growth(value: Any) -> Any:
    """Return a factor of at least 1, or one for every party, or refuse."""

    def factor(whose: str, given: Any) -> float:
        plain = isinstance(given, int | float) and not isinstance(given, bool)
        if not plain or not 1 <= given < np.inf:
            raise ParameterError(
                f"penalty_growth{whose} must be a finite number of at least 1; got {given!r}."
            )
        return float(given)

    if isinstance(value, Mapping) and value:
        return {str(name): factor(f" of party {name}", each) for name, each in value.items()}
    return factor("", value)


#: The type of an option that is a growth of the penalty: a factor, or one for every party.
GrowthOption = Annotated[Any, BeforeValidator(_as_growth)]


def _as_start(value: Any) -> Any:
    """Return a number, a tuple of numbers, or seed and spread, or refuse."""
    numbers = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(numbers, Mapping):
        if set(numbers) != {"seed", "spread"} or not isinstance(numbers["seed"], int):
            raise ParameterError(
                "start must have a whole number as seed and a positive number as spread where it "
                f"is a table; got {value!r}."
            )
        spread = positive_number("spread of start", numbers["spread"])
        return {"seed": abs(numbers["seed"]), "spread": spread}
    every = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
    plain = all(isinstance(each, int | float) and not isinstance(each, bool) for each in every)
    if not every or not plain or not np.isfinite(np.array(every, dtype=np.float64)).all():
        raise ParameterError(
            "start must be a finite number, a list with one for each feature, or a table of seed "
            f"and spread; got {value!r}."
        )
    return tuple(map(float, every)) if isinstance(numbers, list | tuple) else float(numbers)


#: The type of the option ``start``.
StartOption = Annotated[Any, BeforeValidator(_as_start)]


def starts(start: Any, site: Site) -> float | Array:
    """y^0 of each party, or one y^0 to broadcast to all parties."""
    if isinstance(start, float):
        return start
    if isinstance(start, tuple):
        if len(start) != site.features:
            raise ParameterError(
                f"start must have one number for each of the {site.features} features, the "
                f"intercept included; got {len(start)}."
            )
        return np.array(start)
    drawn = [
        np.random.default_rng([start["seed"], party]).normal(size=site.features)
        for party in range(site.parties)
    ]
    return start["spread"] * np.array(drawn)


class Options(BaseModel):
    """The fields of ``algorithm_options``; an algorithm without options takes none."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GraphOptions(Options):
    """The options of every algorithm on a graph."""

    start: StartOption = Field(
        0.0,
        description="y^0 of every party, public: a number, a list with one for each feature, or "
        '{"seed": 1, "spread": 0.5} for a normal vector of its own for every party',
    )

    def starts(self, site: Site) -> float | Array:
        """Return y^0 of all parties, as :func:`graph_start` takes it, or refuse."""
        return starts(self.start, site)


@dataclass(frozen=True)
class Budget:
    """What each party may spend on one person over the whole run.

    Attributes
    ----------
    epsilon, delta
        One number per party computed here.
    rows_per_person
        How many rows of a party are replaced at once.
    """

    epsilon: Array
    delta: Array
    rows_per_person: int = 1

    @property
    def ideal_delta(self) -> Array:
        """The delta to calibrate to: it leaves room for samplers that are not ideal."""
        return self.delta * (1 - SAMPLER_ALLOWANCE)

    def sigma(self, sensitivity: ArrayLike, ratios: ArrayLike = 1.0) -> Array:
        """The noise of the first Gaussian release; ``ratios`` are all variances over the first."""
        return gaussian_sigma(
            self.epsilon,
            self.ideal_delta,
            sensitivity,
            ratios,
            rows_per_person=self.rows_per_person,
        )


# A private solve stops at this fraction of what one row can change in the gradient. The noise grows
# by that fraction, and the solver saves passes.
_PRIVATE_RESIDUAL: Final = 1e-3
_PLAIN_RESIDUAL: Final = 1e-8


@dataclass(frozen=True)
class Settings:
    """The public settings that every algorithm is configured from.

    Attributes
    ----------
    rounds
        Number of messages.
    penalty
        eta, the weight of agreement; if it varies, the mean over parties in the first round.
    tolerance
        Largest gradient norm of a local solve; None lets the algorithm choose from public facts.
    options
        The algorithm's own options.
    budget
        The budget of a private algorithm.
    calibration
        "proven" or "published".
    penalties
        eta of each round or party, for algorithms that take it; None if it is one number.
    """

    rounds: int
    penalty: float
    tolerance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget | None = None
    calibration: str = "proven"
    penalties: Course | None = None

    def require_budget(self, name: str) -> Budget:
        """Return the budget, or refuse."""
        if self.budget is None:
            raise ParameterError(f"epsilon and delta must be given for {name!r}; got none.")
        return self.budget

    @property
    def penalty_course(self) -> Course:
        """The penalty of every round and party."""
        return self.penalty if self.penalties is None else self.penalties

    def plain_tolerance(self) -> float:
        """The residual of a solve whose result is sent without noise."""
        return _PLAIN_RESIDUAL if self.tolerance is None else self.tolerance

    def private_tolerance(self, site: Site, convexity: Array | None = None) -> Array:
        """The residual of a solve whose result gets noise; the sensitivity includes it.

        It is a small part of the sensitivity, unless very many rows and features make rounding too
        large for so exact a solve at that strong convexity.
        """
        if self.tolerance is not None:
            return np.full(len(site.index), self.tolerance)
        wanted = _PRIVATE_RESIDUAL * site.loss.slope_bound * site.weight / site.rows
        return wanted if convexity is None else reachable_tolerance(site, convexity, wanted)


@dataclass(frozen=True)
class LabelNoise:
    """How each label is randomised, once, at its source.

    Attributes
    ----------
    epsilon
        The epsilon that the loss is corrected for; the smallest if users chose their own.
    largest_epsilon
        The largest that a user may have chosen.
    already_added
        The labels are randomised already.
    """

    epsilon: float
    largest_epsilon: float
    already_added: bool


class Algorithm(ABC):
    """One way to train together. Subclasses are frozen dataclasses and final."""

    #: The name in the registry, the estimator and the command line.
    name: ClassVar[str]
    #: The paper that it comes from.
    paper: ClassVar[str]
    #: Runs around a data-less server rather than on a graph of parties.
    needs_server: ClassVar[bool] = False
    #: The default number of messages of each party.
    default_rounds: ClassVar[int] = 50
    #: Hears every party in every round: around a server, or along a tree of any connected graph.
    hears_everybody: ClassVar[bool] = False
    #: Releases under a privacy budget.
    private: ClassVar[bool] = False
    #: Uses a penalty; otherwise a given penalty has no effect.
    uses_penalty: ClassVar[bool] = True
    #: Accepts a separate penalty for each round or party.
    varies_penalty: ClassVar[bool] = False
    #: Makes no sense for a single party: without neighbours only the regularization makes its
    #: problem strongly convex, and the noise is far too large for that.
    needs_neighbours: ClassVar[bool] = False
    #: The published noise follows from an epsilon for rows, which is the paper's claim.
    claims_epsilon: ClassVar[bool] = True
    #: Options whose theorem holds for the logistic loss only.
    logistic_options: ClassVar[tuple[str, ...]] = ()
    #: The fields of ``algorithm_options``.
    options: ClassVar[type[Options]] = Options

    @classmethod
    @abstractmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix every parameter for these parties, before any row is read; or refuse."""

    @abstractmethod
    def init(self, site: Site) -> Any:
        """The state before the first round: public, and the same everywhere."""

    @abstractmethod
    def announce(self, state: Any, site: Site, t: int) -> tuple[Event, ...]:
        """Return what round ``t`` will cost each party; sees no rows."""

    @abstractmethod
    def local_step(
        self, state: Any, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Compute and release the message of round ``t``: the only method that reads rows."""

    @abstractmethod
    def absorb(self, state: Any, message: Array, inbox: Array, site: Site, t: int) -> Any:
        """Return the next state from the messages sent and heard: no rows, no noise.

        If the inbox is the mean of all (:meth:`hears_mean`) with a :attr:`summation`, the messages
        may be masked vectors: the state is then a function of the sums alone.
        """

    def output(self, state: Any, message: Array, site: Site) -> Array:
        """The model of each party after a round; by default its message."""
        return message

    def row_site(self, site: Site) -> Site:
        """The site whose rows a workspace lays out; by default messages are as long as rows."""
        return site

    @property
    def idle_fields(self) -> frozenset[str]:
        """Fields, its own and the site's, on which nothing of this run depends.

        Release 0.2 did not have them. A run's hash leaves them out, so that runs of 0.2 go on.
        """
        return frozenset({"least_constant"})

    @property
    def decided_options(self) -> dict[str, Any]:
        """Options that a run goes on with after parties are lost, as they were decided for all."""
        return {}

    @property
    def summation(self) -> Summation | None:
        """How messages are added up if parties see only the sum; None if they see every message."""
        return None

    def round_cost(self, t: int) -> float:
        """What round ``t`` costs, in units of the last one: 1 where all rounds cost the same."""
        return 1.0

    def hears_mean(self, site: Site) -> bool:
        """Whether the inbox has a single source, the mean of all parties' messages."""
        if site.topology.server or self.summation is not None:
            return True
        return self.hears_everybody and not site.topology.complete

    def of_party(self, place: int, site: Site, settings: Settings) -> Self:
        """The same algorithm at one of its parties, in a separate process.

        Parameters
        ----------
        place
            The place of the party among those that it was configured for.
        site, settings
            Those of the party; by default they decide everything.
        """
        return type(self).configure(site, settings)

    def objective(self, state: Any, site: Site, t: int) -> ObjectiveRelease | None:
        """The perturbed problem whose minimiser round ``t`` releases; None for other releases.

        An auditor computes the density of a message from it.
        """
        return None

    @classmethod
    def relative_noise(cls, site: Site, options: Mapping[str, Any]) -> float:
        """The norm of this algorithm's noise, relative to Gaussian noise for the same budget.

        Noise of density exp(-||b|| / scale) has a norm of about d scales, Gaussian noise one of
        sqrt(d) scales: the option ``noise="exp-norm"`` therefore makes the ratio sqrt(d).
        """
        kind = getattr(cls.parse_options(options), "noise", "gaussian")
        return math.sqrt(site.features) if kind == "exp-norm" else 1.0

    @classmethod
    def least_penalty(cls, site: Site, settings: Settings) -> float:
        """The smallest automatic penalty with which the budget suffices for the noise."""
        return 0.0

    @classmethod
    def automatic_loss(cls, options: Mapping[str, Any], calibration: str) -> str:
        """The name of the loss that ``loss="auto"`` stands for.

        Under noise huber-hinge finds a classifier that is better or as good. Papers mean the
        logistic loss, and without noise only the logistic loss has probabilities.
        """
        noisy = cls.private and calibration == "proven"
        named = any(options.get(name) for name in cls.logistic_options)
        return "huber-hinge" if noisy and not named else "logistic"

    @classmethod
    def settled_options(cls, given: Mapping[str, Any], calibration: str) -> dict[str, Any]:
        """``algorithm_options`` with ``noise="auto"`` replaced by a choice.

        Gaussian noise is shorter for the same budget. A published calibration means noise of
        density exp(-rate ||b||), and so does an option that sets the rate of a paper's noise.
        """
        options = cls.parse_options(given)
        if getattr(options, "noise", None) != "auto":
            return dict(given)
        rates = (getattr(options, name, None) for name in ("epsilon_per_round", "noise_rate"))
        papers_own = calibration == "published" or any(rate is not None for rate in rates)
        return {**given, "noise": "exp-norm" if papers_own else "gaussian"}

    @classmethod
    def options_and_budget(cls, settings: Settings) -> tuple[Any, Budget]:
        """Return its options, with every choice made, and its budget; refuse without a budget."""
        settled = cls.settled_options(settings.options, settings.calibration)
        return cls.parse_options(settled), settings.require_budget(cls.name)

    @classmethod
    def training_loss(cls, loss: Loss, options: Mapping[str, Any]) -> Loss:
        """The loss that the parties minimise, given the loss that was asked for."""
        return loss

    @property
    def label_noise(self) -> LabelNoise | None:
        """How labels are randomised before rows are laid out; None if they are not."""
        return None

    def claim(self, site: Site) -> str | None:
        """The paper's claim for this run in a published calibration; else None."""
        return None

    def statement_details(self, site: Site, deltas: Array) -> tuple[tuple[str, str], ...]:
        """Further guarantees, such as a label's: pairs of a heading and its words."""
        return ()

    @classmethod
    def parse_options(cls, given: Mapping[str, Any]) -> Any:
        """Check ``algorithm_options``; refuse an unknown option by name."""
        known = cls.options.model_fields
        for name in given:
            if name not in known:
                raise unknown_name(f"algorithm_options of {cls.name!r}", name, known)
        try:
            return cls.options(**given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            if first["type"] == "value_error":
                words = first["msg"].removeprefix("Value error, ")
                raise ParameterError(f"algorithm_options of {cls.name!r}: {words}") from None
            raise ParameterError(
                f"algorithm_options[{where!r}] of {cls.name!r}: {first['msg']}; "
                f"got {first['input']!r}."
            ) from None


class GraphState(NamedTuple):
    """The state of the algorithms on a graph.

    Attributes
    ----------
    message
        y_i, the party's own last message.
    heard
        ``sum_j y_j`` over the party's neighbours.
    dual
        alpha_i, a function of messages.
    """

    message: Array
    heard: Array
    dual: Array


def graph_start(start: float | Array, site: Site) -> tuple[Array, Array]:
    """y^0 of each party here, and of the parties it hears, as if sent before round 0.

    ``start`` is broadcast to ``(parties, features)``. It is public, so nobody has to send it.
    """
    everyone = np.broadcast_to(start, (site.parties, site.features))[:, None, None, :]
    sources = site.index if len(site.index) == site.parties else site.heard_parties
    shape = site.shape[1:]
    own = np.broadcast_to(everyone[site.index], site.shape)
    return own.copy(), np.broadcast_to(everyone[sources], (len(sources), *shape))


def graph_init(start: float | Array, site: Site) -> GraphState:
    """The initial state: the public y^0, and zero duals."""
    message, inbox = graph_start(start, site)
    return GraphState(message, site.neighbour_sum(inbox), np.zeros(site.shape))


def graph_convexity(site: Site, penalty: float | Array) -> Array:
    """``m_i = lam / N + 2 eta V_i``, the strong convexity of a local problem."""
    return site.regularization / site.parties + 2 * penalty * site.degree


def message_sensitivity(site: Site, convexity: Array, tolerance: Array) -> Array:
    """How far replacing one row moves the minimisers of all outputs together."""
    reach = argmin_sensitivity(
        site.rows,
        convexity,
        weight=site.weight,
        slope=site.loss.slope_bound,
        tolerance=tolerance,
    )
    # One-vs-rest columns are sent together: the squares of their distances add up.
    sensitivity: Array = (1 + SAMPLER_ALLOWANCE) * np.sqrt(site.outputs) * reach
    return sensitivity


def graph_linear(state: GraphState, site: Site, penalty: float | Array) -> Array:
    """``lin = alpha_i - eta (V_i y_i + sum_j y_j)``, the public linear term of a local problem."""
    degree = site.per_node(site.degree)
    return state.dual - penalty * (degree * state.message + state.heard)


def graph_absorb(
    state: GraphState, message: Array, inbox: Array, site: Site, penalty: float | Array
) -> GraphState:
    """``alpha_i <- alpha_i + eta (V_i y_i - sum_j y_j)`` with the new messages."""
    heard = site.neighbour_sum(inbox)
    dual = state.dual + penalty * (site.per_node(site.degree) * message - heard)
    return GraphState(message, heard, dual)


def penalty_growth(initial: float, growth: float, rounds: int) -> Array:
    """eta_t = initial growth^(t - 1), with growth >= 1."""
    if not 0 < initial < np.inf:
        raise ValueError(f"initial must be a positive finite number; got {initial!r}")
    if not 1 <= growth < np.inf:
        raise ValueError(f"growth must be a finite number of at least 1; got {growth!r}")
    with np.errstate(over="ignore"):
        penalties: Array = initial * np.power(float(growth), np.arange(rounds))
    if not np.isfinite(penalties[-1]):
        raise ValueError(f"growth must keep the penalty finite for {rounds} rounds; got {growth!r}")
    return penalties


def over_rounds(
    parameter: str, course: Course, site: Site, rounds: int, unit: str = "round"
) -> Array:
    """One number for each round and party, ``(rounds, parties)``; local parties come first.

    ``unit`` names what the parameter counts, if not rounds.
    """

    def column(numbers: Numbers, whose: str = "") -> Array:
        if isinstance(numbers, float):
            return np.full(rounds, numbers)
        if len(numbers) != rounds:
            raise ParameterError(
                f"{parameter}{whose} must have one number for each of the {rounds} {unit}s; "
                f"got {len(numbers)}."
            )
        return np.array(numbers)

    if not isinstance(course, dict):
        return np.repeat(column(course)[:, None], site.parties, axis=1)
    # A party alone does not know the other names; whoever made its plan has checked them.
    if len(site.names) == site.parties:
        for name in course:
            if name not in site.names:
                raise unknown_name(f"{parameter}'s parties", name, site.names)
    for name in site.names:
        if name not in course:
            raise ParameterError(
                f"{parameter} must have an entry for every party; {name} has none."
            )
    if len(course) != site.parties:
        raise ParameterError(
            f"{parameter} must have one entry for each of the {site.parties} parties; "
            f"got {len(course)}."
        )
    order = [*site.names, *(name for name in course if name not in site.names)]
    return np.stack([column(course[name], f" of party {name}") for name in order], axis=1)


def first_value(course: Course) -> float:
    """One number to show: that of the first round, averaged over parties."""
    if isinstance(course, dict):
        return float(np.mean([first_value(numbers) for numbers in course.values()]))
    return course if isinstance(course, float) else course[0]


def grown(
    course: Course,
    growth: float | Mapping[str, float],
    site: Site,
    rounds: int,
    unit: str = "round",
    *,
    chosen: bool,
) -> Array:
    """Penalties of each round and party, as listed, or growing from round to round.

    ``growth`` is one factor, or one of every party. ``chosen`` means that the user set it, which
    contradicts a list.
    """
    penalties = over_rounds("penalty", course, site, rounds, unit)
    factors = over_rounds("penalty_growth", _course_of(growth), site, 1)[0]
    every = course.values() if isinstance(course, dict) else [course]
    if all(isinstance(numbers, float) for numbers in every):
        steps = {factor: penalty_growth(1.0, factor, rounds) for factor in set(factors.tolist())}
        return penalties * np.stack([steps[factor] for factor in factors.tolist()], axis=1)
    if chosen and (factors != 1).any():
        raise ParameterError(
            f"penalty_growth must be left out if penalty lists every {unit}; got {growth}."
        )
    return penalties


def _course_of(growth: float | Mapping[str, float]) -> Course:
    return dict(growth) if isinstance(growth, Mapping) else float(growth)


def check_common(name: str, penalties: Array, *, published: bool) -> None:
    r"""Refuse penalties that differ between parties; in a published calibration warn.

    With a dual step of :math:`\eta_i` the duals satisfy :math:`\sum_i\alpha_i/\eta_i = 0`, and a
    fixed point is the optimum of :math:`\sum_i f_i/\eta_i`.
    """
    if (penalties == penalties[:, :1]).all():
        return
    words = (
        f"the penalties of the parties differ: {name!r} then converges to the optimum of "
        "sum_i f_i / penalty_i, not to that of the pooled objective. Use one penalty for all "
        "parties, or 'm-admm', whose dual step is common."
    )
    shares = penalties / penalties[:, :1]
    if not np.allclose(shares, shares[0], rtol=1e-9, atol=0.0):
        words += (
            " Here the penalties grow apart, and where it ends depends on the course that it took."
        )
    if not published:
        raise ParameterError(f"{words} Only calibration='published' runs it, as the paper does.")
    warnings.warn(words, OptimumWarning, stacklevel=3)
