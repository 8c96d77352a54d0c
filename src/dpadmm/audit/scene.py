"""The setting of an audit: an algorithm and its public facts, drawn at random where not given.

An audit of one setting misses a fault that shows only in another (several outputs, several rows per
person, a certain option). So the seed chooses the setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, final, get_args

import numpy as np
from scipy import sparse

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Algorithm, Budget, ObjectiveRelease, Settings
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.problem.losses import LOSSES, Loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import SERVER, Site, build_topology
from dpadmm.run.options import CALIBRATIONS
from dpadmm.solvers.workspace import Workspace

#: lambda of every audited problem.
AUDIT_REGULARIZATION: Final = 1e-4


def one_party(
    rows: int,
    *,
    weight: float = 1.0,
    loss: Loss = LOSSES["logistic"],
    server: bool = False,
    parties: int = 2,
    features: int = 2,
    outputs: int = 1,
) -> Site:
    """The public facts of the honest party, which hears one neighbour or a server."""
    return Site(
        names=("honest",),
        index=np.array([0], dtype=np.intp),
        rows=np.array([rows], dtype=np.int64),
        degree=np.ones(1),
        weight=np.array([weight]),
        adjacency=sparse.csr_array(np.ones((1, 1))),
        topology=build_topology(SERVER if server else "path", parties),
        features=features,
        outputs=outputs,
        runs=1,
        loss=loss,
        regularization=AUDIT_REGULARIZATION,
    )


def canary_rows(slant: float, plane: Array | None = None) -> tuple[Array, Array]:
    """The replaced row (-s, q) of D, and (-s, -q) of D', of norm 1, in a plane of directions."""
    along, across = np.eye(2) if plane is None else plane
    share = float(np.sqrt(1 - slant**2))
    return -slant * along + share * across, -slant * along - share * across


@final
class Candidate:
    r"""A data set that the party may hold; the adversary knows it.

    A minimiser under gradient noise b,

    .. math:: o = \arg\min_w \frac{c}{n}\sum_k l(w\cdot u_k) + \frac{m}{2}\|w\|^2
              + \langle\mathrm{lin} + b, w\rangle ,

    determines b: with G the gradient without b, b = -G(o). This is a bijection, so o has the
    density :math:`p_b(-G(o))\,\det\nabla G(o)` and the privacy loss of an output is known in
    closed form. What is sent carries the little noise of approximate minima perturbation on top,
    which moves the loss by about a hundredth of its scale or less.

    Parameters
    ----------
    shard, site
        The rows of one party, and its public facts.
    """

    def __init__(self, shard: Shard, site: Site) -> None:
        (block,) = shard.blocks
        self._rows, self._labels, self._site = block.rows[0], block.labels[0], site
        #: Solves the party's problems.
        self.workspace = Workspace(shard, site)

    def log_density(self, release: ObjectiveRelease, sent: Array) -> Array:
        """``ln p_b(-G(o)) + ln det`` of the Hessian, up to a constant; one number per run."""
        noise = release.perturbation
        convexity = self._site.per_node(noise.convexity)
        needed = self.workspace.gradient(sent) + convexity * sent + release.linear
        size = np.linalg.norm(needed, axis=-1) / noise.scale[:, None, None]
        log_noise = -np.square(size) / 2 if noise.kind == "gaussian" else -size
        hessian = self._loss_hessian(sent) + convexity[..., None] * np.eye(self._site.features)
        return (log_noise + np.linalg.slogdet(hessian).logabsdet).sum(axis=(0, 2))

    def _loss_hessian(self, points: Array) -> Array:
        """``(c / n) sum_k l''(w.u_k) x_k x_k'`` at each point."""
        margins = (points @ self._rows.T) * self._labels.T
        weighted = self._site.loss.curvature(margins)[..., None] * self._rows
        scale = self._site.per_node(self._site.weight / self._site.rows)[..., None]
        return scale * np.matmul(self._rows.T, weighted)


# Values to draw where none are given. Options that an algorithm does not have are skipped; options
# with a list of words take any of them.
_FACTS: Final[dict[str, tuple[int, ...]]] = {
    "features": (2, 3, 5, 8),
    "outputs": (1, 1, 3, 4),
    "rows_per_person": (1, 1, 2, 3),
}
_OPTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "decay": (0.8, 0.95),
    "penalty_growth": (1.0, 1.1),
    "public_norm": (False, False, True),
    "threshold": (None, 5.0),
    "gamma": (None, 0.5),
    "send_even": (True, False),
    "label_epsilon": (0.5, 1.0, 2.0),
    "inner_steps": (1, 2, 4),
    "batch_size": (1, 4),
}
# How often another setting is drawn if the algorithm refuses one.
_ATTEMPTS: Final = 20
# The parties of a federation: rows and budget of each, as shares of the given ones. They differ, so
# that a mix-up between parties shows.
_ROWS_SHARES: Final = (1.0, 0.6, 1.7)
_EPSILON_SHARES: Final = (1.0, 0.8, 1.3)
_DELTA_SHARES: Final = (1.0, 0.1, 0.3)
# The number of parties with shared noise; three of them are an honest majority.
_CROWD: Final = 5
# The most rows that a federation holds; rows of zeros replace the others and add nothing.
_MOST_ROWS: Final = 64


@dataclass(frozen=True)
class Scene:
    """An algorithm with its budget and the public facts of the audited parties.

    Attributes
    ----------
    algorithm
        Its name; it must be private.
    epsilon, delta
        The claim.
    rounds, penalty, rows
        Messages, eta, and rows of a party.
    features, outputs
        The dimension of a row; columns of the classifier.
    rows_per_person
        Rows that are replaced at once.
    options, calibration
        As the algorithm takes them.
    seed
        The seed of the rows, and of the directions in which a replaced row differs.
    """

    algorithm: str
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 3
    penalty: float = 0.5
    rows: int = 100
    features: int = 2
    outputs: int = 1
    rows_per_person: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    calibration: str = "proven"
    seed: int = 0

    def __post_init__(self) -> None:
        if not get_algorithm(self.algorithm).private:
            raise ParameterError(
                f"algorithm must be a private one; {self.algorithm!r} claims nothing."
            )
        positive_number("epsilon", self.epsilon)
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must be between 0 and 1; got {self.delta!r}.")
        if self.calibration not in CALIBRATIONS:
            raise unknown_name("calibration", self.calibration, CALIBRATIONS)
        positive_number("penalty", self.penalty)
        for name in ("rounds", "rows", "outputs", "rows_per_person"):
            positive_integer(name, getattr(self, name))
        if positive_integer("features", self.features) < 2:
            raise ParameterError(
                "features must be at least 2, one direction along the centre and one across it; "
                f"got {self.features}."
            )
        if self.outputs == 2:
            raise ParameterError("outputs must be 1 (two classes) or at least 3; got 2.")
        if self.rows_per_person > self.rows:
            raise ParameterError(
                f"rows_per_person must be at most rows, {self.rows}; got {self.rows_per_person}."
            )
        if self.seed < 0:
            raise ParameterError(f"seed must be a whole number of at least 0; got {self.seed}.")

    @property
    def kind(self) -> type[Algorithm]:
        """The algorithm's class."""
        return get_algorithm(self.algorithm)

    @property
    def parties(self) -> int:
        """The parties of the run in which one is attacked; shared noise needs more of them."""
        return _CROWD if self.options.get("noise") == "shared" else 2

    def settings(self, budget: Budget) -> Settings:
        """The settings of the algorithm."""
        return Settings(
            rounds=self.rounds,
            penalty=self.penalty,
            options=dict(self.options),
            budget=budget,
            calibration=self.calibration,
        )

    def budget(self, parties: int = 1) -> Budget:
        """The budget of one party, or those of several, which differ."""
        shares = (np.array(each[:parties]) for each in (_EPSILON_SHARES, _DELTA_SHARES))
        epsilon, delta = shares
        return Budget(self.epsilon * epsilon, self.delta * delta, self.rows_per_person)

    def plane(self) -> Array:
        """Two directions at right angles, ``(2, features)``."""
        random = np.random.default_rng([self.seed, 1])
        return np.linalg.qr(random.standard_normal((self.features, 2)))[0].T

    @property
    def least_constant(self) -> float:
        """What the setting says about the last column, as if it were a constant.

        No proof counts on it: a row may have any number there.
        """
        return 1 / math.sqrt(self.features)

    def words(self) -> str:
        """The setting in words."""
        parts = [
            f"{self.algorithm} ({self.calibration})",
            f"{self.rounds} rounds",
            f"{self.rows} rows",
            f"penalty {self.penalty:g}",
            f"{self.features} features",
            f"{self.outputs} output" + "s" * (self.outputs > 1),
            f"{self.rows_per_person} row" + "s" * (self.rows_per_person > 1) + " a person",
            *(f"{name} = {value}" for name, value in self.options.items()),
        ]
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines."""
        names = ("rounds", "penalty", "rows", "features", "outputs", "rows_per_person")
        return {name: getattr(self, name) for name in names} | {"options": dict(self.options)}


@dataclass(frozen=True)
class Federation:
    """Three parties who differ in rows and budget, all of them honest.

    Attributes
    ----------
    scene
        What they run.
    site
        Their public facts.
    rows
        ``(rows, labels)`` of each.
    """

    scene: Scene
    site: Site
    rows: tuple[tuple[Array, Array], ...]

    @classmethod
    def of(cls, scene: Scene) -> Federation:
        """Draw the parties' rows."""
        kind = scene.kind
        counts = np.array([max(round(scene.rows * share), 4) for share in _ROWS_SHARES])
        counts = np.maximum(counts, scene.rows_per_person)
        held = counts if kind.needs_server else np.minimum(counts, _MOST_ROWS)
        site = Site.of_all(
            held,
            build_topology(SERVER if kind.needs_server else "complete", len(counts)),
            kind.training_loss(LOSSES["logistic"], scene.options),
            features=scene.features,
            regularization=AUDIT_REGULARIZATION,
            outputs=scene.outputs,
            least_constant=scene.least_constant,
        )
        weight = len(counts) * counts / counts.sum()
        random = np.random.default_rng([scene.seed, 2])
        rows = []
        for count in held:
            drawn = random.standard_normal((count, scene.features))
            drawn /= np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), 1e-9)
            classes = random.integers(0, max(scene.outputs, 2), count)
            labels = np.where(classes[:, None] == np.arange(scene.outputs), 1.0, -1.0)
            rows.append((drawn, labels))
        return cls(scene, replace(site, weight=weight * held / counts), tuple(rows))

    def configure(self) -> Algorithm:
        """The algorithm, calibrated to each party's own budget."""
        budget = self.scene.budget(len(self.rows))
        return self.scene.kind.configure(self.site, self.scene.settings(budget))

    def shard(self) -> Shard:
        """The rows, laid out for a workspace."""
        return Shard.from_parties(self.rows)


def draw_scene(algorithm: str, seed: int, **given: Any) -> Scene:
    """Return a scene; the seed draws everything that is not given.

    Parameters
    ----------
    algorithm, seed
        The algorithm's name; the same seed gives the same scene.
    given
        Fields of :class:`Scene`; None counts as not given, and options that are not given are
        drawn too. A published calibration is taken as papers have it: nothing is drawn.
    """
    fixed = {name: value for name, value in given.items() if value is not None}
    plain = Scene(algorithm, seed=seed, **fixed)
    random = np.random.default_rng([seed, 3])
    for _ in range(_ATTEMPTS if plain.calibration == "proven" else 0):
        drawn = {name: int(random.choice(values)) for name, values in _FACTS.items()}
        drawn["rows_per_person"] = min(drawn["rows_per_person"], plain.rows)
        options = _drawn_options(plain.kind, random) | dict(plain.options)
        scene = replace(plain, **(drawn | fixed | {"options": options}))
        if _is_taken(scene):
            return scene
    # The given values are then refused where they are used.
    return plain


def _drawn_options(kind: type[Algorithm], random: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, about in kind.options.model_fields.items():
        words = [word for word in get_args(about.annotation) if isinstance(word, str)]
        values = words or _OPTIONS.get(name, ())
        if values:
            options[name] = values[random.integers(len(values))]
    return options


def _is_taken(scene: Scene) -> bool:
    """Whether the algorithm can be configured so."""
    try:
        Federation.of(scene).configure()
    except ParameterError:
        return False
    return True
