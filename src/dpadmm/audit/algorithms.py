r"""The worst case of a whole algorithm: one honest party, every other one an adversary.

The adversary sends the message R e_1 in every round, which drives the party's public centre far
out along the first direction. The party holds a replaced row (-s, q) in D and (-s, -q) in D'; its
other rows are e_1. Far out, both margins of the replaced row are very negative, both slopes are
nearly -L, and the minimisers differ by nearly 2 L c / (n m), all that the theorem allows. In the
first round the centre is still 0 and they differ by less.

A party's state is a function of messages, so the adversary follows it, solves every round without
noise on D and on D' and weighs the message y_t between the two solutions x_t and x'_t:

.. math:: \sum_t \frac{\langle y_t - x_t,\, x'_t - x_t\rangle - \|x'_t - x_t\|^2/2}{\sigma_t^2}

This is the privacy loss of the whole transcript where every release is Gaussian. For any other
release sigma_t is replaced by the length of x'_t - x_t: a projection on the direction in which the
data sets differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Algorithm, Budget, Settings, graph_convexity
from dpadmm.arrays import Array, Shard, Site
from dpadmm.audit.cases import Case
from dpadmm.audit.claims import Claim, EpsilonClaim, GaussianClaim
from dpadmm.audit.objective import canary_rows
from dpadmm.audit.verdict import Setting
from dpadmm.engine import MESSAGE_BOUND, run
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.exchange.base import Exchange
from dpadmm.losses import LOSSES, Loss
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.privacy.events import Event, GaussianRelease
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.ledger import MemoryLedger
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.solvers.newton import Workspace
from dpadmm.topologies import SERVER, build_topology
from dpadmm.training import CALIBRATIONS

__all__ = ["Adversary", "AlgorithmCase", "SharedNoise", "SilentNoise"]

# How far out the adversary drives the party's centre, in units of 1 or of the noise where that is
# larger, as far as the engine lets messages in.
_RADIUS: Final = 1000.0
# The least slant of the replaced row: 20 units of margin, so that no noise changes its slope.
_LEAST_SLANT: Final = 20 / _RADIUS
_REGULARIZATION: Final = 1e-4
# With more rows than this all but the replaced one are zero: a run then costs as little as one row.
_MOST_ROWS: Final = 64


@final
class SilentNoise(NoiseSource):
    """No noise at all: what an adversary who knows the rows would compute."""

    description = "none"
    simulated = True

    def __init__(self) -> None:
        #: The standard deviation that was last asked for, shaped like the values.
        self.sigma: Array = np.zeros(1)

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fixed stream for batches; refuse anything else, since a stream cannot be silent.

        Which batches stand in for secret ones decides how good a guess is, never whether the bound
        on it holds: the same ones serve for both data sets.
        """
        if purpose == "batch":
            return np.random.default_rng([party, t])
        raise ParameterError(f"the auditor knows no form without noise of the draw {purpose!r}.")

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values as they are."""
        self.sigma = np.broadcast_to(sigma, values.shape)
        return values

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """Zero."""
        return np.zeros(shape)


@final
class SharedNoise(NoiseSource):
    """One stream for all runs of a release, its draws times a factor.

    Runs stay independent, and a round costs one stream instead of one for each run. A factor
    below 1 is a party that adds less noise than it says.
    """

    simulated = True

    def __init__(self, source: NoiseSource, factor: float = 1.0) -> None:
        self._source, self._factor = source, factor
        self.description = f"{factor:g} times: {source.description}"

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The source's stream: what is drawn from it directly is not scaled."""
        return self._source.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values + factor sigma N(0, I)``."""
        shape = _side_by_side(values.shape)
        spread = self._factor * np.broadcast_to(sigma, values.shape).reshape(shape)
        noisy = self._source.add_gaussian(values.reshape(shape), spread, parties, t, purpose)
        return noisy.reshape(values.shape)

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The source's draws times the factor."""
        drawn = self._source.exponential_norm(_side_by_side(shape), parties, t, purpose)
        return self._factor * drawn.reshape(shape)


def _side_by_side(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Many runs seen as one run with many outputs."""
    nodes, *between, features = shape
    return (nodes, 1, math.prod(between), features)


@final
class Adversary(Exchange):
    """Every other party at once: sends fixed messages and weighs D against D'.

    Parameters
    ----------
    algorithm, site
        What the honest party runs; public.
    candidates
        The two data sets it may hold.
    message
        What the adversary sends in every round, one number per feature.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        site: Site,
        candidates: tuple[Shard, Shard],
        message: Array,
    ) -> None:
        self._algorithm, self._site = algorithm, site
        self._workspaces = [Workspace(shard, site) for shard in candidates]
        self._inbox = np.broadcast_to(message, (1, *site.shape[1:]))
        self._state = algorithm.init(site)
        self._silent = SilentNoise()
        #: The evidence so far for D' against D, one number per run.
        self.evidence = np.zeros(site.runs)

    def __call__(self, message: Released, t: int) -> Array:
        """Weigh the honest party's message and answer with the fixed one."""
        plain, changed = (
            self._algorithm.local_step(self._state, rows, self._site, self._silent, t).values
            for rows in self._workspaces
        )
        gap = changed - plain
        if isinstance(message.events[0], GaussianRelease):
            # The noise really added, which the state may decide on; the same for D and D'.
            scaled = gap / np.square(self._silent.sigma)
        else:
            length = np.einsum("nrof,nrof->r", gap, gap)[None, :, None, None]
            scaled = np.divide(gap, length, out=np.zeros_like(gap), where=length > 0)
        self.evidence += np.einsum("nrof,nrof->r", message.values - plain - gap / 2, scaled)
        inbox = np.array(self._inbox)
        self._state = self._algorithm.absorb(self._state, message.values, inbox, self._site, t)
        return inbox


@final
class AlgorithmCase(Case):
    """One honest party of a whole run against an adversary who controls all others.

    Parameters
    ----------
    name
        The algorithm, which must be private.
    epsilon, delta
        Its budget, and the claim that is tested: mu-GDP where every release is Gaussian.
    rounds, penalty, rows
        Messages, eta, and rows of the party.
    options, calibration
        As the algorithm takes them.
    noise_scale
        Multiplies the noise that the party really adds.
    """

    batch = 2048

    def __init__(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        rounds: int,
        penalty: float = 0.5,
        rows: int = 20,
        options: Mapping[str, Any] | None = None,
        calibration: str = "proven",
        noise_scale: float = 1.0,
    ) -> None:
        kind = get_algorithm(name)
        if not kind.private:
            raise ParameterError(f"algorithm must be a private one; {name!r} claims nothing.")
        if not 0 < delta < 1:
            raise ParameterError(f"delta must be between 0 and 1; got {delta!r}.")
        if calibration not in CALIBRATIONS:
            raise unknown_name("calibration", calibration, CALIBRATIONS)
        budget = Budget(np.array([positive_number("epsilon", epsilon)]), np.array([delta]))
        settings = Settings(
            rounds=positive_integer("rounds", rounds),
            penalty=positive_number("penalty", penalty),
            options=dict(options or {}),
            budget=budget,
            calibration=calibration,
        )
        self._rounds, self._radius = settings.rounds, _RADIUS
        self._noise_scale = positive_number("noise_scale", noise_scale)
        self._hold(kind, settings, positive_integer("rows", rows), left_out=0)
        if calibration == "published" and self._algorithm.claim(self._site) is None:
            # Else the verdict would call proven noise the paper's.
            raise ParameterError(
                f"calibration must be 'proven' for {name!r}, which states no claim of its paper; "
                f"got {calibration!r}."
            )
        silent = SilentNoise()
        events = self._run(silent, 1, replaced=False)[1]
        gaussian = all(gaussian_mu_squared(event) is not None for event in events)
        if gaussian and rows > _MOST_ROWS:
            self._hold(kind, settings, 1, left_out=rows - 1)
        self._radius = min(_RADIUS * max(1.0, float(silent.sigma.max())), MESSAGE_BOUND)
        self.claim: Claim = (
            GaussianClaim(float(gaussian_mu(epsilon, delta)), delta)
            if gaussian
            else EpsilonClaim(epsilon, delta)
        )
        self.setting = Setting(
            f"{name} ({calibration}), {rounds} rounds, {rows} rows, penalty {settings.penalty:g}"
            + (f", noise times {noise_scale:g}" if noise_scale != 1 else ""),
            "all other parties are the adversary's: their messages drive the party's centre "
            f"{self._radius:.4g} and more out in one direction; the replaced row points against "
            "it, and to opposite sides across it",
            "the privacy loss of all messages, from solves without noise"
            if gaussian
            else "the messages, projected on the difference of solves without noise",
        )

    def _hold(self, kind: type[Algorithm], settings: Settings, rows: int, *, left_out: int) -> None:
        """Give the party the replaced row and others, and as many rows of zeros, left out.

        A row of zeros adds nothing to a gradient: leaving it out changes n, and c / n is kept.
        """
        loss = kind.training_loss(LOSSES["logistic"], settings.options)
        self._site = _one_party(kind, rows, loss, weight=rows / (rows + left_out))
        self._algorithm = kind.configure(self._site, settings)
        slant = _best_slant(self._site, settings.penalty, self._rounds)
        others = np.tile([1.0, 0.0], (rows - 1, 1))
        before, after = (
            Shard.from_parties([(np.vstack([row, others]), np.ones((rows, 1)))])
            for row in canary_rows(slant)
        )
        self._candidates = before, after

    def _run(
        self, noise: NoiseSource, runs: int, *, replaced: bool
    ) -> tuple[Array, tuple[Event, ...]]:
        """The adversary's evidence after the last round, and what the party was charged."""
        site = replace(self._site, runs=runs)
        message = np.array([self._radius, 0.0])
        adversary = Adversary(self._algorithm, site, self._candidates, message)
        outcome = run(
            self._algorithm,
            site,
            Workspace(self._candidates[replaced], site),
            rounds=self._rounds,
            exchange=adversary,
            ledgers=[MemoryLedger()],
            noise=noise,
        )
        return adversary.evidence, outcome.events[0]

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The adversary's evidence after the last round, one number per run."""
        return self._run(SharedNoise(noise, self._noise_scale), runs, replaced=replaced)[0]


def _one_party(
    kind: type[Algorithm], rows: int, loss: Loss = LOSSES["logistic"], weight: float = 1.0
) -> Site:
    """The public facts of the honest party: one neighbour, or a server."""
    return Site(
        names=("honest",),
        index=np.array([0], dtype=np.intp),
        rows=np.array([rows], dtype=np.int64),
        degree=np.ones(1),
        weight=np.array([weight]),
        adjacency=sparse.csr_array(np.ones((1, 1))),
        topology=build_topology(SERVER if kind.needs_server else "path", 2),
        features=2,
        outputs=1,
        runs=1,
        loss=loss,
        regularization=_REGULARIZATION,
    )


def _best_slant(site: Site, penalty: float, rounds: int) -> float:
    r"""How much the replaced row points against the centre.

    .. math:: \max_s\; q^2\,(\sigma(s a)^2 + T - 1),\qquad q^2 = 1 - s^2

    where a is the minimiser's norm in the first round; in the others it is R and more.
    """
    convexity, weight = float(graph_convexity(site, penalty)[0]), float(site.weight[0])
    low, high = 0.0, weight / convexity
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if convexity * middle < weight * expit(-middle) else (low, middle)
        )
    slants = np.geomspace(_LEAST_SLANT, 0.9, 200)
    later = (rounds - 1) * np.square(expit(slants * _RADIUS))
    share = (1 - slants**2) * (np.square(expit(slants * low)) + later)
    return float(slants[np.argmax(share)])
