"""Linear classifiers trained together by ADMM under a differential-privacy budget."""

from dpadmm.estimators import ADMMClassifier

__all__ = ["ADMMClassifier"]
__version__ = "0.1.0"
