"""The noise of a whole run, computed from its messages and compared with the claim.

Three parties run the algorithm through the engine, many runs side by side, with the source of noise
that a deployment uses. Their state is a function of messages, so a witness follows it and computes,
in every round, what would have been sent without noise:

* a message with Gaussian noise on it: the difference is the noise;
* a minimiser o under noise b in its gradient: b = -G(o), G being the gradient of the party's
  problem, worked out here from the rows; and with the same b once more, the difference is the noise
  of approximate minima perturbation;
* a message of stochastic gradients: after one inner step the difference is the noise of the full
  gradient times a public factor; after two, with the same full gradient and batches once more, that
  of the batch difference. The draws of further steps are tested as the source gave them.

An auditor needs three kinds of noise: none, one stream for many runs, or a deployment's noise,
recorded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.base import Algorithm, GraphState, graph_linear
from dpadmm.algorithms.ps_admm import PSADMM
from dpadmm.audit.oracle import Deviation, NoiseScores, Oracle, find_faults, normal_scores, parts_of
from dpadmm.audit.scene import Federation, Scene
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import (
    Event,
    GaussianRelease,
    InexactSolve,
    PostProcessing,
    SharedGaussian,
)
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import NoiseSource, Parties, SimulatedNoise, secure_noise
from dpadmm.problem.site import Site
from dpadmm.run.engine import Exchange, InProcess, MemoryLedger, run
from dpadmm.solvers.workspace import Workspace


class Draw(NamedTuple):
    """The draws that a source returned in one call.

    Attributes
    ----------
    noise
        What was added, ``(nodes, runs, ...)``.
    sigma
        The standard deviation that was asked for; None for exp-norm noise.
    parties
        Numbers of the parties.
    """

    noise: Array
    sigma: Array | None
    parties: NDArray[np.intp]


def _unknown_draw(purpose: str) -> ParameterError:
    return ParameterError(
        "noise must be Gaussian or of density exp(-||b||) for an audit of an algorithm; the draw "
        f"{purpose!r} is of another kind (release_additive). Test that mechanism by itself."
    )


@final
class SilentNoise(NoiseSource):
    """No noise at all: what an adversary who knows the rows would compute."""

    description = "none"
    simulated = True

    def __init__(self) -> None:
        #: The standard deviation that was last asked for, shaped like the values.
        self.sigma: Array = np.zeros(1)

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fixed stream for batches; refuse anything else, since a stream cannot be silent.

        The batches that stand in for the secret ones decide how good a guess is. The bound on it
        holds for any choice, since both data sets get the same batches.
        """
        if purpose == "batch":
            return np.random.default_rng([party, t])
        raise _unknown_draw(purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values as they are."""
        self.sigma = np.broadcast_to(sigma, values.shape)
        return values

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """Zero."""
        return np.zeros(shape)


@final
class SharedNoise(NoiseSource):
    """One stream for all runs of a release, its draws times a factor.

    Runs stay independent, and a round costs one stream instead of one for each run. A factor
    below 1 is a party that adds less noise than it says.
    """

    simulated = True

    def __init__(self, source: NoiseSource, factor: float = 1.0) -> None:
        self._source, self._factor = source, factor
        self.description = f"{factor:g} times: {source.description}"

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The source's stream: what is drawn from it directly is not scaled."""
        return self._source.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values + factor sigma N(0, I)``."""
        shape = _side_by_side(values.shape)
        spread = self._factor * np.broadcast_to(sigma, values.shape).reshape(shape)
        noisy = self._source.add_gaussian(values.reshape(shape), spread, parties, t, purpose)
        return noisy.reshape(values.shape)

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The source's draws times the factor."""
        drawn = self._source.exponential_norm(_side_by_side(shape), parties, t, purpose)
        return self._factor * drawn.reshape(shape)


@final
class RecordingNoise(NoiseSource):
    """Records the draws of another source.

    With a factor of 1 it passes on what the source returns, bit for bit, so the run does not
    change.

    Parameters
    ----------
    source
        Any source, a deployment's among them.
    factor
        Multiplies the draws; below 1 is a party that adds less noise than it says.
    """

    def __init__(self, source: NoiseSource, factor: float = 1.0) -> None:
        self._source, self._factor = source, factor
        self.description, self.simulated = source.description, source.simulated
        self.not_covered = source.not_covered
        self.on_grid = bool(getattr(source, "on_grid", False))
        #: By purpose and round: the draws, in order.
        self.drawn: dict[tuple[str, int], list[Draw]] = defaultdict(list)
        #: By run, party and round: the row numbers of the batches.
        self.batches_drawn: dict[tuple[int, int, int], NDArray[np.int64]] = {}

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The source's stream; draws from it are not recorded."""
        return self._source.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """What the source makes of the values."""
        noisy = self._source.add_gaussian(values, sigma * self._factor, parties, t, purpose)
        spread = np.broadcast_to(sigma, values.shape)
        self.drawn[purpose, t].append(Draw(noisy - values, spread, parties))
        return noisy

    def add_gaussian_steps(
        self, values: Array, sigma: float, step: float, parties: Parties, t: int, purpose: str
    ) -> Array:
        """What the source makes of the values, in whole steps."""
        noisy = self._source.add_gaussian_steps(
            values, sigma * self._factor, step, parties, t, purpose
        )
        spread = np.broadcast_to(sigma, values.shape)
        rounded = step * np.rint(values / step)
        self.drawn[purpose, t].append(Draw(noisy - rounded, spread, parties))
        return noisy

    def batches(
        self, steps: int, batch: int, rows: int, run: int, party: int, t: int
    ) -> NDArray[np.int64]:
        """The source's batches."""
        drawn = self._source.batches(steps, batch, rows, run, party, t)
        self.batches_drawn[run, party, t] = drawn
        return drawn

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The source's draws."""
        drawn = self._factor * self._source.exponential_norm(shape, parties, t, purpose)
        self.drawn[purpose, t].append(Draw(drawn, None, parties))
        return drawn


@final
class EchoNoise(NoiseSource):
    """Repeats the draws of a recording, except the last noise of a message.

    With it a round gives what it would have sent without that noise.

    Parameters
    ----------
    recording
        The draws.
    purposes
        Which of them to repeat; batches are repeated always.
    """

    description = "an echo"
    simulated = True

    def __init__(self, recording: RecordingNoise, purposes: tuple[str, ...]) -> None:
        self._recording, self._purposes = recording, purposes

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """Refuse: draws from a stream were not recorded."""
        raise _unknown_draw(purpose)

    def batches(
        self, steps: int, batch: int, rows: int, run: int, party: int, t: int
    ) -> NDArray[np.int64]:
        """The batches that were drawn."""
        return self._recording.batches_drawn[run, party, t]

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values, with the noise that they had or with none."""
        if purpose not in self._purposes:
            return values
        (draw,) = self._recording.drawn[purpose, t]
        return values + draw.noise

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """What was drawn."""
        (draw,) = self._recording.drawn[purpose, t]
        return draw.noise


def _side_by_side(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Many runs, viewed as one run with many outputs."""
    nodes, *between, features = shape
    return (nodes, 1, math.prod(between), features)


# Numbers that are drawn from each kind of source, and bounds on the runs that this makes.
_SIMULATED_NUMBERS: Final = 150_000
_DEPLOYED_NUMBERS: Final = 40_000
_FEWEST_RUNS: Final = 24
_MOST_RUNS: Final = 400


@dataclass(frozen=True)
class NoiseReport:
    """The findings of the joint test of the noise.

    Attributes
    ----------
    findings
        What contradicts the claim; none if all is well.
    false_alarm
        The probability of any finding that is due to chance, where nothing is wrong.
    tests, draws
        How many tests were made, on how many numbers.
    sources
        Where the noise came from.
    """

    findings: tuple[Deviation, ...]
    false_alarm: float
    tests: int
    draws: int
    sources: tuple[str, ...]

    @property
    def refuted(self) -> bool:
        """Whether anything was found."""
        return bool(self.findings)

    def words(self) -> str:
        """The report as sentences."""
        if not self.findings:
            return (
                f"Noise: {self.tests} tests of {self.draws} draws found nothing, with a "
                f"false-alarm rate of {self.false_alarm:.3g}."
            )
        first = self.findings[0].sentence
        more = len(self.findings) - 1
        others = f" {more} more finding{'s' * (more > 1)}." if more else ""
        return f"Noise: refuted: {first}.{others}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines."""
        return {"refuted": self.refuted, **asdict(self)}


def audit_noise(
    scene: Scene,
    *,
    false_alarm: float,
    noise_scale: float = 1.0,
    deployed: Callable[[], NoiseSource] = secure_noise,
) -> NoiseReport:
    """Test the noise of a whole run against the claim.

    Parameters
    ----------
    scene
        What to run.
    false_alarm
        The probability of a finding where there is nothing to find, over all tests.
    noise_scale
        Multiplies the noise that is really added.
    deployed
        Makes the source of noise that a deployment uses.
    """
    if not 0 < false_alarm < 0.5:
        raise ParameterError(f"false_alarm must be between 0 and 0.5; got {false_alarm!r}.")
    trial = _Trial.of(scene, noise_scale)
    keys = np.random.SeedSequence([scene.seed, 4]).generate_state(2)
    # Two sources of each kind: what is drawn from one must not be drawn from the other again.
    kinds: dict[str, tuple[list[NoiseSource], int]] = {
        "simulated": ([SimulatedNoise(int(key)) for key in keys], _SIMULATED_NUMBERS),
        "deployed": ([deployed(), deployed()], _DEPLOYED_NUMBERS),
    }
    found: list[Deviation] = []
    tests = draws = 0
    for kind, (sources, wanted) in kinds.items():
        runs = min(max(wanted // (2 * trial.numbers), _FEWEST_RUNS // 2), _MOST_RUNS // 2)
        witnesses = [trial.witness(source, runs) for source in sources]
        scores = _joined(witnesses)
        findings, made = find_faults(scores, false_alarm / len(kinds))
        found += [replace(each, sentence=f"{each.sentence} ({kind})") for each in findings]
        tests += made
        draws += sum(each.values.size for each in scores)
    certain = witnesses[0].findings
    if scene.calibration == "proven":
        certain = certain + trial.oracle.check_total(witnesses[0].charged)
    return NoiseReport(
        findings=(*_first_of_each(certain), *found),
        false_alarm=false_alarm,
        tests=tests,
        draws=draws,
        sources=tuple(sources[0].description for sources, _ in kinds.values()),
    )


@dataclass(frozen=True)
class _Trial:
    """The parties that run an algorithm under observation, and what its claim needs."""

    federation: Federation
    algorithm: Algorithm
    oracle: Oracle
    noise_scale: float

    @classmethod
    def of(cls, scene: Scene, noise_scale: float) -> _Trial:
        """Draw the parties, and calibrate the algorithm to their budgets."""
        federation = Federation.of(scene)
        algorithm = federation.configure()
        return cls(federation, algorithm, Oracle(scene, federation.site, algorithm), noise_scale)

    @property
    def numbers(self) -> int:
        """How many numbers of noise a run draws."""
        scene, parties = self.federation.scene, len(self.federation.rows)
        return parties * scene.rounds * _steps(self.algorithm) * scene.outputs * scene.features

    def witness(self, source: NoiseSource, runs: int) -> Witness:
        """Run the parties once, many runs side by side."""
        site = replace(self.federation.site, runs=runs)
        recording = RecordingNoise(source, self.noise_scale)
        witness = Witness(self.algorithm, site, self.federation, self.oracle, recording)
        outcome = run(
            self.algorithm,
            site,
            Workspace(self.federation.shard(), site),
            rounds=self.federation.scene.rounds,
            exchange=witness,
            ledgers=[MemoryLedger() for _ in site.index],
            noise=recording,
        )
        witness.finish(outcome.events)
        return witness


def _joined(witnesses: list[Witness]) -> list[NoiseScores]:
    """The scores of several runs of runs, side by side."""
    joined = []
    for name in witnesses[0].scores:
        each = [witness.scores[name] for witness in witnesses]
        rounds = tuple(each[0])
        values = np.concatenate(
            [np.stack([found[t] for t in rounds], axis=2) for found in each], axis=1
        )
        exact = name not in witnesses[0].at_least
        joined.append(NoiseScores(name, values, rounds, exact))
    return joined


def _first_of_each(findings: list[Deviation]) -> list[Deviation]:
    """Report a finding of many rounds once."""
    kept: dict[str, Deviation] = {}
    for finding in findings:
        kept.setdefault(finding.sentence.partition(", round")[0], finding)
    return list(kept.values())


@final
class Witness(Exchange):
    """Passes messages on, and records the noise that they carry.

    Parameters
    ----------
    algorithm, site, federation
        What is run, by whom, on which rows.
    oracle
        What the claim needs.
    recording
        The source of noise of the run.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        site: Site,
        federation: Federation,
        oracle: Oracle,
        recording: RecordingNoise,
    ) -> None:
        self._algorithm, self._site, self._oracle = algorithm, site, oracle
        self._rows, self._recording = federation.rows, recording
        self._workspace = Workspace(federation.shard(), site)
        self._exchange = InProcess(server=algorithm.hears_mean(site))
        self._state = algorithm.init(site)
        self._echo = EchoNoise(
            recording, ("objective", "gradient") if _steps(algorithm) == 2 else ("objective",)
        )
        #: By kind of noise and round: scores ``(parties, runs, outputs, features)``.
        self.scores: dict[str, dict[int, Array]] = defaultdict(dict)
        #: Kinds of noise of which there may be more than is claimed.
        self.at_least: set[str] = set()
        #: What is wrong whatever chance did.
        self.findings: list[Deviation] = []
        #: What each party was charged.
        self.charged: tuple[tuple[Event, ...], ...] = ()

    def __call__(self, message: Released, t: int) -> Array:
        """Record the noise of a round, and pass the messages on."""
        events = message.events
        self.findings += self._oracle.check(events, t)
        if not isinstance(events[0], PostProcessing):
            self._take_down(message.values, events, t)
        inbox = self._exchange(message, t)
        self._state = self._algorithm.absorb(self._state, message.values, inbox, self._site, t)
        return inbox

    def finish(self, charged: tuple[tuple[Event, ...], ...]) -> None:
        """Record the charges, and check the draws that no message shows."""
        self.charged = charged
        for batches in self._recording.batches_drawn.values():
            ordered = np.sort(batches, axis=-1)
            if (ordered[..., 1:] == ordered[..., :-1]).any():
                self.findings.append(Deviation("batches: a row is drawn twice into one batch"))
                break

    def _take_down(self, sent: Array, events: tuple[Event, ...], t: int) -> None:
        site, algorithm = self._site, self._algorithm
        quiet = algorithm.local_step(self._state, self._workspace, site, self._echo, t).values
        objective = algorithm.objective(self._state, site, t)
        if objective is not None:
            inexact = [
                next(part for part in parts_of(event) if isinstance(part, InexactSolve))
                for event in events
            ]
            bowl = site.per_node(np.array([part.strong_convexity for part in inexact]))
            noise = -(self._gradient(sent) + bowl * sent + objective.linear)
            scores = noise / site.per_node(self._oracle.objective_scale(events))
            exponential = objective.perturbation.kind == "exp-norm"
            self.scores["gradient noise"][t] = normal_scores(scores) if exponential else scores
            sigma = site.per_node(np.array([part.output_sigma for part in inexact]))
            self.scores["noise of approximate minima"][t] = (sent - quiet) / sigma
            return
        if isinstance(algorithm, PSADMM):
            self._take_down_gradients(sent - quiet, events, t)
            return
        mu = np.array([_mu(event) for event in events])
        if self._oracle.public_norm:
            penalty = vars(algorithm)["penalty"]
            linear = graph_linear(GraphState(*self._state[:3]), site, penalty)
            needed = self._oracle.norm_reach(linear, t)[..., None] / site.per_node(mu)
            self.at_least.add("noise of messages")
        else:
            share = self._oracle.release_reach(t) / math.sqrt(self._oracle.honest)
            needed = site.per_node(share / mu)
        self.scores["noise of messages"][t] = (sent - quiet) / needed

    def _take_down_gradients(self, difference: Array, events: tuple[Event, ...], t: int) -> None:
        """Noise of gradients: from the message after one step or two, else as it was drawn."""
        algorithm, site = self._algorithm, self._site
        assert isinstance(algorithm, PSADMM)
        loop = algorithm.loop
        if loop.steps == 1:
            mu = np.array([_mu(event) for event in events])
            needed = np.sqrt(site.outputs) * self._oracle.gradient / mu
            factor = site.per_node(-loop.weighting * loop.step_size * needed)
            self.scores["noise of gradients"][t] = difference / factor
            self.at_least.add("noise of gradients")
            return
        seen = loop.steps == 2 and algorithm.form == "one-release"
        # Do not record a draw a second time if a message shows it.
        for purpose in ("gradient",) if seen else ("gradient", "inner"):
            if (found := self._draws(purpose, t)) is not None:
                self.scores[f"draws for {purpose}"][t] = found
        if seen:
            (full,) = self._recording.drawn["gradient", t]
            state = self._state
            pull = state.dual + loop.penalty * (state.message - state.consensus)
            way = site.per_node(loop.step_size) * (
                self._gradient(state.message) + full.noise + pull
            )
            needed = self._oracle.difference(np.linalg.norm(way, axis=-1), loop.batch, events)
            factor = site.per_node(-loop.weighting * loop.step_size / 2)
            self.scores["noise of batch differences"][t] = difference / (factor * needed[..., None])

    def _draws(self, purpose: str, t: int) -> Array | None:
        """Scores of all draws for a purpose, ``(parties, runs, draws, features)``."""
        parties: dict[int, list[Array]] = {int(party): [] for party in self._site.index}
        for noise, sigma, numbers in self._recording.drawn[purpose, t]:
            if sigma is None or not noise.size:
                continue
            for place, party in enumerate(numbers):
                parties[int(party)].append(
                    (noise[place] / sigma[place]).reshape(-1, noise.shape[-1])
                )
        if not all(parties.values()):
            return None
        shape = (self._site.runs, -1, self._site.features)
        return np.stack([np.concatenate(each).reshape(shape) for each in parties.values()])

    def _gradient(self, points: Array) -> Array:
        """``(c / n) sum_k l'(w.u_k) u_k`` at each point, party by party."""
        found = np.empty_like(points)
        for place, (rows, labels) in enumerate(self._rows):
            margins = points[place] @ rows.T * labels.T
            slopes = self._site.loss.slope(margins) * labels.T
            found[place] = self._oracle.share[place] * (slopes @ rows)
        return found


def _steps(algorithm: Algorithm) -> int:
    """Inner steps of a round."""
    return algorithm.steps if isinstance(algorithm, PSADMM) else 1


def _mu(event: Event) -> float:
    """The mu of a Gaussian release, or of several together."""
    squares = [
        (part.sensitivity / part.sigma) ** 2
        for part in parts_of(event)
        if isinstance(part, GaussianRelease | SharedGaussian)
    ]
    return float(np.sqrt(sum(squares)))
