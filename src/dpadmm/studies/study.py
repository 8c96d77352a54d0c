r"""A study: sums of bounded vectors over all rows, released with Gaussian noise in few rounds.

.. math:: m_{i,t} = c\,\Bigl(a_b \sum_k f_b(x_k)\Bigr)_b + \xi_{i,t},\qquad
          a_b = \frac{\sqrt{s_b}}{\Delta_b},\qquad \sum_{t,b} s_b \le 1

A round releases blocks of numbers: block b is the sum over rows of a vector :math:`f_b` that one
replaced row moves by :math:`\Delta_b` at most, and gets the part :math:`s_b` of :math:`\mu^2`.
Scaled by :math:`a_b` all blocks of a round together move by

.. math:: \Bigl(\sum_b a_b^2\Delta_b^2\Bigr)^{1/2} = \Bigl(\sum_b s_b\Bigr)^{1/2},

so that noise of one deviation :math:`\sigma = 1/\mu` for every number of every round costs
:math:`\mu^2\sum_{t,b}s_b \le \mu^2` in all: Gaussian releases add up in :math:`\mu^2`, also where
what is asked in a round depends on the sums before it. c is a public power of two that keeps
messages below 1.

**Rounding.** Rows of a party are added up by :meth:`~dpadmm.solvers.workspace.Workspace.totals`,
twice of whose error, :math:`2\gamma n_i L_b` for vectors no longer than :math:`L_b`, is part of
what a row moves; with shared noise so is the grid.

**Noise.** Own or shared as in :mod:`dpadmm.evaluation.release`: what is released is the sum over
parties, and the variance of its noise is known,

.. math:: v_b = \frac1{(c\,a_b)^2}\sum_i \sigma_i^2 \qquad\text{or}\qquad
          \frac1{(c\,a_b)^2}\,\frac{N}{N-\tau}\,\sigma^2.

**Symmetric matrices** are sent as their upper triangle with entries beside the diagonal times
:math:`\sqrt2`: the length of that vector is the matrix's Frobenius norm, and the noise is symmetric
(:func:`upper_triangle`, :func:`from_triangle`).
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import Options, Settings
from dpadmm.algorithms.summed_gaussian import SummedGaussian, shared_noise, summation_for
from dpadmm.data.schema import Schema
from dpadmm.errors import ParameterError
from dpadmm.plain import Array, canonical_json
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource, SimulatedNoise, secure_noise
from dpadmm.privacy.sensitivity import Summation
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.rows import Shard, summation_error
from dpadmm.problem.site import Site
from dpadmm.run.charges import EvaluationTerms, WholePlan, charged, refuse_repeated
from dpadmm.run.engine import Outcome
from dpadmm.run.options import Split, Wish
from dpadmm.run.plan import Plan, announced, sums_of_all
from dpadmm.run.session import ORDER_NOT_COVERED, state_privacy, train
from dpadmm.solvers.workspace import Workspace
from dpadmm.version import NUMBERS_FORMAT, __version__

RECORD_FORMAT: Final = 1
_ID_PREFIX: Final = "dpadmm-study/1"
# Scaling a sum rounds once more.
_LAST_PLACE: Final = float(np.finfo(np.float64).eps)
# Shares are fractions of one budget; adding them up may round.
_ROUNDED: Final = 1e-9


@dataclass(frozen=True)
class Block:
    """Numbers of one kind in the message of a round.

    Attributes
    ----------
    name
        By which the algorithm finds them.
    size
        How many there are.
    sensitivity
        How far one replaced row moves their sum at most.
    largest
        The length of one row's vector at most.
    share
        Their part of mu^2.
    """

    name: str
    size: int
    sensitivity: float
    largest: float
    share: float

    @property
    def scale(self) -> float:
        """``a_b``, by which they are multiplied."""
        return math.sqrt(self.share) / self.sensitivity


def shares(sensitivities: Sequence[float], weights: Sequence[float]) -> list[float]:
    r"""Parts of mu^2 in proportion to :math:`\Delta_b\sqrt{w_b}`.

    They minimise :math:`\sum_b w_b\Delta_b^2/s_b`, the weighted sum of variances, over all
    :math:`\sum_b s_b = 1`.
    """
    parts = [
        reach * math.sqrt(weight) for reach, weight in zip(sensitivities, weights, strict=True)
    ]
    return [part / sum(parts) for part in parts]


def upper_triangle(matrices: Array) -> Array:
    """Symmetric matrices ``(..., d, d)`` as vectors of the same length (Frobenius norm)."""
    first, second = np.triu_indices(matrices.shape[-1])
    found: Array = matrices[..., first, second] * np.where(first == second, 1.0, math.sqrt(2))
    return found


def from_triangle(vector: Array) -> Array:
    """The symmetric matrix of a vector that :func:`upper_triangle` made."""
    size = math.isqrt(2 * len(vector))
    first, second = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[first, second] = vector / np.where(first == second, 1.0, math.sqrt(2))
    matrix[second, first] = matrix[first, second]
    return matrix


class StudyOptions(Options):
    """What every study is told beside its questions: how many rows there are, and whose noise."""

    rows: int = Field(ge=1, description="of all parties together")
    noise: Literal["own", "shared"] = "own"
    colluders: int | None = Field(None, ge=1)


class Sums(NamedTuple):
    """What was released: of each round the sum of all parties' messages, zeros where to come.

    Attributes
    ----------
    sums
        ``(rounds, numbers)``.
    done
        How many rounds are done.
    """

    sums: Array
    done: Array


@dataclass(frozen=True, kw_only=True)
class Study(SummedGaussian):
    """Rounds of blocks; a subclass says what a row adds to each.

    A subclass is a frozen dataclass with fields of its own, marked ``@final``, with ``name``,
    ``paper`` and ``options`` (a :class:`StudyOptions`), :meth:`told` and :meth:`add_up`.

    Attributes
    ----------
    courses
        The blocks of every round.
    scale
        c.
    sensitivity, sigma
        Per party: of a round that has all of mu^2, and the noise of every round.
    variance
        The variance of the noise in the sum of all messages.
    shared
        How messages are added up; None with own noise.
    """

    hears_everybody: ClassVar[bool] = True
    private: ClassVar[bool] = True
    uses_penalty: ClassVar[bool] = False
    claims_epsilon: ClassVar[bool] = False

    courses: tuple[tuple[Block, ...], ...]
    scale: float
    sensitivity: Array
    sigma: Array
    variance: float
    shared: Summation | None = field(default=None)

    @classmethod
    @abstractmethod
    def told(cls, options: Any) -> dict[str, Any]:
        """Fields of its own and ``courses``, from checked options and nothing else; or refuse."""

    @abstractmethod
    def add_up(self, state: Sums, t: int, rows: Array, responses: Array) -> Array:
        """The sums over some rows in round t: the blocks of :attr:`courses` one after the other.

        Whatever finite numbers rows hold, the vector of each is within its block's bounds. What is
        asked may depend on ``state``, through :meth:`block`.
        """

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate the noise to the budgets."""
        options: StudyOptions = cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        told = cls.told(options)
        courses: tuple[tuple[Block, ...], ...] = told["courses"]
        _check_shares(courses, settings.rounds)
        blocks = list(chain(*courses))
        most = options.rows * max(block.largest * block.scale for block in blocks)
        scale = math.ldexp(1.0, -math.frexp(most)[1])
        # The features do not matter for rows added up so few at a time.
        error = 2 * (summation_error(site.rows, 1) + _LAST_PLACE) * site.rows
        rounding = error * max(block.largest / block.sensitivity for block in blocks)
        exact = scale * (1 + SAMPLER_ALLOWANCE) * (1 + rounding)
        relative = budget.sigma(1.0)
        shared, sensitivity, sigma = None, exact, exact * relative
        variance = float(np.sum(sigma**2))
        if options.noise == "shared":
            shared = summation_for(site.parties, options.colluders, 1.0, float(sigma.max()))
            # The grid moves every round by as much, also one with a small share.
            least = min(sum(block.share for block in course) for course in courses)
            numbers = math.ceil(max(map(_size, courses)) / least)
            sensitivity, sigma = shared_noise(shared, exact, relative, numbers, len(courses))
            variance = float(sigma[0]) ** 2 * shared.parties / (shared.parties - shared.colluders)
        return cls(
            **told,
            scale=scale,
            sensitivity=sensitivity,
            sigma=sigma,
            variance=variance,
            shared=shared,
        )

    @property
    def numbers(self) -> int:
        """How many numbers a message has: those of the longest round."""
        return max(map(_size, self.courses))

    def level(self, t: int) -> tuple[Array, Array]:
        """Sensitivity and noise of round ``t``: the root of its part of mu^2, and all the noise."""
        share = sum(block.share for block in self.courses[t])
        return math.sqrt(share) * self.sensitivity, self.sigma

    def of_party(self, place: int, site: Site, settings: Settings) -> Self:
        """The same at one party; scale and shared noise are those of all parties."""
        here = slice(place, place + 1)
        return replace(self, sensitivity=self.sensitivity[here], sigma=self.sigma[here])

    def init(self, site: Site) -> Sums:
        """Nothing released yet."""
        return Sums(np.zeros((len(self.courses), site.features)), np.zeros(1))

    def announce(self, state: Sums, site: Site, t: int) -> tuple[Event, ...]:
        """Charge the round."""
        return self.noise_events(t)

    def local_step(
        self, state: Sums, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Add up the rows in one pass, and send the sums with noise."""
        course = self.courses[t]
        found = workspace.totals(
            lambda rows, responses: self.add_up(state, t, rows, responses), _size(course)
        )
        scales = np.concatenate([np.full(block.size, block.scale) for block in course])
        values = np.zeros(site.shape)
        # The same sums in every run of a simulation, with noise of its own.
        values[:, :, 0, : found.shape[1]] = (found * (scales * self.scale))[:, None]
        return self.release(values, site, noise, t)

    def absorb(self, state: Sums, message: Array, inbox: Array, site: Site, t: int) -> Sums:
        """Keep the sum of all messages."""
        sums = state.sums.copy()
        sums[t] = inbox[0, 0, 0] * site.parties
        return Sums(sums, np.array([t + 1.0]))

    def output(self, state: Sums, message: Array, site: Site) -> Array:
        """The sum of all messages of the round, at every party."""
        last = state.sums[int(state.done[0]) - 1]
        return np.broadcast_to(last, site.shape)

    def block(self, state: Sums, t: int, name: str) -> tuple[Array, float]:
        """Released sums over all rows, and the variance of the noise in each of them."""
        start = 0
        for block in self.courses[t]:
            if block.name == name:
                unit = block.scale * self.scale
                return state.sums[t, start : start + block.size] / unit, self.variance / unit**2
            start += block.size
        raise KeyError(name)


def _size(course: Sequence[Block]) -> int:
    return sum(block.size for block in course)


def _check_shares(courses: Sequence[Sequence[Block]], rounds: int) -> None:
    """Refuse blocks that would cost more than the budget."""
    if len(courses) != rounds:
        raise ParameterError(f"rounds must be {len(courses)} for this study; got {rounds}.")
    given = [block.share for block in chain(*courses)]
    if not all(share > 0 for share in given) or sum(given) > 1 + _ROUNDED:
        raise ParameterError(
            "shares of the budget must be positive and add up to at most 1; they add up to "
            f"{sum(given):.6g}."
        )


def plan_study(
    study: type[Study],
    options: Mapping[str, Any],
    rows: Mapping[str, int],
    terms: EvaluationTerms,
    *,
    rounds: int = 1,
) -> Plan:
    """Check every parameter against the public facts and fix the study; no row is read.

    Parameters
    ----------
    study, options
        Which one, and its options but for those of :class:`StudyOptions`.
    rows
        Public number of rows of each party that it reads, in the order of the parties.
    terms
        What it may cost, and whose noise it gets.
    rounds
        How many there are.
    """
    told = {
        **options,
        "rows": sum(rows.values()),
        "noise": terms.noise,
        "colluders": terms.colluders,
    }
    site, settings = sums_of_all(terms.asked(study.name, told, rounds), rows)
    planned = study.configure(site, settings)
    return Plan(planned, replace(site, features=planned.numbers), settings)


def study_noise(random_state: int | None) -> NoiseSource:
    """Where noise comes from: a secure source, or a simulation's that a seed repeats."""
    return secure_noise() if random_state is None else SimulatedNoise(random_state)


def study_id(planned: Plan, about: str = "") -> str:
    """The name of a study in the ledgers: a digest of all that it is told.

    The same study of the same rows has the same name: asked again, it costs nothing and says the
    same.

    Parameters
    ----------
    planned
        The study.
    about
        How its rows are read, and what they mean (:attr:`StudyRows.preparation`).
    """
    budget = planned.budget
    assert budget is not None
    content = {
        "format": _ID_PREFIX,
        "numbers": NUMBERS_FORMAT,
        "study": planned.algorithm.name,
        "options": planned.settings.options,
        "parties": list(zip(planned.site.names, planned.site.rows.tolist(), strict=True)),
        "epsilon": budget.epsilon.tolist(),
        "delta": budget.delta.tolist(),
        "rows_per_person": budget.rows_per_person,
        "about": about,
    }
    text = canonical_json(content, default=str)
    return f"{planned.algorithm.name} {hashlib.sha256(text.encode('ascii')).hexdigest()[:32]}"


@dataclass(frozen=True)
class StudyRun:
    """A study that was done.

    Attributes
    ----------
    planned, outcome
        The study, and what came of its rounds.
    privacy
        The guarantee.
    run_id
        Its name in the ledgers.
    schema_sha256
        How rows were encoded, if by a schema.
    """

    planned: Plan
    outcome: Outcome = field(repr=False)
    privacy: PrivacyStatement
    run_id: str
    schema_sha256: str | None = None

    @property
    def study(self) -> Study:
        """What was planned."""
        study = self.planned.algorithm
        assert isinstance(study, Study)
        return study

    @property
    def sums(self) -> Sums:
        """What was released: the state that :meth:`Study.block` reads."""
        sums = self.outcome.state
        assert isinstance(sums, Sums)
        return sums

    def block(self, name: str, t: int = 0) -> tuple[Array, float]:
        """Released sums over all rows, and the variance of the noise in each of them."""
        return self.study.block(self.sums, t, name)

    def record(self, **found: Any) -> dict[str, Any]:
        """The record of a study as plain data; ``found`` is what it says."""
        site, options = self.planned.site, self.planned.settings.options
        rows = site.rows.tolist()
        return {
            "format": RECORD_FORMAT,
            "kind": self.study.name,
            "dpadmm": __version__,
            "run_id": self.run_id,
            "schema_sha256": self.schema_sha256,
            "noise": options["noise"],
            "rows": sum(rows),
            "parties": [
                {"name": name, "rows": count} for name, count in zip(site.names, rows, strict=True)
            ],
            "privacy": self.privacy.to_dict(),
            **found,
        }


@dataclass(frozen=True)
class StudyRows:
    """Where the rows of a study are charged, and which part of them it reads.

    Attributes
    ----------
    ledgers
        The file of each party, by its name; none in a simulation.
    run_id
        The name of the study in them; :func:`study_id` unless given.
    schema
        How rows were encoded, if by one.
    split
        Reads the rows that a training with this holdout reads: all of them unless given.
    question
        Public facts that decide what the numbers of a row mean, where neither the plan nor the
        schema says it: which columns they are, say.
    resume
        Take what ledgers have of a study of this name. Where rows have no name but the caller's
        word, that could be the releases of others: then what is complete, or was begun in this
        process, is refused.
    """

    ledgers: Mapping[str, str | Path] | None = None
    run_id: str | None = None
    schema: Schema | None = None
    split: Split = field(default_factory=Split)
    question: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = True

    @property
    def schema_sha256(self) -> str | None:
        """The hash of the schema."""
        return None if self.schema is None else self.schema.sha256

    @property
    def preparation(self) -> str:
        """A word for what rows mean: one name in the ledgers is never two questions."""
        content = {"schema": self.schema_sha256, "question": dict(self.question)}
        text = canonical_json(content, default=str)
        return f"study {hashlib.sha256(text.encode('ascii')).hexdigest()[:32]}"

    def counts(self, rows: Mapping[str, int]) -> dict[str, int]:
        """How many of so many rows of each party are read."""
        return {name: self.split.train_rows(count) for name, count in rows.items()}


def require_named(**given: Any) -> None:
    """Refuse a study charged to ledgers whose rows have no name but the caller's word."""
    for what, told in given.items():
        if told is None:
            raise ParameterError(
                f"{what} must be given in a study charged to ledgers; got none: the same call "
                "must mean the same rows again."
            )


def run_study(
    planned: Plan,
    read: Callable[[], Sequence[tuple[Array, Array]]],
    *,
    noise: NoiseSource,
    about: StudyRows | None = None,
    before: Callable[[], None] | None = None,
    details: Sequence[tuple[str, str]] = (),
    not_covered: Sequence[str] = (),
    on_round: Callable[[int, Array], None] | None = None,
) -> StudyRun:
    """Charge a study, add up its rows round by round, and state what it guarantees.

    Parameters
    ----------
    planned
        The study (:func:`plan_study`).
    read
        ``(rows, responses)`` of each party in the order of the plan, all of them; called once the
        ledgers have room for all rounds.
    noise
        Where noise comes from.
    about
        Where it is charged, and which part of the rows it reads.
    before
        Called once nothing stands in the way of a study that was not charged anything yet.
    details, not_covered
        What its statement says beside the guarantee.
    on_round
        Called with the number of rounds done and what the last one released.
    """
    about = about or StudyRows()
    run_id = about.run_id or study_id(planned, about.preparation)
    study = planned.algorithm
    assert isinstance(study, Study)
    opened = charged(
        planned,
        about.ledgers,
        run_id,
        noise,
        schema=about.schema,
        part=about.split.train,
        before=before,
        preparation=about.preparation,
    )
    with opened as ledgers:
        whole = WholePlan(planned, Wish(), 2, {})
        refuse_repeated(whole, about.ledgers, run_id, resume=about.resume)
        parties = []
        for rows, responses in read():
            first, stop = about.split.train(len(rows)) or (0, len(rows))
            parties.append((rows[first:stop], responses[first:stop]))
        shard = Shard.of_values(parties)
        outcome = train(planned, shard, noise=noise, ledgers=ledgers, on_round=on_round)
    statement = state_privacy(
        planned,
        outcome.events,
        noise,
        also_not_covered=(*((ORDER_NOT_COVERED,) if about.split.holdout else ()), *not_covered),
        details=details,
    )
    return StudyRun(planned, outcome, statement, run_id, about.schema_sha256)


def planned_privacy(
    planned: Plan, random_state: int | None, details: Sequence[tuple[str, str]] = ()
) -> PrivacyStatement:
    """What a study will guarantee, from public facts; nothing is read or spent."""
    noise = study_noise(random_state)
    return state_privacy(planned, announced(planned), noise, details=details)


def smallest_epsilon(
    width: Callable[[float], float], wanted: float, *, largest: float = 100.0
) -> float:
    """The smallest epsilon, to a hundredth of itself, whose expected width is no more than wanted.

    Parameters
    ----------
    width
        The expected width at an epsilon, which falls as that grows.
    wanted
        The width asked for.
    largest
        Refused beyond.
    """
    if not width(largest) <= wanted:
        raise ParameterError(
            f"width must be within reach of an epsilon of {largest:g}, which gives "
            f"{width(largest):.3g}; got {wanted:g}. Ask for less, or bring more rows."
        )
    low, high = 1e-4, largest
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if width(middle) <= wanted else (middle, high)
    return high
