"""What a release costs: frozen records, one per theorem.

An event never changes its meaning: a new theorem is a new class, a corrected one a new
``version``. The docstring of each class is the statement with its assumptions. What an event
costs is worked out in :mod:`dpadmm.privacy.curves`, and only there.

Throughout, two data sets are neighbours when one row of one party is replaced by any other row;
the numbers of rows and parties, the graph and every parameter are public. The adversary sees
every message and may control all other parties; only :class:`SharedGaussian` assumes less of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class Event:
    """One release by one party, as the accountant sees it."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :func:`event_from_dict` turns back into the same event."""
        content = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, "version": self.version, **content}


def _plain(value: Any) -> Any:
    """The value of a field: events that it holds with their kinds and versions."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.to_dict() if isinstance(value, Event) else value


def _set_positive(event: Event, *names: str) -> None:
    _set_real(event, names, strictly=True)


def _set_non_negative(event: Event, *names: str) -> None:
    _set_real(event, names, strictly=False)


def _set_real(event: Event, names: tuple[str, ...], *, strictly: bool) -> None:
    constraint = "a positive finite number" if strictly else "a non-negative finite number"
    for name in names:
        value = getattr(event, name)
        is_number = not isinstance(value, bool) and isinstance(value, Real)
        if not (is_number and 0 <= value < math.inf) or (strictly and value == 0):
            raise ValueError(f"{event.kind}: {name} must be {constraint}; got {value!r}")
        # Plain floats keep the record serialisable and its equality independent of numpy types.
        object.__setattr__(event, name, float(value))


def _set_positive_integer(event: Event, *names: str) -> None:
    for name in names:
        value = getattr(event, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{event.kind}: {name} must be a positive integer; got {value!r}")
        object.__setattr__(event, name, int(value))


@dataclass(frozen=True, slots=True)
class PostProcessing(Event):
    """A function of what was released before: costs nothing, whatever the function.

    Assumes that the value sent depends on the party's rows only through earlier releases.
    """

    kind: ClassVar[str] = "post-processing"


@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee: epsilon is infinite. Every policy refuses it."""

    kind: ClassVar[str] = "non-private"


@dataclass(frozen=True, slots=True)
class GaussianRelease(Event):
    r"""The release of x + N(0, sigma^2 I) is mu-GDP with mu = sensitivity / sigma.

    .. math:: \delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon\Phi(-\mu/2 - \epsilon/\mu)

    ``sensitivity`` bounds the 2-norm by which x changes when one row is replaced, for every
    value of the earlier messages; for an argmin found to a residual it includes
    2 tolerance / strong convexity. The bound is attained. ``sigma`` must be fixed in advance, or
    chosen together with the sensitivity so that mu is. Replacing k rows changes x by at most
    k times ``sensitivity``.
    """

    kind: ClassVar[str] = "gaussian"
    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        _set_non_negative(self, "sensitivity")
        _set_positive(self, "sigma")


@dataclass(frozen=True, slots=True)
class SharedGaussian(Event):
    r"""The sum of all parties' summands, each with a share of the noise, is mu-GDP for each party.

    .. math:: \mu = \mathrm{sensitivity}/\sigma,\qquad
              \mu_\mathrm{alone} = \sqrt{N - \tau}\;\mathrm{sensitivity}/\sigma

    Every one of the N = ``parties`` adds an exact discrete Gaussian of variance
    :math:`\sigma^2/(N-\tau)` to its summand. The adversary sees the sum of all, and knows summands
    and shares of at most :math:`\tau` = ``colluders`` parties: what is left is the sum of N - tau
    honest summands and noise of variance :math:`\sigma^2`. Of a party whose summand is seen by
    itself, all others being against it, mu_alone holds; masks that keep it from being seen are
    computational. ``sensitivity`` bounds the 2-norm by which the party's own summand changes, for
    every value of the earlier sums, rounding to the grid included; replacing k rows changes it by
    at most k times that. A person with rows at several parties costs the sum of their mu: the
    shifts meet in one sum.

    The grid has steps of at most :math:`2^{-24}` of a share's standard deviation, s steps:

    * The sum of N - tau discrete Gaussians has, number by number, a privacy loss of at most
      :math:`10\sum_{k=1}^{N-\tau-1} e^{-2\pi^2 s^2 k/(k+1)}` against one discrete Gaussian
      (Kairouz, Liu, Steinke 2021): with :math:`s\ge 2^{24}` less than :math:`10^{-10^{14}}`.
    * A discrete Gaussian's mass at x standard deviations is that of a rounded Gaussian, which is
      mu-GDP, times :math:`\exp((1-x^2)/24s^2)`. Of M numbers, all rounds together, these factors
      have a product within :math:`\exp(\pm(2\sqrt{Mv}+2v)/24s^2)` but for a chance of
      :math:`2e^{-v}`; with v = 100 and M up to :math:`10^7` that is a privacy loss of
      :math:`10^{-11}`, and for more numbers s is larger
      (:func:`~dpadmm.privacy.sensitivity.least_steps`).

    Both are below the room that sensitivities and deltas leave for samplers
    (:data:`~dpadmm.privacy.noise.SAMPLER_ALLOWANCE`).
    """

    kind: ClassVar[str] = "shared-gaussian"
    sensitivity: float
    sigma: float
    parties: int
    colluders: int

    def __post_init__(self) -> None:
        _set_non_negative(self, "sensitivity")
        _set_positive(self, "sigma")
        _set_positive_integer(self, "parties", "colluders")
        if self.parties - self.colluders < 2:
            raise ValueError(
                f"{self.kind}: colluders must leave 2 of the {self.parties} parties honest; "
                f"got {self.colluders}"
            )

    @property
    def alone(self) -> GaussianRelease:
        """The same release if all others collude: the party's own share of the noise is left."""
        return GaussianRelease(self.sensitivity, self.sigma / math.sqrt(self.honest))

    @property
    def honest(self) -> int:
        """Parties whose noise counts."""
        return self.parties - self.colluders


@dataclass(frozen=True, slots=True)
class PureRelease(Event):
    r"""The release is epsilon-DP: :math:`\Pr[M(D)\in E] \le e^\epsilon \Pr[M(D')\in E]`.

    For the exact minimiser with gradient noise of density proportional to exp(-rate ||b||),

    .. math:: \epsilon = \mathrm{rate}\cdot 2 L c / n + \ln(1 + \kappa),\quad\kappa = c c_1/(n m)

    An inexact minimiser needs an :class:`InexactSolve` beside it. Replacing k rows costs
    k epsilon.
    """

    kind: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        _set_non_negative(self, "epsilon")


@dataclass(frozen=True, slots=True)
class GaussianObjectivePerturbation(Event):
    r"""The exact argmin under Gaussian gradient noise has Renyi divergence at most R(a).

    .. math::
        R(a) = a\mu^2/2 + \psi_a(\kappa) + \psi_a(-\kappa/(1+\kappa)),\qquad
        \psi_a(t) = -\ln(1+t) - \frac{\ln(1-(a-1)t)}{a-1}

    for every order 1 < a < 1 + 1/kappa. ``mu`` = 2 L c / (n sigma) and ``kappa`` = c c_1 / (n m)
    with m the strong convexity, L and c_1 bounds on the slope and curvature of the loss. Needs a
    convex loss with Lipschitz gradient, no constraint or projection, rows of norm at most 1, and
    the exact minimiser: what a solver returns needs an :class:`InexactSolve` beside it.

    Replacing k rows: the gradient moves by at most k times as much, and the Jacobian J of the
    difference has at most k eigenvalues of each sign. Those of one sign sum to at most k kappa
    relative to the Hessian, hence, psi_a being convex with psi_a(0) = 0, the statement holds with
    k mu and k kappa and 1 < a < 1 + 1/(k kappa), the second psi being replaced by the larger
    a (k kappa)^2 / 2 where k kappa sqrt(a) > 1 and k > 1.
    """

    kind: ClassVar[str] = "gaussian-objective"
    mu: float
    kappa: float

    def __post_init__(self) -> None:
        _set_non_negative(self, "mu", "kappa")


@dataclass(frozen=True, slots=True)
class InexactSolve(Event):
    r"""Adding N(0, output_sigma^2 I) to an inexact minimiser costs one more mu-GDP release.

    .. math:: \mu = 2\,\mathrm{tolerance}/(\mathrm{strong\_convexity}\cdot\mathrm{output\_sigma})

    comes on top of the event of the exact minimiser: the pair (exact minimiser, difference to it
    plus noise) determines what is sent, and the difference has norm at most tolerance / m whatever
    the rows, however many of them are replaced. The solver must meet the residual ``tolerance``
    (rounding of the gradient included) on every data set.
    """

    kind: ClassVar[str] = "inexact-solve"
    tolerance: float
    strong_convexity: float
    output_sigma: float

    def __post_init__(self) -> None:
        _set_non_negative(self, "tolerance")
        _set_positive(self, "strong_convexity", "output_sigma")


@dataclass(frozen=True, slots=True)
class SubsampledGaussian(Event):
    r"""A Gaussian release of a secret batch, drawn without replacement, is amplified.

    .. math:: \delta(\epsilon) \le q\,\delta_\mu(\ln(1 + (e^\epsilon - 1)/q)),\quad\epsilon\ge 0

    where q = batch / population, delta_mu is the curve of :class:`GaussianRelease` and
    mu = sensitivity / sigma; ``sensitivity`` is that of the batch's value when one row of the
    batch is replaced. The batch is fresh, independent and secret at every step: no shuffled
    epochs, no reused batch.

    Replacing k rows: with q the probability that the batch holds any of them, the same holds with
    the curve of j mu averaged over the number j of them in such a batch, since a batch that
    holds j can be coupled, row for row, with one that holds none, and divergences are convex.
    """

    kind: ClassVar[str] = "subsampled-gaussian"
    batch: int
    population: int
    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        _set_positive_integer(self, "batch", "population")
        _set_non_negative(self, "sensitivity")
        _set_positive(self, "sigma")
        if self.batch > self.population:
            raise ValueError(
                f"{self.kind}: batch must be at most population = {self.population};"
                f" got {self.batch}"
            )

    @property
    def sampling_rate(self) -> float:
        """The probability that a given row is in the batch."""
        return self.batch / self.population


@dataclass(frozen=True, slots=True)
class LabelRandomizedResponse(Event):
    r"""Flipping a binary label with probability 1/(1 + e^epsilon) is epsilon-DP for that label.

    The guarantee is local (it holds against the party itself) and concerns the label only: the
    features of the row have none from it. It is never composed with guarantees for rows.
    """

    kind: ClassVar[str] = "label-randomized-response"
    epsilon: float

    def __post_init__(self) -> None:
        _set_positive(self, "epsilon")


@dataclass(frozen=True, slots=True)
class Composed(Event):
    """One release made of several parts costs what its parts cost together.

    The parts may be chosen adaptively; their parameters are fixed in advance.
    """

    kind: ClassVar[str] = "composed"
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.events) if isinstance(self.events, list | tuple) else ()
        if not parts or not all(isinstance(part, Event) for part in parts):
            raise ValueError(
                f"{self.kind}: events must be a non-empty tuple of events; got {self.events!r}"
            )
        object.__setattr__(self, "events", parts)


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """The same event, ``count`` times over, costs what that many releases cost together.

    Every one of them has noise of its own; what they release may be chosen adaptively.
    """

    kind: ClassVar[str] = "repeated"
    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise ValueError(f"{self.kind}: event must be an event; got {self.event!r}")
        _set_positive_integer(self, "count")


#: The one instance that is ever needed.
NON_PRIVATE: Final = NonPrivate()

EVENT_KINDS: Final[dict[str, type[Event]]] = {
    event.kind: event
    for event in (
        PostProcessing,
        NonPrivate,
        GaussianRelease,
        SharedGaussian,
        PureRelease,
        GaussianObjectivePerturbation,
        InexactSolve,
        SubsampledGaussian,
        LabelRandomizedResponse,
        Composed,
        Repeated,
    )
}


def single_events(event: Event, count: int = 1) -> Iterator[tuple[Event, int]]:
    """The events that an event is composed of, and how many of each; nothing else unfolds them.

    The class itself decides: a subclass may mean something else and is not unfolded.
    """
    match event:
        case Composed() if type(event) is Composed:
            for part in event.events:
                yield from single_events(part, count)
        case Repeated() if type(event) is Repeated:
            yield from single_events(event.event, count * event.count)
        case _:
            yield event, count


def shared_events(events: Iterable[Event]) -> list[SharedGaussian]:
    """The releases of a history that count on the noise of others."""
    return [
        part
        for event in events
        for part, _ in single_events(event)
        if isinstance(part, SharedGaussian)
    ]


# Releases that move by the same bound for each row of a person.
_ROW_BY_ROW: Final = frozenset({PostProcessing, GaussianRelease, SharedGaussian})


def parts_add_up(events: Iterable[Event | str], rows_per_person: int) -> bool:
    """Whether releases of different rows add up for a person; otherwise the larger counts.

    A person with several rows may have some in each part. The larger cost is known to cover this
    for Gaussian releases only (:mod:`dpadmm.ledger.balance` has the proof). It does not cover a
    solver's error, which is the same for one row and for several.

    Parameters
    ----------
    events
        The releases of all parts; or their kinds, as a guarantee names them.
    rows_per_person
        How many rows are replaced at once.
    """
    if rows_per_person == 1:
        return False
    classes: set[type[Event] | None] = set()
    for event in events:
        if isinstance(event, str):
            classes.add(EVENT_KINDS.get(event))
        else:
            classes.update(type(part) for part, _ in single_events(event))
    return not classes <= _ROW_BY_ROW


def alone(event: Event) -> Event:
    """The event if all other parties collude: only the party's own noise counts."""
    match event:
        case SharedGaussian() if type(event) is SharedGaussian:
            return event.alone
        case Composed() if type(event) is Composed:
            return Composed(tuple(alone(part) for part in event.events))
        case Repeated() if type(event) is Repeated:
            return Repeated(alone(event.event), event.count)
        case _:
            return event


def event_from_dict(data: dict[str, Any]) -> Event:
    """Rebuild an event; an unknown kind, version or field is refused, never ignored."""
    if not isinstance(data, dict):
        raise ValueError(f"an event must be a mapping with a kind; got {data!r}")
    record = dict(data)
    kind, version = record.pop("kind", None), record.pop("version", None)
    if kind not in EVENT_KINDS:
        raise ValueError(f"event kind must be one of {sorted(EVENT_KINDS)}; got {kind!r}")
    cls = EVENT_KINDS[kind]
    if version != cls.version:
        raise ValueError(f"event {kind!r} must have version {cls.version}; got {version!r}")
    known = {field.name for field in fields(cls)}
    if set(record) != known:
        raise ValueError(
            f"event {kind!r} must have the fields {sorted(known)}; got {sorted(record)}"
        )
    if cls is Composed:
        if not isinstance(record["events"], list | tuple):
            raise ValueError(f"event {kind!r}: events must be a list; got {record['events']!r}")
        record["events"] = tuple(event_from_dict(part) for part in record["events"])
    if cls is Repeated:
        record["event"] = event_from_dict(record["event"])
    return cls(**record)
