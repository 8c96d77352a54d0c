"""The registry: one line per algorithm, plus what other packages bring.

An outside package adds an algorithm through the entry point group ``dpadmm.algorithms``; what it
proves has not been reviewed here, and statements say so.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from inspect import isabstract
from typing import Final

from dpadmm.algorithms.admm import ADMM
from dpadmm.algorithms.base import Algorithm
from dpadmm.algorithms.consensus_admm import ConsensusADMM
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.algorithms.dvp import DVP
from dpadmm.algorithms.m_admm import MADMM
from dpadmm.algorithms.pdml import PDML
from dpadmm.algorithms.pr_admm import PRADMM
from dpadmm.algorithms.ps_admm import PSADMM
from dpadmm.algorithms.r_admm import MRADMM, RADMM
from dpadmm.algorithms.scas_admm import SCASADMM
from dpadmm.errors import ParameterError, unknown_name

__all__ = ["HISTOGRAM", "REGISTRY", "algorithm_names", "get_algorithm", "reviewed"]

ALGORITHM_GROUP: Final = "dpadmm.algorithms"
#: What is released beside training; nobody chooses it as an algorithm.
HISTOGRAM: Final = "score-histogram"

REGISTRY: Final[dict[str, type[Algorithm]]] = {
    algorithm.name: algorithm
    for algorithm in (
        ADMM,
        ConsensusADMM,
        DVP,
        MADMM,
        PRADMM,
        RADMM,
        MRADMM,
        SCASADMM,
        PSADMM,
        PDML,
        DPGD,
    )
}


def algorithm_names() -> list[str]:
    """All names: ours first, then those of other packages."""
    outside = {entry.name for entry in entry_points(group=ALGORITHM_GROUP)}
    return [*REGISTRY, *sorted(outside - {*REGISTRY, HISTOGRAM})]


def get_algorithm(name: str) -> type[Algorithm]:
    """The algorithm of that name; ours cannot be replaced from outside."""
    if name in REGISTRY:
        return REGISTRY[name]
    # A name that passes for reviewed is nobody else's to take.
    for entry in entry_points(group=ALGORITHM_GROUP):
        if entry.name == name != HISTOGRAM:
            try:
                loaded = entry.load()
            except (ImportError, AttributeError) as error:
                raise ParameterError(
                    f"the entry point {entry.value!r} must be importable; {error}."
                ) from error
            if not (isinstance(loaded, type) and issubclass(loaded, Algorithm)) or isabstract(
                loaded
            ):
                raise ParameterError(
                    f"the entry point {entry.value!r} must name a subclass of "
                    f"dpadmm.algorithms.base.Algorithm with all its methods; got {loaded!r}."
                )
            if loaded.name != name:
                raise ParameterError(
                    f"the algorithm of the entry point {entry.value!r} must be named {name!r}; "
                    f"got {loaded.name!r}."
                )
            return loaded
    raise unknown_name("algorithm", name, algorithm_names())


def reviewed(name: str) -> bool:
    """Whether the algorithm's theorems are this package's own."""
    return name in REGISTRY or name == HISTOGRAM
