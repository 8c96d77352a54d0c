"""Five nodes over mutual TLS, killed and cut off at random: they finish, nothing counts twice."""

import itertools
import os
import random
import signal
import time
from importlib import resources

import pyarrow.csv
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation, Lines

from dpadmm.data.named import adult_table
from dpadmm.federation.transport.wire import decode_message
from dpadmm.ledger.sqlite import SQLiteLedger

NAMES = ("n0", "n1", "n2", "n3", "n4")


def spent(federation):
    """What every ledger says, after it was verified from its first row on."""
    totals = {}
    for name in federation.names:
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
            record = account.runs["trial"]
            assert sorted(record.events) == sorted(record.commits)
            totals[name] = account.spent, len(record.commits)
    return totals


def check_messages(federation, rounds):
    """Each (node, round) has one message: in its ledger, in its own file and at its neighbours."""
    seen = {}
    planned = federation.agreed.plan(federation.schema)
    run, shape = federation.agreed.digest(federation.schema), planned.site.shape[1:]
    for name in federation.names:
        kept = federation.messages(name)
        assert len(kept) == rounds
        for t, messages in enumerate(kept):
            for party, data in messages.items():
                assert seen.setdefault((party, t), data) == data
    assert len(seen) == rounds * len(federation.names)
    for party, name in enumerate(federation.names):
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            commits = ledger.account.runs["trial"].commits
            for t in range(rounds):
                sent = decode_message(seen[party, t], run=run, party=party, t=t, shape=shape)
                assert ledger.load_message(commits[t]).tobytes() == sent.tobytes()


def disturb(federation, lines, draw, kills, cuts, pause):
    """Kill and cut off nodes that are still at work; return how often that happened."""
    orders = ["kill"] * kills + ["cut" if number % 2 else "freeze" for number in range(cuts)]
    draw.shuffle(orders)
    done = dict.fromkeys(("kill", "cut", "freeze"), 0)
    for order in orders:
        time.sleep(draw.uniform(0, pause))
        working = [name for name in NAMES if not federation.log(name, "results-written")]
        if not working:
            break
        name = draw.choice(working)
        done[order] += 1
        if order == "kill":
            assert federation.kill(name) == -signal.SIGKILL
            federation.start(name)
            continue
        for line in lines.around(name):
            line.cut() if order == "cut" else line.freeze()
        # Longer than a lease for some: the connection is given up and made anew.
        time.sleep(draw.uniform(0.2, 3.0 if order == "freeze" else 1.0))
        for line in lines.around(name):
            line.heal()
    return done


def play(fork_server, folder, draw=None, *, run, kills=0, cuts=0, pause=0.0, **options):
    """Train; return what every party spent, and what was done to the nodes."""
    federation = Federation(folder, fork_server, NAMES, run=run, **options)
    lines = Lines(federation)
    done = {}
    try:
        for name in NAMES:
            federation.make_ledger(name)
            federation.write(name, addresses=lines.addresses(name))
            federation.start(name)
        if draw is not None:
            done = disturb(federation, lines, draw, kills, cuts, pause)
        for name in NAMES:
            assert federation.wait(name) == 0, federation.output(name)
    finally:
        for name in list(federation.processes):
            federation.kill(name)
        lines.close()
    check_messages(federation, run["rounds"])
    for name in NAMES:
        assert not federation.log(name, "message-dropped")
    return spent(federation), done


def test_killed_and_cut_off_nodes_finish_and_charge_once(fork_server, tmp_path):
    quiet, _ = play(fork_server, tmp_path / "quiet", run={"rounds": 30})
    draw = random.Random(1)
    noisy, done = play(
        fork_server, tmp_path / "noisy", draw, run={"rounds": 30}, kills=5, cuts=2, pause=0.4
    )
    assert noisy == quiet
    assert done["kill"] >= 3
    assert done["cut"] + done["freeze"] >= 1


@pytest.mark.slow
@pytest.mark.skipif("DPADMM_DATA" not in os.environ, reason="DPADMM_DATA must name the folder")
def test_adult_through_thirty_deaths_and_five_cuts(fork_server, tmp_path):
    table = adult_table()
    schema = (resources.files("dpadmm.data") / "adult.toml").read_text("utf-8")
    ends = [table.num_rows * place // len(NAMES) for place in range(len(NAMES) + 1)]

    def write_rows(folder, rows):
        for place, name in enumerate(rows):
            part = table.slice(ends[place], ends[place + 1] - ends[place])
            pyarrow.csv.write_csv(part, folder / f"{name}.csv")

    options = {
        # So many that nobody is done before the last of them was killed.
        "run": {"rounds": 250, "delta": 1e-5},
        "rows": [after - before for before, after in itertools.pairwise(ends)],
        "schema": schema,
        "write_rows": write_rows,
    }
    quiet, _ = play(fork_server, tmp_path / "quiet", **options)
    draw = random.Random(7)
    noisy, done = play(
        fork_server, tmp_path / "noisy", draw, kills=30, cuts=5, pause=0.8, **options
    )
    assert noisy == quiet
    assert done["kill"] == 30
    assert done["cut"] + done["freeze"] == 5
