r"""PDML: users randomise labels, servers train with a corrected loss and Gaussian output noise.

X. Wang, H. Ishii, L. Du, P. Cheng, J. Chen, "Privacy-preserving distributed machine learning via
local randomization and ADMM perturbation", IEEE Transactions on Signal Processing 68, 2020;
eqs. 12-19.

.. math::
    \Pr[y' = y] &= \frac{e^\epsilon}{1 + e^\epsilon}\quad\text{(at the user, once)},\qquad
    \hat l(m) = l(m) - r m,\quad r = \frac{1}{e^\epsilon - 1}\\
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k \hat l(w\cdot u_k)
           + \tfrac{m_i}{2}\|w\|^2
           + \langle \tfrac{1}{N}\eta_i + \alpha_i - \eta(V_i y_i + \textstyle\sum_j y_j),\,
             w\rangle, \quad m_i = \tfrac{\lambda}{N} + 2\eta V_i \\
    y_i &\leftarrow x_i + N(0, \rho^{t-1} s_i^2 I) \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \eta\,(V_i y_i - \textstyle\sum_j y_j)

with :math:`u = y' x` and noise :math:`\eta_i`, drawn once. It cancels in differences of gradients
and therefore earns no privacy. Replacing a row moves the minimiser, found to a residual tol, by at
most :math:`\Delta_i = 2\hat L c_i/(n_i m_i) + 2\,\mathrm{tol}/m_i` with
:math:`\hat L = e^\epsilon/(e^\epsilon-1)`, whatever randomised the labels. With :math:`\mu^*` the
GDP parameter of (epsilon, delta) over T rounds,

.. math:: s_i = \Delta_i \sqrt{\textstyle\sum_{t\le T} \rho^{-(t-1)}}\;/\;\mu^*_i .

Flipping one reported label changes the gradient by :math:`(1+2r) c_i x/n_i` at every point, hence
the minimiser by at most :math:`(1+2r) c_i/(n_i m_i) + 2\,\mathrm{tol}/m_i`: with the randomisation
before it, that is the label's guarantee against the other parties
(:func:`~dpadmm.privacy.accountant.joint_label_guarantee`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    Algorithm,
    GraphOptions,
    GraphState,
    LabelNoise,
    Options,
    Settings,
    graph_absorb,
    graph_convexity,
    graph_init,
    graph_linear,
)
from dpadmm.algorithms.pr_admm import periodic
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.accountant import epsilon_spent, joint_label_guarantee, network_guarantee
from dpadmm.privacy.events import Event, GaussianRelease, LabelRandomizedResponse
from dpadmm.privacy.figures import Given, pair
from dpadmm.privacy.mechanisms import Released, gaussian_events, release_gaussian
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import argmin_sensitivity
from dpadmm.problem.losses import Loss, corrected_for_label_noise
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace, check_reachable


class PDMLOptions(GraphOptions):
    """Options of ``pdml``."""

    label_epsilon: float = Field(
        1.0, gt=0, le=700, description="of every label; the smallest if users choose their own"
    )
    largest_label_epsilon: float | None = Field(
        None,
        gt=0,
        le=700,
        description="the largest that a user may choose; label_epsilon by default",
    )
    labels_already_randomized: bool = Field(
        False, description="labels are randomised already, as `dpadmm randomize-labels` writes them"
    )
    objective_noise_bound: float = Field(
        0.0, ge=0, description="R: eta_i is uniform in [-R, R]^d; earns no privacy"
    )
    objective_noise_rate: float | None = Field(
        None, gt=0, description="of eta_i with density ~ exp(-rate |eta|) (Remark 1) instead"
    )
    decay: float = Field(1.0, gt=0, le=1, description="rho: each round's noise variance times this")
    initial_noise: float | None = Field(
        None, gt=0, description="V_i, the first round's noise, for the published calibration"
    )


@final
@dataclass(frozen=True)
class PDML(Algorithm):
    """ADMM on randomised labels with a corrected loss; messages carry Gaussian noise.

    Parameters
    ----------
    penalty
        eta, common to all parties.
    tolerance
        Largest gradient norm of a local solve, per party; part of the sensitivities.
    sensitivity, label_sensitivity
        How far replacing a row, or flipping a reported label, moves a message.
    sigma
        ``(rounds, nodes)``, the standard deviation of the noise.
    label_epsilon, largest_label_epsilon
        The epsilons of the labels' randomisation.
    labels_already_randomized
        Labels are randomised already.
    objective_bound, objective_rate
        Of eta_i: uniform with that bound, or exponential with that rate if it is not 0.
    published
        The noise is the paper's; it is not calibrated to the budget.
    rows_per_person
        How many rows of a party are replaced at once.
    start
        y^0, as :func:`~dpadmm.algorithms.base.graph_start` takes it.
    """

    name: ClassVar[str] = "pdml"
    paper: ClassVar[str] = (
        "Wang, Ishii, Du, Cheng, Chen, IEEE Transactions on Signal Processing 2020"
    )
    private: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True
    claims_epsilon: ClassVar[bool] = False
    options: ClassVar[type[Options]] = PDMLOptions

    penalty: float
    tolerance: Array
    sensitivity: Array
    label_sensitivity: Array
    sigma: Array
    label_epsilon: float
    largest_label_epsilon: float
    labels_already_randomized: bool
    objective_bound: float
    objective_rate: float
    published: bool
    rows_per_person: int
    start: float | Array = 0.0

    @classmethod
    def automatic_loss(cls, options: Mapping[str, Any], calibration: str) -> str:
        """Return the loss that has a correction for randomised labels."""
        return "logistic"

    @classmethod
    def training_loss(cls, loss: Loss, options: Mapping[str, Any]) -> Loss:
        """Correct the loss for randomised labels."""
        return corrected_for_label_noise(loss, cls.parse_options(options).label_epsilon)

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget, rows and degree."""
        options, budget = cls.options_and_budget(settings)
        published = settings.calibration == "published"
        largest = options.largest_label_epsilon or options.label_epsilon
        _check(options, largest, site.outputs, published)
        convexity = graph_convexity(site, settings.penalty)
        tolerance = settings.private_tolerance(site, convexity)
        # Flipping a label turns l'(m) u into -l'(-m) u: they differ by 2 l'(0) u at every m.
        flip = 2 * abs(float(site.loss.slope(np.zeros(1))[0]))
        row, label = (
            (1 + SAMPLER_ALLOWANCE)
            * argmin_sensitivity(
                site.rows, convexity, weight=site.weight, slope=slope, tolerance=tolerance
            )
            for slope in (site.loss.slope_bound, flip / 2)
        )
        ratios = periodic(settings.rounds, options.decay)
        first = (
            np.full(len(site.index), options.initial_noise)
            if published
            else budget.sigma(row, ratios)
        )
        return cls(
            penalty=settings.penalty,
            tolerance=tolerance,
            sensitivity=row,
            label_sensitivity=label,
            sigma=np.sqrt(ratios)[:, None] * first,
            label_epsilon=options.label_epsilon,
            largest_label_epsilon=largest,
            labels_already_randomized=options.labels_already_randomized,
            objective_bound=options.objective_noise_bound,
            objective_rate=options.objective_noise_rate or 0.0,
            published=published,
            rows_per_person=budget.rows_per_person,
            start=options.starts(site),
        )

    @property
    def label_noise(self) -> LabelNoise:
        """Randomised response of every label."""
        return LabelNoise(
            self.label_epsilon, self.largest_label_epsilon, self.labels_already_randomized
        )

    def init(self, site: Site) -> GraphState:
        """Start from the public y^0."""
        return graph_init(self.start, site)

    def announce(self, state: GraphState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge a Gaussian release; refuse messages too large to solve for, whatever eta_i."""
        linear = graph_linear(state, site, self.penalty)
        # A Gamma(d, 1) radius exceeds 2 d + 100 less than once in 10^20 draws.
        largest = (2 * site.features + 100) / self.objective_rate if self.objective_rate else 0.0
        bound = max(self.objective_bound, largest) / site.parties
        widened = linear + np.copysign(bound, linear)
        check_reachable(site, widened, graph_convexity(site, self.penalty), self.tolerance)
        return gaussian_events(self.sensitivity, self.sigma[t])

    def _objective_noise(self, site: Site, noise: NoiseSource) -> Array:
        """eta_i of every party and run."""
        if self.objective_rate:
            drawn = noise.exponential_norm(site.shape, site.index, 0, "objective")
            return drawn / self.objective_rate
        bound = self.objective_bound
        return np.array(
            [
                [
                    noise.generator(run, int(party), 0, "objective").uniform(
                        -bound, bound, site.shape[2:]
                    )
                    for run in range(site.runs)
                ]
                for party in site.index
            ]
        )

    def local_step(
        self, state: GraphState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem and send its solution with noise."""
        linear = graph_linear(state, site, self.penalty)
        if self.objective_bound or self.objective_rate:
            eta = workspace.keep("objective", lambda: self._objective_noise(site, noise))
            linear = linear + eta / site.parties
        convexity = graph_convexity(site, self.penalty)
        point, residual = workspace.argmin(linear, convexity, self.tolerance)
        return release_gaussian(
            point,
            residual,
            tolerance=self.tolerance,
            sensitivity=self.sensitivity,
            sigma=self.sigma[t],
            parties=site.index,
            noise=noise,
            t=t,
        )

    def absorb(
        self, state: GraphState, message: Array, inbox: Array, site: Site, t: int
    ) -> GraphState:
        """Update the dual variable from the messages."""
        return graph_absorb(state, message, inbox, site, self.penalty)

    def claim(self, site: Site) -> str | None:
        """The paper's claim, for its own noise."""
        if not self.published:
            return None
        return (
            f"labels: {Given(self.largest_label_epsilon)}-local differential privacy "
            "(Proposition 1, which holds); "
            "feature vectors: (eps_p, delta_p)-differential privacy, for which the paper gives no "
            "values (Remarks 1 and 2)"
        )

    def statement_details(self, site: Site, deltas: Array) -> tuple[tuple[str, str], ...]:
        """Who is protected from whom: the label and the features, at home and elsewhere."""
        at_most = "at most " if self.largest_label_epsilon > self.label_epsilon else ""
        local = (
            f"{at_most}{Given(self.largest_label_epsilon)}-local differential privacy of each "
            "label (randomised response)"
        )
        if self.labels_already_randomized:
            local += ", as those who randomised the labels declare"
        else:
            local += (
                "; this run randomised the labels itself, so whoever ran it held the true ones: "
                "users are protected where `dpadmm randomize-labels` runs on their side"
            )
        response = LabelRandomizedResponse(self.largest_label_epsilon)
        rows, labels = [], []
        # Parties of the same size and degree share figures, which are computed once.
        facts = zip(deltas, self.sensitivity, self.label_sensitivity, *self.sigma, strict=True)
        for delta, by_row, by_label, *sigma in {tuple(map(float, each)) for each in facts}:
            ideal = delta * (1 - SAMPLER_ALLOWANCE)
            released = [GaussianRelease(by_row, scale) for scale in sigma]
            spent = epsilon_spent(released, ideal, rows_per_person=self.rows_per_person)
            rows.append(spent)
            released = [GaussianRelease(by_label, scale) for scale in sigma]
            labels.append(joint_label_guarantee(response, released, ideal))
        # One sentence for all parties: the largest epsilon and the largest delta of any party.
        largest = float(deltas.max())
        row, label = (pair(network_guarantee(found).epsilon, largest) for found in (rows, labels))
        return (
            ("Label against its own server", local),
            (
                "Label against other parties",
                f"{label}-differential privacy of one row's label, its "
                "features being the same (randomised response followed by Gaussian releases); not "
                "where its own server gives away what it holds",
            ),
            (
                "Features and label against other parties",
                f"{row}-differential privacy of a person's rows (Gaussian "
                "releases, whatever randomised the labels)",
            ),
            ("Features against their own server", "none: it holds them"),
        )


def _check(options: PDMLOptions, largest: float, outputs: int, published: bool) -> None:
    """Refuse options that contradict each other."""
    if outputs != 1:
        raise ParameterError(f"pdml needs two classes; got {outputs}.")
    if largest < options.label_epsilon:
        raise ParameterError(
            "largest_label_epsilon must be at least label_epsilon, "
            f"{Given(options.label_epsilon)}; got {Given(largest)}."
        )
    if options.objective_noise_bound and options.objective_noise_rate:
        raise ParameterError(
            "objective_noise_bound and objective_noise_rate must not be given together."
        )
    if published != (options.initial_noise is not None):
        rule = "be given for" if published else "be left out except for"
        raise ParameterError(
            f"initial_noise must {rule} the published calibration; got {options.initial_noise}."
        )
