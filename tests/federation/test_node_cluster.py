"""A node whose rows are on its own Dask cluster: parity, lost workers, going on."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
pytest.importorskip("distributed", reason="the extra 'dask' is not installed")

from tests.helpers.clusters import LocalCluster, ward_table, write_parts
from tests.helpers.federation_net import Federation, in_process

from dpadmm.errors import ParameterError
from dpadmm.federation.node_config import load_node_config
from dpadmm.federation.transport.wire import decode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

KEY = 11


def make(fork_server, folder, rounds):
    run = {"rounds": rounds, "topology": "path", "tolerance": 1e-10}
    federation = Federation(folder, fork_server, ("north", "south"), tls=False, run=run)
    write_parts(folder / "parts", ward_table(folder / "north.csv"), [15, 20, 5])
    return federation


def write(federation, address, **options):
    """The files of both nodes; the north has its rows on a cluster."""
    for name in federation.names:
        config = federation.write(name, **options)
    config = federation.folder / "north.toml"
    told = f'data = "parts"\nrows = "dask"\nscheduler = "{address}"'
    config.write_text(config.read_text().replace('data = "north.csv"', told))
    return config


def test_a_node_on_a_cluster_sends_what_one_process_sends_though_a_worker_is_killed(
    fork_server, tmp_path
):
    (tmp_path / "dask").mkdir()
    cluster = LocalCluster(tmp_path / "dask").wait_for(2)
    federation = make(fork_server, tmp_path / "federation", 15)
    try:
        write(federation, cluster.address, simulation=KEY)
        for name in federation.names:
            federation.start(name)
        federation.wait_for("north", "round")
        cluster.kill(cluster.workers[0])
        federation.finish()
        assert cluster.workers[0].returncode == -9
        expected = in_process(federation, tmp_path, KEY)
        site = federation.agreed.plan(federation.schema).site
        digest = federation.agreed.digest(federation.schema)
        for t, messages in enumerate(federation.messages("south")):
            for party, data in messages.items():
                found = decode_message(data, run=digest, party=party, t=t, shape=site.shape[1:])
                np.testing.assert_allclose(found, expected[t, party], atol=1e-7)
        assert load_model(federation.folder / "north.model").provenance["rows"] == {"north": 40}
    finally:
        federation.close()
        cluster.close()


def test_a_node_without_workers_ends_and_goes_on_under_the_same_reservation(fork_server, tmp_path):
    (tmp_path / "dask").mkdir()
    cluster = LocalCluster(tmp_path / "dask", workers=1).wait_for(1)
    federation = make(fork_server, tmp_path / "federation", 30)
    try:
        for name in federation.names:
            federation.make_ledger(name)
        config = write(federation, cluster.address)
        words = [sys.executable, "-c", "from dpadmm.cli import main; main()"]
        words += ["node", "--config", str(config), "--insecure-loopback"]
        impatient = os.environ | {"DASK_DPADMM__PATIENCE": "1"}
        federation.start("south")
        with (federation.folder / "north.out").open("wb") as output:
            north = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=impatient)
        federation.wait_for("north", "round")
        cluster.kill(cluster.workers[0])
        assert north.wait(60) == 2
        assert "(no worker is left), and nothing was sent" in " ".join(
            federation.output("north").split()
        )
        with SQLiteLedger(federation.folder / "north.ledger", read_only=True) as ledger:
            (before,) = ledger.account.runs.values()
            reserved = dict(before.events)
        assert len(reserved) < 30
        # Without workers it is refused before anything is opened: nothing more is reserved.
        refused = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 2
        assert "must have workers; it has none" in " ".join(refused.stderr.split())
        cluster.add_worker()
        cluster.wait_for(1)
        federation.start("north")
        federation.finish()
        with SQLiteLedger(federation.folder / "north.ledger", read_only=True) as ledger:
            (after,) = ledger.account.runs.values()
            assert {t: after.events[t] for t in reserved} == reserved
            assert len(after.events) == len(after.commits) == 30
            assert ledger.account.spent_epsilon <= federation.run["epsilon"]
    finally:
        federation.close()
        cluster.close()


def test_what_a_cluster_needs_goes_together(fork_server, tmp_path):
    federation = make(fork_server, tmp_path / "federation", 2)
    config = write(federation, "tcp://127.0.0.1:8786", simulation=KEY)
    whole = config.read_text()
    changes = {
        ('rows = "dask"\n', ""): 'scheduler under .node. must be given with rows = "dask"',
        ('scheduler = "tcp://127.0.0.1:8786"', ""): "scheduler under .node. must be given with",
        ("127.0.0.1:8786", "10.1.1.1:8786"): "must be tls://host:port unless it is on this mach",
        ('rows = "dask"', 'rows = "dask"\ndelimiter = ";"'): "parts are Parquet files",
    }
    for (old, new), words in changes.items():
        config.write_text(whole.replace(old, new))
        with pytest.raises(ParameterError, match=words):
            load_node_config(config)
    config.write_text(whole)
    assert load_node_config(config).node.rows == "dask"
