"""The parameters of the compiled inner loop; importing this module compiles nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.problem.losses import Loss

LOGISTIC: Final = 0
HUBER_HINGE: Final = 1
SQUARED: Final = 2
_CODES: Final = {"logistic": LOGISTIC, "huber-hinge": HUBER_HINGE, "squared": SQUARED}


@dataclass(frozen=True)
class InnerLoop:
    """The public parameters of the inner loop; arrays have one entry per party.

    Attributes
    ----------
    steps
        S, the number of steps.
    batch
        b, rows of a batch.
    step_size
        eta.
    weighting
        a = xi / (2 eta), the weight of the later of two iterates in the average.
    penalty
        rho.
    """

    steps: int
    batch: NDArray[np.int64]
    step_size: Array
    weighting: Array
    penalty: float


def loss_code(loss: Loss) -> int:
    """Return the number of a loss in the compiled loop; refuse other losses."""
    if loss.name not in _CODES:
        raise ParameterError(
            f"loss must be one of {', '.join(_CODES)} for a stochastic algorithm; "
            f"got {loss.name!r}."
        )
    return _CODES[loss.name]
