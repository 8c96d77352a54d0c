"""What a node may tell about itself: an allow-list of public facts.

Logs, status files and metrics are read by people and machines that no privacy budget covers, so
nothing in them may depend on private rows except through charged messages. A fact gets in by the
name of its field and the type of its value, or not at all: there is no field for a loss, a residual
or the seconds of a local solve, and no field takes an array, bytes or an object of any other kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.errors import ClusterError, ExchangeError, LedgerError, ParameterError
from dpadmm.plain import json_number, visible

#: What a fact looks like in the log.
Fact = str | int | float | bool | list[str]

_MOST_NAMES: Final = 1000
_CODE_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
# Their sentences are about parameters, messages, machines and budgets. Those of other errors may
# speak of rows (a solve that did not converge), so only their kind is told.
_SPOKEN_ERRORS: Final = (ParameterError, ClusterError, ExchangeError, LedgerError)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError
    if not 0 <= int(value) < 2**63:
        raise ValueError
    return int(value)


def _number(value: Any) -> float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError
    number = json_number(float(value))
    if number is None:
        raise ValueError
    return number


def plain_text(value: Any) -> str:
    """The text with nothing in it that is not seen, cut where it is too long."""
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str):
        raise TypeError
    return visible(value)


def _names(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise TypeError
    if len(value) > _MOST_NAMES:
        raise ValueError
    items = sorted(value) if isinstance(value, (set, frozenset)) else value
    if not all(isinstance(item, str) for item in items):
        raise TypeError
    return [plain_text(item) for item in items]


def _error(value: Any) -> str:
    if not isinstance(value, BaseException):
        raise TypeError
    kind = type(value).__name__
    return plain_text(f"{kind}: {value}" if isinstance(value, _SPOKEN_ERRORS) else kind)


def code_word(value: Any) -> str:
    """A word for machines, such as ``not-finite``: lower-case letters, digits and hyphens."""
    if not isinstance(value, str) or not _CODE_WORD.fullmatch(value):
        raise ParameterError(
            "the name of an event or a reason must be lower-case letters, digits and hyphens, at "
            f"most 64; got a {type(value).__name__} that is not."
        )
    return value


_KINDS: Final[Mapping[Callable[[Any], Fact], str]] = {
    _flag: "private simulated retried complete signed",
    _count: "round rounds party parties size limit sent received attempt features outputs rows "
    "process port count version",
    _number: "seconds timeout epsilon delta epsilon_spent epsilon_left",
    plain_text: "node neighbour address algorithm topology policy choice consequence field ours "
    "theirs spec schema fingerprint release model report statement ledger record config log "
    "metrics advice state",
    _names: "neighbours nodes missing waiting",
    code_word: "reason",
    _error: "error",
}

#: Every field that may be told, with what checks its value.
FIELDS: Final[Mapping[str, Callable[[Any], Fact]]] = {
    name: check for check, names in _KINDS.items() for name in names.split()
}


def public_facts(facts: Mapping[str, Any]) -> dict[str, Fact]:
    """The facts in a form that JSON has words for, each allowed by name and type.

    Raises
    ------
    ParameterError
        For a field that is not on the list or a value of the wrong type. The value is not shown.
    """
    told = {}
    for name, value in facts.items():
        check = FIELDS.get(name)
        if check is None:
            raise ParameterError(
                f"a fact must be on the list of public facts; {plain_text(name)!r} is not. Known: "
                f"{', '.join(sorted(FIELDS))}."
            )
        try:
            told[name] = check(value)
        except (TypeError, ValueError):
            raise ParameterError(
                f"the fact {name!r} must be of the kind that its field takes; got a "
                f"{type(value).__name__} that is not."
            ) from None
    return told
