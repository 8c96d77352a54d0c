r"""From scores of two neighbouring data sets to a lower bound on what was really lost.

For every event E and neighbours D, D', with t = Pr'[E] and f = Pr[E],

.. math:: \epsilon \ge \ln\frac{t - \delta}{f},\qquad \mu \ge \Phi^{-1}(t) - \Phi^{-1}(f)

for whatever is (epsilon, delta)-DP, respectively mu-GDP. With a = (t + 1 - f)/2, the chance of
guessing the data set from E,

.. math:: \epsilon \ge \ln\frac{a - \delta}{1 - a},\qquad \mu \ge 2\,\Phi^{-1}(a).

The event is a threshold on a score. Which threshold, which direction and which of the two forms is
decided on runs of their own; the others count how often the event happens, and exact binomial
limits replace the probabilities:

* *rates*: Clopper-Pearson limits on t and f, each at half the error;
* *accuracy*: one Clopper-Pearson limit on a at the whole error. The right guesses are a sum of
  independent Bernoulli variables of two kinds; Hoeffding (1956) shows that its upper tail is at
  most the binomial one from one above the mean on. Counting one right guess less makes sure of
  that, whatever the rates are.

So the bound exceeds the truth with probability at most 1 - confidence, for any mechanism and any
score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from dpadmm.audit.verdict import Attack, AuditSetting, Claim, TestForm, Verdict
from dpadmm.errors import ParameterError
from dpadmm.plain import Array

__all__ = [
    "SMALLEST_SAMPLE",
    "ScoreCounts",
    "audit_scores",
    "choose_attack",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
]

_FORMS: Final[tuple[TestForm, ...]] = ("accuracy", "forward", "backward")

# Of the runs, how many choose the attack; the others measure it.
_CHOOSING_SHARE: Final = 0.25
# They choose at a smaller error than is stated, or chance would favour thresholds in thin tails.
_CHOOSING_ERROR: Final = 0.2
# Rates must promise this much more than accuracy, whose one limit is less at the mercy of chance.
_ACCURACY_LEAD: Final = 1.2
# Thresholds tried in each tail of each sample.
_TAIL_THRESHOLDS: Final = 64
#: Fewer runs of each data set than this say nothing.
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
        """At least this much is lost, but for an ``error``."""
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
        """What the observed rates would mean if they were the probabilities."""
        null, alternative = np.asarray(self.null), np.asarray(self.alternative)
        if form == "accuracy":
            accuracy = (alternative + (self.trials - null)) / (2 * self.trials)
            return float(claim.from_accuracy(accuracy))
        if form == "backward":
            null, alternative = self.trials - alternative, self.trials - null
        return float(claim.from_rates(alternative / self.trials, null / self.trials))


def choose_attack(claim: Claim, null: Array, alternative: Array, error: float) -> Attack:
    """Return the attack that promises most on these runs; any choice gives a valid bound."""
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
        # So few runs show nothing yet: take the best guess, the others may show more.
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
    """Bound from below what is lost, from independent scores of two neighbouring data sets.

    Parameters
    ----------
    claim
        What to test.
    null, alternative
        One score per independent run on D and on D', equally many. A larger score should speak
        for D'; that it does is not needed for the bound to hold.
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
