"""Kills real nodes at random instants, some for good, and counts what must never happen.

``python -m tests.helpers.kill_run --kills 300`` runs federations on a ring, a complete graph and
around a server, in turn, until so many processes were killed; what it found is printed as JSON.
``--kinds shared shared-complete --nodes 20 --losses 2`` does it with noise that twenty nodes share.
"""

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dpadmm.federation.transport.wire import decode_message, decode_words
from dpadmm.ledger.sqlite import SQLiteLedger
from tests.helpers.federation_net import Federation
from tests.helpers.fork_server import ForkServer

NODES = 5
RUNS = {
    "ring": {"topology": "ring"},
    "complete": {"topology": "complete"},
    "server": {"topology": "server", "algorithm": "ps-admm"},
    "shared": {
        "topology": "server",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared"},
    },
    "shared-complete": {
        "topology": "complete",
        "algorithm": "dp-gd",
        "algorithm_options": {"noise": "shared"},
    },
}
AVERAGED = ("server", "shared")
# A restart takes seconds on a busy machine; who takes longer is given up by the others.
LOST_AFTER = 15
# Nothing that a node waits for takes longer, all its waiting together.
HANGS_AFTER = 240


@dataclass
class Found:
    """What happened, and what must not have.

    Attributes
    ----------
    kills, kills_after_loss, losses
        Processes killed and started again, those of them after somebody stopped for a loss, and
        nodes killed for good.
    messages
        Messages that were found, each once.
    went_on, fell_back, left_out
        Survivors whose model is of a changed run; those whose model's run ended early; those who
        did not go on where one node was lost and the others did.
    uncharged, second_draws, without_model, hangs, over_budget
        What must be 0.
    """

    kills: int = 0
    kills_after_loss: int = 0
    losses: int = 0
    messages: int = 0
    went_on: int = 0
    fell_back: int = 0
    left_out: int = 0
    uncharged: int = 0
    second_draws: int = 0
    without_model: int = 0
    hangs: int = 0
    over_budget: int = 0
    trials: list[str] = field(default_factory=list)

    def add(self, other):
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def faults(self):
        names = ("uncharged", "second_draws", "without_model", "hangs", "over_budget")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def ended(process):
    """Whether a process has ended; it may still wait for its parent."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


class Trial:
    """One federation, killed at random; the first kills come within ``pause`` seconds each."""

    def __init__(
        self,
        server,
        folder,
        kind,
        seed,
        *,
        rounds=100,
        losses=None,
        nodes=NODES,
        lost_after=LOST_AFTER,
        pause=1.0,
    ):
        self.draw, self.found, self.pause = random.Random(seed), Found(), pause
        averager = "hub" if kind in AVERAGED else None
        names = tuple(f"n{number}" for number in range(nodes))
        self.federation = Federation(
            folder, server, names, averager=averager, run={**RUNS[kind], "rounds": rounds}
        )
        # One, and now and then another one soon after.
        several = 1 + (self.draw.random() < 0.25)
        self.lost = self.draw.sample(names, several if losses is None else losses)
        for name in self.federation.nodes:
            if name != averager:
                self.federation.make_ledger(name)
            self.federation.write(
                name, policy={"when_lost": "continue", "lost_after": lost_after, "serve_for": 20}
            )

    def working(self):
        """Who may be killed: alive, and without its results."""
        return [
            name
            for name, process in self.federation.processes.items()
            if not ended(process) and not self.federation.log(name, "results-written")
        ]

    def stopped_for_loss(self):
        return any(self.federation.log(name, "neighbour-lost") for name in self.federation.nodes)

    def kill_some(self, kills, pause, until=lambda: False):
        for _ in range(kills):
            time.sleep(self.draw.uniform(0, pause))
            working = self.working()
            if not working or until():
                return
            name = self.draw.choice(working)
            after = self.stopped_for_loss()
            if self.federation.kill(name) != -signal.SIGKILL:
                # It ended just before: what it left is looked at in the end.
                self.federation.start(name)
                continue
            time.sleep(self.draw.uniform(0, 0.5))
            self.federation.start(name)
            self.found.kills += 1
            self.found.kills_after_loss += after

    def play(self, before, after):
        """Kill some, lose one, kill some more while the others notice and go on."""
        federation = self.federation
        for name in federation.nodes:
            federation.start(name)
        try:
            self.kill_some(before, self.pause)
            # Before a round is complete there is nothing to fall back on.
            self.wait_until(lambda: all(federation.log(name, "round") for name in federation.nodes))
            time.sleep(self.draw.uniform(0, 1.5 * self.pause))
            for number, name in enumerate(self.lost):
                if name not in self.working():
                    continue
                federation.kill(name)
                self.found.losses += 1
                if number == 0:
                    self.wait_until(self.stopped_for_loss)
                self.kill_some(after // len(self.lost), 1.5)
            self.wait()
        finally:
            federation.close()
        self.look()
        if self.found.losses == 1 and self.found.went_on:
            self.found.left_out = len(federation.names) - 1 - self.found.went_on
        return self.found

    def wait_until(self, ready):
        """Until it is so, or nobody is left at work who could make it so."""
        deadline = time.monotonic() + HANGS_AFTER
        while not ready() and self.working() and time.monotonic() < deadline:
            time.sleep(0.05)

    def wait(self):
        """Until all have ended; who does not hangs."""
        deadline = time.monotonic() + HANGS_AFTER
        federation = self.federation
        for name, process in list(federation.processes.items()):
            while not ended(process) and time.monotonic() < deadline:
                time.sleep(0.1)
            if not ended(process):
                self.found.hangs += 1
                federation.kill(name)
                self.note(f"{name} hangs: {federation.log(name)[-3:]}")
            elif federation.wait(name) != 0:
                self.found.without_model += 1
                self.note(f"{name}: {federation.output(name)[-600:]}")
            elif name in federation.names:
                self.look_at_record(name)

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
        for (run, t, party), different in heard.items():
            self.found.messages += 1
            if len(different) > 1:
                self.found.second_draws += 1
                self.note(f"round {t} of {party} has {len(different)} messages")
            left = parties[run.hex()]
            if party == len(left):
                continue  # the server's mean
            decode = decode_words if federation.shared else decode_message
            values = decode(different.pop(), run=run, party=party, t=t, shape=shape)
            # Rounds of a stretch of sums begin at 0 again; words are nobody else's anyway.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
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
        while (done := sum(found.kills for found in total.values())) < arguments.kills:
            kind = arguments.kinds[seed % len(arguments.kinds)]
            trial = Trial(
                server,
                folder / f"{kind}-{seed}",
                kind,
                seed,
                rounds=arguments.rounds,
                losses=arguments.losses,
                nodes=arguments.nodes,
                lost_after=arguments.lost_after,
            )
            found = trial.play(before=4, after=min(8, arguments.kills - done))
            total[kind].add(found)
            sys.stderr.write(f"{kind} {seed}: {json.dumps(asdict(found))}\n")
            sys.stderr.flush()
            seed += 1
    finally:
        server.close()
        sys.stdout.write(json.dumps({k: asdict(f) for k, f in total.items()}, indent=1) + "\n")
    return any(found.faults for found in total.values())


if __name__ == "__main__":
    sys.exit(main())
