"""How a mean stands to a number: decided by its interval."""

import math

import pytest

from dpadmm.experiments.standing import BEATS, BELOW, LEVEL_WITH, percent, standing
from dpadmm.experiments.statistics import Interval


@pytest.mark.parametrize(
    ("interval", "found"),
    [
        (Interval(0.82, 0.81, 0.83), BEATS),
        (Interval(0.81, 0.79, 0.83), LEVEL_WITH),
        (Interval(0.79, 0.77, 0.81), LEVEL_WITH),
        (Interval(0.78, 0.77, 0.79), BELOW),
        (Interval(0.80, 0.80, 0.80), BELOW),
        # A single run has no width that is known: its value decides.
        (Interval(0.81, -math.inf, math.inf), BEATS),
        (Interval(0.80, -math.inf, math.inf), BELOW),
    ],
)
def test_the_interval_decides(interval, found):
    assert standing(interval, 0.8) == found


def test_shares_are_told_in_percent():
    assert percent(0.8349) == "83.5%"
