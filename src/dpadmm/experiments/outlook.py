"""What is known of a run before it happens: candidates, losses, the run to recommend, hints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from dpadmm.experiments.difficulties import DIFFICULTIES
from dpadmm.experiments.question import RunQuestion
from dpadmm.experiments.rehearsal import ExpectedLoss, NoiseCurve, band
from dpadmm.privacy.figures import Given
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan, announced

__all__ = ["WORTH", "Change", "Outlook", "Prospect", "SmallestEpsilon", "hints_for"]


@final
@dataclass(frozen=True)
class Prospect:
    """An algorithm that could be run: its noise, its guarantee, and what it is expected to lose.

    Attributes
    ----------
    who
        Its name, with options.
    parameters
        The run.
    plan
        The same with every number fixed; None where it was refused.
    privacy
        The statement of that plan; None where it was refused.
    losses
        Points lost, by difficulty; empty where it was not rehearsed.
    refused
        Why it cannot be run.
    """

    who: str
    parameters: TrainingParameters
    plan: Plan | None = None
    privacy: Mapping[str, Any] | None = None
    losses: Mapping[str, ExpectedLoss] | None = None
    refused: str = ""

    @property
    def noise(self) -> float | None:
        """Standard deviation of what a party adds to each number of its first message, at most."""
        if self.plan is None:
            return None
        told = [events[0].to_dict().get("sigma") for events in announced(self.plan)]
        found = [float(sigma) for sigma in told if sigma is not None]
        if len(found) < len(told):
            return None
        # Of shared noise a guarantee counts on the shares of all who are honest.
        shared = self.plan.algorithm.summation
        shares = 1 if shared is None else shared.parties - shared.colluders
        return max(found) / math.sqrt(shares)

    def plain(self) -> dict[str, Any]:
        """For machines."""
        planned, privacy = self.plan, self.privacy or {}
        return {
            "who": self.who,
            "algorithm": self.parameters.algorithm,
            "rounds": None if planned is None else planned.rounds,
            "topology": None if planned is None else planned.site.topology.name,
            "noise": self.noise,
            "epsilon": privacy.get("epsilon"),
            "delta": privacy.get("delta"),
            "theorem": privacy.get("theorem"),
            "adversary": privacy.get("adversary"),
            "losses": _plain_losses(self.losses),
            "band": _plain_band(self.losses),
            "refused": self.refused or None,
        }


@final
@dataclass(frozen=True)
class Change:
    """More of something, and what is then expected to be lost."""

    what: str
    times: int
    losses: Mapping[str, ExpectedLoss]

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "what": self.what,
            "times": self.times,
            "losses": _plain_losses(self.losses),
            "band": _plain_band(self.losses),
        }


@final
@dataclass(frozen=True)
class SmallestEpsilon:
    """The smallest budget for a wanted loss; None where no budget reaches it."""

    who: str
    difficulty: str
    epsilon: float | None

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {"who": self.who, "difficulty": self.difficulty, "epsilon": self.epsilon}


@final
@dataclass(frozen=True)
class Outlook:
    """Everything that is known of a run before it happens.

    Attributes
    ----------
    question
        What was asked.
    pooled
        Accuracy of pooled training without privacy on drawn rows, by difficulty.
    curves
        What is lost by the noise, relative to that of own noise as asked, by difficulty.
    candidates
        What could be run.
    recommended
        The one of them to run, and ``reason``: why.
    changes
        What more rows, parties, rounds or budget would bring it.
    wanted_loss, smallest
        Points that may be lost, and the smallest budgets for that.
    hints
        Pairs of a topic and a sentence.
    """

    question: RunQuestion
    pooled: Mapping[str, float]
    curves: Mapping[str, NoiseCurve]
    candidates: tuple[Prospect, ...]
    recommended: Prospect
    reason: str
    changes: tuple[Change, ...]
    budgets: tuple[tuple[float, Mapping[str, ExpectedLoss]], ...]
    wanted_loss: float | None
    smallest: tuple[SmallestEpsilon, ...]
    hints: tuple[tuple[str, str], ...]

    @property
    def band(self) -> tuple[float, float]:
        """Where the loss of the recommended run is expected."""
        return band(list((self.recommended.losses or {}).values()))

    @property
    def reachable(self) -> bool:
        """Whether the wanted loss can be had by a budget, at medium difficulty."""
        return not self.smallest or any(
            found.epsilon is not None for found in self.smallest if found.difficulty == "medium"
        )

    def run_table(self) -> dict[str, Any]:
        """The recommended ``[run]``: what differs from the defaults of a configuration."""
        told, plan = self.recommended.parameters, self.recommended.plan
        assert plan is not None
        table: dict[str, Any] = {
            "algorithm": told.algorithm,
            "epsilon": told.epsilon,
            "delta": told.delta,
            "rounds": plan.rounds,
            "topology": plan.site.topology.name,
        }
        if plan.site.topology.name == "edges":
            table["topology"] = [list(edge) for edge in plan.site.topology.edges]
        usual = TrainingParameters(told.algorithm)
        for name in ("penalty", "regularization", "party_weight", "loss", "rows_per_person"):
            if getattr(told, name) != getattr(usual, name):
                table[name] = getattr(told, name)
        if told.algorithm_options:
            table["algorithm_options"] = dict(told.algorithm_options)
        return table

    def plain(self) -> dict[str, Any]:
        """For machines."""
        shape = self.question.shape
        low, high = self.band
        return {
            "rows": list(self.question.counts),
            "features": shape.features,
            "classes": shape.classes,
            "difficulties": [
                {"name": each.name, "words": each.words, "pooled": self.pooled[each.name]}
                for each in DIFFICULTIES
            ],
            "candidates": [candidate.plain() for candidate in self.candidates],
            "recommended": {
                "who": self.recommended.who,
                "reason": self.reason,
                "run": self.run_table(),
                "statement": dict(self.recommended.privacy or {}),
            },
            "band": {"low": low, "high": high},
            "more": [change.plain() for change in self.changes],
            "budgets": [
                {"epsilon": epsilon, "losses": _plain_losses(losses), "band": _plain_band(losses)}
                for epsilon, losses in self.budgets
            ],
            "wanted_loss": self.wanted_loss,
            "smallest_epsilon": [found.plain() for found in self.smallest],
            "hints": [{"about": about, "words": words} for about, words in self.hints],
        }


def _plain_losses(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, Any] | None:
    return {name: loss._asdict() for name, loss in losses.items()} if losses else None


def _plain_band(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, float] | None:
    return dict(zip(("low", "high"), band(list(losses.values())), strict=True)) if losses else None


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
