"""The sentence of a comparison says what its lines say, whichever way they turn out."""

import math

from dpadmm.experiments.baselines import ALONE, BEST_ALONE, CURATOR, POOLED, PRIVATE_ALONE
from dpadmm.experiments.comparison import Line, Place
from dpadmm.experiments.headline import headline
from dpadmm.experiments.statistics import Interval


def line(who, mean, epsilon=math.inf, calibration="proven", source=""):
    figures = {"test accuracy": Interval(mean, mean - 0.01, mean + 0.01)}
    place = Place(who, calibration, "server" if "dp-gd" in who else "", epsilon)
    return Line(place, None, figures, source=source)


OTHERS = [
    line(POOLED, 0.86),
    line(ALONE, 0.75),
    line(BEST_ALONE, 0.80),
    line(PRIVATE_ALONE, 0.65, 1.0),
    line(CURATOR, 0.85, 1.0, source="central AMP"),
]


def test_it_is_computed_from_the_lines():
    found = headline(
        [
            *OTHERS,
            line("dp-gd", 0.79, 1.0),
            line("dp-gd:noise=shared", 0.83, 1.0),
            line("dp-gd", 0.70, 0.1),
            line("dp-gd", 0.805, 10.0),
        ]
    )
    assert "At epsilon 1 the best of the algorithms compared (dp-gd:noise=shared, server" in found
    assert "gets 83.0% of the held-back rows right" in found
    assert "75.0% on average and 80.0% at best without privacy" in found
    assert "within the same budget 65.0% on average" in found
    assert "85.0% within the same budget (central AMP) and 86.0% without privacy" in found
    assert "cannot be told from the best party alone at epsilon 10" in found
    assert "beats every party alone at epsilon 1;" in found
    assert "does not beat the best party alone at epsilon 0.1." in found


def test_what_does_not_pay_is_not_praised():
    found = headline([*OTHERS, line("dp-gd", 0.78, 1.0)])
    assert "does not beat the best party alone at epsilon 1." in found
    assert "beats every" not in found


def test_noise_as_published_does_not_count():
    found = headline([*OTHERS, line("dp-gd", 0.78, 1.0), line("pr-admm", 0.99, 1.0, "published")])
    assert "99" not in found
    assert headline(OTHERS).startswith("No private algorithm")


def test_a_baseline_is_no_contender():
    # A curator beats everybody alone; that is not training together.
    assert headline([*OTHERS, line("dp-gd", 0.78, 1.0)]).count("85.0%") == 1
    assert "dp-gd" in headline([*OTHERS, line("dp-gd", 0.78, 1.0)])
