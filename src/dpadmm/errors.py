"""The errors of this package; each sentence names parameter, constraint, value and remedy."""

from __future__ import annotations

import difflib
import errno
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import ValidationError


class ParameterError(ValueError):
    """A parameter that breaks its constraint; raised before any row is read."""


class DataError(ValueError):
    """A schema, a file or a data set's name that cannot be used, in one sentence.

    The content of a private row never raises it. Its causes are public (the schema, the header, the
    types of the columns) or lie in the machine (a missing file, a full disk).
    """


class ConvergenceError(RuntimeError):
    """A local solve that missed its tolerance: nothing was released."""


class ClusterError(RuntimeError):
    """Rows on a cluster that could not be worked on: nothing was released."""


class ExchangeError(RuntimeError):
    """Unusable messages; raised before the next round is charged."""


class LedgerError(RuntimeError):
    """A ledger that cannot be relied on or written to: nothing was released, nothing was lost."""


class BudgetError(LedgerError):
    """A release that a ledger's policy does not allow; raised before any row is read."""


class PreflightStop(RuntimeError):
    """The owner's pre-flight ended a run before it began; the error reveals no finding."""


AnyError = TypeVar("AnyError", bound=Exception)
_PASSING: Final = "passing"
_PASSING_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EADDRINUSE)


def passing(error: AnyError, *, when: bool = True) -> AnyError:
    """Mark an error whose cause goes away by itself: starting again later may work."""
    vars(error)[_PASSING] = when
    return error


def is_passing(error: Exception) -> bool:
    """Whether starting again later may work without any change."""
    number = error.errno if isinstance(error, OSError) else None
    return bool(vars(error).get(_PASSING)) or number in _PASSING_NUMBERS


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a failed import into a refusal that names the extra to install."""
    try:
        yield
    except ImportError:
        raise missing_extra(extra) from None


def missing_extra(extra: str) -> ParameterError:
    """A refusal that says how to install an extra."""
    return ParameterError(
        f"this needs the extra {extra!r}: pip install '.[{extra}]' in a clone of dpadmm."
    )


def unknown_name(parameter: str, value: Any, known: Iterable[str]) -> ParameterError:
    """An error that lists the known names, the nearest first."""
    names = sorted(known)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return ParameterError(f"{parameter} must be one of: {listed}; got {value!r}.{hint}")


def positive_number(parameter: str, value: Any, *, alternative: str = "") -> float:
    """Return the value as a finite float above zero, or refuse."""
    try:
        number = float(value) if isinstance(value, Real) and value is not True else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise ParameterError(f"{parameter} must be a positive number{alternative}; got {value!r}.")
    return number


def positive_integer(parameter: str, value: Any, *, alternative: str = "") -> int:
    """Return the value as an int of at least 1, or refuse."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ParameterError(
            f"{parameter} must be a whole number of at least 1{alternative}; got {value!r}."
        )
    return int(value.__index__())


def fail(message: str) -> PydanticCustomError:
    """A pydantic error that says this sentence and nothing else."""
    # A custom error carries its sentence through pydantic without a prefix; braces in user text
    # would be read as placeholders, so the text goes in as one.
    return PydanticCustomError("schema", "{sentence}", {"sentence": message})


def refuse_repeats(
    texts: tuple[str, ...], must: str, advice: str = "remove one"
) -> tuple[str, ...]:
    """Return the texts; refuse one that occurs twice."""
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise fail(f"{must}; {text!r} is there twice: {advice}")
        seen.add(text)
    return texts


_KINDS: Final = "'numeric' or 'categorical'"
#: Turns pydantic's location of a finding into words.
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
    """A value inside a sentence; a long one is cut."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
