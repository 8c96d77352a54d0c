"""Linear classifiers trained together by ADMM under a differential-privacy budget."""

__version__ = "0.1.0"
