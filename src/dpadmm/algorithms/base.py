"""The seam: what an algorithm is, for a simulation and for a hospital alike.

An algorithm is a frozen dataclass of its parameters with pure methods. Its state is a NamedTuple
of arrays with the axes ``(nodes, runs, outputs, features)`` and is a function of messages alone,
hence public: after a crash it is rebuilt from the stored messages. Whatever a party keeps about
its rows between rounds lives in the :class:`~dpadmm.solvers.workspace.Workspace`.

**Objective release.** What a round of objective perturbation releases, as everybody may know it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import gammainccinv

from dpadmm.algorithms.schedules import Course, StartOption, starts
from dpadmm.errors import ParameterError, unknown_name
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

# How likely noise may be to exceed the size that the solver was checked for: in a billion releases
# far less likely than what the smallest delta leaves for samplers, 1e-28.
_EXCESS: Final = 1e-40


@final
@dataclass(frozen=True)
class ObjectiveRelease:
    r"""The minimiser of each party's problem under noise b in its gradient, sent through AMP.

    .. math:: \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k) + \tfrac{m_i}{2}\|w\|^2
              + \langle \mathrm{lin}_i + b_i,\, w\rangle

    Everything here is public: the rows come in when it is solved.

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
        """What it costs; refuse messages that are too large to solve for, also with the noise.

        A solve that refuses because of its noise would cut the noise off, and the guarantee with
        it. Noise has no bound; it exceeds the size checked here with a probability of 1e-40.
        """
        noise = self.perturbation
        solved_to = SOLVED_TO * noise.tolerance
        check_reachable(site, self.linear, noise.convexity, solved_to)
        # The norm of the noise follows a gamma or a chi distribution; scipy.stats, which has both
        # by name, would double the time and memory it takes to start.
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


class Options(BaseModel):
    """What ``algorithm_options`` may hold; an algorithm without options takes none."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GraphOptions(Options):
    """What every algorithm on a graph takes."""

    start: StartOption = Field(
        0.0,
        description="y^0 of every party, public: a number, a list with one for each feature, or "
        '{"seed": 1, "spread": 0.5} for a normal vector of its own for every party',
    )

    def starts(self, site: Site) -> float | Array:
        """y^0 of all parties, as :func:`graph_start` takes it; or a refusal."""
        return starts(self.start, site)


@dataclass(frozen=True)
class Budget:
    """What each party may spend over the whole run, for one person.

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
        """Delta to calibrate to, less the room for samplers that are not ideal."""
        return self.delta * (1 - SAMPLER_ALLOWANCE)

    def sigma(self, sensitivity: ArrayLike, ratios: ArrayLike = 1.0) -> Array:
        """The Gaussian noise of the first release; ``ratios`` are the variances of all over its."""
        return gaussian_sigma(
            self.epsilon,
            self.ideal_delta,
            sensitivity,
            ratios,
            rows_per_person=self.rows_per_person,
        )


# A private solve stops at this fraction of what one row can change in the gradient: the noise
# grows by that fraction and the solver saves passes.
_PRIVATE_RESIDUAL: Final = 1e-3
_PLAIN_RESIDUAL: Final = 1e-8


@dataclass(frozen=True)
class Settings:
    """What every algorithm is configured from; all of it public.

    Attributes
    ----------
    rounds
        Number of messages.
    penalty
        eta, the weight of agreement; in the first round, the mean over parties, where it varies.
    tolerance
        Largest gradient norm of a local solve; None lets the algorithm decide from public facts.
    options
        The algorithm's own options.
    budget
        For private algorithms.
    calibration
        "proven" or "published".
    penalties
        eta of each round or party, for algorithms that take it; None where it is one number.
    """

    rounds: int
    penalty: float
    tolerance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget | None = None
    calibration: str = "proven"
    penalties: Course | None = None

    def require_budget(self, name: str) -> Budget:
        """The budget, or a refusal."""
        if self.budget is None:
            raise ParameterError(f"epsilon and delta must be given for {name!r}; got none.")
        return self.budget

    @property
    def penalty_course(self) -> Course:
        """The penalty of every round and party."""
        return self.penalty if self.penalties is None else self.penalties

    def plain_tolerance(self) -> float:
        """Return the residual of a solve whose result is sent without noise."""
        return _PLAIN_RESIDUAL if self.tolerance is None else self.tolerance

    def private_tolerance(self, site: Site, convexity: Array | None = None) -> Array:
        """The residual of a solve whose result gets noise: part of its sensitivity.

        A small part, unless rounding keeps solves of that strong convexity from being so exact:
        with very many rows and features.
        """
        if self.tolerance is not None:
            return np.full(len(site.index), self.tolerance)
        wanted = _PRIVATE_RESIDUAL * site.loss.slope_bound * site.weight / site.rows
        return wanted if convexity is None else reachable_tolerance(site, convexity, wanted)


@dataclass(frozen=True)
class LabelNoise:
    """How every label is randomised, once, where it is collected.

    Attributes
    ----------
    epsilon
        What the loss is corrected for; the smallest where users have chosen their own.
    largest_epsilon
        The largest that a user may have chosen.
    already_added
        The labels come randomised.
    """

    epsilon: float
    largest_epsilon: float
    already_added: bool


class Algorithm(ABC):
    """One way to train together. Subclasses are frozen dataclasses and final."""

    #: The name in the registry, the estimator and the command line.
    name: ClassVar[str]
    #: Where it comes from.
    paper: ClassVar[str]
    #: Runs around a data-less server rather than on a graph of parties.
    needs_server: ClassVar[bool] = False
    #: Messages of each party unless their number is given.
    default_rounds: ClassVar[int] = 50
    #: Hears every party in every round: runs around a server, or on a complete graph.
    hears_everybody: ClassVar[bool] = False
    #: Releases under a privacy budget.
    private: ClassVar[bool] = False
    #: Weighs agreement by a penalty; without it, a given penalty has no effect.
    uses_penalty: ClassVar[bool] = True
    #: Takes a penalty of its own for each round or party.
    varies_penalty: ClassVar[bool] = False
    #: Is no use to one party alone: without neighbours its problem has no strong convexity but the
    #: regularization, against which the noise is far too large.
    needs_neighbours: ClassVar[bool] = False
    #: Published noise follows from an epsilon for rows, which is then what the paper claims.
    claims_epsilon: ClassVar[bool] = True
    #: Options whose theorem is about the logistic loss.
    logistic_options: ClassVar[tuple[str, ...]] = ()
    #: What ``algorithm_options`` may hold.
    options: ClassVar[type[Options]] = Options

    @classmethod
    @abstractmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix every parameter for these parties, before any row is read; or refuse."""

    @abstractmethod
    def init(self, site: Site) -> Any:
        """The state before the first round; public and the same everywhere."""

    @abstractmethod
    def announce(self, state: Any, site: Site, t: int) -> tuple[Event, ...]:
        """What round ``t`` will cost each party; sees no rows."""

    @abstractmethod
    def local_step(
        self, state: Any, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Compute and release the message of round ``t``: the only method that meets rows."""

    @abstractmethod
    def absorb(self, state: Any, message: Array, inbox: Array, site: Site, t: int) -> Any:
        """The next state from this site's messages and those it heard: no rows, no noise.

        Where the inbox is the mean of all (:meth:`hears_mean`) with a :attr:`summation`, the
        messages may be words that say nothing: the state is a function of the sums alone.
        """

    def output(self, state: Any, message: Array, site: Site) -> Array:
        """The model of each party after a round, from the state it left; by default its message."""
        return message

    def row_site(self, site: Site) -> Site:
        """The site whose rows a workspace lays out: the same, where messages are like rows."""
        return site

    @property
    def summation(self) -> Summation | None:
        """How messages are added up where parties see the sum alone; None where they see all."""
        return None

    def hears_mean(self, site: Site) -> bool:
        """Whether the inbox has one source, the mean of all parties' messages."""
        return site.topology.server or self.summation is not None

    def of_party(self, place: int, site: Site, settings: Settings) -> Self:
        """The same at one of its parties, in a process of its own.

        Parameters
        ----------
        place
            Which of the parties that it was configured for.
        site, settings
            That party's; by default they decide everything.
        """
        return type(self).configure(site, settings)

    def objective(self, state: Any, site: Site, t: int) -> ObjectiveRelease | None:
        """The perturbed problem whose minimiser round ``t`` releases, if it is of that kind.

        An auditor works out the density of a message from it.
        """
        return None

    @classmethod
    def relative_noise(cls, site: Site, options: Mapping[str, Any]) -> float:
        """How long this algorithm's noise is, next to Gaussian noise for the same budget.

        Noise of density exp(-||b|| / scale) has a norm of about d scales, Gaussian noise one of
        sqrt(d): an option ``noise`` of that kind, where an algorithm has one, makes it sqrt(d).
        """
        kind = getattr(cls.parse_options(options), "noise", "gaussian")
        return math.sqrt(site.features) if kind == "exp-norm" else 1.0

    @classmethod
    def least_penalty(cls, site: Site, settings: Settings) -> float:
        """What an automatic penalty must be at least, for the budget to suffice for the noise."""
        return 0.0

    @classmethod
    def automatic_loss(cls, options: Mapping[str, Any], calibration: str) -> str:
        """The name of the loss that ``loss="auto"`` stands for.

        Under noise huber-hinge finds the better classifier and is never worse; papers mean the
        logistic loss, and without noise only that one has probabilities.
        """
        noisy = cls.private and calibration == "proven"
        named = any(options.get(name) for name in cls.logistic_options)
        return "huber-hinge" if noisy and not named else "logistic"

    @classmethod
    def settled_options(cls, given: Mapping[str, Any], calibration: str) -> dict[str, Any]:
        """``algorithm_options`` with an option ``noise`` of "auto" decided.

        Gaussian noise is shorter for the same budget; a published calibration, and an option that
        sets the rate of a paper's noise, mean noise of density exp(-rate ||b||).
        """
        options = cls.parse_options(given)
        if getattr(options, "noise", None) != "auto":
            return dict(given)
        rates = (getattr(options, name, None) for name in ("epsilon_per_round", "noise_rate"))
        papers_own = calibration == "published" or any(rate is not None for rate in rates)
        return {**given, "noise": "exp-norm" if papers_own else "gaussian"}

    @classmethod
    def options_and_budget(cls, settings: Settings) -> tuple[Any, Budget]:
        """Its options, everything in them decided, and the budget that it must have."""
        settled = cls.settled_options(settings.options, settings.calibration)
        return cls.parse_options(settled), settings.require_budget(cls.name)

    @classmethod
    def training_loss(cls, loss: Loss, options: Mapping[str, Any]) -> Loss:
        """The loss that the parties minimise, from the one that was asked for."""
        return loss

    @property
    def label_noise(self) -> LabelNoise | None:
        """How labels are randomised before rows are laid out; None leaves them as they are."""
        return None

    def claim(self, site: Site) -> str | None:
        """What the paper claims for this run, in a published calibration; else None."""
        return None

    def statement_details(self, site: Site, deltas: Array) -> tuple[tuple[str, str], ...]:
        """Guarantees beside that of a row: pairs of a heading and its words."""
        return ()

    @classmethod
    def parse_options(cls, given: Mapping[str, Any]) -> Any:
        """Check ``algorithm_options``; what the algorithm does not have is refused by name."""
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
        y_i, each party's own last message.
    heard
        ``sum_j y_j`` over its neighbours.
    dual
        alpha_i, a function of messages.
    """

    message: Array
    heard: Array
    dual: Array


def graph_start(start: float | Array, site: Site) -> tuple[Array, Array]:
    """y^0 of each party here, and of those it will hear, as if they were sent before round 0.

    ``start`` is broadcast to ``(parties, features)``: public, so that nobody has to send it.
    """
    everyone = np.broadcast_to(start, (site.parties, site.features))[:, None, None, :]
    sources = site.index if len(site.index) == site.parties else site.heard_parties
    shape = site.shape[1:]
    own = np.broadcast_to(everyone[site.index], site.shape)
    return own.copy(), np.broadcast_to(everyone[sources], (len(sources), *shape))


def graph_init(start: float | Array, site: Site) -> GraphState:
    """The public y^0 everywhere, and no dual."""
    message, inbox = graph_start(start, site)
    return GraphState(message, site.neighbour_sum(inbox), np.zeros(site.shape))


def graph_convexity(site: Site, penalty: float | Array) -> Array:
    """``m_i = lam / N + 2 eta V_i``, the strong convexity of a local problem."""
    return site.regularization / site.parties + 2 * penalty * site.degree


def message_sensitivity(site: Site, convexity: Array, tolerance: Array) -> Array:
    """How far replacing one row moves minimisers that are sent with noise, all outputs together."""
    reach = argmin_sensitivity(
        site.rows,
        convexity,
        weight=site.weight,
        slope=site.loss.slope_bound,
        tolerance=tolerance,
    )
    # One-vs-rest columns are sent together: their distances add up as squares.
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
