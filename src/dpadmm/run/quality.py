"""How good a released model is: the histogram that was released of it, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.plain import json_data
from dpadmm.privacy.statement import PrivacyStatement

__all__ = ["HELD_OUT", "PUBLIC", "TRAINED_ON", "Quality"]

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
    """

    histogram: NoisyHistogram = field(repr=False)
    about: str
    privacy: PrivacyStatement | None = field(default=None, repr=False)
    rows: dict[str, int] = field(default_factory=dict)

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
        return cls(
            NoisyHistogram.from_dict(content["histogram"]),
            str(content["about"]),
            None if privacy is None else PrivacyStatement.from_dict(privacy),
            dict(rows),
        )

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta of the histogram, the largest over parties; None for public rows."""
        return None if self.privacy is None else (self.privacy.epsilon, self.privacy.delta)
