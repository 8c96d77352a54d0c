"""One node of a federation: checked, then run from its owner's configuration to a model.

:func:`run_node` keeps a fixed order. It refuses first whatever this node's own files and its
owner's policy forbid; then it reads rows; then all nodes agree; only then is anything reserved in
the ledger. From there on the engine runs as it does everywhere. A node that is killed at any point
goes on from its ledger and its messages when it is started again.

:func:`check_node` is ``dpadmm node --check``. It tries what a start needs beyond its files: it
reads no row, charges and sends nothing, and leaves nothing behind. With ``reach`` it also dials the
neighbours (:mod:`~dpadmm.federation.reach`). A node looks at its own rows with ``--rows``, and
before a start (:mod:`dpadmm.run.files`).

:func:`rehearse_node` is ``dpadmm node --rehearse``: agreement, keys and one exchange of zeros, so
that a federation can be tried before the day. Its configuration has no rows and no ledger, and its
32 bytes are not those of the run: no consent, key or mask serves both.

:func:`average` is the node without rows. It averages what parties send, adds no noise and keeps no
ledger. Where parties send masked vectors it adds them up and sees nothing but their sum.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from rich.filesize import decimal

from dpadmm.durable import check_writable
from dpadmm.errors import ExchangeError, LedgerError, ParameterError, passing
from dpadmm.federation.agreement import Disagreement
from dpadmm.federation.config import AgreedRun
from dpadmm.federation.exchange import GRACE, added_up
from dpadmm.federation.identity import read_certificate
from dpadmm.federation.node_study import NodeStudy
from dpadmm.federation.party import NO_FIGURES, rehearse_party, train_node
from dpadmm.federation.reach import probe
from dpadmm.federation.recovery import Departure, LeftOut, SomebodyLeft, View
from dpadmm.federation.runtime import NodeRuntime, NodeSetup, check_known
from dpadmm.federation.transport.mailbox import KeyRing, Mailbox, NeighbourLost
from dpadmm.federation.transport.session import PeerSession, is_ipv6, split_address
from dpadmm.federation.transport.store import MessageFile
from dpadmm.federation.transport.wire import (
    encode_message,
    message_size,
)
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.balance import Account
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.noise import secure_noise
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES
from dpadmm.run.charges import check_evaluation, check_owner, check_runs, has_begun
from dpadmm.run.engine import RunEnded
from dpadmm.run.files import Fault, Owner, file_schema, look_at_rows, look_first, tell_owner
from dpadmm.run.plan import Plan
from dpadmm.run.result import Run
from dpadmm.solvers.cluster import Cluster
from dpadmm.studies.study_files import contradictions


def run_node(setup: NodeSetup, watcher: Watcher) -> Run | NodeStudy | None:
    """Run a node to its end: it writes its results and serves late neighbours.

    Returns
    -------
    Run, NodeStudy or None
        What was trained, or found; nothing at a server.

    Raises
    ------
    LeftOut
        If the others go on without this node; what it trained before is written.
    ExchangeError
        If there is nothing to write, or parties heard different things.
    """
    config = setup.config
    agreed = setup.agreed
    watcher.join(str(agreed.run.run_id))
    # Nobody could read a larger graph, and the status file would grow with its square.
    if len(agreed.nodes) <= MOST_PARTIES:
        links = links_of(agreed, setup.planned)
        if len(links) <= MOST_LINKS:
            watcher.graph(agreed.nodes, links, agreed.server)
    trained: Run | NodeStudy | None = None
    with ExitStack() as stack:
        node = NodeRuntime.open(setup, watcher, stack)
        choice = setup.planned.choice
        if choice is not None:
            advice = {"advice": choice.advice} if choice.advice else {}
            watcher.event("algorithm-chosen", choice=choice.reason, **advice)
        if config.node.role == "server":
            mailbox, departure = average(node)
        else:
            mailbox, departure, trained = train_node(node)
        if setup.question is not None and mailbox.lost:
            # There is nothing to serve, but parties that this server ends on learn for whose loss.
            mailbox.finish(GRACE)
            raise passing(
                ExchangeError(
                    f"{mailbox.lost} was lost before all rounds were complete: {NO_FIGURES}; what "
                    "parties were charged stays spent."
                )
            )
        if departure is None or not departure.left_out:
            watcher.serving(config.policy.serve_for)
        late = _serve(mailbox, departure, config.policy.serve_for)
        if late:
            watcher.event("neighbours-late", level="warning", missing=late)
    left_out = departure is not None and departure.left_out
    # A study that ended early has no results.
    if left_out and isinstance(trained, Run) and trained.federation["lost"] is not None:
        raise LeftOut(setup.name, trained)
    watcher.finished()
    return trained


def rehearse_node(setup: NodeSetup, watcher: Watcher) -> Check:
    """Go through agreement, keys and one exchange of zeros; read nothing and spend nothing.

    Returns
    -------
    Check
        What was gone through.

    Raises
    ------
    ExchangeError
        If the nodes do not agree, a node is lost, or the zeros do not come back as zeros.
    """
    watcher.join(f"rehearsal of {setup.agreed.run.run_id}")
    with TemporaryDirectory(prefix="dpadmm-rehearsal-") as folder, ExitStack() as stack:
        node = NodeRuntime.open(setup.rehearsing(Path(folder)), watcher, stack)
        if setup.config.node.role == "server":
            mailbox, _, _ = _average_view(node, node.connect(), node.setup.view, None)
            well = mailbox.rounds == 1
        else:
            try:
                mailbox, heard = rehearse_party(node)
                well = not np.any(heard)
            except RunEnded:
                well = False
        if not well:
            raise ExchangeError(
                "zeros must come back as zeros in a rehearsal; they do not: a party was lost, or "
                "sends what it should not, or its keys are not those that the others have. Nothing "
                "was read or spent: rehearse again with all."
            )
        watcher.round(1, 1)
        watcher.serving(setup.config.policy.serve_for)
        late = _serve(mailbox, None, setup.config.policy.serve_for)
        if late:
            watcher.event("neighbours-late", level="warning", missing=late)
        watcher.finished()
    masked = setup.planned.algorithm.summation is not None
    how = "keys were exchanged, and masked zeros" if masked else "zeros"
    return Check(
        "rehearsal",
        True,
        f"{', '.join(setup.agreed.nodes)} agreed; {how} came back as zeros.",
    )


def links_of(agreed: AgreedRun, planned: Plan) -> tuple[tuple[str, str], ...]:
    """Every pair of nodes that talk to each other, once."""
    pairs = ((name, other) for name in agreed.nodes for other in agreed.neighbours(name, planned))
    return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))


def _serve(mailbox: Mailbox, departure: Departure | None, seconds: float) -> tuple[str, ...]:
    """Hand out the last rounds to late neighbours; return who did not finish in time."""
    while departure is None or not departure.left_out:
        try:
            return mailbox.finish(seconds)
        except SomebodyLeft as error:
            # This node has all its rounds. The others learn how far it is, and go on among
            # themselves.
            assert departure is not None
            rounds = departure.first_sent + mailbox.rounds
            departure.freeze(error.name, rounds, rounds)
    # The others need nothing from a node that they go on without.
    return ()


def average(node: NodeRuntime) -> tuple[Mailbox, Departure | None]:
    """Average round by round; go on without a lost party if the owner chose to."""
    setup = node.setup
    session = node.connect()
    view = setup.view
    mailbox: Mailbox | None = None
    while True:
        mailbox, departure, following = _average_view(node, session, view, mailbox)
        if following is None:
            break
        view = following
    expected = setup.whole(view.agreed).expected()
    if expected is None or mailbox.rounds < view.rounds - view.first_sent:
        return mailbox, departure
    # Then the evaluation of the model; which model it is does not matter to a server.
    judged, _, _ = _average_view(node, session, view.evaluating(expected), mailbox)
    return (judged, None) if judged.rounds else (mailbox, departure)


def _average_view(
    node: NodeRuntime, session: PeerSession, view: View, before: Mailbox | None
) -> tuple[Mailbox, Departure | None, View | None]:
    agreed, run, shape = view.agreed, view.run, view.planned.site.shape[1:]
    departure = node.departure(session, view)
    number = len(agreed.names)
    sources = {name: place for place, name in enumerate(agreed.names)}
    options = node.mailbox_options(departure, view) | {"before": before}
    ring = None if view.planned.algorithm.summation is None else KeyRing(agreed.names)
    mailbox = Mailbox(session, run, number, sources, shape, node.store, ring=ring, **options)
    # A server hands on what parties sign at the end, as long as it serves them.
    node.same_sums(session, view)
    rounds, first = view.rounds - view.first_sent, view.first_sent
    decision = None if departure is None else departure.decided()
    t = node.store.rounds(run)
    while decision is None and t < rounds:
        try:
            if departure is not None and departure.lost:
                raise SomebodyLeft(departure.lost)
            if ring is not None and not ring.complete:
                mailbox.gather(t)
            received = {place: mailbox.receive(place, t) for place in sources.values()}
        except (NeighbourLost, SomebodyLeft) as error:
            slow = isinstance(error, NeighbourLost) and not error.ended
            if slow and session.present(error.name):
                continue
            told = {"neighbour": error.name, "round": first + t}
            node.watcher.event("neighbour-lost", level="error", **told)
            if departure is None:
                mailbox.lost = error.name
                break
            departure.freeze(error.name, first + t)
            try:
                decision = departure.settle(node.setup.config.policy.lost_after)
            except Disagreement as refusal:
                node.watcher.event("cannot-go-on", level="error", error=refusal)
            break
        answer = added_up(received, run, t, shape, masked=ring is not None)
        mean = encode_message(run, number, t, answer)
        # Kept before it is sent: a restarted server hands out the same bytes.
        mailbox.keep(t, {number: mean, **received})
        mailbox.tell(mean)
        t += 1
        if not view.evaluation:
            node.watcher.round(first + t, view.rounds)
        node.watcher.bytes(*mailbox.take_counts())
    if decision is None:
        return mailbox, departure, None
    try:
        following = view.following(decision, node.setup.schema)
    except ParameterError as refusal:
        node.watcher.event("cannot-go-on", level="error", error=refusal)
        return mailbox, departure, None
    left = list(following.agreed.nodes)
    node.watcher.event("going-on", spec=following.run.hex(), nodes=left, round=decision.kept)
    return mailbox, departure, following


# A check does not wait long for a process that writes.
_TIMEOUT: Final = 10.0


@dataclass(frozen=True)
class Check:
    """One check and its result.

    Parameters
    ----------
    check, ok
        What was checked, and whether it is right.
    words
        What was found, and what to do where it is wrong.
    """

    check: str
    ok: bool
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        return asdict(self)


def check_node(setup: NodeSetup, *, reach: bool = False) -> Iterator[Check]:
    """Check everything that a start of a node needs, one item after the other."""
    config = setup.config
    if config.certificates is not None and setup.security is not None:
        yield _try("certificate", lambda: _certificate(setup))
    if config.node.ledger is not None:
        yield _try("ledger", lambda: _ledger(setup))
    yield _try("messages", lambda: _messages(setup))
    if config.node.scheduler is not None:
        yield _try("cluster", partial(_cluster, config.node.scheduler))
    for what in ("log", "status"):
        place = getattr(config.watch, what)
        if place is not None:
            yield _try(what, partial(_place, what, place))
    yield _try("port", lambda: _port("listen", config.listen))
    if config.watch.metrics is not None:
        yield _try("metrics", lambda: _metrics(setup))
    for name, address in config.addresses.items() if reach else ():
        pins = [each[name] for each in (config.pins, config.next_pins) if name in each]
        found = probe(name, address, setup.security, pins=pins)
        yield Check(f"reach {name}", found.reached, f"{found.reason}: {found.advice}")
    unseen = set(config.pins) - {setup.name, *config.addresses}
    if reach and unseen:
        yield Check(
            "pins",
            True,
            f"{', '.join(sorted(unseen))} cannot be dialled from here: their certificates are "
            "compared with [pins] when all agree, before anything is spent.",
        )


def check_own_rows(setup: NodeSetup, owner: Owner | None) -> Iterator[Check]:
    """Check the rows of a party, for its owner alone; the result here has no counts."""
    if setup.config.node.role == "party":
        yield _try("rows", lambda: _rows(setup, owner))


def look_before_start(setup: NodeSetup, owner: Owner | None) -> None:
    """The pre-flight of a party that has not begun: before it connects, logs or is charged.

    A run that has begun goes on: others would see it end now. Where the ledger refuses the run no
    row is read: the start refuses it, and says why in the log.

    Raises
    ------
    PreflightStop
        If the rows look wrong and the owner's rule or answer ends the run.
    """
    config = setup.config
    if config.node.role != "party" or config.policy.preflight == "off":
        return
    if config.node.ledger is not None:
        try:
            with SQLiteLedger(config.node.ledger) as ledger:
                if has_begun(ledger.account, str(setup.agreed.run.run_id)):
                    return
                _check_charges(setup, ledger, ledger.account)
        except (ParameterError, LedgerError):
            return
    told = setup.configuration
    place = config.preflight_file
    look_first(told, file_schema(setup.schema, told), place, owner, partial(_faults, setup))


def _faults(setup: NodeSetup) -> Mapping[str, Sequence[Fault]]:
    """What contradicts itself in this party's rows, by what a study asks of them."""
    if setup.question is None:
        return {}
    told = setup.study_config()
    return contradictions(told, file_schema(setup.schema, told), setup.question.faults)


def _rows(setup: NodeSetup, owner: Owner | None) -> str:
    told, place = setup.configuration, setup.config.preflight_file
    found = replace(look_at_rows(told, file_schema(setup.schema, told)), faults=_faults(setup))
    tell_owner(found, place, owner)
    if found.wrong:
        raise ParameterError(f"some look wrong; {place} says which, to you alone.")
    return f"nothing looks wrong; {place} has the counts, for you alone."


def _check_charges(setup: NodeSetup, ledger: SQLiteLedger, account: Account) -> View:
    """Refuse a ledger of somebody else or of other rows, and a run that does not fit into it."""
    agreed = setup.agreed
    view = View.whole(agreed, setup.planned, setup.schema)
    own = setup.planned.of_party(agreed.names.index(setup.name))
    check_owner(setup.name, ledger, setup.schema)
    check_runs(
        own,
        [ledger],
        view.run_id,
        secure_noise(),
        part=view.part,
        preparation=setup.preparation,
    )
    check_evaluation(setup.whole(), {setup.name: account}, view.run_id)
    return view


def _try(what: str, look: Callable[[], str]) -> Check:
    try:
        return Check(what, True, look())
    except (ValueError, OSError, LedgerError) as error:
        return Check(what, False, str(error))


def _certificate(setup: NodeSetup) -> str:
    assert setup.security is not None
    facts = read_certificate(setup.security.certificate)
    return f"{facts.name}, for {', '.join(facts.hosts)}; {facts.days_left} days left."


def _ledger(setup: NodeSetup) -> str:
    """Check owner, schema, rows, every hash, and whether the run's charges fit."""
    path = setup.config.node.ledger
    assert path is not None
    if os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LedgerError(f"ledger {path} and its folder must be writable; they are not.")
    with SQLiteLedger(path, timeout=_TIMEOUT) as ledger:
        account = ledger.verify()
        if setup.config.messages.exists():
            with MessageFile(setup.config.messages) as store:
                check_known(setup, ledger, store)
        view = _check_charges(setup, ledger, account)
        known = account.runs.get(view.run_id)
        begun = "" if known is None else f" {len(known.events)} of its rounds were charged before."
        return (
            f"{path} is whole, is about {account.dataset.rows} rows of {account.dataset.owner}, "
            f"and what is agreed on fits: epsilon = {AtMost(account.spent_epsilon)} of "
            f"{Given(account.policy.epsilon)} is spent.{begun} Head: {ledger.head}"
        )


def _messages(setup: NodeSetup) -> str:
    """Check the room on disk: for every message heard and sent, and those charged."""
    config, rounds = setup.config, setup.planned.rounds
    size = message_size(setup.planned.site.shape[1:])
    kept = [(config.messages.parent, len(config.addresses) + 1)]
    if config.node.ledger is not None:
        kept.append((config.node.ledger.parent, 1))
    # Both may be on one disk.
    disks: dict[int, tuple[Path, int]] = {}
    for folder, messages in kept:
        disk = folder.stat().st_dev
        disks[disk] = (folder, rounds * size * messages + disks.get(disk, (folder, 0))[1])
    found = []
    for folder, takes in disks.values():
        free = shutil.disk_usage(folder).free
        if takes > free:
            raise ParameterError(
                f"messages and ledger must have room for {takes} bytes ({rounds} rounds, messages "
                f"of {size} bytes); {free} are free. Make room, or name other places."
            )
        found.append(f"{decimal(takes)} of {decimal(free)} free")
    taken = ", and ".join(found)
    return f"a message has {decimal(size)}, and {rounds} rounds take up to {taken}."


def _cluster(scheduler: str) -> str:
    with Cluster(scheduler) as cluster:
        return f"{scheduler} answers and has {cluster.workers} workers with the versions of here."


def _place(what: str, place: Path) -> str:
    check_writable(place, what)
    if place.exists() and not os.access(place, os.W_OK):
        raise ParameterError(f"{what} must be a file that can be written; got {place}.")
    return f"{place} can be written."


def _port(what: str, address: str) -> str:
    host, port = split_address(address)
    try:
        family = socket.AF_INET6 if is_ipv6(host) else socket.AF_UNSPEC
        places = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
        kind, _, _, _, place = places[0]
        socket.create_server(place, family=kind).close()
    except OSError as error:
        raise ParameterError(
            f"{what} must be an address of this machine that is free; got {address}: "
            f"{error.strerror}. Stop what has it (this node itself, perhaps), or choose another."
        ) from None
    return f"{address} is free."


def _metrics(setup: NodeSetup) -> str:
    from dpadmm.federation.page_server import Metrics

    watch = setup.config.watch
    assert watch.metrics is not None
    Metrics(watch.metrics, setup.name, "", anywhere=watch.metrics_anywhere).close()
    return f"{watch.metrics} is free."
