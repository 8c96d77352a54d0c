"""Do intervals of regressions cover what they say? Own simulations, noise of ten parties.

``python -m benchmarks.inference [--repetitions 500]`` prints a table and exits with 1 if a target
is missed. Rows are drawn anew in every repetition; sums are those of
:class:`~dpadmm.studies.glm.Regression` itself, over all rows at once, with the noise that ten
parties share (an honest majority: all their noise is counted, more than the guarantee counts on).

``rule`` is what the public rule says before anything is spent, from q: it takes the regression,
warns of it, or refuses it. ``given`` is the part of repetitions whose intervals are then given
without a warning, and ``weak`` the part with one; the others have none. ``mean`` is the coverage of
nominal 95% intervals given without a warning, over all coefficients, with its standard error
``+-``; ``worst`` that of the coefficient covered least often; ``all`` that of intervals with a
warning too. ``width`` is relative to intervals without privacy. ``ones`` is the part of outcomes
that are 1 where it is rare; binary columns have 10% of ones in the first to 50% in the last one,
``rare`` ones 3% to 15%.

Targets, where q is taken without a warning and 5% of the repetitions at least are given intervals
without one: ``mean`` between 93.5 and 97, and ``worst`` at least 92.5; at n = 10,000, d = 5,
logistic, logit sd 1, normal columns: intervals at most 1.7 (epsilon 1) and 1.15 (epsilon 3) times
as wide as without privacy. A figure outside its target is named ``outside``, and counted. It is
``MISSED`` where chance does not explain it at the 1% level: a mean that is further than 2.33 of its
errors from its target, a worst below ``least``, which a coefficient that covers 92.5% falls below
with a chance of 1% over all d coefficients of its row.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from dpadmm.errors import ConvergenceError
from dpadmm.run.charges import EvaluationTerms
from dpadmm.studies.design import Design
from dpadmm.studies.effects import RULES, Rule
from dpadmm.studies.glm import Regression, RegressionFacts, exact_estimate
from dpadmm.studies.study import Sums, plan_study

PARTIES = 10
PERIODS = 6
DELTA = 1e-5
MEAN = (0.935, 0.97)
WORST = 0.925
# Of repetitions: where fewer are given intervals without a warning, nothing can be said of them.
ACCEPTED = 0.05
# Standard errors: a mean on its target is beyond with a chance of 1%.
CHANCE = 2.33


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    family: str
    columns: str
    rows: int
    features: int
    epsilon: float
    spread: float  # standard deviation of the linear predictor
    events: float | None = None  # the part of outcomes that are 1, else as LEVELS say
    narrow: float | None = None  # a target for the width, relative to the non-private one


# Of ones in binary columns, from the first one to the last.
CHANCES = {"binary": (0.1, 0.5), "rare": (0.03, 0.15)}


def columns_of(kind: str, random: np.random.Generator, rows: int, count: int) -> np.ndarray:
    if kind == "normal":
        return random.standard_normal((rows, count))
    if kind == "correlated":
        common = random.standard_normal((rows, 1))
        return math.sqrt(0.5) * (random.standard_normal((rows, count)) + common)
    if kind == "skewed":
        return np.minimum(random.exponential(size=(rows, count)), 6.0)
    if kind in CHANCES:
        low, high = CHANCES[kind]
        return (random.random((rows, count)) < np.linspace(low, high, count)).astype(np.float64)
    third = count // 3
    parts = ("binary", third), ("skewed", third), ("correlated", count - 2 * third)
    return np.hstack([columns_of(name, random, rows, size) for name, size in parts if size])


def bounds_of(kind: str, count: int) -> dict[int, tuple[float, float]]:
    ends = {"normal": (-4, 4), "correlated": (-4, 4), "skewed": (0, 6)}
    ends |= dict.fromkeys(CHANCES, (0, 1))
    if kind in ends:
        return dict.fromkeys(range(count), ends[kind])
    third = count // 3
    kinds = ["binary"] * third + ["skewed"] * third + ["correlated"] * (count - 2 * third)
    return {place: ends[each] for place, each in enumerate(kinds)}


def responses_of(setting: Setting, random: np.random.Generator, eta: np.ndarray) -> np.ndarray:
    rows = len(eta)
    if setting.family == "gaussian":
        return (eta + random.standard_normal(rows))[:, None]
    if setting.family == "binomial":
        return (random.random(rows) < expit(eta)).astype(np.float64)[:, None]
    if setting.family == "poisson":
        return random.poisson(np.exp(eta)).astype(np.float64)[:, None]
    found = np.column_stack([np.zeros(rows), np.full(rows, float(PERIODS)), np.zeros(rows)])
    lost, at_risk = random.integers(2, PERIODS + 4, rows), np.ones(rows, np.bool_)
    for period in range(PERIODS):
        event = at_risk & (random.random(rows) < expit(eta + 0.1 * period))
        found[event, 1:] = (period + 1, 1)
        at_risk &= ~event
        leaving = at_risk & (lost == period + 1)
        found[leaving, 1] = period + 1
        at_risk &= ~leaving
    return found


LEVELS = {"gaussian": 0.0, "binomial": -1.0, "poisson": -0.3, "survival": -2.0}


def level_of(setting: Setting, centred: np.ndarray) -> float:
    """The linear predictor in the middle, for these differences from it."""
    if setting.events is None:
        return LEVELS[setting.family]
    return float(brentq(lambda level: expit(centred + level).mean() - setting.events, -40, 40))


class Trials(NamedTuple):
    """What the repetitions of a setting found, whatever the rule says of them.

    Attributes
    ----------
    strength
        q.
    hits
        Whether an interval covers: ``(repetitions, features)``.
    ratios, settled, begun
        Of each repetition.
    widths
        Relative to those without privacy, of the first repetitions.
    """

    strength: np.ndarray
    hits: np.ndarray
    ratios: np.ndarray
    settled: np.ndarray
    begun: np.ndarray
    widths: np.ndarray


@dataclass(frozen=True)
class Found:
    """What a setting gave, by the rule."""

    setting: Setting
    trials: Trials

    @property
    def rule(self) -> Rule:
        return RULES[self.setting.family]

    @property
    def before(self) -> str:
        strength = float(self.trials.strength)
        if strength < self.rule.refused:
            return "refuses"
        return "warns" if strength < self.rule.warned else "takes"

    @property
    def given(self) -> np.ndarray:
        """Whether a repetition's intervals are given."""
        return self.trials.settled & (self.trials.ratios >= self.rule.least)

    @property
    def good(self) -> np.ndarray:
        """Whether they are given without a warning."""
        return self.given & self.trials.begun & (self.trials.ratios >= self.rule.better)

    @property
    def accepted(self) -> bool:
        return self.before == "takes" and self.good.mean() >= ACCEPTED

    def mean(self, which: np.ndarray) -> float:
        return float(self.trials.hits[which].mean()) if which.any() else math.nan

    @property
    def error(self) -> float:
        """Of the mean: repetitions are independent, the coefficients of one are not."""
        each = self.trials.hits[self.good].mean(axis=1)
        # Of few repetitions none may miss: no less than if coefficients were independent.
        least = math.sqrt(0.95 * 0.05 / self.setting.features)
        return max(float(each.std()), least) / math.sqrt(len(each)) if len(each) else math.nan

    @property
    def worst(self) -> float:
        hits = self.trials.hits[self.good]
        return float(hits.mean(axis=0).min()) if len(hits) else math.nan

    @property
    def least(self) -> float:
        """What the worst must reach at so many repetitions."""
        count = int(self.good.sum())
        return float(binom.ppf(0.01 / self.setting.features, count, WORST)) / max(count, 1)

    @property
    def width(self) -> float:
        return float(np.median(self.trials.widths))

    @property
    def outside(self) -> dict[str, bool]:
        """The targets that figures miss, and whether by more than chance explains."""
        outside, mean, chance = {}, self.mean(self.good), CHANCE * self.error
        if self.accepted:
            if mean < MEAN[0]:
                outside["mean"] = mean < MEAN[0] - chance
            if mean > MEAN[1]:
                outside["mean high"] = mean > MEAN[1] + chance
            if self.worst < WORST:
                outside["worst"] = self.worst < self.least
        if self.setting.narrow is not None and not self.width <= self.setting.narrow:
            outside["width"] = True
        return outside

    @property
    def missed(self) -> list[str]:
        return [target for target, beyond in self.outside.items() if beyond]

    @property
    def note(self) -> str:
        within = [target for target in self.outside if target not in self.missed]
        notes = ["MISSED: " + ", ".join(self.missed)] if self.missed else []
        notes += ["outside: " + ", ".join(within)] if within else []
        return "; ".join(notes or ["" if self.accepted else "not accepted"])

    def line(self) -> str:
        s = self.setting
        figures = (self.mean(self.good), self.error, self.worst, self.least)
        return (
            f"{s.family:9}{s.columns:11}{s.rows:6}{s.features:3}{s.epsilon:4g}{s.spread:4g}"
            f"{'' if s.events is None else f'{s.events:.0%}':>5}{len(self.good):5}"
            f"{float(self.trials.strength):5.0f} {self.before:7}"
            f"{float(np.median(self.trials.ratios)):6.2f}"
            f"{100 * self.good.mean():5.0f}%{100 * (self.given & ~self.good).mean():4.0f}%"
            + "".join(f"{100 * each:6.1f}" for each in figures)
            + f"{100 * self.mean(self.given):6.1f}{self.width:6.2f} {self.note}"
        ).rstrip()


HEAD = (
    f"{'family':9}{'columns':11}{'n':>6}{'d':>3}{'eps':>4}{'sd':>4}{'ones':>5}{'reps':>5}"
    f"{'q':>5} {'rule':7}{'ratio':>6}{'given':>6}{'weak':>5}"
    f"{'mean':>6}{'+-':>6}{'worst':>6}{'least':>6}{'all':>6}{'width':>6}"
)


def repeat(setting: Setting, repetitions: int, seed: int = 0) -> Trials:
    """Draw rows, add them up privately and look whether intervals cover, so many times."""
    seeds = [setting.rows, setting.features, int(10 * setting.epsilon)]
    random = np.random.default_rng([*seeds, seed] if seed else seeds)
    count, survival = setting.features, setting.family == "survival"
    design = Design.of(
        [f"x{place}" for place in range(count)], bounds=bounds_of(setting.columns, count)
    )
    many = columns_of(setting.columns, random, 20000, count)
    covariance, middle = np.atleast_2d(np.cov(many.T)), many.mean(axis=0)
    unit = 5 * math.sqrt(1 + setting.spread**2) if setting.family == "gaussian" else 1.0
    facts = RegressionFacts(setting.family, count, PERIODS if survival else None, setting.rows)
    options = {"family": facts.family, "columns": count, "periods": facts.periods}
    planned = plan_study(
        Regression,
        options,
        {str(party): setting.rows // PARTIES for party in range(PARTIES)},
        EvaluationTerms(setting.epsilon, DELTA, noise="shared"),
        rounds=len(facts.courses()),
    )
    study = planned.algorithm
    assert isinstance(study, Regression)
    change, first = design.change(facts.constants, unit), facts.constants
    hits, widths, doubts = [], [], []
    for repetition in range(repetitions):
        beta = random.standard_normal(count)
        beta *= setting.spread / math.sqrt(beta @ covariance @ beta)
        rows = columns_of(setting.columns, random, setting.rows, count)
        eta = (rows - middle) @ beta + level_of(setting, (many - middle) @ beta)
        y = responses_of(setting, random, eta)
        if setting.family == "gaussian":
            y = y / unit
        prepared = design.prepared(rows)
        state = Sums(np.zeros((len(study.courses), study.numbers)), np.zeros(1))
        for t, (block,) in enumerate(study.courses):
            sums = study.add_up(state, t, prepared, y) * (block.scale * study.scale)
            noise = math.sqrt(study.variance) * random.standard_normal(block.size)
            state.sums[t, : block.size] = sums + noise
        found = study.estimate(state).mapped(change)
        error = np.sqrt(np.diag(found.covariance))[first:]
        doubts.append((found.ratio, found.settled, found.begun))
        hits.append(np.abs(found.coefficients[first:] - beta) <= 1.959964 * error)
        if repetition < min(20, 200000 // setting.rows):
            # Without privacy, rows that separate the outcomes have no interval at all.
            with contextlib.suppress(ConvergenceError):
                exact = exact_estimate(facts, [(prepared, y)]).mapped(change)
                widths.append(error / np.sqrt(np.diag(exact.covariance))[first:])
    ratios, settled, begun = (np.array(each) for each in zip(*doubts, strict=True))
    strength = np.array(study.strength)
    return Trials(strength, np.array(hits), ratios, settled, begun, np.concatenate(widths))


def settings() -> Iterator[Setting]:
    """Small ones first, as they take least time."""
    kinds = ("normal", "correlated", "skewed", "binary", "mixed")
    spreads = {"binomial": (1.0, 3.0), "gaussian": (1.0,), "poisson": (0.5,), "survival": (1.0,)}
    pairs = [(family, spread) for family, each in spreads.items() for spread in each]
    for family, spread in pairs:
        for kind in (*kinds, "rare"):
            yield Setting(family, kind, 2000, 3, 3.0, spread)
        yield Setting(family, "mixed", 2000, 3, 1.0, spread)
    for family, spread in pairs:
        logistic = family == "binomial" and spread == 1.0
        for kind in (*kinds, "rare"):
            narrow = logistic and kind == "normal"
            yield Setting(family, kind, 10000, 5, 1.0, spread, narrow=1.7 if narrow else None)
            yield Setting(family, kind, 10000, 5, 3.0, spread, narrow=1.15 if narrow else None)
    for kind in ("normal", "mixed", "rare"):
        for events in (0.05, 0.02):
            yield Setting("binomial", kind, 2000, 3, 3.0, 1.0, events)
            yield Setting("binomial", kind, 10000, 5, 1.0, 1.0, events)
            yield Setting("binomial", kind, 10000, 5, 3.0, 1.0, events)
    for family, spread in pairs:
        yield Setting(family, "correlated", 10000, 15, 3.0, spread)
        yield Setting(family, "mixed", 10000, 15, 3.0, spread)
        yield Setting(family, "mixed", 10000, 15, 1.0, spread)
    for family, spread in pairs:
        for epsilon in (1.0, 3.0):
            yield Setting(family, "mixed", 50000, 15, epsilon, spread)
            yield Setting(family, "mixed", 50000, 40, epsilon, spread)
    yield Setting("binomial", "rare", 50000, 15, 3.0, 1.0, 0.02)


def measured(setting: Setting, repetitions: int, seed: int) -> Found:
    """What a setting gives; large ones are measured in fewer repetitions."""
    if setting.rows > 10000:
        repetitions = min(repetitions, 2000 // setting.features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Found(setting, repeat(setting, repetitions, seed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--family", choices=RULES)
    parser.add_argument("--most-rows", type=int, default=50000, help="leave larger settings out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    chosen = [
        each
        for each in settings()
        if asked.family in (None, each.family) and each.rows <= asked.most_rows
    ]
    print(HEAD)
    missed = outside = 0
    begin, measure = time.time(), partial(measured, repetitions=asked.repetitions, seed=asked.seed)
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for found in pool.imap(measure, chosen):
            missed, outside = missed + len(found.missed), outside + len(found.outside)
            print(found.line(), flush=True)
    print(
        f"{len(chosen)} settings; {outside} figures outside their targets, {missed} of them by "
        f"more than chance explains; {time.time() - begin:.0f} s"
    )
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
