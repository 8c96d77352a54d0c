"""Linear classifiers trained together by ADMM under a differential-privacy budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpadmm.version import __version__

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier

__all__ = ["ADMMClassifier", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the estimator when it is asked for: nodes and commands start without scikit-learn."""
    if name == "ADMMClassifier":
        from dpadmm.estimators import ADMMClassifier

        return ADMMClassifier
    raise AttributeError(f"module 'dpadmm' has no attribute {name!r}")
