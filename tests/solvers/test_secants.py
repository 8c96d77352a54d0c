"""Limited-memory BFGS against the matrices of its definition."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.solvers.newton import Secants

FEATURES = 5


def _spd(generator):
    root = generator.normal(size=(FEATURES, FEATURES))
    return root @ root.T + 0.1 * np.eye(FEATURES)


def _updated(matrix, step, change):
    weight = 1.0 / (step @ change)
    side = np.eye(FEATURES) - weight * np.outer(step, change)
    return side @ matrix @ side.T + weight * np.outer(step, step)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 8))
def test_it_is_the_bfgs_update_of_every_lane(seed, steps):
    generator = np.random.default_rng(seed)
    nodes, lanes = 2, 3
    matrix = _spd(generator)
    hessians = np.array([[_spd(generator) for _ in range(lanes)] for _ in range(nodes)])
    expected = np.tile(matrix, (nodes, lanes, 1, 1))
    secants = Secants((nodes, lanes, FEATURES))
    for _ in range(steps):
        step = generator.normal(size=(nodes, lanes, FEATURES))
        step[0, 1] = 0.0  # a lane that is done does not move
        change = np.einsum("nlfg,nlg->nlf", hessians, step)
        secants.add(slice(None), step, change)
        for node, lane in np.ndindex(nodes, lanes):
            if (node, lane) != (0, 1):
                expected[node, lane] = _updated(
                    expected[node, lane], step[node, lane], change[node, lane]
                )
    vectors = generator.normal(size=(nodes, lanes, FEATURES))
    found = secants.apply(vectors, slice(None), lambda each: each @ matrix)
    wanted = np.einsum("nlfg,nlg->nlf", expected, vectors)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    # Positive definite: a direction always leads downhill.
    assert (np.einsum("nlf,nlf->nl", found, vectors) > 0).all()
    for written_bytes in (1 << 22, 1):  # all nodes at once, and one by one
        kept = np.tile(matrix, (nodes, lanes, 1, 1))
        with patch("dpadmm.solvers.newton._WRITE_BYTES", written_bytes):
            secants.write_into(kept)
        size = np.abs(expected).max()
        np.testing.assert_allclose(kept, expected, rtol=1e-6, atol=1e-6 * size)
        np.testing.assert_array_equal(kept, kept.swapaxes(-1, -2))


def test_only_the_chosen_nodes_learn():
    generator = np.random.default_rng(3)
    secants = Secants((3, 1, FEATURES))
    chosen = np.array([2])
    step = generator.normal(size=(1, 1, FEATURES))
    secants.add(chosen, step, 2.0 * step)
    # Along the step the inverse is now a half; elsewhere, and at other nodes, the identity.
    found = secants.apply(np.tile(step, (3, 1, 1)), slice(None), lambda each: each)
    np.testing.assert_allclose(found[:2], np.tile(step, (2, 1, 1)))
    np.testing.assert_allclose(found[2:], step / 2)
    np.testing.assert_allclose(secants.apply(step, chosen, lambda each: each), step / 2)


def test_lanes_with_a_new_inverse_forget():
    generator = np.random.default_rng(4)
    secants = Secants((1, 2, FEATURES))
    step = generator.normal(size=(1, 2, FEATURES))
    secants.add(slice(None), step, 2.0 * step)
    secants.forget(np.array([[True, False]]))
    found = secants.apply(step, slice(None), lambda each: each)
    np.testing.assert_allclose(found[0, 0], step[0, 0])
    np.testing.assert_allclose(found[0, 1], step[0, 1] / 2)


def test_a_pair_that_may_be_rounding_is_left_out():
    secants = Secants((1, 1, FEATURES))
    step, change = np.zeros((2, 1, 1, FEATURES))
    step[..., 0], change[..., 0], change[..., 1] = 1.0, 1e-10, 1.0
    secants.add(slice(None), step, change)
    np.testing.assert_array_equal(secants.apply(step, slice(None), lambda each: each), step)
