"""Linear classifiers trained together by ADMM under a differential-privacy budget."""

from dpadmm.estimators import ADMMClassifier
from dpadmm.version import __version__

__all__ = ["ADMMClassifier", "__version__"]
