r"""The worst case of a whole algorithm: one honest party, every other one an adversary.

With shared noise as many other parties are honest as the claim relies on. The adversary sees the
sum, knows the summands of all other parties, and subtracts what it knows. What is left is the
party's summand and the noise of the honest parties.

The adversary sends the message R e_1 in every round, which drives the party's public centre far
out along the first direction. Each of several outputs is driven to the side of its label, so that
all of them show the row at once. The party holds a replaced row (-s, q) in D and (-s, -q) in D', or
several of them where a person has several rows; its other rows are e_1. The two directions are
drawn at random. Far out, both margins of the replaced row are very negative, both slopes are
nearly -L, and the minimisers differ by nearly 2 L c / (n m), all that the theorem allows. In the
first round the centre is still 0 and they differ by less.

A party's state is a function of messages, so the adversary follows it and weighs each message
y_t between D and D':

* a minimiser under noise in its gradient has a density in closed form (:mod:`dpadmm.audit.scene`),
  and the logarithm of the ratio of the two is the privacy loss;
* for any other message it solves the round without noise on D and on D', with the results x_t and
  x'_t. Where the release is Gaussian the privacy loss is

  .. math:: \frac{\langle y_t - x_t,\, x'_t - x_t\rangle - \|x'_t - x_t\|^2/2}{\sigma_t^2} ;

  else sigma_t is replaced by the length of x'_t - x_t: a projection on the direction in which the
  data sets differ, which may miss much;
* a message that only repeats earlier ones in another form adds nothing.

Where a release is Gaussian, D and D' must not be further apart than what is charged for it; this
needs no draws.

Losses add up over the rounds to that of the whole transcript.

The end of the module has the entry points: a mechanism by its name, and a whole algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, Protocol, final

import numpy as np
from scipy.special import expit

from dpadmm.algorithms import reviewed
from dpadmm.algorithms.base import Algorithm, graph_convexity
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.audit.cases import (
    Case,
    audit_case,
    exp_norm_case,
    gaussian_case,
    gaussian_objective_case,
    inexact_solve_case,
    randomized_response_case,
    subsampled_gaussian_case,
)
from dpadmm.audit.oracle import Deviation
from dpadmm.audit.scene import Candidate, Scene, canary_rows, one_party
from dpadmm.audit.studies import INFERRED, describe_case, infer_case
from dpadmm.audit.verdict import AuditSetting, Claim, EpsilonClaim, GaussianClaim, Verdict
from dpadmm.audit.witness import SharedNoise, SilentNoise, audit_noise
from dpadmm.errors import ParameterError, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.privacy.events import Event, GaussianRelease, PostProcessing, SharedGaussian
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.problem.losses import LOSSES
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site
from dpadmm.run.engine import MESSAGE_BOUND, Exchange, MemoryLedger, run
from dpadmm.run.options import CALIBRATIONS
from dpadmm.solvers.workspace import Workspace

# How far out the adversary drives the party's centre, in units of 1, or of the noise if that is
# larger, up to the largest message that the engine accepts.
_RADIUS: Final = 1000.0
# The least slant of the replaced row: 20 units of margin, so that no noise changes its slope.
_LEAST_SLANT: Final = 20 / _RADIUS
# With more rows than this all but the replaced one are zero: a run then costs as little as one row.
_MOST_ROWS: Final = 64


@final
class Adversary(Exchange):
    """All other parties at once: sends fixed messages and weighs D against D'.

    Parameters
    ----------
    algorithm, site
        What the honest party runs; public.
    candidates
        The two data sets it may hold.
    message
        What the adversary sends in every round, ``(outputs, features)``.
    noise, crowd
        The source of the noise of the other honest parties, and how many of them add noise.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        site: Site,
        candidates: tuple[Shard, Shard],
        message: Array,
        noise: NoiseSource,
        crowd: int = 0,
    ) -> None:
        self._algorithm, self._site = algorithm, site
        self._noise, self._crowd = noise, crowd
        self._candidates = [Candidate(shard, site) for shard in candidates]
        self._inbox = np.broadcast_to(message, (1, *site.shape[1:]))
        self._state = algorithm.init(site)
        self._silent = SilentNoise()
        #: The evidence so far for D' against D, one number per run.
        self.evidence = np.zeros(site.runs)
        #: Whether the evidence is the privacy loss of the messages so far.
        self.exact = True
        #: By round with a Gaussian release: how far apart the two data sets are, in units of the
        #: noise that is asked for, and what is charged for that.
        self.apart: dict[int, tuple[float, float]] = {}

    def __call__(self, message: Released, t: int) -> Array:
        """Weigh the honest party's message and answer with the fixed one."""
        event = message.events[0]
        if (objective := self._algorithm.objective(self._state, self._site, t)) is not None:
            # The privacy loss of a minimiser under gradient noise.
            plain, changed = (
                part.log_density(objective, message.values) for part in self._candidates
            )
            self.evidence += changed - plain
        elif not isinstance(event, PostProcessing):
            gaussian = isinstance(event, GaussianRelease | SharedGaussian)
            self.evidence += self._projection(message.values, t, gaussian=gaussian)
            self.exact &= gaussian
            if isinstance(event, GaussianRelease | SharedGaussian):
                self.apart[t] = self._farthest, event.sensitivity / event.sigma
        inbox = np.array(self._inbox)
        self._state = self._algorithm.absorb(self._state, message.values, inbox, self._site, t)
        return inbox

    def _projection(self, sent: Array, t: int, *, gaussian: bool) -> Array:
        """How far the message lies on the way from one solution to the other."""
        plain, changed = (
            self._algorithm.local_step(
                self._state, part.workspace, self._site, self._silent, t
            ).values
            for part in self._candidates
        )
        gap = changed - plain
        if gaussian:
            # The noise really added, which the state may decide on; the same for D and D'.
            scaled = gap / ((1 + self._crowd) * np.square(self._silent.sigma))
            self._farthest = float(np.sqrt(np.einsum("nrof,nrof->r", gap, scaled).max()))
            sent = sent + self._shares(sent.shape, t)
        else:
            length = np.einsum("nrof,nrof->r", gap, gap)[None, :, None, None]
            scaled = np.divide(gap, length, out=np.zeros_like(gap), where=length > 0)
        return np.einsum("nrof,nrof->r", sent - plain - gap / 2, scaled)

    def _shares(self, shape: tuple[int, ...], t: int) -> Array:
        """The noise of the other honest parties, each as much as the audited one adds."""
        total = np.zeros(shape)
        if self._crowd:
            # Numbers of parties that the audited one does not have.
            others = np.arange(1, 1 + self._crowd)
            sigma = np.broadcast_to(self._silent.sigma, (self._crowd, *shape[1:]))
            drawn = self._noise.add_gaussian(np.zeros(sigma.shape), sigma, others, t, "output")
            total += drawn.sum(axis=0, keepdims=True)
        return total


@final
class AlgorithmCase(Case):
    """One honest party of a whole run against an adversary who controls all others.

    Parameters
    ----------
    name
        The algorithm, which must be private.
    epsilon, delta
        Its budget, and the claim that is tested: mu-GDP where every release is Gaussian.
    noise_scale
        Multiplies the noise that the party and the other honest parties really add.
    skipping
        How many honest parties leave out their share of the noise, beyond the colluders that the
        claim allows for.
    facts
        Further fields of :class:`~dpadmm.audit.scene.Scene`: rounds, penalty, rows, features,
        outputs, rows_per_person, options, calibration, seed.
    """

    batch = 2048

    def __init__(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        noise_scale: float = 1.0,
        skipping: int = 0,
        **facts: Any,
    ) -> None:
        scene = Scene(name, epsilon, delta, **facts)
        self._noise_scale = positive_number("noise_scale", noise_scale)
        self._skipping = skipping
        self._scene, self._radius = scene, _RADIUS
        self._plane, self._signs = scene.plane(), np.ones(scene.outputs)
        # The replaced row is of the first class: of several columns the others count it as "not".
        self._signs[1:] = -1.0
        self._hold(scene.rows, left_out=0)
        if scene.calibration == "published" and self._algorithm.claim(self._site) is None:
            # Otherwise the verdict would call proven noise the paper's.
            raise ParameterError(
                f"calibration must be 'proven' for {name!r}, which states no claim of its paper; "
                f"got {scene.calibration!r}."
            )
        silent = SilentNoise()
        adversary, events = self._run(silent, 1, replaced=False)
        #: What is wrong whatever chance does.
        self.findings = () if skipping else self._charged_too_little(adversary)
        gaussian = all(gaussian_mu_squared(event) is not None for event in events)
        if adversary.exact and scene.rows > _MOST_ROWS:
            self._hold(scene.rows_per_person, left_out=scene.rows - scene.rows_per_person)
        self._radius = min(_RADIUS * max(1.0, float(silent.sigma.max())), MESSAGE_BOUND)
        self.claim: Claim = (
            GaussianClaim(float(gaussian_mu(epsilon, delta)), delta)
            if gaussian
            else EpsilonClaim(epsilon, delta)
        )
        self.setting = self._words(exact=adversary.exact)

    def _charged_too_little(self, adversary: Adversary) -> tuple[Deviation, ...]:
        """Rounds in which the replaced rows move a message further than is charged."""
        people = self._scene.rows_per_person
        return tuple(
            Deviation(
                f"what is charged, round {t}: the replaced row moves the message by {apart:.8g} of "
                f"its noise, counted as {people * charged:.8g}"
            )
            for t, (apart, charged) in adversary.apart.items()
            if apart > people * charged and self._scene.calibration == "proven"
        )

    def _words(self, *, exact: bool) -> AuditSetting:
        """The audited algorithm, the attack and the measured score, in words."""
        people, scale = self._scene.rows_per_person, self._noise_scale
        rows = "the replaced row points" if people == 1 else f"the {people} replaced rows point"
        return AuditSetting(
            self._scene.words() + (f", noise times {scale:g}" if scale != 1 else ""),
            f"{self._others()}: their messages drive the party's centre "
            f"{self._radius:.4g} and more out in one direction; {rows} against it, and to "
            "opposite sides across it",
            "the privacy loss of all messages"
            if exact
            else "the messages, projected on the difference of solves without noise",
            *([f"{people} rows of one party are replaced"] if people > 1 else []),
        )

    @classmethod
    def of(cls, scene: Scene, *, noise_scale: float = 1.0) -> AlgorithmCase:
        """The worst case of a scene."""
        facts = {each.name: getattr(scene, each.name) for each in fields(scene)}
        name, epsilon, delta = (facts.pop(each) for each in ("algorithm", "epsilon", "delta"))
        return cls(name, epsilon, delta, noise_scale=noise_scale, **facts)

    @property
    def _crowd(self) -> int:
        """The other honest parties whose noise the claim relies on."""
        summation = self._algorithm.summation
        if summation is None:
            return 0
        return summation.parties - summation.colluders - 1 - self._skipping

    def _others(self) -> str:
        summation = self._algorithm.summation
        if summation is None:
            return "all other parties are the adversary's"
        return (
            f"the adversary knows all summands but the party's, and the noise of "
            f"{summation.colluders} of {summation.parties} parties"
        )

    def _hold(self, rows: int, *, left_out: int) -> None:
        """Give the party the replaced rows and others, and leave out as many rows of zeros.

        A row of zeros adds nothing to a gradient: leaving it out changes n, and c / n is kept.
        """
        scene, kind = self._scene, self._scene.kind
        self._site = one_party(
            rows,
            weight=rows / (rows + left_out),
            loss=kind.training_loss(LOSSES["logistic"], scene.options),
            server=kind.needs_server or kind.hears_everybody,
            parties=scene.parties,
            features=scene.features,
            outputs=scene.outputs,
        )
        self._site = replace(self._site, least_constant=scene.least_constant)
        self._algorithm = kind.configure(self._site, scene.settings(scene.budget()))
        slant = _best_slant(self._site, scene.penalty, scene.rounds)
        people = scene.rows_per_person
        others = np.tile(self._plane[0], (rows - people, 1))
        labels = np.tile(self._signs, (rows, 1))
        before, after = (
            Shard.from_parties([(np.vstack([np.tile(row, (people, 1)), others]), labels)])
            for row in canary_rows(slant, self._plane)
        )
        self._candidates = before, after

    def _run(
        self, noise: NoiseSource, runs: int, *, replaced: bool
    ) -> tuple[Adversary, tuple[Event, ...]]:
        """The adversary after the last round, and what the party was charged."""
        site = replace(self._site, runs=runs)
        message = self._radius * self._signs[:, None] * self._plane[0]
        if isinstance(self._algorithm, DPGD):
            message = -message  # a gradient: the model goes against it
        adversary = Adversary(self._algorithm, site, self._candidates, message, noise, self._crowd)
        outcome = run(
            self._algorithm,
            site,
            Workspace(self._candidates[replaced], site),
            rounds=self._scene.rounds,
            exchange=adversary,
            ledgers=[MemoryLedger()],
            noise=noise,
        )
        return adversary, outcome.events[0]

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The adversary's evidence after the last round, one number per run."""
        shared = SharedNoise(noise, self._noise_scale)
        return self._run(shared, runs, replaced=replaced)[0].evidence


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


class _Builder(Protocol):
    def __call__(self, epsilon: float, delta: float, *, noise_scale: float) -> Case: ...


@dataclass(frozen=True)
class Mechanism:
    """Build the worst case of a mechanism from a budget.

    Attributes
    ----------
    build
        From epsilon, delta and a factor on the noise.
    pure
        The claim has delta = 0.
    published
        The same with the noise that a paper prints, where it differs.
    """

    build: _Builder
    pure: bool = False
    published: _Builder | None = None


MECHANISMS: Final[dict[str, Mechanism]] = {
    "gaussian": Mechanism(gaussian_case),
    "exp-norm": Mechanism(
        exp_norm_case, pure=True, published=partial(exp_norm_case, calibration="published")
    ),
    "gaussian-objective": Mechanism(gaussian_objective_case),
    "inexact-solve": Mechanism(inexact_solve_case),
    "randomized-response": Mechanism(randomized_response_case, pure=True),
    "subsampled-gaussian": Mechanism(subsampled_gaussian_case),
    "describe": Mechanism(describe_case),
    **{f"infer-{family}": Mechanism(partial(infer_case, family)) for family in INFERRED},
}


def mechanism_case(
    name: str,
    epsilon: float,
    delta: float,
    *,
    noise_scale: float = 1.0,
    calibration: str = "proven",
) -> Case:
    """The worst case of the mechanism of that name, calibrated to a budget.

    Parameters
    ----------
    name
        One of :data:`MECHANISMS`.
    epsilon, delta
        What is claimed; a pure mechanism claims epsilon alone.
    noise_scale
        Multiplies the noise: below 1 the claim is false.
    calibration
        "proven", or "published" where a paper prints another noise.
    """
    if name not in MECHANISMS:
        raise unknown_name("mechanism", name, MECHANISMS)
    if calibration not in CALIBRATIONS:
        raise unknown_name("calibration", calibration, CALIBRATIONS)
    mechanism = MECHANISMS[name]
    build = mechanism.build if calibration == "proven" else mechanism.published
    if build is None:
        raise ParameterError(
            f"calibration must be 'proven' for {name!r}: no paper prints another; "
            f"got {calibration!r}."
        )
    positive_number("epsilon", epsilon)
    positive_number("noise_scale", noise_scale)
    if not mechanism.pure and not 0 < delta < 1:
        raise ParameterError(f"delta must be between 0 and 1 for {name!r}; got {delta!r}.")
    return build(epsilon, delta, noise_scale=noise_scale)


# The part of the error for the test of the noise; the bound has the rest.
_NOISE_SHARE: Final = 0.01


def audit_algorithm(
    scene: Scene,
    *,
    samples: int,
    confidence: float = 0.99,
    noise_scale: float = 1.0,
    on_progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Try to refute what an algorithm claims, in one setting.

    The bound and the test of the noise together refute a true claim with a probability of at most
    1 - confidence; the test has a hundredth of it. The noise that an algorithm of another package
    needs is not known here, so such an algorithm is only attacked.

    Parameters
    ----------
    scene
        What to audit.
    samples
        Independent runs of each data set, for the bound.
    confidence
        The probability that the verdict says nothing false.
    noise_scale
        Multiplies the noise that is really added.
    on_progress
        Called with the number of runs just made.
    """
    if not 0.5 < confidence < 1:
        raise ParameterError(f"confidence must be between 0.5 and 1; got {confidence!r}.")
    case = AlgorithmCase.of(scene, noise_scale=noise_scale)
    error = 1 - confidence
    noise = None
    if reviewed(scene.algorithm):
        noise = audit_noise(scene, false_alarm=_NOISE_SHARE * error, noise_scale=noise_scale)
        noise = replace(noise, findings=(*case.findings, *noise.findings))
    verdict = audit_case(
        case,
        samples=samples,
        confidence=1 - (1 - _NOISE_SHARE) * error,
        seed=scene.seed,
        on_progress=on_progress,
    )
    return replace(verdict, confidence=confidence, noise=noise, scene=scene)
