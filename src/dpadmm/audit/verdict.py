r"""The claim, the test and the verdict of an audit.

**Bounds.** From scores of two neighbouring data sets to a lower bound on the privacy loss.

For every event E and neighbours D, D', with t = Pr'[E] and f = Pr[E],

.. math:: \epsilon \ge \ln\frac{t - \delta}{f},\qquad \mu \ge \Phi^{-1}(t) - \Phi^{-1}(f)

for whatever is (epsilon, delta)-DP, respectively mu-GDP. With a = (t + 1 - f)/2, the chance of
guessing the data set from E,

.. math:: \epsilon \ge \ln\frac{a - \delta}{1 - a},\qquad \mu \ge 2\,\Phi^{-1}(a).

The event is a threshold on a score. Separate runs choose the threshold, the direction and one of
the two forms. The other runs count how often the event happens, and exact binomial limits replace
the probabilities:

* *rates*: Clopper-Pearson limits on t and f, each at half the error;
* *accuracy*: one Clopper-Pearson limit on a at the whole error. The right guesses are a sum of
  independent Bernoulli variables of two kinds; Hoeffding (1956) shows that its upper tail is at
  most the binomial one from one above the mean on. Counting one right guess less makes sure of
  that, whatever the rates are.

So the bound exceeds the truth with probability at most 1 - confidence, for any mechanism and any
score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv, ndtri

from dpadmm.audit.scene import Scene
from dpadmm.audit.witness import NoiseReport
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtLeast, AtMost, pair
from dpadmm.privacy.gaussian import gaussian_epsilon

_FORMS: Final[tuple[TestForm, ...]] = ("accuracy", "forward", "backward")

# The share of the runs that choose the attack; the others measure it.
_CHOOSING_SHARE: Final = 0.25
# They choose at a smaller error than stated, or chance would favour thresholds in thin tails.
_CHOOSING_ERROR: Final = 0.2
# Rates must promise this much more than accuracy, whose one limit depends less on chance.
_ACCURACY_LEAD: Final = 1.2
# Thresholds tried in each tail of each sample.
_TAIL_THRESHOLDS: Final = 64
#: The fewest runs of each data set that an audit accepts.
SMALLEST_SAMPLE: Final = 40


def _check_error(error: float) -> None:
    if not 0 < error < 0.5:
        raise ParameterError(f"the error must be between 0 and 0.5; got {error!r}.")


def clopper_pearson_lower(successes: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Return the p with Pr[Binomial(trials, p) >= successes] = error; 0 without successes.

    A probability lies below this limit with probability at most ``error``.
    """
    _check_error(error)
    count, total = (np.asarray(value, dtype=np.float64) for value in (successes, trials))
    some = np.maximum(count, 1.0)
    limit: Array = np.where(count > 0, betaincinv(some, total - some + 1, error), 0.0)[()]
    return limit


def clopper_pearson_upper(successes: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Return the p with Pr[Binomial(trials, p) <= successes] = error; 1 without failures."""
    _check_error(error)
    count, total = (np.asarray(value, dtype=np.float64) for value in (successes, trials))
    some = np.minimum(count, total - 1)
    limit: Array = np.where(count < total, betainccinv(some + 1, total - some, error), 1.0)[()]
    return limit


@dataclass(frozen=True)
class ScoreCounts:
    """How many of ``trials`` scores of each data set are above a threshold, or some of them."""

    null: ArrayLike
    alternative: ArrayLike
    trials: int

    def lower_bound(self, claim: Claim, form: TestForm, error: float) -> Array:
        """The lower bound on the loss; it is wrong with probability at most ``error``."""
        null, alternative = np.asarray(self.null), np.asarray(self.alternative)
        if form == "accuracy":
            right = alternative + (self.trials - null)
            return claim.from_accuracy(
                clopper_pearson_lower(np.maximum(right - 1, 0), 2 * self.trials, error)
            )
        if form == "backward":
            null, alternative = self.trials - alternative, self.trials - null
        return claim.from_rates(
            clopper_pearson_lower(alternative, self.trials, error / 2),
            clopper_pearson_upper(null, self.trials, error / 2),
        )

    def estimate(self, claim: Claim, form: TestForm) -> float:
        """The loss if the observed rates were the probabilities."""
        null, alternative = np.asarray(self.null), np.asarray(self.alternative)
        if form == "accuracy":
            accuracy = (alternative + (self.trials - null)) / (2 * self.trials)
            return float(claim.from_accuracy(accuracy))
        if form == "backward":
            null, alternative = self.trials - alternative, self.trials - null
        return float(claim.from_rates(alternative / self.trials, null / self.trials))


def choose_attack(claim: Claim, null: Array, alternative: Array, error: float) -> Attack:
    """Return the best attack on these runs; any choice gives a valid bound."""
    ordered = np.sort(null), np.sort(alternative)
    trials = len(null)
    depths = np.unique(np.geomspace(1, max(trials // 2, 1), _TAIL_THRESHOLDS).astype(np.intp))
    places = np.concatenate([depths - 1, trials - depths])
    thresholds = np.unique(np.concatenate([scores[places] for scores in ordered]))
    above = [trials - np.searchsorted(scores, thresholds, side="right") for scores in ordered]
    counts = ScoreCounts(above[0], above[1], trials)
    bounds = np.stack([counts.lower_bound(claim, form, error) for form in _FORMS])
    bounds[0] *= _ACCURACY_LEAD
    if not bounds.max() > 0:
        # So few runs show nothing yet: take the best guess, and let the other runs show more.
        return Attack(float(thresholds[np.argmax(above[1] - above[0])]), "accuracy")
    form, place = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    return Attack(float(thresholds[place]), _FORMS[form])


def audit_scores(
    claim: Claim,
    null: Array,
    alternative: Array,
    *,
    setting: AuditSetting,
    confidence: float = 0.99,
) -> Verdict:
    """Bound the privacy loss from below, from independent scores of two neighbouring data sets.

    Parameters
    ----------
    claim
        What to test.
    null, alternative
        One score per independent run on D and on D', equally many. A larger score should indicate
        D', but the bound holds even if it does not.
    setting
        What was run, for the verdict.
    confidence
        The probability with which the bound holds.
    """
    if not 0.5 < confidence < 1:
        raise ParameterError(f"confidence must be between 0.5 and 1; got {confidence!r}.")
    if null.shape != alternative.shape or null.ndim != 1:
        raise ParameterError(
            "null and alternative must be two equally long lists of scores; "
            f"got {null.shape} and {alternative.shape}."
        )
    if len(null) < SMALLEST_SAMPLE:
        raise ParameterError(f"samples must be at least {SMALLEST_SAMPLE}; got {len(null)}.")
    if np.isnan(null).any() or np.isnan(alternative).any():
        raise ParameterError("scores must be numbers; some are not.")
    error = 1 - confidence
    cut = int(_CHOOSING_SHARE * len(null))
    attack = choose_attack(claim, null[:cut], alternative[:cut], _CHOOSING_ERROR * error)
    counts = ScoreCounts(
        np.count_nonzero(null[cut:] > attack.threshold),
        np.count_nonzero(alternative[cut:] > attack.threshold),
        len(null) - cut,
    )
    return Verdict(
        claim=claim,
        lower_bound=float(counts.lower_bound(claim, attack.form, error)),
        estimate=counts.estimate(claim, attack.form),
        confidence=confidence,
        samples=len(null),
        attack=attack,
        setting=setting,
    )


class Claim(ABC):
    """What a mechanism claims to guarantee. Subclasses are frozen dataclasses and final."""

    #: What the number measures.
    quantity: str

    @property
    @abstractmethod
    def value(self) -> float:
        """The claimed number."""

    @abstractmethod
    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """The least value that allows an event these probabilities under D' and D."""

    @abstractmethod
    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """The least value that allows guessing the data set right this often."""

    @abstractmethod
    def words(self) -> str:
        """The claim in words."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The claim as plain data."""


@final
@dataclass(frozen=True)
class EpsilonClaim(Claim):
    """Pr'[E] <= e^epsilon Pr[E] + delta for every event, in both directions."""

    epsilon: float
    delta: float = 0.0
    quantity = "epsilon"

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ParameterError(f"epsilon must be a non-negative number; got {self.epsilon!r}.")
        if not 0 <= self.delta < 1:
            raise ParameterError(f"delta must be in [0, 1); got {self.delta!r}.")

    @property
    def value(self) -> float:
        """Epsilon."""
        return self.epsilon

    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """``ln((t - delta) / f)``, at least 0."""
        return _log_ratio(np.asarray(true_positive) - self.delta, np.asarray(false_positive))

    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """``ln((a - delta) / (1 - a))``, at least 0."""
        return _log_ratio(np.asarray(accuracy) - self.delta, 1.0 - np.asarray(accuracy))

    def words(self) -> str:
        """Epsilon and delta."""
        if self.delta == 0:
            return f"{AtMost(self.epsilon)}-differential privacy"
        return f"{pair(self.epsilon, self.delta)}-differential privacy"

    def to_dict(self) -> dict[str, Any]:
        """Epsilon and delta."""
        return {"epsilon": self.epsilon, "delta": self.delta}


@final
@dataclass(frozen=True)
class GaussianClaim(Claim):
    """No event tells D' from D better than it tells N(mu, 1) from N(0, 1).

    Parameters
    ----------
    mu
        The claimed parameter.
    delta
        The delta at which the claim is also shown as an epsilon; the test does not use it.
    """

    mu: float
    delta: float = 1e-5
    quantity = "mu"

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise ParameterError(f"mu must be a non-negative number; got {self.mu!r}.")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must be in (0, 1); got {self.delta!r}.")

    @property
    def value(self) -> float:
        """Mu."""
        return self.mu

    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """``Phi^-1(t) - Phi^-1(f)``, at least 0."""
        hit, miss = np.asarray(true_positive), np.asarray(false_positive)
        certain = (hit <= 0) | (miss >= 1)
        gap = ndtri(np.where(certain, 0.5, hit)) - ndtri(np.where(certain, 0.5, miss))
        return np.maximum(gap, 0.0)

    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """``2 Phi^-1(a)``, at least 0."""
        bound: Array = 2 * ndtri(np.maximum(np.asarray(accuracy), 0.5))
        return bound

    def words(self) -> str:
        """Mu and what it means at delta."""
        epsilon = float(gaussian_epsilon(self.mu, self.delta))
        return (
            f"{AtMost(self.mu)}-GDP, the Gaussian form of "
            f"{pair(epsilon, self.delta)}-differential privacy"
        )

    def to_dict(self) -> dict[str, Any]:
        """Mu, and the epsilon it means at delta."""
        epsilon = float(gaussian_epsilon(self.mu, self.delta))
        return {"mu": self.mu, "epsilon": epsilon, "delta": self.delta}


def _log_ratio(above: Array, below: Array) -> Array:
    useful = (above > below) & (below > 0)
    ratio = np.where(useful, above, 1.0) / np.where(useful, below, 1.0)
    return np.where((above > 0) & (below <= 0), np.inf, np.log(ratio))


TestForm = Literal["accuracy", "forward", "backward"]


@dataclass(frozen=True)
class Attack:
    """How an attacker guesses the data set from a score.

    Attributes
    ----------
    threshold
        The event is a score above it.
    form
        "accuracy", or the rates of the event under D' over D ("forward"), or those of its
        complement under D over D' ("backward").
    """

    threshold: float
    form: TestForm

    def words(self) -> str:
        """The attack in words."""
        sign, over = ("<=", "D over D'") if self.form == "backward" else (">", "D' over D")
        if self.form == "accuracy":
            return f"share of right guesses, D' being guessed where the score > {self.threshold:g}"
        return f"probability of score {sign} {self.threshold:g}, {over}"


@dataclass(frozen=True)
class AuditSetting:
    """What was tested, in words.

    Attributes
    ----------
    subject
        The mechanism or algorithm with its parameters.
    worst_case
        The neighbouring data sets and the adversary.
    statistic
        The score.
    adjacency
        What makes two data sets neighbours.
    """

    subject: str
    worst_case: str
    statistic: str
    adjacency: str = "one row of one party is replaced (features and label)"


@dataclass(frozen=True)
class Verdict:
    """What an audit found.

    Attributes
    ----------
    claim
        What was claimed.
    lower_bound
        At least this much is really lost, with probability ``confidence`` over the audit's draws.
    estimate
        The same without allowance for chance: not a bound, but the limit of more runs.
    samples
        Runs of each data set, those that chose the attack included.
    attack, setting
        How the data sets were distinguished, and what was tested.
    noise, scene
        What the test of the noise of a whole algorithm found, and where; None for a mechanism.
    """

    claim: Claim
    lower_bound: float
    estimate: float
    confidence: float
    samples: int
    attack: Attack
    setting: AuditSetting
    noise: NoiseReport | None = None
    scene: Scene | None = None

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence."""
        return self.exceeded or (self.noise is not None and self.noise.refuted)

    @property
    def exceeded(self) -> bool:
        """Whether the loss exceeds the claim."""
        return self.lower_bound > self.claim.value

    @property
    def recovered(self) -> float:
        """The lower bound as a share of the claim."""
        return self.lower_bound / self.claim.value if self.claim.value > 0 else math.inf

    @property
    def verdict(self) -> str:
        """Whether the claim stands, in words: consistent with the claim, or refuted."""
        return "refuted" if self.refuted else "consistent with the claim"

    def words(self) -> str:
        """The verdict as sentences."""
        quantity = self.claim.quantity
        found = (
            f"{self.setting.subject}: with confidence {self.confidence:g}, {quantity} is at least "
            f"{AtLeast(self.lower_bound):4}; claimed is {AtMost(self.claim.value):4}."
        )
        if self.noise is not None:
            found = f"{found} {self.noise.words()}"
        if self.exceeded:
            return f"{found} Refuted: this is not {self.claim.words()}."
        if self.refuted:
            return f"{found} The claim of {self.claim.words()} does not follow from such noise."
        return (
            f"{found} Consistent with the claim of {self.claim.words()}; an audit cannot prove it."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines."""
        found: dict[str, Any] = {
            "subject": self.setting.subject,
            "adjacency": self.setting.adjacency,
            "worst_case": self.setting.worst_case,
            "statistic": self.setting.statistic,
            "quantity": self.claim.quantity,
            "claimed": self.claim.to_dict(),
            "lower_bound": self.lower_bound,
            "estimate": self.estimate,
            "confidence": self.confidence,
            "samples": self.samples,
            "attack": {"threshold": self.attack.threshold, "form": self.attack.form},
            "refuted": self.refuted,
            "verdict": self.verdict,
        }
        if self.scene is not None:
            found["setting"] = self.scene.to_dict()
        if self.noise is not None:
            found["noise"] = self.noise.to_dict()
        return found
