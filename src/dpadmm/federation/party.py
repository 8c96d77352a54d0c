"""A node with rows: it trains its share within its own budget and writes its results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dpadmm.errors import (
    BudgetError,
    DataError,
    ExchangeError,
    LedgerError,
    ParameterError,
    passing,
)
from dpadmm.federation.config import AgreedRun
from dpadmm.federation.exchange import (
    GRACE,
    CarefulLedger,
    HearingExchange,
    PeerExchange,
    SumExchange,
)
from dpadmm.federation.keys import Masks
from dpadmm.federation.node_study import NodeStudy, study_shard
from dpadmm.federation.recovery import LINK_LOST, WHEN_LOST, Departure, LeftOut, SomebodyLeft, View
from dpadmm.federation.results import node_run, node_study, write_node_results
from dpadmm.federation.runtime import NodeRuntime
from dpadmm.federation.same_sums import AnyRun, SumsComparison
from dpadmm.federation.transport.mailbox import Mailbox
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import (
    MOST_WAITED_FOR,
    decode_masked,
    decode_message,
    encode_message,
    ends_of,
    lost_words,
)
from dpadmm.ledger.balance import Account
from dpadmm.ledger.sqlite import LedgerRun, SQLiteLedger
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import release_post_processed
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import OtherEvaluations, evaluation_id, histogram_of
from dpadmm.run.classifier import Classifier, released_weights
from dpadmm.run.engine import MemoryLedger, Outcome
from dpadmm.run.files import (
    file_schema,
    lay_out_part,
    read_party,
    work_folder,
)
from dpadmm.run.model import save_model
from dpadmm.run.plan import Plan, announced
from dpadmm.run.result import Run
from dpadmm.run.session import (
    Judgement,
    judgement,
    lay_out_both,
    noise_error,
    state_whole,
    train_party,
)

_BUDGET_EVERY: Final = 1.0
#: What becomes of a study that ended early.
NO_FIGURES: Final = "there are no figures, which need all rounds with the same parties"
_AGAIN: Final = (
    "the model is as it was trained; started again with all others, this node evaluates it"
)


def train_node(node: NodeRuntime) -> tuple[Mailbox, Departure | None, Run | NodeStudy]:
    """Train this party's share, or ask it, and write the results.

    The caller still serves neighbours.
    """
    begin = time.monotonic()
    setup = node.setup
    view = setup.view
    ledger = node.open_run(view)
    own = setup.planned.of_party(setup.agreed.names.index(setup.name))
    node.watcher.event("encoding", rows=setup.agreed.rows[setup.name])
    shard, evaluated = read_shards(node, own)
    session = node.connect()
    best: _Part | None = None
    part: _Part | None = None
    while True:
        part = _Part(node, session, view, ledger, before=part)
        part.train(shard)
        part.end()
        node.note_head()
        if best is None or part.hearing.done >= best.hearing.done:
            best = part
        following = part.following()
        if following is None:
            break
        try:
            following.check_budget(setup.name)
            ledger = node.open_run(following)
        except (ParameterError, BudgetError) as error:
            node.watcher.event("cannot-go-on", level="error", error=error)
            break
        view = following
    if best.hearing.done == 0 or not (best.is_whole or setup.question is None):
        nothing = "there is no model"
        if setup.question is not None:
            charged = f"{len(best.charged_here[0])} of {best.view.rounds} rounds were charged here"
            nothing = f"{NO_FIGURES}; {charged}, and stay spent"
        if part.hearing.refused_sum is not None:
            raise ExchangeError(f"{part.hearing.refused_sum} {nothing[:1].upper()}{nothing[1:]}.")
        if part.hearing.lost == setup.name:
            raise LeftOut(setup.name)
        if part.departure is None:
            # Neighbours that wait for this node learn for whose loss it ends.
            part.exchange.mailbox.finish(GRACE)
        when = "a round was" if setup.question is None else "all rounds were"
        raise passing(
            ExchangeError(f"{part.hearing.lost} was lost before {when} complete: {nothing}.")
        )
    if best is not part:
        done = best.hearing.done
        node.watcher.event("fell-back", level="warning", round=done, rounds=best.view.rounds)
    private = setup.planned.algorithm.private
    seconds = None if private else time.monotonic() - begin
    with node.watcher.writing():
        # Write the model, which was paid for, before what takes longer: the spending by round, and
        # everything that only describes it.
        expected = best.to_compare()
        if setup.question is None:
            first = _stated(_trained(node, best, part, seconds, by_round=False), expected)
            save_model(setup.run_config().result.model, first.model)
        found: Run | NodeStudy = _found(node, best, part, seconds)
        write_node_results(setup, _stated(found, expected), _changes(best))
    node.watcher.event("results-written", round=best.hearing.done, rounds=best.view.rounds)
    # After the results: whatever happens next, what was paid for is on disk.
    mailbox, departure, judged = part.exchange.mailbox, part.departure, None
    compared = best.compare()
    if evaluated is not None and isinstance(found, Run) and not (compared and compared.other):
        judging = _judge(node, session, best, evaluated, found.classifier.coef)
        judged = None if judging is None else judging.judgement
        if judging is None or judged is None:
            node.watcher.event("not-evaluated", level="warning", advice=_AGAIN)
        else:
            mailbox, departure, compared = judging.exchange.mailbox, None, judging.compare()
    if judged is not None:
        found = _trained(node, best, part, seconds, judged)
    elif evaluated is not None:
        # What was stated before counts more: it stands where the ledger cannot be read.
        with contextlib.suppress(LedgerError):
            found = _trained(node, best, part, seconds, over=True)
    if compared is not None or evaluated is not None:
        with node.watcher.writing():
            found = _stated(found, compared)
            write_node_results(setup, found, _changes(best))
    if judged is not None:
        node.watcher.event("evaluated", rows=judged.quality.histogram.rows)
    if compared is not None and compared.refusal:
        raise ExchangeError(compared.refusal)
    return mailbox, departure, found


def rehearse_party(node: NodeRuntime) -> tuple[Mailbox, Array]:
    """Exchange one round of zeros, a constant: there are no rows here, and nothing is charged."""
    part = _Part(node, node.connect(), node.setup.view, None)
    try:
        zeros = release_post_processed(np.zeros((1, *part.own.site.shape[1:])))
        part.hearing.before_draw(0)
        return part.exchange.mailbox, part.hearing(part.hearing.cover(zeros, 0), 0)
    finally:
        part.end()


def _stated(found: AnyRun, compared: SumsComparison | None) -> AnyRun:
    """The run, stating whether all parties have the same model as far as that is known."""
    return found if compared is None else compared.stated(found)


def _found(node: NodeRuntime, part: _Part, last: _Part, seconds: float | None) -> Run | NodeStudy:
    """What came of it: a model, or the figures of a study."""
    setup = node.setup
    if setup.question is None:
        return _trained(node, part, last, seconds)
    outcome = replace(part.outcome, events=part.charged_here)
    caveats = _about_losses(part, last)
    return node_study(setup, part.own, outcome, part.how, noise=node.noise, caveats=caveats)


def _judge(
    node: NodeRuntime, session: PeerSession, part: _Part, evaluated: Shard, weights: Array
) -> _Part | None:
    """Evaluate the model with all who trained it; None where somebody was lost."""
    view = part.view
    if not part.is_whole:
        return None
    whole = node.setup.whole(view.agreed)
    node.watcher.event("evaluating", rows=whole.evaluated_rows[node.setup.name])
    try:
        evaluating = view.evaluating(whole.evaluation(weights))
        judging = _Part(node, session, evaluating, node.open_run(evaluating), before=part)
        judging.train(evaluated)
    except (ParameterError, LedgerError, ExchangeError) as error:
        # What was trained and compared is still to be written, and neighbours to be served.
        node.watcher.event("cannot-go-on", level="error", error=error)
        return None
    if judging.hearing.done:
        # Otherwise it still needs its key: started again with all others, it goes on.
        judging.end()
    node.note_head()
    return judging


class _Part:
    """One view at one party."""

    outcome: Outcome

    def __init__(
        self,
        node: NodeRuntime,
        session: PeerSession,
        view: View,
        ledger: LedgerRun | None,
        *,
        before: _Part | None = None,
    ) -> None:
        self.node, self.session, self.view = node, session, view
        self._before = before
        self._over = False
        self._ledger = CarefulLedger(ledger or MemoryLedger(), len(view.replayed))
        agreed = view.agreed
        self.number = agreed.names.index(node.setup.name)
        self.own = view.planned.of_party(self.number)
        self.departure: Departure | None = node.departure(session, view)
        self.keys = node.session_keys(view)
        self.exchange = self._open_exchange(session)
        self.hearing = HearingExchange(
            self.exchange,
            session,
            self.own,
            view.rounds,
            self._ledger,
            node.setup.when_lost,
            self.departure,
            node.watcher,
        )
        self._told_budget = -_BUDGET_EVERY
        first = view.first_sent
        drawn = (
            encode_message(view.run, self.number, t - first, self._message(t))
            for t in range(first, self._ledger.released)
        )
        self.exchange.mailbox.begin(drawn, view.rounds - first)

    def _open_exchange(self, session: PeerSession) -> PeerExchange:
        view, keys = self.view, self.keys
        options = self.node.mailbox_options(self.departure, view) | {
            "averager": view.agreed.server,
            "tree": view.tree,
            "store": self.node.store,
        }
        if self._before is not None:
            options["before"] = self._before.exchange.mailbox
            if view.evaluation:
                options["on_pause"] = self._listen_for_losses
                options["decoded"] = self._before.exchange.decoded
        address = (session, self.own.site, view.run, view.agreed.names)
        summation = self.own.algorithm.summation
        if keys is None or summation is None:
            return PeerExchange(*address, **options)

        def find_masks(released: int, gather: Callable[[], None]) -> Masks:
            keys.announce(released)
            gather()
            return keys.masks()

        return SumExchange(
            *address,
            summation=summation,
            past=view.past,
            find_masks=find_masks,
            before_send=keys.before_send,
            ring=keys.ring,
            **options,
        )

    def _listen_for_losses(self) -> None:
        """Listen for a loss at the end of the training: then nobody evaluates."""
        before = self._before
        if before is not None and before.departure is not None and not self._over:
            before.departure.listen()

    @property
    def is_whole(self) -> bool:
        """Whether all its rounds are complete: then its model may be evaluated."""
        return self.hearing.done >= self.view.rounds

    @property
    def charged_here(self) -> tuple[tuple[Event, ...], ...]:
        """What this party was charged, by its ledger if it has one."""
        ledger = self.node.ledger
        if ledger is None:
            return self.outcome.events
        return (_charged(ledger, self.node.setup.agreed),)

    @property
    def how(self) -> dict[str, Any]:
        """Public facts about how the run went."""
        view, hearing = self.view, self.hearing
        return {
            "heard": list(hearing.names),
            "rounds_complete": hearing.done,
            "lost": hearing.lost,
            "went_on_without": list(view.lost),
            "changed_run_sha256": view.run.hex() if view.lost else None,
            "tls": self.node.setup.security is not None,
        }

    @property
    def judgement(self) -> Judgement | None:
        """What an evaluation found; None where its round is not complete."""
        if self.hearing.done == 0:
            return None
        site = self.view.planned.site
        try:
            histogram = histogram_of(self.view.planned, self.outcome)
        except ParameterError as error:
            # What a neighbour sent is not a histogram of counts.
            self.node.watcher.event("cannot-go-on", level="error", error=error)
            return None
        return judgement(
            self.own,
            histogram,
            self.outcome,
            self.node.noise_of(self.view),
            self.view.agreed.run.wish,
            rows=dict(zip(site.names, site.rows.tolist(), strict=True)),
            name=self.view.run_id,
        )

    def to_compare(self) -> SumsComparison | None:
        """What is known before parties have compared; None where each has a model of its own."""
        if not self.hearing.one_model:
            return None
        return SumsComparison.to_come(self.view.agreed.names, early=not self.is_whole)

    def compare(self) -> SumsComparison | None:
        """Learn whether all parties heard the same in every round, so that all have one model."""
        expected, watcher = self.to_compare(), self.node.watcher
        if expected is None:
            return None
        policy, watch = self.node.setup.config.policy, self.node.setup.config.watch
        departure = self.departure
        if self._before is not None and self.view.evaluation:
            # An evaluation has none of its own: losses are those of the training before it.
            departure = self._before.departure
        reported = 0.0

        def on_pause(seconds: float, missing: tuple[str, ...]) -> None:
            nonlocal reported
            if seconds - reported > watch.report_every:
                reported = seconds
                watcher.event("comparing", missing=missing[:MOST_WAITED_FOR], seconds=seconds)
            if departure is not None:
                departure.listen()

        # A party that ended early says so, and has nothing to wait for.
        found = self.node.same_sums(self.session, self.view).compare(
            self.hearing.done,
            self.exchange.decoded.digest(),
            policy.lost_after if self.is_whole else 0.0,
            on_pause,
        )
        if not self.is_whole:
            return expected
        if found.alike:
            watcher.event("agreed-by-all", parties=len(found.members), signed=found.signed)
        else:
            facts = {"missing": found.missing[:MOST_WAITED_FOR], "advice": found.caveats[0]}
            watcher.event("not-agreed-by-all", level="warning", **facts)
        return found

    def end(self) -> None:
        """Destroy the session key: no new message goes out in this view."""
        if self.keys is None:
            return
        try:
            self.keys.destroy()
        except OSError as error:
            # Go on: what was paid for must still be written.
            advice = f"remove {self.keys.path}"
            self.node.watcher.event("key-left", level="error", error=error, advice=advice)

    def train(self, shard: Shard) -> None:
        """Run the rounds of the view, or those before somebody was lost."""
        node, view = self.node, self.view

        def on_round(done: int, messages: Array) -> None:
            if not view.evaluation:
                node.watcher.round(done, view.rounds)
            self.hearing.count_bytes()
            self._tell_budget()

        outcome = train_party(
            self.own,
            shard,
            exchange=self.hearing,
            noise=node.noise_of(view),
            ledger=self._ledger,
            on_round=on_round,
            rounds=view.rounds,
            replayed=[message[None] for message in view.replayed],
            absorbed_by=[
                planned.of_party(planned.site.names.index(node.setup.name))
                for planned in view.absorbed_by
            ],
        )
        self._over = True
        self._tell_budget(at_once=True)
        charged = (*view.charged, *outcome.events[0])
        self.outcome = replace(outcome, events=(charged,))

    def following(self) -> View | None:
        """The next view after a loss, once all others agree; None if this was the last."""
        departure, node = self.departure, self.node
        if departure is None or not departure.lost or self.is_whole:
            return None
        policy = node.setup.config.policy
        try:
            decision = departure.decided() or departure.settle(policy.lost_after)
            following = self.view.following(
                decision,
                node.setup.schema,
                own=tuple(self._message(t) for t in range(decision.kept)),
                past=tuple(self.exchange.sums) if isinstance(self.exchange, SumExchange) else (),
                charged=self.outcome.events[0],
            )
        except SomebodyLeft as error:
            self.hearing.lost = error.name
            return None
        except (ParameterError, ExchangeError) as error:
            node.watcher.event("cannot-go-on", level="error", error=error)
            return None
        # Where a link was cut, the others may have decided on another node than this one missed.
        self.hearing.lost = decision.lost
        if not ends_of(decision.lost):
            self.session.left.add(decision.lost)
        node.watcher.event(
            "going-on",
            spec=following.run.hex(),
            nodes=list(following.agreed.nodes),
            round=decision.kept,
            rounds=following.rounds,
            consequence=WHEN_LOST["continue"],
        )
        return following

    def _message(self, t: int) -> Array:
        """Return this party's own message of a round that it released, as it was committed."""
        if t < len(self.view.replayed):
            return self.view.replayed[t]
        stored = self._ledger.committed(t)
        if stored is not None:
            return stored
        # A simulation commits nothing and cannot be continued: what it sent is in its mailbox.
        shape = self.own.site.shape[1:]
        place = t - self.view.first_sent
        decode: Callable[..., Any] = decode_message if self.keys is None else decode_masked
        data = self.exchange.mailbox.own(place)
        found: Array = decode(data, run=self.view.run, party=self.number, t=place, shape=shape)
        return found

    def _tell_budget(self, *, at_once: bool = False) -> None:
        """Report the ledger's budget once in a while: inverting the curve takes time."""
        ledger, now = self.node.ledger, time.monotonic()
        if ledger is not None and (at_once or now - self._told_budget >= _BUDGET_EVERY):
            self._told_budget = now
            account = ledger.account
            self.node.watcher.budget(account.spent_epsilon, account.fitting_epsilon)


def read_shards(node: NodeRuntime, own: Plan) -> tuple[Shard, Shard | None]:
    """Read and lay out this party's rows, and those to evaluate on; how many is public."""
    setup, noise = node.setup, node.noise
    if setup.question is not None:
        return study_shard(setup), None
    told = setup.run_config()
    schema = file_schema(setup.schema, told)
    party = told.party[0]
    with work_folder(told.result.model) as folder:
        encoded = read_party(party, schema, folder, node.stack)
    pa.default_memory_pool().release_unused()
    if len(encoded) != party.rows:
        raise DataError(
            f"data must have the rows that the agreed run says, {party.rows}; {party.file} has "
            f"{len(encoded)}: correct one"
        )
    lay_out = partial(lay_out_part, own, [encoded], noise=noise)
    return lay_out_both(setup.agreed.run.wish, lay_out)


def _trained(
    node: NodeRuntime,
    part: _Part,
    last: _Part,
    seconds: float | None,
    judged: Judgement | None = None,
    *,
    by_round: bool = True,
    over: bool = False,
) -> Run:
    """Make the model of this node: the mean of the messages that it may hear, its own included.

    All nodes that hear everybody make the same model. Its statement counts an evaluation that is
    still to come; once the run is ``over``, only one that was charged.
    """
    setup, hearing = node.setup, part.hearing
    agreed, told = setup.agreed, setup.run_config()
    heard = part.outcome
    if not part.own.algorithm.hears_everybody:
        heard = replace(heard, last=hearing.last, tail=hearing.tail, mean=hearing.mean)
    caveats, schema = _about_losses(part, last), setup.schema
    weights = released_weights(part.own, heard, told.run.output)
    classifier = Classifier.of_run(
        part.own,
        heard,
        state_whole(
            part.own,
            part.charged_here,
            node.noise,
            agreed.run.wish,
            judged=judged,
            ahead=_ahead(node, part, weights, over=over),
            others=_others(node, part, weights),
            caveats=caveats,
            by_round=by_round,
        ),
        classes=schema.classes,
        parties=hearing.names,
        output=told.run.output,
        quality=None if judged is None else judged.quality,
    )
    return node_run(
        setup,
        classifier,
        part.how,
        seconds=seconds,
        noise_error=_noise_error(part, told.run.output),
    )


def _ahead(
    node: NodeRuntime, part: _Part, weights: Array, *, over: bool
) -> tuple[tuple[Event, ...], ...]:
    """What this node is charged for the evaluation of its model; nothing where there is none."""
    expected = node.setup.whole(part.view.agreed).expected()
    if expected is None or not part.is_whole:
        return ()
    if over and node.ledger is not None:
        # Its own ledger may have refused it, or somebody may have been lost before it.
        charged = node.ledger.refresh().runs.get(_evaluation_name(node, part, weights))
        if charged is None or not charged.events:
            return ()
    return announced(expected.of_party(part.number))


def _evaluation_name(node: NodeRuntime, part: _Part, weights: Array) -> str:
    """How ledgers know the evaluation of this node's model; empty where there is none."""
    whole = node.setup.whole(part.view.agreed)
    if whole.terms is None or not part.is_whole:
        return ""
    return evaluation_id(part.view.run_id, whole.evaluation(weights))


def _others(node: NodeRuntime, part: _Part, weights: Array) -> OtherEvaluations:
    """What this node was charged for evaluations under the run other than that of its model.

    A node that has lost its messages may end earlier than it did before its restart: it had sent
    everything that its ledger was charged for then.
    """
    if node.ledger is None:
        return OtherEvaluations()
    account, agreed = node.ledger.refresh(), node.setup.agreed
    own, runs = _evaluation_name(node, part, weights), _runs_of(account, agreed)
    return OtherEvaluations.of([account], runs, agreed.run.wish.split, own=own)


def _noise_error(part: _Part, output: str) -> float | None:
    """What noise does to each weight of a run that went as planned."""
    hearing, planned = part.hearing, part.view.planned
    if part.view.lost or hearing.lost is not None or hearing.refused_sum is not None:
        return None
    names = planned.site.names
    # Where all parties share one model, nobody is heard by name.
    numbers = [names.index(each) for each in hearing.names if each in names]
    return noise_error(planned, output, numbers, part.outcome.course)


def _charged(ledger: SQLiteLedger, agreed: AgreedRun) -> tuple[Event, ...]:
    """What the run was charged in all its views, also where no model came of one."""
    events: list[Event] = []
    account = ledger.refresh()
    for run_id in _runs_of(account, agreed):
        record = account.runs[run_id]
        events += [record.events[t] for t in sorted(record.events)]
    return tuple(events)


def _runs_of(account: Account, agreed: AgreedRun) -> list[str]:
    """The names of the run in a ledger, one for each view."""
    names, run = [], str(agreed.run.run_id)
    for name in account.runs:
        first, *lost = name.removeprefix(run).split(" without ")
        known = {name for each in lost for name in ends_of(each) or (each,)} <= {*agreed.nodes}
        if name.startswith(run) and not first and known:
            names.append(name)
    return names


def _changes(part: _Part) -> tuple[str, ...]:
    """How the run changed after losses."""
    view = part.view
    if not view.lost:
        return ()
    return (f"Changed run: {view.run.hex()}, {view.rounds} rounds",)


def _about_losses(part: _Part, last: _Part) -> tuple[str, ...]:
    """What the statement says about lost nodes, in the model's view and in the last one."""
    caveats = []
    view, lost = part.view, part.hearing.lost
    if view.lost:
        left_out = [name for name in view.lost if not ends_of(name)]
        if left_out:
            caveats.append(f"Went on without: {', '.join(left_out)}: {WHEN_LOST['continue']}")
        links = ", ".join(lost_words(name) for name in view.lost if ends_of(name))
        if links:
            caveats.append(f"Went on by other ways without {links}: {LINK_LOST}")
    if lost is not None:
        done = part.hearing.done
        name = part.node.setup.name
        why = (
            f"the others went on without {lost}" if lost == name else f"{lost_words(lost)} was lost"
        )
        caveats.append(f"Ended early: {why} after {done} rounds: {WHEN_LOST['stop']}")
    if part.hearing.refused_sum is not None:
        caveats.append(
            f"Ended early: the sum of round {part.hearing.done} was refused: "
            f"{part.hearing.refused_sum} {WHEN_LOST['stop']}"
        )
    if last is not part:
        what = last.hearing.refused_sum or f"{last.hearing.lost} was lost, too,"
        caveats.append(
            f"Going on without {lost_words(last.view.lost[-1])} came to nothing: {what} "
            f"after {last.hearing.done} rounds of the changed run "
            f"{last.view.run.hex()}. The model is that of the rounds before; what was charged "
            "since is counted."
        )
    if caveats and part.own.budget is not None:
        # When to stop or go on may have been chosen by others after seeing messages.
        agreed = part.node.setup.agreed_words()
        caveats.append(
            f"Rely on {agreed}, of which what is stated was charged: others may have chosen the "
            "moment after seeing messages."
        )
    return tuple(caveats)
