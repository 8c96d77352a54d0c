import math

import numpy as np
import pytest
from scipy import sparse
from tests.helpers import oracles

from dpadmm.errors import ParameterError
from dpadmm.privacy.calibration import InnerNoise
from dpadmm.problem.losses import LOSSES, get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.solvers.inner_loop import InnerLoop, loss_code
from dpadmm.solvers.svrg import InnerProblem, descend
from dpadmm.solvers.workspace import Workspace

COUNTS = (30, 12, 45)
FEATURES, STEPS, RHO = 4, 7, 0.3


def site_of(loss="logistic", runs=2, outputs=2):
    return Site.of_all(
        np.array(COUNTS),
        build_topology("server", len(COUNTS)),
        get_loss(loss),
        features=FEATURES,
        regularization=0.1,
        runs=runs,
        outputs=outputs,
    )


def parties_of(outputs=2):
    random = np.random.default_rng(3)
    parties = oracles.random_parties(1, COUNTS, FEATURES)
    return [(rows, random.choice([-1.0, 1.0], size=(len(rows), outputs))) for rows, _ in parties]


def loop_of():
    eta, weighting = np.array([0.9, 0.5, 0.7]), np.array([0.6, 1.0, 8.0])
    return InnerLoop(STEPS, np.array([5, 12, 1]), eta, weighting, RHO)


def noise_of(site, loop, *, fixed, relative):
    random = np.random.default_rng(5)
    return InnerNoise(
        batches=[
            np.stack(
                [
                    np.stack([random.choice(n, b, replace=False) for _ in range(STEPS - 1)])
                    for _ in range(site.runs)
                ]
            )
            for n, b in zip(COUNTS, loop.batch, strict=True)
        ],
        carried=random.normal(size=site.shape),
        released=random.normal(size=site.shape),
        fixed=np.full(len(COUNTS), fixed),
        relative=np.full(len(COUNTS), relative),
        draws=random.normal(size=(len(COUNTS), site.runs, STEPS, site.outputs, FEATURES)),
    )


def one_by_one(site, draws, *, first):
    """The noise of ``draws``, added to the private part of each step as it is released."""
    left = {
        node: iter(
            [
                draws[node, run, s, output]
                for run, output in np.ndindex(site.runs, site.outputs)
                for s in range(first, STEPS)
            ]
        )
        for node in range(len(COUNTS))
    }
    return lambda node, private, sigma: private + sigma * next(left[node])


@pytest.mark.parametrize(
    ("loss", "fixed", "relative"),
    [
        *[(loss, fixed, 0.0) for loss in sorted(LOSSES) for fixed in (0.0, 0.2)],
        *[(loss, 0.0, 1.5) for loss in ("logistic", "huber-hinge")],
    ],
)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("ahead", [True, False], ids=["drawn ahead", "released step by step"])
def test_the_compiled_loop_is_the_plain_one(loss, fixed, relative, kind, ahead):
    site, loop, parties = site_of(loss), loop_of(), parties_of()
    inner = noise_of(site, loop, fixed=fixed, relative=relative)
    if not ahead:
        if not fixed:  # what was released once is not carried
            released = inner.carried + inner.released
            inner = inner._replace(carried=np.zeros(site.shape), released=released)
        if not fixed + relative:
            return
        inner = inner._replace(release=one_by_one(site, inner.draws, first=0 if fixed else 1))
    random = np.random.default_rng(6)
    start, linear = random.normal(size=site.shape), random.normal(size=site.shape)
    held = [(sparse.csr_array(rows), labels) for rows, labels in parties]
    workspace = Workspace(Shard.from_parties(parties if kind == "dense" else held), site)
    found = workspace.svrg(start, linear, loop, inner)
    known = get_loss(loss)
    for node, run, output in np.ndindex(site.shape[:3]):
        at, share = (node, run, output), loop.weighting[node]
        size = site.weight[node] / loop.batch[node]

        def theta(s, v, at=at, size=size):
            moved = known.curvature_bound * np.linalg.norm(v - start[at])
            reach = min(2 * known.slope_range, moved)
            scale = fixed + relative * size * reach if s or fixed else 0.0
            return scale * inner.draws[at[0], at[1], s, at[2]]

        rows, labels = parties[node]
        expected = oracles.svrg(
            rows,
            labels[:, output],
            loss=loss,
            weight=site.weight[node],
            start=start[at],
            gradient=inner.carried[at] + inner.released[at],
            linear=linear[at],
            rho=RHO,
            eta=loop.step_size[node],
            batches=inner.batches[node][run],
            thetas=theta,
            combine=lambda v, later, share=share: (1 - share) * v + share * later,
        )
        np.testing.assert_allclose(found[at], expected, atol=1e-10)


def test_the_gradient_is_that_of_the_loss_of_every_party():
    site, parties = site_of(), parties_of()
    points = np.random.default_rng(0).normal(size=site.shape)
    workspace = Workspace(Shard.from_parties(parties), site)
    found = workspace.gradient(points)
    assert workspace.passes >= 1
    for node, run, output in np.ndindex(site.shape[:3]):
        rows, labels = parties[node]
        expected = oracles.local_gradient(
            points[node, run, output],
            rows,
            labels[:, output],
            loss="logistic",
            weight=site.weight[node],
            convexity=0.0,
            linear=0.0,
        )
        np.testing.assert_allclose(found[node, run, output], expected, atol=1e-13)


def single(rows, *, point, start, batch, relative=0.0, loss="logistic"):
    """Where two steps lead when the first is given by ``point`` and the second has no noise."""
    known = get_loss(loss)
    eta = 1e-3
    problem = InnerProblem(
        rows,
        np.ones(len(rows)),
        loss_code(known),
        (known.slope_bound, known.slope_range, known.curvature_bound),
        1.0,
        start,
        (start - point) / eta,
        np.zeros(len(start)),
        0.0,
        eta,
        1.0,
        np.arange(batch)[None],
        0.0,
        relative,
    )
    return descend(problem, np.ones((2, len(start))))


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge"])
def test_replacing_a_row_of_the_batch_changes_a_difference_by_at_most_the_noise_s_unit(loss):
    random = np.random.default_rng(2)
    closest = 0.0
    for _ in range(300):
        batch, features = int(random.integers(1, 4)), int(random.integers(1, 4))
        rows = random.normal(size=(batch, features))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        other = rows.copy()
        fresh = random.normal(size=features)
        other[0] = fresh / max(np.linalg.norm(fresh), 1.0)
        start = 3.0 * random.normal(size=features)
        point = start + 10.0 ** random.uniform(-8, 2) * random.normal(size=features)
        paths = [
            single(each, point=point, start=start, batch=batch, loss=loss) for each in (rows, other)
        ]
        noisy = single(rows, point=point, start=start, batch=batch, loss=loss, relative=1.0)
        unit = np.abs(noisy - paths[0]).max()  # eta Delta_s / 2, the draws being 1
        moved = np.linalg.norm(paths[1] - paths[0])
        assert moved <= unit * (1 + 1e-9) + 1e-15 * np.linalg.norm(point)
        closest = max(closest, moved / unit)
    assert closest > 0.5


def test_numbers_of_any_size_stay_finite():
    rows = np.eye(3)
    with np.errstate(all="raise"):
        found = single(rows, point=np.full(3, 1e200), start=np.full(3, -1e5), batch=3)
    assert np.isfinite(found).all()


def test_a_loss_the_loop_does_not_know_is_refused_by_name():
    class Other:
        name = "other"

    with pytest.raises(ParameterError, match=r"one of logistic, huber-hinge, squared .* 'other'"):
        loss_code(Other())


def test_losses_have_the_slopes_of_the_loop():
    # A second step along one row shows the slope difference of the loop.
    for name, loss in LOSSES.items():
        for margin in (-800.0, -2.0, 0.3, 0.9, 1.7, 800.0):
            rows = np.ones((1, 1))
            found = single(rows, point=np.array([margin]), start=np.zeros(1), batch=1, loss=name)
            at, zero = loss.slope(np.array([margin, 0.0]))
            # x is the mean of v^1 and v^2; the full gradient moves v again by margin.
            second = margin + margin - 1e-3 * (at - zero)
            assert math.isclose(found[0], (margin + second) / 2, rel_tol=1e-12, abs_tol=1e-12)
