"""Kills real nodes and cuts their links at random instants, and counts what must never happen.

``python -m tests.helpers.kill_run --kills 300 --cuts 100`` runs federations on a ring, a complete
graph, along a tree and around a server, with own noise and shared, in turn, until so many were
killed and so many links cut, frozen, slowed down or flapping. In each trial a node is killed for
good, a link cut for good, the nodes are cut into halves, or nothing stays broken. What it found is
printed as JSON and, for people, as a table. ``--kinds shared shared-complete --nodes 20 --losses
2`` does it with noise that twenty nodes share.
"""

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from dpadmm.cli.node import LEFT_OUT
from dpadmm.federation.recovery import View
from dpadmm.federation.transport.tree import rising_run
from dpadmm.federation.transport.wire import decode_masked, decode_message, link_of
from dpadmm.ledger.sqlite import SQLiteLedger
from tests.helpers.federation_net import Federation, Lines
from tests.helpers.fork_server import ForkServer

NODES = 5
RUNS = {
    "ring": {"topology": "ring"},
    "complete": {"topology": "complete"},
    "server": {"topology": "server", "algorithm": "ps-admm"},
    "shared": {
        "topology": "server",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared", "center": "on"},
    },
    "shared-complete": {
        "topology": "complete",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared"},
    },
    # Along a tree.
    "ring-shared": {
        "topology": "ring",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared"},
    },
    "random-shared": {
        "topology": "random",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared", "center": "on"},
    },
    "ring-own": {"topology": "ring", "algorithm": "dp-gd"},
}
AVERAGED = ("server", "shared")
# A restart takes seconds on a busy machine; who takes longer is given up by the others.
LOST_AFTER = 15
# Nothing that a node waits for takes longer, all its waiting together.
HANGS_AFTER = 240
SERVE_FOR = 20
# What stays broken in a trial.
LOSSES = ("node", "link", "nothing", "halves")
# How long a link is broken that heals; of a frozen one connections are given up after a lease.
LONGEST_CUT = 3.0
# Beyond the time-outs: starting again and reading rows, on a busy machine.
SLACK = 20.0
# What a node says of an honest one only by mistake.
ACCUSATIONS = (
    "message-dropped",
    "name-claimed-twice",
    "neighbour-replaced",
    "neighbour-runs-twice",
    "ledger-went-back",
    "draw-refused",
    "sum-refused",
    "stranger-refused",
    "connection-refused",
)
# What shows that a node gets on.
PROGRESS = (
    "encoding",
    "agreed",
    "continued",
    "round",
    "neighbour-lost",
    "going-on",
    "cannot-go-on",
    "results-written",
)


@dataclass
class Found:
    """What happened, and what must not have.

    Attributes
    ----------
    kills, kills_after_loss, losses
        Processes killed and started again, those of them after somebody stopped for a loss, and
        nodes killed, or links or halves cut, for good.
    cuts
        Links that were cut, frozen, slowed down or flapping, those cut for good included.
    messages
        Messages that were found, each once.
    went_on, fell_back, left_out
        Survivors whose model is of a changed run; those whose model's run ended early; those who
        did not go on where one node was lost and the others did.
    late
        Nodes that were killed and not back in time, because the machine was busy: others may give
        up nodes that they need.
    longest
        Seconds between two signs of progress of a node at work, at most.
    uncharged, second_draws, without_model, hangs, over_budget
        What must be 0.
    lost, accused, stalls, splits
        Too: nodes given up that were there; honest ones of which a log says that they did what they
        must not; times without progress beyond all time-outs; changed runs beside each other.
    """

    kills: int = 0
    kills_after_loss: int = 0
    cuts: int = 0
    losses: int = 0
    messages: int = 0
    went_on: int = 0
    fell_back: int = 0
    left_out: int = 0
    late: int = 0
    uncharged: int = 0
    second_draws: int = 0
    without_model: int = 0
    hangs: int = 0
    over_budget: int = 0
    lost: int = 0
    accused: int = 0
    stalls: int = 0
    splits: int = 0
    longest: float = 0.0
    trials: list[str] = field(default_factory=list)

    def add(self, other):
        longest = max(self.longest, other.longest)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.longest = longest

    @property
    def faults(self):
        names = (
            "uncharged",
            "second_draws",
            "without_model",
            "hangs",
            "over_budget",
            "lost",
            "accused",
            "stalls",
            "splits",
        )
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def moment(entry):
    """When a line of a log was written."""
    return datetime.fromisoformat(entry["time"]).timestamp()


def ended(process):
    """Whether a process has ended; it may still wait for its parent."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


class Trial:
    """One federation, killed and cut at random; the first come within ``pause`` seconds each."""

    def __init__(
        self,
        server,
        folder,
        kind,
        seed,
        *,
        rounds=100,
        loss="node",
        losses=None,
        nodes=NODES,
        lost_after=LOST_AFTER,
        pause=1.0,
    ):
        self.draw, self.found, self.pause = random.Random(seed), Found(), pause
        self.loss, self.lost_after = loss, lost_after
        averager = "hub" if kind in AVERAGED else None
        names = tuple(f"n{number}" for number in range(nodes))
        self.federation = Federation(
            folder, server, names, averager=averager, run={**RUNS[kind], "rounds": rounds}
        )
        self.lines, self.broken = Lines(self.federation), set()
        agreed = self.federation.agreed
        self.view = View.whole(agreed, agreed.plan(self.federation.schema), self.federation.schema)
        self.killed, self.ended_in = [], set()
        # Who may be given up by others: one, and now and then another one soon after.
        several = 1 + (self.draw.random() < 0.25)
        self.lost = self.draw.sample(names, several if losses is None else losses)
        if loss == "link":
            self.lost = self.draw.choice(self.lines.links)
        elif loss == "halves":
            some = self.draw.randrange(2, nodes - 1)
            self.half = self.draw.sample(self.federation.nodes, some)
            self.lost = self.federation.nodes
        elif loss == "nothing":
            self.lost = ()
        for name in self.federation.nodes:
            if name != averager:
                self.federation.make_ledger(name)
            policy = {"when_lost": "continue", "lost_after": lost_after, "serve_for": SERVE_FOR}
            addresses = self.lines.addresses(name)
            self.federation.write(name, policy=policy, addresses=addresses)

    def working(self):
        """Who may be killed: alive, and without its results."""
        return [
            name
            for name, process in self.federation.processes.items()
            if not ended(process) and not self.federation.log(name, "results-written")
        ]

    def stopped_for_loss(self):
        return any(self.federation.log(name, "neighbour-lost") for name in self.federation.nodes)

    def break_link(self):
        """Break one link for a while, meanwhile other things happen."""
        ends = self.draw.choice([ends for ends in self.lines.links if ends not in self.broken])
        how = self.draw.choice(["cut", "freeze", "slow", "flap"])
        times = self.draw.randint(3, 6) if how == "flap" else 1
        seconds = self.draw.uniform(0.1, LONGEST_CUT) / times
        self.broken.add(ends)
        self.found.cuts += 1

        def broken():
            lines = self.lines.between(ends[:1], ends[1:])
            for _ in range(times):
                for line in lines:
                    getattr(line, "cut" if how == "flap" else how)()
                time.sleep(seconds)
                for line in lines:
                    line.heal()
                time.sleep(seconds)
            self.broken.discard(ends)

        threading.Thread(target=broken, daemon=True).start()

    def disturb(self, kills, cuts, pause):
        """Kill nodes and break links, in any order."""
        orders = ["kill"] * kills + ["cut"] * cuts
        self.draw.shuffle(orders)
        for order in orders:
            time.sleep(self.draw.uniform(0, pause))
            working = self.working()
            if not working:
                return
            if order == "cut":
                self.break_link()
                continue
            name = self.draw.choice(working)
            after = self.stopped_for_loss()
            killed = time.time()
            if self.federation.kill(name) != -signal.SIGKILL:
                # It ended just before: what it left is looked at in the end.
                self.federation.start(name)
                continue
            time.sleep(self.draw.uniform(0, 0.5))
            self.federation.start(name)
            self.killed.append((name, killed))
            self.found.kills += 1
            self.found.kills_after_loss += after

    def play(self, before, after, cuts=0):
        """Kill some, lose one, kill some more while the others notice and go on."""
        federation = self.federation
        for name in federation.nodes:
            federation.start(name)
        try:
            self.disturb(before, cuts, self.pause)
            # Before a round is complete there is nothing to fall back on.
            self.wait_until(lambda: all(federation.log(name, "round") for name in federation.nodes))
            time.sleep(self.draw.uniform(0, 1.5 * self.pause))
            if self.loss == "node":
                self.lose_nodes(after)
            else:
                self.lose_links()
                self.disturb(after, 0, 1.5)
            self.wait()
        finally:
            federation.close()
            self.lines.close()
        self.look()
        self.listen()
        if self.loss == "node" and self.found.losses == 1 and self.found.went_on:
            self.found.left_out = len(federation.names) - 1 - self.found.went_on
        return self.found

    def lose_nodes(self, after):
        """Kill some for good, and others that come back."""
        for number, name in enumerate(self.lost):
            if name not in self.working():
                continue
            self.federation.kill(name)
            self.found.losses += 1
            if number == 0:
                self.wait_until(self.stopped_for_loss)
            self.disturb(after // len(self.lost), 0, 1.5)

    def lose_links(self):
        """Cut a link, or the nodes into halves, for good."""
        some = {"link": self.lost[:1], "halves": getattr(self, "half", ())}.get(self.loss, ())
        if not some or not set(self.lost) <= set(self.working()):
            self.lost = ()
            return
        others = set(self.lost) - set(some)
        gone = [ends for ends in self.lines.links if len({*ends} & {*some}) == 1]
        self.broken |= {ends for ends in gone if others & {*ends}}
        for line in self.lines.between(some, others):
            line.cut()
        self.found.losses += 1
        self.found.cuts += 1
        self.wait_until(self.stopped_for_loss)

    def wait_until(self, ready):
        """Until it is so, or nobody is left at work who could make it so."""
        deadline = time.monotonic() + HANGS_AFTER
        while not ready() and self.working() and time.monotonic() < deadline:
            time.sleep(0.05)

    def wait(self):
        """Until all have ended; who does not hangs."""
        deadline = time.monotonic() + HANGS_AFTER
        federation = self.federation
        processes = list(federation.processes.items())
        while not all(ended(process) for _, process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        self.excuse()
        for name, process in processes:
            if not ended(process):
                self.found.hangs += 1
                federation.kill(name)
                self.note(f"{name} hangs: {federation.log(name)[-3:]}")
                continue
            code = federation.wait(name)
            if code not in (0, LEFT_OUT):
                self.found.without_model += 1
                self.note(f"{name}: {federation.output(name)[-600:]}")
                continue
            if code == LEFT_OUT and name not in self.given_up:
                self.found.lost += 1
                self.note(f"{name} was left out")
            if name in federation.names:
                self.look_at_record(name)

    def excuse(self):
        """Who may be given up: what stays broken; all if one was not back in time, as agreed."""
        self.given_up = set(self.lost)
        if self.loss == "link" and self.lost and self.view.can_spare(link_of(*self.lost)):
            # There is another way, and nobody is lost.
            self.given_up = set()
        late = set()
        for name, killed in self.killed:
            back = [
                moment(entry)
                for entry in self.federation.log(name)
                if entry["event"] in ("agreed", "continued") and moment(entry) > killed
            ]
            if back and back[0] - killed > self.lost_after - 2:
                late.add(name)
        if late:
            self.given_up = set(self.federation.nodes)
            self.found.late += len(late)

    def note(self, words):
        self.found.trials.append(f"{self.federation.folder.name}: {words}")

    def look_at_record(self, name):
        folder = self.federation.folder
        if not (folder / f"{name}.model").exists():
            self.found.without_model += 1
            self.note(f"{name} has no model")
            return
        record = json.loads((folder / f"{name}.record").read_text())["federation"]
        self.found.went_on += bool(record["went_on_without"])
        self.found.fell_back += record["lost"] is not None
        if not self.given_up and record["lost"] is not None:
            self.found.lost += 1
            self.note(f"{name} ended early though nothing stayed broken")
        if record["lost"] is None:
            self.ended_in.add(record["changed_run_sha256"])

    def listen(self):
        """Read the logs: who was given up or accused, and who stood still for how long."""
        bound = 2 * self.lost_after + SLACK
        for name in self.federation.nodes:
            entries = self.federation.log(name)
            for entry in entries:
                lost = entry["facts"].get("neighbour") if entry["event"] == "neighbour-lost" else ""
                if lost and lost not in self.given_up:
                    self.found.lost += 1
                    self.note(f"{name} gave up {lost}")
                if entry["event"] in ACCUSATIONS:
                    self.found.accused += 1
                    self.note(f"{name}: {entry['event']} {entry['facts']}")
            times = [moment(entry) for entry in entries if entry["event"] in PROGRESS]
            for one, next_one in pairwise(times):
                self.found.longest = max(self.found.longest, round(next_one - one, 1))
                if next_one - one > bound:
                    self.found.stalls += 1
                    self.note(f"{name} stood still for {next_one - one:.0f} s")
        if len(self.ended_in) > 1:
            self.found.splits += 1
            self.note(f"{len(self.ended_in)} runs came to an end beside each other")

    def look(self):
        """Compare all that was heard anywhere with all that was charged."""
        federation = self.federation
        names = federation.names
        # Who takes part in which run, and how they are numbered there.
        parties = {federation.agreed.digest(federation.schema).hex(): list(names)}
        shape = federation.agreed.plan(federation.schema).site.shape[1:]
        heard = {}
        for name in federation.nodes:
            path = federation.folder / f"{name}.messages"
            with sqlite3.connect(path) as store:
                for run, t, party, data in store.execute("SELECT * FROM messages"):
                    heard.setdefault((run, t, party), set()).add(data)
            store.close()
            for entry in federation.log(name, "going-on"):
                left = [node for node in entry["facts"]["nodes"] if node in names]
                parties[entry["facts"]["spec"]] = left
            for entry in federation.log(name, "message-dropped"):
                if entry["facts"]["reason"] in ("two-messages", "heard-otherwise"):
                    self.found.second_draws += 1
                    self.note(f"{name}: {entry['facts']}")
        charged = {name: self.charged(name) for name in names}
        # What was told a parent is a sum: it must be one, whatever happened.
        rising = {rising_run(bytes.fromhex(run)) for run in parties}
        for (run, t, party), different in heard.items():
            self.found.messages += 1
            if len(different) > 1:
                self.found.second_draws += 1
                self.note(f"round {t} of {party} has {len(different)} messages")
            if run in rising:
                continue
            left = parties[run.hex()]
            if party == len(left):
                continue  # the mean of a server, or the sum of a tree
            decode = decode_masked if federation.shared else decode_message
            values = decode(different.pop(), run=run, party=party, t=t, shape=shape)
            # Rounds of a view of sums begin at 0 again; words are nobody else's anyway.
            known = charged[left[party]]
            rounds = known.values() if federation.shared else [known[t]]
            if not any(values.tobytes() in messages for messages in rounds):
                self.found.uncharged += 1
                self.note(f"round {t} of {left[party]} is in no ledger")

    def charged(self, name):
        """The charged messages of a party, by round."""
        messages = defaultdict(set)
        with SQLiteLedger(self.federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
            for record in account.runs.values():
                assert set(record.commits) <= set(record.events)
                for t, stored in record.commits.items():
                    messages[t].add(ledger.load_message(stored).tobytes())
            # At one order of Renyi divergence a run costs more than it states.
            if account.spent_epsilon > account.policy.epsilon * (1 + 1e-9):
                self.found.over_budget += 1
                self.note(f"{name} spent {account.spent_epsilon}")
        return messages


def table(total):
    """What was found, a line for each kind of federation and one for all."""
    everything = Found()
    for found in total.values():
        everything.add(found)
    columns = [name for name in vars(everything) if name != "trials"]
    rows = [["", *columns]]
    for name, found in {**total, "all": everything}.items():
        rows.append([name, *(str(getattr(found, column)) for column in columns)])
    # Turned, so that it fits a terminal.
    turned = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in rows]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in turned
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--loss", nargs="*", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(RUNS))
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--losses", type=int)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--lost-after", type=int, default=LOST_AFTER)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    total, server = {kind: Found() for kind in arguments.kinds}, ForkServer()
    seed = arguments.seed
    try:
        if "server" in arguments.kinds:
            server.warm()
        while any(
            sum(getattr(found, what) for found in total.values()) < getattr(arguments, what)
            for what in ("kills", "cuts")
        ):
            kind = arguments.kinds[seed % len(arguments.kinds)]
            trial = Trial(
                server,
                folder / f"{kind}-{seed}",
                kind,
                seed,
                rounds=arguments.rounds,
                loss=arguments.loss[seed // len(arguments.kinds) % len(arguments.loss)],
                losses=arguments.losses,
                nodes=arguments.nodes,
                lost_after=arguments.lost_after,
            )
            found = trial.play(before=4, after=8, cuts=4)
            total[kind].add(found)
            sys.stderr.write(f"{kind} {seed}: {json.dumps(asdict(found))}\n")
            sys.stderr.flush()
            seed += 1
    finally:
        server.close()
        sys.stdout.write(json.dumps({k: asdict(f) for k, f in total.items()}, indent=1) + "\n")
        sys.stdout.write(table(total))
    return any(found.faults for found in total.values())


if __name__ == "__main__":
    sys.exit(main())
