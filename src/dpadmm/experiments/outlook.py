"""What is known of a run before it happens: candidates, losses, the run to recommend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpadmm.experiments.difficulties import DIFFICULTIES
from dpadmm.experiments.question import RunQuestion
from dpadmm.experiments.rehearsal import ExpectedLoss, NoiseCurve, band
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan, announced

__all__ = ["Change", "Outlook", "Prospect", "SmallestEpsilon"]


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
