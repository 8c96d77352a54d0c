"""What a node makes of the part that it ran."""

import warnings
from types import SimpleNamespace

import pytest

from dpadmm.federation.party import _noise_error
from dpadmm.run.noise_error import noise_error
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import plan

NAMES = ("east", "north", "south", "west")


def planned(algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = TrainingParameters(algorithm=algorithm, rounds=3, loss="huber-hinge")
        return plan(told, [300, 200, 200, 100], features=5, names=NAMES)


def part(told, names, *, gone=(), lost=None):
    hearing = SimpleNamespace(names=names, lost=lost, refused_sum=None)
    return SimpleNamespace(hearing=hearing, stretch=SimpleNamespace(planned=told, lost=gone))


def test_the_error_of_the_noise_is_that_of_the_messages_that_were_heard():
    ring = planned("pr-admm")
    own = _noise_error(part(ring, ("north", "east", "south")), "last")
    assert own == noise_error(ring, "last", (1, 0, 2))
    assert own != noise_error(ring, "last")
    # Where one model stands for all, everybody is in it.
    summed = planned("dp-gd")
    assert _noise_error(part(summed, ("the mean",)), "auto") == noise_error(summed)


@pytest.mark.parametrize("how", [{"gone": ("west",)}, {"lost": "west"}])
def test_a_run_that_did_not_go_as_planned_has_no_error_that_is_known(how):
    assert _noise_error(part(planned("dp-gd"), NAMES, **how), "auto") is None
