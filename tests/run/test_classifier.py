"""What a run leaves behind, and what its statement says once it was evaluated again."""

import numpy as np
import pytest

from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.privacy.events import GaussianRelease, PureRelease, SharedGaussian
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.statement import Charges, Terms, make_statement
from dpadmm.run.classifier import HELD_OUT, TRAINED_ON, Classifier, Quality

OWN, SHARED = GaussianRelease(0.1, 1.0), SharedGaussian(0.1, 1.0, 20, 9)


def stated(event, people=1):
    terms = Terms(algorithm="x", noise="some source", simulated=False)
    return make_statement(Charges(("a",), [[event]], (1e-5,), people), terms)


def later(trained, counted, about=HELD_OUT, people=1):
    """What the statement of a training says of an evaluation after it."""
    grid = ScoreGrid(2, (-1.0, 0.0, 1.0))
    histogram = NoisyHistogram(grid, np.ones(grid.cells), 1.0, 100)
    nothing = np.zeros((1, 2))
    made = Classifier(
        *(nothing,) * 4, np.array(["no", "yes"]), np.array(["a"]), {}, 1.0, stated(trained, people)
    )
    found = Quality(histogram, about, stated(counted, people))
    told = made.evaluated_later(found, counted=True)
    assert told.evaluated_later(found, counted=True) is told
    return told, found


@pytest.mark.parametrize(
    ("trained", "people", "adds"),
    [(OWN, 1, False), (OWN, 2, False), (PureRelease(0.1), 1, False), (PureRelease(0.1), 2, True)],
)
def test_a_later_evaluation_adds_up_where_a_person_may_have_rows_in_both_parts(
    trained, people, adds
):
    told, found = later(trained, OWN, people=people)
    (caveat,) = told.privacy.caveats
    assert ("adds to it, since a person may have rows among both" in caveat) == adds
    assert ("counts for people among them where it is more" in caveat) != adds
    assert found.adds_to(told.privacy) == adds
    assert later(OWN, OWN, TRAINED_ON)[1].adds_to(told.privacy)


def test_a_later_evaluation_says_against_whom_it_holds_if_its_noise_is_shared():
    told, found = later(OWN, SHARED)
    (caveat,) = told.privacy.caveats
    assert "against the server or any listener" in caveat
    assert "at most 9 of the 20 parties" in caveat
    assert f"(if all others collude, ({AtMost(found.privacy.alone['a'].epsilon)}, " in caveat
    # With noise of its own it is another evaluation, though its figures are the same.
    again = told.evaluated_later(later(OWN, OWN)[1], counted=True)
    assert len(again.privacy.caveats) == 2
    # What the statement itself says is not said twice.
    assert "listener" not in later(SHARED, SHARED)[0].privacy.caveats[0]
