"""A plan run on rows: all parties in this process, or one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpadmm.algorithms import reviewed
from dpadmm.algorithms.base import LabelNoise
from dpadmm.errors import ParameterError
from dpadmm.ledger.base import Ledger, MemoryLedger
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import Given
from dpadmm.privacy.mechanisms import randomize_labels, require_exact_shares
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.statement import (
    NOT_COVERED,
    Charges,
    PrivacyStatement,
    Terms,
    make_statement,
)
from dpadmm.problem.rows import PartedRows, Rows, Shard
from dpadmm.run.engine import Checkpoint, Exchange, InProcess, Outcome, run
from dpadmm.run.plan import Plan
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

    Where the algorithm asks for randomised labels they are randomised here, row by row and once;
    a plan whose labels come randomised leaves them as they are.

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
    """Refuse what users chose for their labels outside the public bounds."""
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
        _check_continued(planned, "with a checkpoint")
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


def _check_continued(planned: Plan, what: str) -> None:
    """Refuse a run that may be continued, with labels that would be randomised again."""
    added = planned.algorithm.label_noise
    if added is not None and not added.already_added:
        raise ParameterError(
            f"labels_already_randomized must be true in a run {what}: continued after a crash, it "
            "would randomise labels again. Use dpadmm randomize-labels first."
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
