"""What is read from a file of settings: strict parts, and findings as one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

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
    """An error of pydantic's that says this sentence and nothing else."""
    # A custom error carries its sentence through pydantic without a prefix; braces in user text
    # would be read as placeholders, so the text goes in as one.
    return PydanticCustomError("schema", "{sentence}", {"sentence": message})


def _text(value: Any) -> Any:
    return canonical_text(value) if isinstance(value, (str, bool, int, float)) else value


Text = Annotated[str, BeforeValidator(_text)]

Name = Annotated[str, BeforeValidator(_text), Field(min_length=1)]

Finite = Annotated[float, Field(allow_inf_nan=False)]


def refuse_repeats(
    texts: tuple[str, ...], must: str, advice: str = "remove one"
) -> tuple[str, ...]:
    """The texts, or a refusal of one that is there twice."""
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise fail(f"{must}; {text!r} is there twice: {advice}")
        seen.add(text)
    return texts


class Part(BaseModel):
    """A part of a file of settings: frozen, and nothing in it is guessed or left over."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def as_tuple(value: Any) -> Any:
    """A list of a TOML file as a tuple; everything else as it is."""
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]

Names = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]

_KINDS: Final = "'numeric' or 'categorical'"
#: Where a finding is, in words, from pydantic's location of it.
Place: TypeAlias = Callable[[tuple[int | str, ...]], str]


def finding(error: ValidationError, place_of: Place) -> str:
    """Turn the first of pydantic's findings into one sentence: place, constraint, value."""
    first = error.errors(include_url=False)[0]
    place, value, message = place_of(first["loc"]), first["input"], first["msg"]
    match first["type"]:
        case "schema":
            # A validator of ours: a whole sentence, or what the value at this place must be.
            between = " " if message.startswith("must ") else ": "
            return f"{place}{between}{message}" if place else message
        case "extra_forbidden":
            return f"{place} is not a known key; remove it or correct its spelling"
        case "missing":
            return f"{place} must be given; got nothing: add it"
        case "union_tag_not_found":
            return (
                f"{place}: kind must be given; got nothing: add kind = 'numeric' or 'categorical'"
            )
        case "union_tag_invalid":
            return f"{place}: kind must be {_KINDS}; got {value.get('kind')!r}: correct it"
        case "model_type" | "tuple_type" as kind:
            listed = kind == "tuple_type" and len(first["loc"]) == 1
            table = f"[[{first['loc'][0]}]] tables" if listed else "a table"
            return f"{place} must be {table}; got {shown_value(value)}: correct it"
    message = f"{message[0].lower()}{message[1:]}".removeprefix("input ")
    message = message.replace("should be", "must be", 1).replace("should have", "must have", 1)
    return f"{place} {message}; got {shown_value(value)}: correct it"


def shown_value(value: object) -> str:
    """A value inside a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
