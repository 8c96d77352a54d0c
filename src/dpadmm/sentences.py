"""What is read from a file of settings: strict parts, and findings as one sentence."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = ["WHITESPACE", "DataError", "canonical_text"]


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
