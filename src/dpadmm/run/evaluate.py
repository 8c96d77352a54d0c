r"""How good a released model is, on rows that nobody may see: one charged histogram.

An evaluation is a run of one round (:mod:`dpadmm.evaluation.release`): announced, reserved,
computed, committed and exchanged like any other, under a name of its own in the ledgers. On rows
that were kept out of training it has an account of its own, and a person's cost is the larger of
the two; on the rows that were trained on it adds up.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Final

import numpy as np

from dpadmm.algorithms import HISTOGRAM
from dpadmm.algorithms.base import Settings
from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.evaluation.release import HistogramRelease
from dpadmm.ledger.balance import RowRange
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.privacy.events import parts_add_up, single_events
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site
from dpadmm.problem.topologies import build_topology
from dpadmm.run.engine import Outcome
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan, announced, budget_for, plan
from dpadmm.run.train import train


@dataclass(frozen=True)
class Split:
    r"""Which rows are trained on and which are kept out: the last block of every party's rows.

    .. math:: h_i = \lceil \mathrm{holdout}\cdot n_i \rceil,\qquad
              \text{train } 1..n_i-h_i,\quad \text{held out } n_i-h_i+1..n_i

    A public rule, the same for every party, about positions in a list whose order is given: an
    order that depends on what rows hold, such as a sorted export, is not covered by the guarantee,
    and makes the last rows unlike the others. Nor is an order that changes between a training and
    an evaluation, such as that of a query without one: rows that were trained on would be called
    kept out, and charged to the other account.

    Parameters
    ----------
    holdout
        The part of every party's rows that is kept out of training; 0 keeps none.
    """

    holdout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ParameterError(
                f"holdout must be at least 0 and below 1, a part of every party's rows; got "
                f"{self.holdout!r}."
            )

    def train(self, rows: int) -> RowRange | None:
        """The positions that are trained on, of so many; None for all."""
        return RowRange(0, self._edge(rows)) if self.holdout else None

    def held_out(self, rows: int) -> RowRange | None:
        """The positions that are evaluated on: those kept out, or None for all."""
        return RowRange(self._edge(rows), rows) if self.holdout else None

    def _edge(self, rows: int) -> int:
        # As it is written: in doubles 0.07 of 100 is a little more than 7.
        kept_out = math.ceil(Fraction(repr(float(self.holdout))) * rows)
        if kept_out >= rows:
            raise ParameterError(
                f"holdout must leave every party a row to train on; {self.holdout!r} of {rows} "
                f"rows keeps out {kept_out}. Lower it."
            )
        return rows - kept_out

    def train_rows(self, rows: int) -> int:
        """How many are trained on."""
        return self._edge(rows) if self.holdout else rows

    def evaluated_rows(self, rows: int) -> int:
        """How many are evaluated on."""
        return rows - self._edge(rows) if self.holdout else rows


#: The part of a run's mu^2 that probabilities on the rows of the training take.
HISTOGRAM_SHARE: Final = 0.1
# Between the name of a run and the word for the terms of its evaluation.
_EVALUATION: Final = " evaluation "


@dataclass(frozen=True)
class Wish:
    """What is asked for beside the training.

    Attributes
    ----------
    split
        Which rows are kept out of training.
    evaluate
        Evaluate the model on them.
    probabilities
        Fit probabilities to the histogram: that of the evaluation, or one of the training's rows.
    """

    split: Split = field(default_factory=Split)
    evaluate: bool = False
    probabilities: bool = False

    def __post_init__(self) -> None:
        if self.evaluate and not self.split.holdout:
            raise ParameterError(
                "evaluate must have rows that were kept out of training; got no holdout. Add one, "
                "such as holdout = 0.2; or evaluate afterwards on the rows that were trained on "
                "with dpadmm evaluate, which adds to what is spent and is optimistic."
            )

    @property
    def histogram(self) -> bool:
        """Whether a histogram is released after the training."""
        return self.evaluate or self.probabilities


@dataclass(frozen=True)
class WholePlan:
    """A training and the evaluation after it, every number but the model fixed; without any row.

    Attributes
    ----------
    training
        The run.
    wish
        What was asked for beside it.
    classes, rows
        How many there are; public number of rows of each party, those kept out included.
    terms
        Of the histogram; None where none is wanted.
    """

    training: Plan
    wish: Wish
    classes: int
    rows: Mapping[str, int]
    terms: EvaluationTerms | None = None

    def evaluation(self, weights: Array) -> Plan:
        """The evaluation of a model."""
        assert self.terms is not None
        return plan_evaluation(weights, self.classes, self.evaluated_rows, self.terms)

    def expected(self) -> Plan | None:
        """The evaluation of a model that is not there yet: it costs the same."""
        if self.terms is None:
            return None
        return self.evaluation(np.ones((self.training.site.outputs, self.training.site.features)))

    @property
    def evaluated_rows(self) -> dict[str, int]:
        """Public number of rows of each party that are evaluated on."""
        return {name: self.wish.split.evaluated_rows(rows) for name, rows in self.rows.items()}


def plan_whole(
    parameters: TrainingParameters,
    rows: Mapping[str, int],
    *,
    features: int,
    classes: int,
    wish: Wish,
) -> WholePlan:
    """Fix a run with what is asked for beside it; every refusal happens here.

    Parameters
    ----------
    parameters
        What to do; its budget is for a person, whatever part the rows are in.
    rows
        Public number of rows of each party, those kept out included.
    features, classes
        Dimension of a row, and how many classes there are.
    wish
        What is asked for beside the training.
    """
    counts = [wish.split.train_rows(count) for count in rows.values()]
    outputs = 1 if classes == 2 else classes

    def planned(told: TrainingParameters) -> Plan:
        return plan(told, counts, features=features, outputs=outputs, names=tuple(rows))

    training, terms = planned(parameters), None
    if wish.histogram:
        if training.budget is None:
            raise ParameterError(
                f"evaluate and probabilities must be left out with the algorithm "
                f"{training.algorithm.name!r}, which is not private: a histogram would be the only "
                "thing that is. Use loss = 'logistic' for probabilities, and dpadmm evaluate."
            )
        refuse_apart(training)
        terms = EvaluationTerms.of_run(parameters)
        if wish.split.holdout:
            _refuse_both_parts(training)
        else:
            trained, counted = shared_budgets(training)
            training = planned(replace(parameters, epsilon=trained))
            terms = replace(terms, epsilon=counted)
    whole = WholePlan(training, wish, classes, dict(rows), terms)
    whole.expected()
    return whole


def refuse_apart(training: Plan) -> None:
    """Refuse to count the labels of a run that protects them apart from rows."""
    if training.algorithm.label_noise is not None:
        raise ParameterError(
            "an evaluation on private rows, and probabilities, must be left out with the "
            f"algorithm {training.algorithm.name!r}: a histogram counts true labels, which it "
            "protects apart from rows. Evaluate on public rows."
        )


def adds_up(training: Plan) -> bool:
    """Whether an evaluation of other rows adds to what the training costs a person."""
    budget = training.budget
    events = chain(*announced(training))
    return budget is not None and parts_add_up(events, budget.rows_per_person)


def _refuse_both_parts(training: Plan) -> None:
    """Refuse a budget that a person with rows in both parts would exceed."""
    if adds_up(training):
        assert training.budget is not None
        raise ParameterError(
            "rows_per_person must be 1 to evaluate on rows kept out of training with the algorithm "
            f"{training.algorithm.name!r}; got {training.budget.rows_per_person}: its releases are "
            "not Gaussian, so that what both parts cost a person with rows in each adds up, beyond "
            "epsilon. Use an algorithm with Gaussian releases, such as 'dp-gd', or train without "
            "evaluate and probabilities."
        )


def _gaussian(planned: Plan) -> bool:
    """Whether every release of a run is Gaussian."""
    singles = chain(*map(single_events, chain(*announced(planned))))
    return all(gaussian_mu_squared(part, 1) is not None for part, _ in singles)


@dataclass(frozen=True)
class EvaluationTerms:
    """What an evaluation costs, and whose noise it gets; all of it public.

    Attributes
    ----------
    epsilon, delta
        What each party may spend on it: a number, or one for each party by its name.
    rows_per_person
        How many rows are replaced at once.
    noise, colluders
        As the options of ``dp-gd`` have them.
    """

    epsilon: float | Mapping[Any, float]
    delta: float | Mapping[Any, float]
    rows_per_person: int = 1
    noise: str = "own"
    colluders: int | None = None

    @classmethod
    def of_run(cls, parameters: TrainingParameters) -> EvaluationTerms:
        """Those of a run: its budget, and shared noise where its training shares it."""
        options = parameters.algorithm_options
        shared = options.get("noise") == "shared"
        return cls(
            parameters.epsilon,
            parameters.delta,
            parameters.rows_per_person,
            "shared" if shared else "own",
            options.get("colluders") if shared else None,
        )


def plan_evaluation(
    weights: Array, classes: int, rows: Mapping[str, int], terms: EvaluationTerms
) -> Plan:
    """Check every parameter against the public facts and fix the release; no row is read.

    Parameters
    ----------
    weights
        Of the released model, ``(outputs, features)``, for rows as they are laid out.
    classes
        How many there are.
    rows
        Public number of rows that each party evaluates, in the order of the parties.
    terms
        What it may cost.
    """
    counts = np.array(list(rows.values()), dtype=np.int64)
    site = Site.of_all(
        counts,
        build_topology("server", len(counts)),
        get_loss("logistic"),
        features=1,
        regularization=1.0,
    )
    site = replace(site, names=tuple(rows))
    asked = TrainingParameters(
        HISTOGRAM, epsilon=terms.epsilon, delta=terms.delta, rows_per_person=terms.rows_per_person
    )
    options = {
        "weights": tuple(tuple(map(float, row)) for row in weights),
        "classes": classes,
        "rows": int(counts.sum()),
        "noise": terms.noise,
        "colluders": terms.colluders,
    }
    budget = budget_for(asked, site)
    settings = Settings(rounds=1, penalty=0.0, options=options, budget=budget)
    release = HistogramRelease.configure(site, settings)
    return Plan(release, replace(site, features=release.grid.cells), settings)


def evaluation_id(run_id: str, planned: Plan) -> str:
    """The name of an evaluation in the ledgers: the run's, and a word for its terms.

    The same evaluation of the same model has the same name: asked again, it costs nothing and says
    the same.
    """
    release = planned.algorithm
    assert isinstance(release, HistogramRelease)
    budget = planned.budget
    assert budget is not None
    spent = (budget.epsilon.tolist(), budget.delta.tolist(), budget.rows_per_person)
    about = (planned.site.names, planned.site.rows.tolist(), release.grid, release.shared)
    digest = hashlib.sha256(release.weights.tobytes())
    digest.update(repr((*spent, *about)).encode())
    return f"{run_id}{_EVALUATION}{digest.hexdigest()[:16]}"


def is_evaluation(name: str, run_id: str) -> bool:
    """Whether a name in a ledger is that of an evaluation under a run."""
    return re.fullmatch(re.escape(f"{run_id}{_EVALUATION}") + "[0-9a-f]{16}", name) is not None


def evaluation_noise(noise: NoiseSource, key: int | None) -> NoiseSource:
    """Where the noise of an evaluation comes from: in a simulation not the training's once more."""
    if key is None:
        return noise
    digest = hashlib.sha256(f"{HISTOGRAM} {key}".encode("ascii")).digest()
    return SimulatedNoise(int.from_bytes(digest[:8], "little"))


def release_histogram(
    planned: Plan,
    shard: Shard,
    *,
    noise: NoiseSource,
    ledgers: Sequence[Ledger] | None = None,
) -> tuple[NoisyHistogram, Outcome]:
    """Release the histogram of all parties in this process."""
    outcome = train(planned, shard, noise=noise, ledgers=ledgers)
    return histogram_of(planned, outcome), outcome


def histogram_of(planned: Plan, outcome: Outcome) -> NoisyHistogram:
    """What an evaluation released."""
    release = planned.algorithm
    assert isinstance(release, HistogramRelease)
    return release.histogram(outcome.last[0], planned.site)


def shared_budgets(planned: Plan) -> tuple[dict[str, float], dict[str, float]]:
    r"""Epsilon of each party for the training and for a histogram of the same rows.

    .. math:: \mu_{\text{train}} = \sqrt{0.9}\,\mu,\qquad \mu_{\text{histogram}} = \sqrt{0.1}\,\mu,

    at the party's delta: the squares of Gaussian releases add up to :math:`\mu^2`, the run's. An
    algorithm with other releases is refused.

    Parameters
    ----------
    planned
        The run without probabilities: what it would spend on the training alone.
    """
    budget = planned.budget
    assert budget is not None
    if not _gaussian(planned):
        raise ParameterError(
            f"probabilities must be fitted to rows kept out of training with the algorithm "
            f"{planned.algorithm.name!r}, whose releases are not Gaussian and share no budget "
            "with a histogram of the same rows; got no holdout. Add one, such as 0.2."
        )
    delta = budget.ideal_delta
    mu = gaussian_mu(budget.epsilon, delta)

    def part_of(share: float) -> dict[str, float]:
        epsilons = np.atleast_1d(gaussian_epsilon(np.sqrt(share) * mu, delta))
        return dict(zip(planned.site.names, map(float, epsilons), strict=True))

    return part_of(1 - HISTOGRAM_SHARE), part_of(HISTOGRAM_SHARE)
