"""What an audit tested and what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from dpadmm.audit.claims import Claim
from dpadmm.audit.scene import Scene
from dpadmm.audit.witness import NoiseReport
from dpadmm.privacy.figures import AtLeast, AtMost

__all__ = ["Attack", "AuditSetting", "TestForm", "Verdict"]

TestForm = Literal["accuracy", "forward", "backward"]


@dataclass(frozen=True)
class Attack:
    """How the data set is guessed from a score.

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
        The same without allowance for chance: no bound, but what more runs would approach.
    samples
        Runs of each data set, those that chose the attack included.
    attack, setting
        How the data sets were told apart, and what was tested.
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
        """Whether more is lost than is claimed."""
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
