"""The registry: one line per algorithm, plus the algorithms of other packages.

Another package adds an algorithm through the entry point group ``dpadmm.algorithms``. Nobody has
reviewed its theorems here, and statements say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, final

from dpadmm.algorithms.base import Algorithm
from dpadmm.errors import ParameterError, unknown_name

ALGORITHM_GROUP: Final = "dpadmm.algorithms"
#: Releases the histogram of an evaluation; it cannot be chosen as an algorithm.
HISTOGRAM: Final = "score-histogram"
#: Release the sums of a study; nor can they be chosen.
DESCRIBE: Final = "describe"
INFER: Final = "infer"
_APART: Final = (HISTOGRAM, DESCRIBE, INFER)


@final
class _Registry(Mapping[str, type[Algorithm]]):
    """Algorithms by name, each loaded on first use."""

    def __init__(self, homes: dict[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> type[Algorithm]:
        module, _, kind = self._homes[name].partition(":")
        algorithm: type[Algorithm] = getattr(import_module(f"{__name__}.{module}"), kind)
        return algorithm

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


REGISTRY: Final[Mapping[str, type[Algorithm]]] = _Registry(
    {
        "admm": "admm:ADMM",
        "consensus-admm": "consensus_admm:ConsensusADMM",
        "dvp": "dvp:DVP",
        "m-admm": "m_admm:MADMM",
        "pr-admm": "pr_admm:PRADMM",
        "r-admm": "r_admm:RADMM",
        "mr-admm": "r_admm:MRADMM",
        "scas-admm": "scas_admm:SCASADMM",
        "ps-admm": "ps_admm:PSADMM",
        "pdml": "pdml:PDML",
        "dp-gd": "dp_gd:DPGD",
    }
)


def algorithm_names() -> list[str]:
    """All names: those of this package first, then those of other packages."""
    outside = {entry.name for entry in entry_points(group=ALGORITHM_GROUP)}
    return [*REGISTRY, *sorted(outside - {*REGISTRY, *_APART})]


def get_algorithm(name: str) -> type[Algorithm]:
    """Return the algorithm of that name; other packages cannot replace one of this package."""
    if name in REGISTRY:
        return REGISTRY[name]
    # Another package must not use the name of a reviewed algorithm.
    for entry in entry_points(group=ALGORITHM_GROUP):
        if entry.name == name and name not in _APART:
            try:
                loaded = entry.load()
            except (ImportError, AttributeError) as error:
                raise ParameterError(
                    f"the entry point {entry.value!r} must be importable; {error}."
                ) from error
            if not (isinstance(loaded, type) and issubclass(loaded, Algorithm)):
                raise ParameterError(
                    f"the entry point {entry.value!r} must name a subclass of "
                    f"dpadmm.algorithms.base.Algorithm; got {loaded!r}."
                )
            if missing := sorted(loaded.__abstractmethods__):
                raise ParameterError(
                    f"the algorithm of the entry point {entry.value!r} must have all methods of "
                    f"dpadmm.algorithms.base.Algorithm; it lacks {', '.join(missing)}."
                )
            if loaded.name != name:
                raise ParameterError(
                    f"the algorithm of the entry point {entry.value!r} must be named {name!r}; "
                    f"got {loaded.name!r}."
                )
            return loaded
    raise unknown_name("algorithm", name, algorithm_names())


def reviewed(name: str) -> bool:
    """Whether the algorithm's theorems were reviewed in this package."""
    return name in REGISTRY or name in _APART
