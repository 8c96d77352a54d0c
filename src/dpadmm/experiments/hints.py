"""What the public facts of a run say that nobody may have asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from dpadmm.experiments.question import RunQuestion
from dpadmm.experiments.rehearsal import ExpectedLoss
from dpadmm.privacy.figures import Given
from dpadmm.run.plan import Plan

__all__ = ["WORTH", "hints_for"]

#: Points that shared noise must save, on average over the difficulties, to be worth a weaker
#: adversary.
WORTH: Final = 1.0

# A party with fewer rows is a nuisance to itself and to the others.
_FEW_ROWS: Final = 30
# Points that even easy rows may lose before it is worth a word.
_MUCH: Final = 5.0
_NAMES: Final = 3


def hints_for(
    question: RunQuestion,
    own: Plan,
    losses: Mapping[str, ExpectedLoss],
    saved: float | None,
) -> Iterator[tuple[str, str]]:
    """Pairs of a topic and a sentence.

    Parameters
    ----------
    question
        What is asked.
    own, losses
        The run with noise of each party's own, and what it is expected to lose.
    saved
        Points that shared noise would save on average; None where noise cannot be shared.
    """
    yield from _about_the_constant(question)
    yield from _about_rows(question, losses)
    yield from _about_delta(own)
    if saved is not None:
        worth = "worth a secure sum" if saved >= WORTH else "hardly worth a secure sum"
        yield (
            "secure sum",
            f"noise = 'shared' is expected to save {saved:.1f} points on average over the "
            f"difficulties: {worth}. It holds against the server and a minority of the parties "
            "together, noise of one's own against all others.",
        )


def _about_the_constant(question: RunQuestion) -> Iterator[tuple[str, str]]:
    constant, length = question.shape.constant, question.shape.typical_norm
    if constant > length:
        yield (
            "constant",
            f"columns are short beside the constant: they have a typical norm of {length:.2g}, it "
            f"has {constant:g}. It takes up most of the norm of 1 that noise is made for: try "
            f"constant = {length / 2:.2g} in the schema, on public rows.",
        )


def _about_rows(
    question: RunQuestion, losses: Mapping[str, ExpectedLoss]
) -> Iterator[tuple[str, str]]:
    few = [place for place, count in enumerate(question.counts) if count < _FEW_ROWS]
    if few:
        names = question.names or tuple(str(place) for place in range(len(question.counts)))
        shown = ", ".join(names[place] for place in few[:_NAMES])
        more = f" and {len(few) - _NAMES} more" if len(few) > _NAMES else ""
        yield (
            "small parties",
            f"{shown}{more} have fewer than {_FEW_ROWS} rows: what a party of that size brings is "
            "lost in its own noise. Let it join with a larger one.",
        )
    easy = losses["easy"].mean
    if easy > _MUCH:
        yield (
            "small parties",
            f"even easy rows are expected to lose {easy:.0f} points with noise of each party's "
            "own: there are too few rows for this budget. More rows, a larger epsilon, fewer "
            "features or shared noise are the ways out.",
        )


def _about_delta(own: Plan) -> Iterator[tuple[str, str]]:
    budget = own.budget
    assert budget is not None
    weak = np.flatnonzero(budget.delta >= 1 / own.site.rows)
    if len(weak):
        first = int(weak[0])
        yield (
            "delta",
            f"delta = {Given(budget.delta[first])} is not below 1 / rows at {len(weak)} of "
            f"{len(own.site.rows)} parties ({own.site.names[first]} has {own.site.rows[first]}): "
            "publishing a random row whole would satisfy it. Use a smaller delta.",
        )
