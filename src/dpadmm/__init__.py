"""Linear classifiers trained together by ADMM under a differential-privacy budget."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dpadmm.version import __version__

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier, FederatedClassifier
    from dpadmm.experiments.planner import plan_run
    from dpadmm.experiments.question import RunQuestion
    from dpadmm.problem.rows import data_norm_from_bounds
    from dpadmm.run.config import load_config
    from dpadmm.run.files import train_run
    from dpadmm.run.model import load_model
    from dpadmm.studies.describe_files import describe
    from dpadmm.studies.regression import FederatedGLM

__all__ = [
    "ADMMClassifier",
    "FederatedClassifier",
    "FederatedGLM",
    "RunQuestion",
    "__version__",
    "data_norm_from_bounds",
    "describe",
    "load_config",
    "load_model",
    "plan_run",
    "train_run",
]

# Loaded when they are asked for: nodes and commands start without scikit-learn.
_HOMES: Final = {
    "ADMMClassifier": "dpadmm.estimators",
    "FederatedClassifier": "dpadmm.estimators",
    "FederatedGLM": "dpadmm.studies.regression",
    "RunQuestion": "dpadmm.experiments.question",
    "data_norm_from_bounds": "dpadmm.problem.rows",
    "describe": "dpadmm.studies.describe_files",
    "load_config": "dpadmm.run.config",
    "load_model": "dpadmm.run.model",
    "plan_run": "dpadmm.experiments.planner",
    "train_run": "dpadmm.run.files",
}


def __getattr__(name: str) -> Any:
    """Open the door to a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dpadmm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
