"""Results as a second look leaves them: some cells with more runs than others."""

from dataclasses import replace

import numpy as np


def with_more_runs(results, labels):
    """The runs of these cells six times over, along the last axis."""
    return {
        label: replace(result, values={name: _longer(each) for name, each in result.values.items()})
        if label in labels
        else result
        for label, result in results.items()
    }


def _longer(values):
    return np.tile(values, (1,) * (values.ndim - 1) + (6,))


def every_second(results):
    """Every second label."""
    return list(results)[::2]
