"""Small runs of private algorithms, with noise that can be switched off or foreseen."""

import numpy as np

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Budget, Settings
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, run
from dpadmm.solvers.workspace import Workspace
from tests.helpers import oracles

# The setting of the convergence evidence: N = 6, 60 to 200 rows, d = 5, lambda = .05, c = 1.
COUNTS = (60, 85, 110, 140, 170, 200)
FEATURES = 5
LAM = 0.05
DELTA = 1e-5


class Silence(NoiseSource):
    """No noise at all."""

    description = "none"
    simulated = True

    def generator(self, run, party, t, purpose):
        raise AssertionError("nothing may be drawn here")

    def add_gaussian(self, values, sigma, parties, t, purpose):
        return values.copy()

    def exponential_norm(self, shape, parties, t, purpose):
        return np.zeros(shape)


class ObjectiveOnly(NoiseSource):
    """Simulated noise in the objective, none on what is sent."""

    description = "objective only"
    simulated = True

    def generator(self, run, party, t, purpose):
        return SimulatedNoise(0).generator(run, party, t, purpose)

    def add_gaussian(self, values, sigma, parties, t, purpose):
        if purpose == "output":
            return values.copy()
        return super().add_gaussian(values, sigma, parties, t, purpose)


def unit_exponential(count, t, features=FEATURES):
    """Draws of density exp(-||b||), one a party, that :class:`ObjectiveOnly` scales."""
    shape = (count, 1, 1, features)
    return SimulatedNoise(0).exponential_norm(shape, np.arange(count), t, "objective")[:, 0, 0]


def unit_normal(count, t, features=FEATURES):
    """Standard normal draws, one a party, that SimulatedNoise(0) scales and sends."""
    zero = np.zeros((count, 1, 1, features))
    return SimulatedNoise(0).add_gaussian(zero, np.array(1.0), np.arange(count), t, "output")[
        :, 0, 0
    ]


def site_of(counts=COUNTS, topology="ring", *, runs=1, outputs=1, features=FEATURES):
    return Site.of_all(
        np.array(counts),
        build_topology(topology, len(counts)),
        get_loss("logistic"),
        features=features,
        regularization=LAM,
        outputs=outputs,
        runs=runs,
        party_weight="equal",
    )


def configure(name, site, *, rounds, penalty=0.02, epsilon=1.0, tolerance=None, rows=1, **more):
    count = len(site.index)
    settings = Settings(
        rounds=rounds,
        penalty=penalty,
        tolerance=tolerance,
        options=more.pop("options", {}),
        budget=Budget(np.full(count, epsilon), np.full(count, DELTA), rows),
        **more,
    )
    return get_algorithm(name).configure(site, settings)


def messages_of(algorithm, site, parties, rounds, noise):
    """The messages of every round, ``(rounds, parties, runs, outputs, features)``."""
    seen = []
    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in parties])
    run(
        algorithm,
        site,
        Workspace(shard, site),
        rounds=rounds,
        exchange=InProcess(server=False),
        ledgers=[MemoryLedger() for _ in site.index],
        noise=noise,
        on_round=lambda t, y: seen.append(y.copy()),
    )
    return np.array(seen)


def parties_of(counts=COUNTS, seed=0):
    return oracles.random_parties(seed, counts, FEATURES)


def history_of(algorithm, site, rounds):
    """What each party is charged, round by round."""
    state = algorithm.init(site)
    charged = [algorithm.announce(state, site, t) for t in range(rounds)]
    return list(zip(*charged, strict=True))


def distance_from_the_optimum(algorithm, site, rounds):
    """How far the last messages are from the pooled optimum, without noise."""
    parties = parties_of()
    best = oracles.pooled_optimum(parties, lam=LAM, weights=np.ones(len(parties)))
    last = messages_of(algorithm, site, parties, rounds, Silence())[-1]
    return np.linalg.norm(last[:, 0, 0] - best, axis=-1).max()
