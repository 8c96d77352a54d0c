r"""R-ADMM and MR-ADMM: every second iteration reuses earlier messages and costs no privacy.

X. Zhang, M. M. Khalili, M. Liu, "Recycled ADMM: improving the privacy and accuracy of distributed
algorithms", IEEE Transactions on Information Forensics and Security 2020; Algorithms 1 to 3,
eqs. 10-19. With :math:`\eta_i = \eta_i(2k-1)` in both iterations k = 1, 2, ...

.. math::
    \text{odd:}\quad x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_i}{2}\|w\|^2
           + \langle \alpha_i + b_i - \eta_i(V_i y_i + \textstyle\sum_j y_j),\, w\rangle,
           \quad m_i = \tfrac{\lambda}{N} + 2\eta_i V_i \\
    y_i(2k-1) &= x_i + \xi_i \quad\text{(sent)},\qquad
    \alpha_i \leftarrow \alpha_i + \eta_i\,(V_i y_i - \textstyle\sum_j y_j) \\
    \text{even:}\quad y_i(2k) &= y_i(2k-1)
        - \frac{G_i + \alpha_i + \eta_i(V_i y_i(2k-1) - \sum_j y_j(2k-1))}{2\eta_i V_i + \gamma}
        \quad\text{(sent)}

where b is fresh noise in the gradient and :math:`\xi` the small noise of an inexact solve (with
``noise="output"`` all noise is in :math:`\xi`). :math:`G_i` is the noisy gradient at
:math:`y_i(2k-1)`. It follows from the optimality condition of the odd iteration, never from the
rows. The dual variable cancels in it, so the even iteration is a function of messages:

.. math::
    y_i(2k) = y_i(2k-1) + \frac{\eta_i}{2\eta_i V_i + \gamma}
        \Bigl(2\textstyle\sum_j y_j(2k-1) - V_i y_i(2k-2) - \textstyle\sum_j y_j(2k-2)\Bigr).

**Noise** of the odd iterations, by our theorems and by the paper's.

The paper's Theorem V.1, for a party with B rows and a loss scaled by C:

.. math:: \beta = \sum_k \frac{2C}{B}\Bigl(\frac{1.4\,c_1}{\rho/N + 2\eta(2k-1)V}
          + \alpha(k)\Bigr)
          = \sum_k \frac{2C}{B}\alpha(k) + 2.8\,\kappa_k \tag{32}

A plan has the noise fields of :class:`~dpadmm.algorithms.r_admm.RecycledADMM`: ``sensitivity``,
``scale``, ``kappa``, ``output_sigma`` and ``tolerance``, each ``(releases, nodes)``.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    Algorithm,
    Budget,
    Course,
    CourseOption,
    GraphOptions,
    GraphState,
    GrowthOption,
    ObjectiveRelease,
    Options,
    Settings,
    check_common,
    graph_absorb,
    graph_convexity,
    graph_init,
    graph_linear,
    grown,
    message_sensitivity,
    over_rounds,
)
from dpadmm.algorithms.objective import (
    check_total,
    gradient_reach,
    least_penalty,
    plan_objective,
    site_kappa,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import Event, PostProcessing
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.mechanisms import (
    ObjectivePerturbation,
    Released,
    gaussian_events,
    release_gaussian,
    release_post_processed,
)
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace, check_reachable

# Published calibration: the residual of a solve relative to what one row changes in the gradient,
# and the mu that AMP may use over a whole run.
_PUBLISHED_RESIDUAL: Final = 1e-6
_PUBLISHED_INEXACT_MU: Final = 0.01
_ROUNDING: Final = 1e-12
# The bound of eq. (32) on the Jacobian's part, in units of kappa.
_PUBLISHED_JACOBIAN: Final = 2.8


def proven_noise(
    site: Site,
    settings: Settings,
    budget: Budget,
    noise: Literal["exp-norm", "gaussian", "output"],
    convexity: Array,
) -> dict[str, Array]:
    """Plan noise that fits the budget; every release gets the same share.

    Parameters
    ----------
    site, settings, budget
        Public facts, the residual of a solve, what each party may spend.
    noise
        In the gradient, of either kind, or on the output.
    convexity
        m of each release and party, ``(releases, nodes)``.
    """
    if noise != "output":
        plan = plan_objective(site, budget, noise, convexity, tolerance=settings.tolerance)
        names = ("sensitivity", "scale", "kappa", "output_sigma", "tolerance")
        return {name: np.stack([getattr(part, name) for part in plan]) for name in names}
    tolerance = settings.private_tolerance(site, convexity.min(axis=0))
    sensitivity = message_sensitivity(site, convexity, tolerance)
    sigma = budget.sigma(sensitivity, np.ones(len(convexity)))
    nothing = np.zeros_like(convexity)
    return {
        "sensitivity": sensitivity,
        "scale": sigma,
        "kappa": nothing,
        "output_sigma": nothing,
        "tolerance": np.broadcast_to(tolerance, convexity.shape).copy(),
    }


def published_loss(site: Site, rate: Array, kappa: Array) -> Array:
    """Return beta of eq. (32) for each party and one row; K outputs cost K times as much."""
    loss = 2 * site.weight / site.rows * rate + _PUBLISHED_JACOBIAN * kappa
    return np.asarray(site.outputs * loss.sum(axis=0))


def published_noise(
    site: Site,
    settings: Settings,
    budget: Budget,
    noise: Literal["exp-norm", "gaussian", "output"],
    convexity: Array,
    *,
    noise_rate: Array | None,
) -> dict[str, Array]:
    """Plan noise by eq. (32) under its condition, with AMP's noise at the level of the residual.

    The parameters are those of :func:`proven_noise` and the rate of the noise, ``(releases,
    nodes)``. Without a rate it follows from epsilon by eq. (32).
    """
    if noise != "exp-norm":
        raise ParameterError(f"noise must be 'exp-norm' in a published calibration; got {noise!r}.")
    curvature = site.loss.curvature_bound
    bound = site.rows / site.weight * convexity.min(axis=0)
    if not (2 * curvature < bound).all():
        party = int(np.argmin(bound))
        raise ParameterError(
            "the paper's condition 2 c1 < (B / C)(rho / N + 2 eta V) must hold at every party; at "
            f"{site.names[party]} it reads {2 * curvature:g} < {bound[party]:.6g}. Raise the "
            "penalty, or use calibration 'proven', which needs no such condition."
        )
    kappa = site_kappa(site, convexity)
    each = np.ones_like(kappa)
    if noise_rate is None:
        rate = _published_rate(site, budget, kappa)
    else:
        rate = noise_rate
        claimed = published_loss(site, each * rate, kappa) * budget.rows_per_person
        check_total(site, budget, claimed, "noise_rate")
    sensitivity = gradient_reach(site)
    tolerance = (
        _PUBLISHED_RESIDUAL * sensitivity
        if settings.tolerance is None
        else np.full_like(sensitivity, settings.tolerance)
    )
    inexact_mu = _PUBLISHED_INEXACT_MU / np.sqrt(len(convexity) * site.outputs)
    return {
        "sensitivity": each * sensitivity,
        "scale": each / rate,
        "kappa": kappa,
        "output_sigma": 2 * tolerance / (convexity * inexact_mu),
        "tolerance": each * tolerance,
    }


def _published_rate(site: Site, budget: Budget, kappa: Array) -> Array:
    """The alpha, the same in every release, for which eq. (32) equals each party's epsilon."""
    nothing, each = np.zeros_like(kappa), np.ones_like(kappa)
    jacobian = published_loss(site, nothing, kappa)
    # The paper counts one row; each further row costs as much again. Rounding must not carry the
    # claim beyond epsilon.
    share = budget.epsilon * (1 - _ROUNDING) / budget.rows_per_person
    rate = (share - jacobian) / published_loss(site, each, nothing)
    if not (rate > 0).all():
        party = int(np.argmin(rate))
        least = AtMost(jacobian[party] * budget.rows_per_person)
        raise ParameterError(
            f"epsilon of {site.names[party]} must exceed {least}, the cost of the Jacobians "
            f"alone by eq. (32); got {Given(budget.epsilon[party])}."
        )
    return np.asarray(rate)


class RADMMOptions(GraphOptions):
    """Options of ``r-admm``."""

    noise: Literal["auto", "exp-norm", "gaussian", "output"] = Field(
        "auto",
        description="noise in the gradient, of density exp(-rate ||b||) as in the paper or "
        'Gaussian, or Gaussian noise added to the solution; "auto" is Gaussian noise in the '
        "gradient in a proven calibration and the paper's in a published one",
    )
    gamma: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="weight that keeps an even iteration near the odd one; the bound on the "
        "loss's curvature by default",
    )
    penalty_growth: GrowthOption = Field(
        1.0,
        description="factor by which the penalty grows from one odd iteration to the next",
    )
    send_even: bool = Field(
        True,
        description="send the even iterations too; on a complete graph everyone can compute them",
    )
    noise_rate: CourseOption = Field(
        None,
        description="rate of the noise density in a published calibration, alpha in the paper: a "
        "number, a list with one for each odd iteration, or a table of either for every party; "
        "from epsilon by eq. (32) by default",
    )


class MRADMMOptions(RADMMOptions):
    """Options of ``mr-admm``."""

    penalty_growth: GrowthOption = Field(
        1.04,
        description="factor by which the penalty grows from one odd iteration to the next; as "
        "published also a table with one for every party, q_1(i) of Fig. 1(b)",
    )
    node_penalties: CourseOption = Field(
        None,
        description="a table of a first penalty for each party, as `penalty` takes it too; as "
        "published only: the run converges to the optimum of sum_i f_i / penalty_i",
    )


class RecycledState(NamedTuple):
    """The state of R-ADMM: :class:`GraphState`, and a sum that the even iteration needs.

    Attributes
    ----------
    message, heard, dual
        As in :class:`GraphState`.
    earlier
        ``V_i y_i + sum_j y_j`` before the last odd iteration.
    """

    message: Array
    heard: Array
    dual: Array
    earlier: Array


@dataclass(frozen=True)
class RecycledADMM(Algorithm, ABC):
    """What R-ADMM and MR-ADMM share: Algorithm 3 of the paper.

    Arrays are ``(releases, nodes)``; every odd iteration is a release.

    Parameters
    ----------
    penalty
        eta_i(2k - 1).
    gamma
        Weight that keeps an even iteration near the odd one.
    kind
        The noise.
    sensitivity, scale
        How far one row moves the gradient (``"output"``: the solution), and the noise.
    kappa, output_sigma
        ``c c1 / (n m)``, and AMP's noise; zero for ``"output"``.
    tolerance
        Largest gradient norm of a local solve.
    send_even
        Whether even iterations are rounds of their own.
    published
        Noise by the paper's eq. (32).
    start
        y^0, as :func:`~dpadmm.algorithms.base.graph_start` takes it.
    """

    private: ClassVar[bool] = True
    varies_penalty: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True

    penalty: Array
    gamma: float
    kind: Literal["exp-norm", "gaussian", "output"]
    sensitivity: Array
    scale: Array
    kappa: Array
    output_sigma: Array
    tolerance: Array
    send_even: bool = True
    published: bool = False
    start: float | Array = 0.0

    @classmethod
    def least_penalty(cls, site: Site, settings: Settings) -> float:
        """Leave room for noise beside the Jacobians, in a proven calibration to the budget."""
        options, budget = cls.options_and_budget(settings)
        if settings.calibration == "published" or options.noise == "output":
            return 0.0
        releases = (settings.rounds + 1) // 2 if options.send_even else settings.rounds
        return least_penalty(site, budget, options.noise, releases)

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise over the odd iterations to its own budget."""
        options, budget = cls.options_and_budget(settings)
        published = settings.calibration == "published"
        releases = (settings.rounds + 1) // 2 if options.send_even else settings.rounds
        everyone = grown(
            _penalties(settings, options),
            options.penalty_growth,
            site,
            releases,
            "odd iteration",
            chosen="penalty_growth" in options.model_fields_set,
        )
        check_common(cls.name, everyone, published=published)
        if not options.send_even:
            _check_complete(site, everyone)
        gamma = site.loss.curvature_bound if options.gamma is None else options.gamma
        if gamma == 0 and site.parties == 1:
            raise ParameterError("gamma must be positive for a single party; got 0.")
        penalty = everyone[:, : len(site.index)]
        convexity = graph_convexity(site, penalty)
        if published:
            rate = None
            if (given := options.noise_rate) is not None:
                rates = over_rounds("noise_rate", given, site, releases, "odd iteration")
                rate = rates[:, : len(site.index)]
            plan = published_noise(
                site, settings, budget, options.noise, convexity, noise_rate=rate
            )
        elif options.noise_rate is None:
            plan = proven_noise(site, settings, budget, options.noise, convexity)
        else:
            raise ParameterError(
                "noise_rate needs calibration 'published': a proven one follows from epsilon and "
                f"delta; got {options.noise_rate}."
            )
        return cls(
            penalty=penalty,
            gamma=gamma,
            kind=options.noise,
            send_even=options.send_even,
            published=published,
            start=options.starts(site),
            **plan,
        )

    def init(self, site: Site) -> RecycledState:
        """Start from the public y^0."""
        return RecycledState(*graph_init(self.start, site), np.zeros(site.shape))

    def _release(self, t: int) -> int:
        """The number of the odd iteration that round ``t`` belongs to, from 0."""
        return t // 2 if self.send_even else t

    def _recycles(self, t: int) -> bool:
        return self.send_even and t % 2 == 1

    def _problem(self, state: RecycledState, site: Site, t: int) -> tuple[Array, Array]:
        """The public linear term and the strong convexity of an odd iteration."""
        penalty = self.penalty[self._release(t)]
        linear = graph_linear(GraphState(*state[:3]), site, site.per_node(penalty))
        return linear, graph_convexity(site, penalty)

    def objective(self, state: RecycledState, site: Site, t: int) -> ObjectiveRelease | None:
        """The local problem of an odd iteration with noise in its gradient."""
        if self._recycles(t) or self.kind == "output":
            return None
        release, (linear, convexity) = self._release(t), self._problem(state, site, t)
        perturbation = ObjectivePerturbation(
            kind=self.kind,
            sensitivity=self.sensitivity[release],
            kappa=self.kappa[release],
            scale=self.scale[release],
            tolerance=self.tolerance[release],
            convexity=convexity,
            output_sigma=self.output_sigma[release],
            outputs=site.outputs,
        )
        return ObjectiveRelease(linear, perturbation)

    def announce(self, state: RecycledState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge the odd iterations; in every iteration refuse messages too large to solve for."""
        if (objective := self.objective(state, site, t)) is not None:
            return objective.announce(site)
        release = self._release(t)
        linear, convexity = self._problem(state, site, t)
        check_reachable(site, linear, convexity, self.tolerance[release])
        if self._recycles(t):
            return (PostProcessing(),) * len(site.index)
        return gaussian_events(self.sensitivity[release], self.scale[release])

    def local_step(
        self, state: RecycledState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the perturbed problem, which reads rows, or reuse messages, which does not."""
        if (objective := self.objective(state, site, t)) is not None:
            return objective.release(workspace, site, noise, t)
        release = self._release(t)
        if self._recycles(t):
            return release_post_processed(
                self._recycled(state.message, state.heard, state.earlier, site, release)
            )
        (linear, convexity), tolerance = self._problem(state, site, t), self.tolerance[release]
        return release_gaussian(
            *workspace.argmin(linear, convexity, tolerance),
            tolerance=tolerance,
            sensitivity=self.sensitivity[release],
            sigma=self.scale[release],
            parties=site.index,
            noise=noise,
            t=t,
        )

    def _recycled(
        self, message: Array, heard: Array, earlier: Array, site: Site, release: int
    ) -> Array:
        """``y_i(2k)`` from ``y_i(2k-1)``, ``sum_j y_j(2k-1)`` and the iteration before."""
        penalty = site.per_node(self.penalty[release])
        step = penalty / (2 * penalty * site.per_node(site.degree) + self.gamma)
        return message + step * (2 * heard - earlier)

    def absorb(
        self, state: RecycledState, message: Array, inbox: Array, site: Site, t: int
    ) -> RecycledState:
        """Update the dual after an odd iteration; keep it after an even one."""
        if self._recycles(t):
            return state._replace(message=message, heard=site.neighbour_sum(inbox))
        release, degree = self._release(t), site.per_node(site.degree)
        penalty = site.per_node(self.penalty[release])
        odd = graph_absorb(GraphState(*state[:3]), message, inbox, site, penalty)
        earlier = degree * state.message + state.heard
        if self.send_even:
            return RecycledState(*odd, earlier)

        # On a complete graph a party knows the sums of what its neighbours heard and sent, so it
        # computes their even iterations without a message.
        def heard_by_neighbours(own: Array, heard: Array) -> Array:
            return degree * own + (degree - 1) * heard

        around = heard_by_neighbours(odd.message, odd.heard)
        earlier_around = degree * state.heard + heard_by_neighbours(state.message, state.heard)
        return RecycledState(
            self._recycled(odd.message, odd.heard, earlier, site, release),
            self._recycled(odd.heard, around, earlier_around, site, release),
            odd.dual,
            earlier,
        )

    def claim(self, site: Site) -> str | None:
        """The figure of Theorem V.1 for this run."""
        if not self.published:
            return None
        total = float(published_loss(site, 1 / self.scale, self.kappa).max())
        return (
            f"Theorem V.1, eq. (32): epsilon = {AtMost(total)} with delta = 0 for one row over the "
            "whole run, for exact minimisers"
        )


@final
@dataclass(frozen=True)
class RADMM(RecycledADMM):
    """R-ADMM: one penalty for all parties."""

    name: ClassVar[str] = "r-admm"
    paper: ClassVar[str] = "Zhang, Khalili, Liu, IEEE TIFS 2020"
    options: ClassVar[type[Options]] = RADMMOptions


@final
@dataclass(frozen=True)
class MRADMM(RecycledADMM):
    """MR-ADMM: a penalty that grows, and may differ between parties."""

    name: ClassVar[str] = "mr-admm"
    paper: ClassVar[str] = "Zhang, Khalili, Liu, IEEE TIFS 2020"
    options: ClassVar[type[Options]] = MRADMMOptions


def _penalties(settings: Settings, options: RADMMOptions) -> Course:
    """The given eta_i(2k - 1); MR-ADMM has two options for a table of parties."""
    given: Course | None = getattr(options, "node_penalties", None)
    if given is None:
        return settings.penalty_course
    if not isinstance(given, dict) or settings.penalties is not None:
        raise ParameterError(
            "node_penalties must be a table of parties, and penalty one number beside it; got "
            f"{given!r} and {settings.penalty_course!r}."
        )
    return given


def _check_complete(site: Site, penalty: Array) -> None:
    """Refuse to leave out even iterations that some party could not compute."""
    if (site.topology.degrees != site.parties - 1).any():
        raise ParameterError(
            "send_even=False needs topology 'complete', where everyone hears everyone: elsewhere "
            "a party cannot compute its neighbours' even iterations; "
            f"got {site.topology.name!r}."
        )
    if np.ptp(penalty, axis=1).any():
        raise ParameterError(
            "send_even=False needs the same penalty for all parties; got penalties from "
            f"{penalty[0].min():g} to {penalty[0].max():g}."
        )
