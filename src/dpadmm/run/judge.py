"""The evaluation after a training, charged to the same ledgers, and the statements of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import pair
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import charged
from dpadmm.run.classifier import HELD_OUT, TRAINED_ON, Quality
from dpadmm.run.evaluate import HISTOGRAM_SHARE, WholePlan, Wish, evaluation_id, release_histogram
from dpadmm.run.plan import Plan
from dpadmm.run.train import state_privacy

__all__ = ["ORDER_NOT_COVERED", "Charged", "Judgement", "judge", "state_evaluation", "state_whole"]

#: What a guarantee of parts of the rows does not speak of.
ORDER_NOT_COVERED: Final = (
    "an order of rows that depends on what they hold, such as a sorted table, or that changes "
    "between runs"
)
# Of the two conversions between epsilon and mu.
_ROUNDING: Final = 1e-9
_ROWS: Final = "Rows"
_OWN_ACCOUNT: Final = (
    "those kept out of training, in an account of their own: for a person the larger of what the "
    "training and this spent counts, not their sum; several evaluations of the same rows add up"
)
_ADDED: Final = (
    "those that were trained on: what this spent adds to what the training spent, and figures are "
    "optimistic"
)


@dataclass(frozen=True)
class Charged:
    """Where an evaluation is charged, and what is known of its rows.

    Attributes
    ----------
    ledgers
        The file of each party, by its name; none in a simulation.
    run_id
        The name of the run whose model it is.
    schema_sha256
        How the rows were encoded, if by a schema.
    not_covered
        What is known of these rows that its statement does not cover.
    """

    ledgers: Mapping[str, str | Path] | None = None
    run_id: str = ""
    schema_sha256: str | None = None
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """What an evaluation found, and what each party was charged for it."""

    quality: Quality
    events: tuple[tuple[Event, ...], ...] = field(repr=False)


def judge(
    whole: WholePlan, weights: Array, shard: Shard, noise: NoiseSource, about: Charged
) -> Judgement:
    """Release the histogram of a model, all parties in this process.

    Parameters
    ----------
    whole
        The run, and the terms of its evaluation.
    weights
        The released model, for rows as they are laid out.
    shard
        The rows that are evaluated on.
    noise
        Where randomness comes from.
    about
        Where it is charged.
    """
    planned, split = whole.evaluation(weights), whole.wish.split
    opened = charged(
        planned,
        about.ledgers,
        evaluation_id(about.run_id, planned),
        noise,
        schema_sha256=about.schema_sha256,
        part=split.held_out,
    )
    with opened as ledgers:
        histogram, outcome = release_histogram(planned, shard, noise=noise, ledgers=ledgers)
    kept_out = bool(split.holdout)
    kind = HELD_OUT if kept_out else TRAINED_ON
    statement = state_evaluation(
        planned,
        outcome.events,
        noise,
        kept_out=kept_out,
        also_not_covered=about.not_covered,
    )
    found = Quality(histogram, kind, statement, dict(whole.evaluated_rows))
    return Judgement(found.with_links() if whole.wish.probabilities else found, outcome.events)


def state_evaluation(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    noise: NoiseSource,
    *,
    kept_out: bool,
    also_not_covered: Sequence[str] = (),
) -> PrivacyStatement:
    """State what a histogram cost.

    Parameters
    ----------
    planned, events, noise
        The release, what each party was charged, and where its noise comes from.
    kept_out
        Whether its rows were kept out of training.
    also_not_covered
        What is known of these rows.
    """
    return state_privacy(
        planned,
        events,
        noise,
        also_not_covered=(*((ORDER_NOT_COVERED,) if kept_out else ()), *also_not_covered),
        details=((_ROWS, _OWN_ACCOUNT + _several(planned) if kept_out else _ADDED),),
        by_round=False,
    )


def state_whole(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    noise: NoiseSource,
    wish: Wish,
    *,
    judged: Judgement | None = None,
    ahead: Sequence[Sequence[Event]] = (),
    caveats: Sequence[str] = (),
    also_not_covered: Sequence[str] = (),
) -> PrivacyStatement:
    """State what a run guarantees, with its histogram if there was one.

    A histogram of the rows that were trained on adds to what the training cost; where its rows were
    kept out, the larger of the two is what a person is guaranteed.

    Parameters
    ----------
    planned, events, noise
        The training, what each party was charged for it, and where its noise comes from.
    wish, judged
        What was asked for beside it, and the evaluation if there was one.
    ahead
        What each party is charged for an evaluation that is still to come: parties send before
        they know whether all others do, so it counts whatever becomes of it.
    caveats, also_not_covered
        What is known of how this run went, and of these rows.
    """
    kept_out = bool(wish.split.holdout)
    counting = ahead if judged is None else judged.events
    if counting and not kept_out:
        pairs = zip(events, counting, strict=True)
        events = tuple((*trained, *counted) for trained, counted in pairs)
    return state_privacy(
        planned,
        events,
        noise,
        also_not_covered=(*((ORDER_NOT_COVERED,) if kept_out else ()), *also_not_covered),
        caveats=caveats,
        details=_details(planned, wish, judged, ahead=bool(ahead)),
        elsewhere=counting if kept_out else (),
    )


def _several(planned: Plan) -> str:
    """What to add where a person may have rows in both parts (:mod:`dpadmm.ledger.positions`)."""
    budget = planned.budget
    if budget is None or budget.rows_per_person == 1:
        return ""
    return "; where a person has rows in both, that holds for Gaussian releases, and others add up"


def _details(
    planned: Plan, wish: Wish, judged: Judgement | None, *, ahead: bool
) -> tuple[tuple[str, str], ...]:
    """What a statement says about rows that were kept out, and about a histogram."""
    split = wish.split
    if split.holdout:
        kept = f"the last {100 * split.holdout:g}% of every party's rows were not trained on"
        if judged is None and not ahead:
            return ((_ROWS, f"{kept}; this statement is about the others"),)
        spent = "is charged whether it is complete or not"
        if judged is not None and judged.quality.privacy is not None:
            private = pair(judged.quality.privacy.epsilon, judged.quality.privacy.delta)
            spent = f"is {private}-differentially private"
        return (
            (
                _ROWS,
                f"{kept}. Their evaluation {spent}, in an account of its own: for a person the "
                "larger of the two counts, not their sum, and it is the guarantee above"
                f"{_several(planned)}",
            ),
        )
    if judged is None and not ahead:
        return ()
    share = f"{100 * HISTOGRAM_SHARE:g}%"
    words = f"{share} of the run's mu^2 went into the histogram that probabilities are fitted to"
    if judged is None:
        words = f"{share} of the run's mu^2 is for a histogram, also where it is never complete"
    alone = f"{_histogram_alone(planned, judged)}-differentially private by itself"
    return (("Probabilities", f"{words}; it is {alone}, and part of the guarantee above"),)


def _histogram_alone(planned: Plan, judged: Judgement | None) -> str:
    """What a histogram costs that shares mu^2 with the training, the most of a party."""
    if judged is not None and judged.quality.privacy is not None:
        return pair(judged.quality.privacy.epsilon, judged.quality.privacy.delta)
    budget = planned.budget
    assert budget is not None
    ratio = math.sqrt(HISTOGRAM_SHARE / (1 - HISTOGRAM_SHARE)) * (1 + _ROUNDING)
    mu = ratio * gaussian_mu(budget.epsilon, budget.ideal_delta)
    epsilon = gaussian_epsilon(mu, budget.ideal_delta)
    return pair(float(np.max(epsilon)), float(np.max(budget.delta)))
