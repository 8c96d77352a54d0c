"""One run of this process, put together once: charge, lay out rows, train, evaluate, state.

:class:`Session` holds the order; the estimator, ``dpadmm train`` and ``dpadmm evaluate`` call it.
The caller reads rows and saves results. Nodes train their own share round by round
and use the same parts: :func:`lay_out_both`, :func:`judgement`, :func:`state_whole`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.algorithms import reviewed
from dpadmm.algorithms.base import LabelNoise
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.data.schema import Schema
from dpadmm.errors import LedgerError, ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array
from dpadmm.privacy.accountant import Guarantee, network_guarantee
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import Given, pair
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.privacy.mechanisms import randomize_labels, require_exact_shares
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.privacy.statement import (
    NOT_COVERED,
    Charges,
    PrivacyStatement,
    Terms,
    make_statement,
)
from dpadmm.problem.rows import PartedRows, RowBlock, Rows, Shard
from dpadmm.run.charges import (
    HISTOGRAM_SHARE,
    OtherEvaluations,
    Part,
    WholePlan,
    charged,
    check_evaluation,
    evaluation_id,
    evaluation_noise,
    histogram_of,
    ledger_accounts,
)
from dpadmm.run.classifier import (
    HELD_OUT,
    TRAINED_ON,
    Classifier,
    Quality,
    chosen_output,
    released_weights,
)
from dpadmm.run.engine import (
    Checkpoint,
    Exchange,
    InProcess,
    MemoryLedger,
    Outcome,
    run,
    tail_start,
)
from dpadmm.run.options import DEFAULT, PrivacyWarning, Split, Wish
from dpadmm.run.plan import Plan, announced, check_labels_once
from dpadmm.solvers.workspace import Workspace


def lay_out(
    planned: Plan,
    parties: Sequence[tuple[Rows, Array]],
    *,
    noise: NoiseSource,
    label_epsilon: Sequence[Array] | None = None,
    parted: Mapping[int, PartedRows] | None = None,
) -> Shard:
    """Lay out ``(rows, labels)`` of the parties of a plan's site for :func:`train`.

    Where the algorithm asks for randomised labels, this function randomises them, row by row and
    once. If labels are already randomised, they stay as they are.

    Parameters
    ----------
    planned, parties
        The run; rows, and labels ``(rows, outputs)`` in {-1, +1}.
    noise
        Where the randomness comes from.
    label_epsilon
        One number for every row of each party, where users have chosen their own; within the
        public bounds of the plan.
    parted
        Rows that lie elsewhere, by the place of their party among all; ``parties`` are the others.
    """
    added, site = planned.algorithm.label_noise, planned.site
    if parted:
        if label_epsilon is not None or (added is not None and not added.already_added):
            raise ParameterError(
                "labels must come randomised where rows lie on a cluster, with "
                "labels_already_randomized = true: they are randomised once, where they are kept. "
                "Nothing more was spent."
            )
        return Shard.from_parties(parties).beside(parted)
    if added is None:
        if label_epsilon is not None:
            raise ParameterError(
                f"label_epsilon must be left out for the algorithm {planned.algorithm.name!r}: "
                "it does not randomise labels."
            )
        return Shard.from_parties(parties)
    chosen = [np.full(len(labels), added.epsilon) for _, labels in parties]
    if label_epsilon is not None:
        chosen = [np.asarray(values, dtype=np.float64) for values in label_epsilon]
        _check_label_epsilon(np.concatenate(chosen), added)
    if not added.already_added:
        parties = [
            (rows, randomize_labels(labels, epsilon[:, None], stream)[0])
            for (rows, labels), epsilon, stream in zip(
                parties,
                chosen,
                (noise.generator(0, int(party), 0, "labels") for party in site.index),
                strict=True,
            )
        ]
    if label_epsilon is None:
        return Shard.from_parties(parties)
    # The corrected slope at 0 is l'(0) / tanh(epsilon / 2); the loss has that of the smallest.
    start = float(site.loss.slope(np.zeros(1))[0])
    ratios = [np.tanh(added.epsilon / 2) / np.tanh(epsilon / 2) for epsilon in chosen]
    return Shard.from_parties(parties, [start * (ratio - 1.0) for ratio in ratios])


def _check_label_epsilon(chosen: Array, added: LabelNoise) -> None:
    """Refuse an epsilon for a label outside the public bounds."""
    if not ((added.epsilon <= chosen) & (chosen <= added.largest_epsilon)).all():
        raise ParameterError(
            "label_epsilon of every row must be between the options label_epsilon and "
            f"largest_label_epsilon, {Given(added.epsilon)} and {Given(added.largest_epsilon)}; "
            f"got {Given(chosen.min())} to {Given(chosen.max())}."
        )


def train(
    planned: Plan,
    shard: Shard,
    *,
    noise: NoiseSource,
    ledgers: Sequence[Ledger] | None = None,
    checkpoint: Checkpoint | None = None,
    on_round: Callable[[int, Array], None] | None = None,
) -> Outcome:
    """Run a plan with all parties in this process."""
    if checkpoint is not None and not noise.simulated:
        check_labels_once(planned, "with a checkpoint")
    if planned.site.runs > 1 and not noise.simulated:
        raise ParameterError(
            f"runs must be 1 with noise that is not simulated: every run would release messages of "
            f"its own, and they are charged once; got {planned.site.runs}."
        )
    if planned.algorithm.summation is not None:
        require_exact_shares(noise)
    return run(
        planned.algorithm,
        planned.site,
        Workspace(shard, planned.algorithm.row_site(planned.site)),
        rounds=planned.rounds,
        exchange=InProcess(server=planned.algorithm.hears_mean(planned.site)),
        ledgers=ledgers or [MemoryLedger() for _ in planned.site.index],
        noise=noise,
        checkpoint=checkpoint,
        on_round=on_round,
    )


def train_party(
    own: Plan,
    shard: Shard,
    *,
    exchange: Exchange,
    noise: NoiseSource,
    ledger: Ledger | None = None,
    on_round: Callable[[int, Array], None] | None = None,
    rounds: int | None = None,
    replayed: Sequence[Array] = (),
    absorbed_by: Sequence[Plan] = (),
) -> Outcome:
    """Run one party's share of a plan in this process; the others are behind the exchange.

    The plan is the same everywhere; ``own``, the party's share of it, is configured from the same
    public facts (:meth:`~dpadmm.run.plan.Plan.of_party`), so that every process computes what one
    process would. ``rounds`` may be fewer than the plan's; ``replayed`` as in
    :func:`dpadmm.run.engine.run`, and ``absorbed_by`` by this party's shares of plans.
    """
    if own.algorithm.summation is not None:
        require_exact_shares(noise)
    return run(
        own.algorithm,
        own.site,
        Workspace(shard, own.algorithm.row_site(own.site)),
        rounds=own.rounds if rounds is None else rounds,
        exchange=exchange,
        ledgers=[ledger or MemoryLedger()],
        noise=noise,
        on_round=on_round,
        replayed=replayed,
        absorbed_by=[(each.algorithm, each.site) for each in absorbed_by],
    )


def state_privacy(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    noise: NoiseSource,
    *,
    also_not_covered: Sequence[str] = (),
    caveats: Sequence[str] = (),
    details: Sequence[tuple[str, str]] = (),
    by_round: bool = True,
    elsewhere: Sequence[Sequence[Event]] = (),
) -> PrivacyStatement:
    """State what a run guarantees: the only maker of statements, for plans and for runs.

    Parameters
    ----------
    planned
        The run.
    events
        What each party was charged (:attr:`~dpadmm.run.engine.Outcome.events`), or will be
        (:func:`announced`).
    noise
        Where noise comes from, or would.
    also_not_covered, caveats
        What is known of these rows and of how this run went.
    details
        Pairs of a heading and its words, beside those of the plan.
    by_round
        Whether to account every round.
    elsewhere
        What each party is charged for rows of it that no event of these read.
    """
    budget, names = planned.budget, planned.site.names
    deltas = np.zeros(len(names)) if budget is None else budget.delta
    people = 1 if budget is None else budget.rows_per_person
    charges = Charges(names, events, deltas, people, elsewhere)
    terms = Terms(
        algorithm=planned.algorithm.name,
        noise=noise.description,
        simulated=noise.simulated,
        calibration=planned.settings.calibration,
        reviewed=reviewed(planned.algorithm.name),
        claim=planned.algorithm.claim(planned.site),
        not_covered=(*NOT_COVERED, *noise.not_covered, *also_not_covered),
        details=(
            *(() if planned.choice is None else planned.choice.lines),
            *planned.algorithm.statement_details(planned.site, deltas),
            *details,
        ),
        caveats=tuple(caveats),
    )
    return make_statement(charges, terms, by_round=by_round)


# The events of each party.
_Histories: TypeAlias = tuple[tuple[Event, ...], ...]
#: What a guarantee of parts of the rows does not speak of.
ORDER_NOT_COVERED: Final = (
    "an order of rows that depends on what they hold, such as a sorted table, or that changes "
    "between runs"
)
_NO_OTHERS: Final = OtherEvaluations()
# Of the two conversions between epsilon and mu.
_ROUNDING: Final = 1e-9
_ROWS: Final = "Rows"
_OWN_ACCOUNT: Final = (
    "those kept out of training, in an account of their own: for a person the larger of what the "
    "training and this spent counts, not their sum; several evaluations of the same rows add up"
)
_ADDED: Final = (
    "those that were trained on: what this spent adds to what the training spent, and figures are "
    "optimistic"
)


@dataclass(frozen=True)
class Charged:
    """Where an evaluation is charged, and what is known of its rows.

    Attributes
    ----------
    ledgers
        The file of each party, by its name; none in a simulation.
    run_id
        The name of the run whose model it is.
    schema
        How the rows were encoded, if by one.
    not_covered
        What is known of these rows that its statement does not cover.
    """

    ledgers: Mapping[str, str | Path] | None = None
    run_id: str = ""
    schema: Schema | None = None
    not_covered: tuple[str, ...] = ()

    def others(self, training: Plan, wish: Wish, judged: Judgement | None) -> OtherEvaluations:
        """What the ledgers have of a run beside its training and its own evaluation."""
        accounts = ledger_accounts(self.ledgers)
        known = [accounts[name] for name in training.site.names if name in accounts]
        own = "" if judged is None else judged.name
        return OtherEvaluations.of(known, {self.run_id}, wish.split, own=own)

    def of_training(self, training: Plan) -> list[tuple[Event, ...]]:
        """What each party was charged for the training; as announced where no ledger has it."""
        accounts, charged = ledger_accounts(self.ledgers), []
        for name, events in zip(training.site.names, announced(training), strict=True):
            known = accounts[name].runs.get(self.run_id) if name in accounts else None
            charged.append(events if known is None else tuple(known.events.values()))
        return charged


@dataclass(frozen=True)
class Judgement:
    """The result of an evaluation, what each party was charged, and its name in the ledgers."""

    quality: Quality
    events: tuple[tuple[Event, ...], ...] = field(repr=False)
    name: str


@dataclass(frozen=True)
class Session:
    """A run, from the first charge to the statement.

    Attributes
    ----------
    whole
        The run, and the terms of its evaluation.
    noise
        Where the noise of the training comes from.
    about
        Where it is charged, and what is known of its rows.
    output
        Which messages make the model.
    simulation_key
        What makes the noise reproducible, if anything does.
    """

    whole: WholePlan
    noise: NoiseSource
    about: Charged = Charged()
    output: str = DEFAULT.output
    simulation_key: int | None = None

    @contextmanager
    def charged(
        self, *, before: Callable[[], None] | None = None, preparation: str | None = None
    ) -> Iterator[Sequence[Ledger] | None]:
        """Open the run in every party's ledger; None without ledgers.

        Whatever does not fit, the evaluation included, is refused here: before a row is read, and
        with nothing charged. Parameters are those of :func:`~dpadmm.run.charges.open_runs`.
        """
        about = self.about
        check_evaluation(self.whole, ledger_accounts(about.ledgers), about.run_id)
        with charged(
            self.whole.training,
            about.ledgers,
            about.run_id,
            self.noise,
            schema=about.schema,
            part=self.whole.wish.split.train,
            before=before,
            preparation=preparation,
        ) as ledgers:
            yield ledgers

    def train(
        self,
        shard: Shard,
        ledgers: Sequence[Ledger] | None,
        *,
        checkpoint: Checkpoint | None = None,
        on_round: Callable[[int, Array], None] | None = None,
    ) -> Outcome:
        """Run all rounds, all parties in this process."""
        return train(
            self.whole.training,
            shard,
            noise=self.noise,
            ledgers=ledgers,
            checkpoint=checkpoint,
            on_round=on_round,
        )

    def evaluate(self, weights: Array, shard: Shard) -> Judgement:
        """Release the histogram of a model, all parties in this process.

        Parameters
        ----------
        weights
            The released model, for rows as they are laid out.
        shard
            The rows of the evaluation.
        """
        about, split = self.about, self.whole.wish.split
        planned = self.whole.evaluation(weights)
        noise = evaluation_noise(self.noise, self.simulation_key)
        name = evaluation_id(about.run_id, planned)
        opened = charged(
            planned,
            about.ledgers,
            name,
            noise,
            schema=about.schema,
            part=split.held_out,
        )
        with opened as ledgers:
            histogram, outcome = release_histogram(planned, shard, noise=noise, ledgers=ledgers)
        return judgement(
            planned,
            histogram,
            outcome,
            noise,
            self.whole.wish,
            rows=self.whole.evaluated_rows,
            name=name,
            not_covered=about.not_covered,
        )

    def evaluate_paid(self, outcome: Outcome, shard: Shard) -> Judgement | None:
        """:meth:`evaluate` a model that was just trained; whatever happens, the model stays.

        :meth:`charged` checks before the training that an evaluation fits, but others may spend
        meanwhile, or an earlier evaluation may be of another model.
        """
        weights = released_weights(self.whole.training, outcome, self.output)
        try:
            return self.evaluate(weights, shard)
        except LedgerError as error:
            warnings.warn(
                "the model was trained and not evaluated: nothing is said of how good it is, and "
                f"no probabilities were fitted. The evaluation was refused: {error}",
                PrivacyWarning,
                stacklevel=3,
            )
            return None

    def conclude(
        self,
        outcome: Outcome,
        judged: Judgement | None,
        *,
        classes: ArrayLike,
        parties: ArrayLike,
        **scale: Any,
    ) -> Classifier:
        """The classifier, with a statement of everything charged for it.

        ``scale`` is how rows were prepared where no schema says it, as
        :meth:`~dpadmm.run.classifier.Classifier.of_run` takes it.
        """
        training, wish = self.whole.training, self.whole.wish
        statement = state_whole(
            training,
            outcome.events,
            self.noise,
            wish,
            judged=judged,
            others=self.about.others(training, wish, judged),
            also_not_covered=self.about.not_covered,
        )
        return Classifier.of_run(
            training,
            outcome,
            statement,
            classes=classes,
            parties=parties,
            output=self.output,
            quality=None if judged is None else judged.quality,
            **scale,
        )


def release_histogram(
    planned: Plan,
    shard: Shard,
    *,
    noise: NoiseSource,
    ledgers: Sequence[Ledger] | None = None,
) -> tuple[NoisyHistogram, Outcome]:
    """Release the histogram of all parties in this process."""
    outcome = train(planned, shard, noise=noise, ledgers=ledgers)
    return histogram_of(planned, outcome), outcome


def lay_out_both(wish: Wish, lay_out: Callable[[Part], Shard]) -> tuple[Shard, Shard | None]:
    """The rows that are trained on, and those that are evaluated on: held out, or the same.

    Parameters
    ----------
    wish
        What is asked for beside the training.
    lay_out
        Lays out a part of every party's rows.
    """
    shard = lay_out(wish.split.train)
    if not wish.histogram:
        return shard, None
    return shard, lay_out(wish.split.held_out) if wish.split.holdout else shard


def judgement(
    planned: Plan,
    histogram: NoisyHistogram,
    outcome: Outcome,
    noise: NoiseSource,
    wish: Wish,
    *,
    rows: Mapping[str, int],
    name: str,
    not_covered: Sequence[str] = (),
) -> Judgement:
    """What a released histogram says and cost.

    Parameters
    ----------
    planned, outcome, noise
        The release, what came of it, and where its noise came from.
    histogram
        The counts.
    wish
        What was asked for.
    rows
        The public number of rows of each party in the evaluation.
    name
        Of the evaluation in the ledgers.
    not_covered
        What is known of these rows.
    """
    held_out = bool(wish.split.holdout)
    statement = state_privacy(
        planned,
        outcome.events,
        noise,
        also_not_covered=(*((ORDER_NOT_COVERED,) if held_out else ()), *not_covered),
        details=((_ROWS, _OWN_ACCOUNT + _several(planned) if held_out else _ADDED),),
        by_round=False,
    )
    found = Quality(histogram, HELD_OUT if held_out else TRAINED_ON, statement, dict(rows))
    return Judgement(found.with_links() if wish.probabilities else found, outcome.events, name)


def state_whole(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    noise: NoiseSource,
    wish: Wish,
    *,
    judged: Judgement | None = None,
    ahead: Sequence[Sequence[Event]] = (),
    others: OtherEvaluations = _NO_OTHERS,
    caveats: Sequence[str] = (),
    also_not_covered: Sequence[str] = (),
    by_round: bool = True,
) -> PrivacyStatement:
    """State what a run guarantees, with its histogram if there was one.

    A histogram of the rows that were trained on adds to the cost of the training. If its rows were
    held out, a person is guaranteed the larger of the two costs.

    Parameters
    ----------
    planned, events, noise
        The training, what each party was charged for it, and where its noise comes from.
    wish, judged
        What was asked for beside it, and the evaluation if there was one.
    ahead
        What each party is charged for an evaluation that is still to come: parties send before
        they know whether all others do, so it counts whatever becomes of it.
    others
        Other evaluations that the ledgers have under the run: they count, too.
    caveats, also_not_covered
        What is known of how this run went, and of these rows.
    by_round
        Whether to account every round.
    """
    kept_out = bool(wish.split.holdout)
    counting = ahead if judged is None else judged.events
    events, elsewhere = _by_rows(events, counting, others, wish.split)
    return state_privacy(
        planned,
        events,
        noise,
        also_not_covered=(*((ORDER_NOT_COVERED,) if kept_out else ()), *also_not_covered),
        caveats=(*others.caveats, *caveats),
        details=_details(planned, wish, judged, ahead=bool(ahead), others=bool(others.names)),
        by_round=by_round,
        elsewhere=elsewhere,
    )


def spent_in_all(
    planned: Plan,
    events: Sequence[Sequence[Event]],
    judged: Judgement,
    others: OtherEvaluations,
    split: Split,
) -> Guarantee:
    """What a training and all evaluations under it cost, the largest over parties."""
    budget = planned.budget
    assert budget is not None
    trained, elsewhere = _by_rows(events, judged.events, others, split)
    people = budget.rows_per_person
    charges = Charges(planned.site.names, trained, budget.delta, people, elsewhere)
    return network_guarantee(charges.guarantees().values())


def _by_rows(
    events: Sequence[Sequence[Event]],
    counting: Sequence[Sequence[Event]],
    others: OtherEvaluations,
    split: Split,
) -> tuple[_Histories, _Histories]:
    """What each party was charged for the rows that were trained on, and for those held out."""
    if not split.holdout:
        return _added(events, others.trained_on, counting), ()
    elsewhere = _added(counting, others.kept_out)
    return _added(events, others.trained_on), elsewhere if any(elsewhere) else ()


def _added(*histories: Sequence[Sequence[Event]]) -> _Histories:
    """The histories of each party, joined; an empty list stands for no party."""
    given = [each for each in histories if each]
    return tuple(tuple(chain(*each)) for each in zip(*given, strict=True))


def _several(planned: Plan) -> str:
    """The caveat where a person may have rows in both parts (:mod:`dpadmm.ledger.balance`)."""
    budget = planned.budget
    if budget is None or budget.rows_per_person == 1:
        return ""
    return "; where a person has rows in both, that holds for Gaussian releases, and others add up"


def _details(
    planned: Plan, wish: Wish, judged: Judgement | None, *, ahead: bool, others: bool
) -> tuple[tuple[str, str], ...]:
    """The details of a statement about held-out rows and about a histogram."""
    split = wish.split
    if split.holdout:
        kept = f"the last {100 * split.holdout:g}% of every party's rows were not trained on"
        if judged is None and not ahead and not others:
            return ((_ROWS, f"{kept}; this statement is about the others"),)
        spent = "is charged whether it is complete or not" if ahead else "was charged before"
        if judged is not None and judged.quality.privacy is not None:
            private = pair(judged.quality.privacy.epsilon, judged.quality.privacy.delta)
            spent = f"is {private}-differentially private"
        if others and (judged is not None or ahead):
            spent += ", others before it add to that"
        return (
            (
                _ROWS,
                f"{kept}. Their evaluation {spent}, in an account of its own: for a person the "
                "larger of the two counts, not their sum, and it is the guarantee above"
                f"{_several(planned)}",
            ),
        )
    if judged is None and not ahead:
        return ()
    share = f"{100 * HISTOGRAM_SHARE:g}%"
    words = f"{share} of the run's mu^2 went into the histogram that probabilities are fitted to"
    if judged is None:
        words = f"{share} of the run's mu^2 is for a histogram, also where it is never complete"
    alone = f"{_histogram_alone(planned, judged)}-differentially private by itself"
    return (("Probabilities", f"{words}; it is {alone}, and part of the guarantee above"),)


def _histogram_alone(planned: Plan, judged: Judgement | None) -> str:
    """What a histogram costs that shares mu^2 with the training, the most of a party."""
    if judged is not None and judged.quality.privacy is not None:
        return pair(judged.quality.privacy.epsilon, judged.quality.privacy.delta)
    budget = planned.budget
    assert budget is not None
    ratio = math.sqrt(HISTOGRAM_SHARE / (1 - HISTOGRAM_SHARE)) * (1 + _ROUNDING)
    mu = ratio * gaussian_mu(budget.epsilon, budget.ideal_delta)
    epsilon = gaussian_epsilon(mu, budget.ideal_delta)
    return pair(float(np.max(epsilon)), float(np.max(budget.delta)))


# Algorithms whose noise is in their messages and whose local work takes any rows; others draw
# batches of rows, or change labels.
_SERVED: Final = ("dp-gd", "pr-admm", "dvp", "m-admm", "r-admm", "mr-admm")
# The figure is known to about a thirtieth from so many numbers.
_NUMBERS: Final = 400
# Numbers drawn at most, a few seconds' work; larger runs are left out.
_MOST_DRAWN: Final = 2e7


def noise_error(
    planned: Plan,
    output: str = "auto",
    heard: Sequence[int] = (),
    course: Array | None = None,
) -> float | None:
    """The standard error that noise gives each weight; None where it is not known.

    Parameters
    ----------
    planned
        The run of all parties.
    output
        Which messages the classifier is the mean of, as the estimator has it.
    heard
        Numbers of the parties whose messages it is the mean of; all unless given.
    course
        Of the run, as :class:`~dpadmm.run.engine.Outcome` has it.
    """
    site, algorithm = planned.site, planned.algorithm
    kind = chosen_output(algorithm, output)
    if isinstance(algorithm, DPGD):
        rounds = planned.rounds
        counts = {"last": 1, "tail": rounds - tail_start(rounds), "mean": rounds}
        return algorithm.noise_error(site, rounds, course, counts[kind])
    if algorithm.name not in _SERVED:
        return None
    runs = max(2, math.ceil(_NUMBERS / (site.outputs * site.features)))
    if runs * planned.rounds * math.prod(site.shape) / site.runs > _MOST_DRAWN:
        return None
    alike = replace(planned, site=replace(site, runs=runs))
    parties = len(site.index)
    # One row of zeros acts as any number of them: counts enter by the public facts alone.
    row = RowBlock(
        np.arange(parties),
        np.zeros((parties, 1, site.features)),
        np.zeros((parties, 1, site.outputs)),
    )
    repeated = train(alike, Shard((row,), site.rows), noise=SimulatedNoise(0))
    models = getattr(repeated, kind)
    mean = models[list(heard) or slice(None)].mean(axis=0)
    return float(np.sqrt(mean.var(axis=0, ddof=1).mean()))
