"""The parts of a schema: numeric and categorical columns and the label."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "DEFAULT_MISSING_VALUES",
    "WHITESPACE",
    "CategoricalColumn",
    "Column",
    "DataError",
    "Label",
    "NumericColumn",
    "canonical_text",
]

DEFAULT_MISSING_VALUES: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells that mean "not known" unless the schema says otherwise (compared after trimming)."""

WHITESPACE: Final = " \t\n\v\f\r"
"""What is trimmed off a cell; ASCII only, the same for a schema's texts and a file's cells."""


class DataError(ValueError):
    """A schema, a file or a data set's name that cannot be used, in one sentence.

    Never raised because of what a private row holds: only for what is public (the schema, the
    header, the types of the columns) and for what the machine refuses (a missing file, a full
    disk).
    """


def canonical_text(value: object) -> str:
    """Text of a level or class as cells are compared with it: ``1``, ``1.0`` and ``" 1"`` agree."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).strip(WHITESPACE)


def fail(message: str) -> PydanticCustomError:
    # A custom error carries its sentence through pydantic without a prefix; braces in user text
    # would be read as placeholders, so the text goes in as one.
    return PydanticCustomError("schema", "{sentence}", {"sentence": message})


def _text(value: Any) -> Any:
    return canonical_text(value) if isinstance(value, (str, bool, int, float)) else value


Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_text), Field(min_length=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def refuse_repeats(texts: tuple[str, ...], what: str) -> tuple[str, ...]:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise fail(f"{what} must list each value once; {text!r} is there twice: remove one")
        seen.add(text)
    return texts


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]
Names = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]


class NumericColumn(Part):
    """A number between two public bounds; encoded as ``(value - lower) / (upper - lower)``.

    Parameters
    ----------
    name
        Name of the column in the file.
    lower, upper
        Public bounds; a value outside is moved to the nearer one.
    missing
        Whether a column says that the value is missing (not a finite number).
    fill
        What stands for a missing value; the middle of the bounds unless given.
    """

    name: Name
    kind: Literal["numeric"] = "numeric"
    lower: Finite
    upper: Finite
    missing: bool = True
    fill: Finite | None = None

    @model_validator(mode="after")
    def _check(self) -> NumericColumn:
        if not self.lower < self.upper:
            raise fail(
                f"lower must be less than upper; got lower = {self.lower:g} and "
                f"upper = {self.upper:g}: swap them or widen them"
            )
        if not math.isfinite(self.upper - self.lower):
            raise fail(
                f"upper - lower must be a finite number; got lower = {self.lower:g} and "
                f"upper = {self.upper:g}: narrow them"
            )
        if self.fill is not None and not self.lower <= self.fill <= self.upper:
            raise fail(
                f"fill must be between lower = {self.lower:g} and upper = {self.upper:g}; "
                f"got {self.fill:g}: choose one inside"
            )
        return self

    @property
    def fill_value(self) -> float:
        """The value that stands for a missing one."""
        return self.lower / 2 + self.upper / 2 if self.fill is None else self.fill


class CategoricalColumn(Part):
    """One of a public list of levels; encoded as one column per level (one-hot).

    Parameters
    ----------
    name
        Name of the column in the file.
    levels
        The levels, as text (numbers are compared as text: ``1`` and ``1.0`` agree).
    missing, other
        Whether there is a column for a missing value, and one for a value that is no level.
        Without it such a value encodes as zeros.
    """

    name: Name
    kind: Literal["categorical"] = "categorical"
    levels: Texts
    missing: bool = True
    other: bool = True

    @field_validator("levels")
    @classmethod
    def _check(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        if not levels:
            raise fail("levels must have at least one value; got none: list the levels")
        return refuse_repeats(levels, "levels")


Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]


class Label(Part):
    """The column to predict.

    Parameters
    ----------
    column
        Name of the column in the file.
    classes
        The list of classes (at least two). Of two, the second is the positive one.
    positive
        Instead of ``classes``: the positive value, against all others together.

    Notes
    -----
    A label that is missing or no class becomes the first class (the negative one where there
    are two) and is counted.
    """

    column: Name
    classes: Texts | None = None
    positive: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.classes is None) == (self.positive is None):
            raise fail(
                "exactly one of classes (a list) and positive (one value) must be given; got "
                f"{'neither' if self.classes is None else 'both'}: keep one"
            )
        if self.classes is not None:
            if len(self.classes) < 2:
                raise fail(
                    f"classes must have at least two values; got {len(self.classes)}: "
                    "list all classes"
                )
            refuse_repeats(self.classes, "classes")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The classes in the order of their codes."""
        if self.classes is not None:
            return self.classes
        return (f"not {self.positive}", str(self.positive))
