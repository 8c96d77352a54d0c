"""How good a released model is: the histogram that was released of it, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.link import Link, fit_links
from dpadmm.evaluation.metrics import ModelFigures, evaluate_histogram
from dpadmm.plain import json_data
from dpadmm.privacy.statement import PrivacyStatement

__all__ = ["HELD_OUT", "PUBLIC", "TRAINED_ON", "Quality", "shown_estimate"]

#: Which rows a model was evaluated on.
HELD_OUT: Final = "held out"
TRAINED_ON: Final = "trained on"
PUBLIC: Final = "public"
_ABOUT: Final = (HELD_OUT, TRAINED_ON, PUBLIC)


@dataclass(frozen=True, eq=False)
class Quality:
    """What was released about how good a model is.

    Attributes
    ----------
    histogram
        Counts by true class and score, with noise; everything else follows from it.
    about
        Which rows: "held out", "trained on", or "public".
    privacy
        What the histogram cost the parties; None for public rows.
    rows
        Public number of rows of each party that was evaluated on.
    links
        From scores to probabilities: one for two classes, else one for each; empty where nobody
        asked for probabilities.
    threshold
        With two classes: scores above it are predicted to be of the second class. Scores are those
        of rows of norm 1 at most (:func:`dpadmm.problem.rows.scaled_margins`).
    """

    histogram: NoisyHistogram = field(repr=False)
    about: str
    privacy: PrivacyStatement | None = field(default=None, repr=False)
    rows: dict[str, int] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.about not in _ABOUT:
            raise ParameterError(
                f"about must be one of {', '.join(_ABOUT)}; got {self.about!r}: say which rows."
            )
        if (self.privacy is None) != (self.about == PUBLIC):
            raise ParameterError(
                f"privacy must be stated for rows that are not public; {self.about!r} rows have "
                f"{'none' if self.privacy is None else 'one'}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` reads."""
        content: dict[str, Any] = {"about": self.about, "rows": dict(self.rows)}
        if self.privacy is not None:
            content["privacy"] = json_data(self.privacy.to_dict())
        if self.links:
            content["links"] = [[link.slope, link.offset] for link in self.links]
        if self.threshold:
            content["threshold"] = self.threshold
        return content | {"histogram": self.histogram.to_dict()}

    @classmethod
    def from_dict(cls, content: Any) -> Quality:
        """Read what :meth:`to_dict` made, or refuse."""
        if not isinstance(content, dict) or not {"about", "histogram"} <= content.keys():
            raise ParameterError("an evaluation must say what it is about, with its histogram.")
        rows, privacy = content.get("rows", {}), content.get("privacy")
        whole = isinstance(rows, dict) and all(
            isinstance(name, str) and type(count) is int and count > 0
            for name, count in rows.items()
        )
        if not whole:
            raise ParameterError("rows of an evaluation must be a whole number for each party.")
        histogram = NoisyHistogram.from_dict(content["histogram"])
        pairs = [tuple(map(_finite, pair)) for pair in content.get("links", [])]
        if any(len(pair) != 2 for pair in pairs) or len(pairs) not in (0, histogram.grid.tables):
            raise ParameterError("links of an evaluation must be two numbers for each table.")
        return cls(
            histogram,
            str(content["about"]),
            None if privacy is None else PrivacyStatement.from_dict(privacy),
            dict(rows),
            tuple(Link(*pair) for pair in pairs),
            _finite(content.get("threshold", 0.0)),
        )

    def with_links(self) -> Quality:
        """The same, with probabilities fitted to the histogram."""
        return replace(self, links=fit_links(self.histogram))

    def evaluation(self, confidence: float = 0.95) -> ModelFigures:
        """Every figure that follows from the histogram, at the threshold, with its interval."""
        return evaluate_histogram(self.histogram, confidence, self.threshold)

    def __str__(self) -> str:
        figures = self.evaluation().estimates
        return "; ".join(f"{figure.name} {shown_estimate(figure)}" for figure in figures)

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta of the histogram, the largest over parties; None for public rows."""
        return None if self.privacy is None else (self.privacy.epsilon, self.privacy.delta)


def shown_estimate(figure: Estimate) -> str:
    """A figure with its interval, in words."""
    if figure.value is None:
        return f"not determined ({figure.reason})"
    # An estimate may lie beyond 0 or 1, which a share does not.
    value = min(max(figure.value, 0.0), 1.0)
    return f"{value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"numbers of an evaluation must be finite; got {value!r}.")
    return float(value)
