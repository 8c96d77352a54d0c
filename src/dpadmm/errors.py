"""The sentences in which this package refuses: parameter, constraint, value, what to do."""

from __future__ import annotations

import difflib
import errno
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, Final, TypeVar


class ParameterError(ValueError):
    """A parameter that breaks its constraint; raised before any row is read."""


class ConvergenceError(RuntimeError):
    """A local solve that missed its tolerance: nothing was released."""


class ClusterError(RuntimeError):
    """Rows on a cluster that could not be worked on: nothing was released."""


class ExchangeError(RuntimeError):
    """Messages that cannot be used; raised before the next round is charged."""


class LedgerError(RuntimeError):
    """A ledger that cannot be relied on or written to: nothing was released, nothing was lost."""


class BudgetError(LedgerError):
    """A release that a ledger's policy does not allow; raised before any row is read."""


class PreflightStop(RuntimeError):
    """A run that its owner's pre-flight ended before it began; says nothing of what was found."""


AnyError = TypeVar("AnyError", bound=Exception)
_PASSING: Final = "passing"
_PASSING_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EADDRINUSE)


def passing(error: AnyError, *, when: bool = True) -> AnyError:
    """Mark an error whose cause goes away without a change here: the same start works later."""
    vars(error)[_PASSING] = when
    return error


def is_passing(error: Exception) -> bool:
    """Whether the same start may work later: nothing that it was told has to change."""
    number = error.errno if isinstance(error, OSError) else None
    return bool(vars(error).get(_PASSING)) or number in _PASSING_NUMBERS


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn an import that fails, of what is not installed, into a refusal that names its extra."""
    try:
        yield
    except ImportError:
        raise missing_extra(extra) from None


def missing_extra(extra: str) -> ParameterError:
    """A refusal that says how to have what is not installed."""
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
    """The value as a finite float above zero, or a refusal."""
    try:
        number = float(value) if isinstance(value, Real) and value is not True else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise ParameterError(f"{parameter} must be a positive number{alternative}; got {value!r}.")
    return number


def positive_integer(parameter: str, value: Any, *, alternative: str = "") -> int:
    """The value as an int of at least 1, or a refusal."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ParameterError(
            f"{parameter} must be a whole number of at least 1{alternative}; got {value!r}."
        )
    return int(value.__index__())
