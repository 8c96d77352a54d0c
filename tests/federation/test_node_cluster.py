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
from dpadmm.federation.config import load_node_config
from dpadmm.federation.node import check_node
from dpadmm.federation.runtime import prepare_node
from dpadmm.federation.transport.wire import decode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

KEY = 11


@pytest.fixture(scope="module")
def mortal(tmp_path_factory):
    """A scheduler whose workers tests may end; each adds those that it needs."""
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), workers=0)
    yield cluster
    cluster.close()


@pytest.fixture
def federation(fork_server, tmp_path):
    """Two nodes, and the rows of the north in a folder of parts."""
    run = {"rounds": 3, "topology": "path", "penalty": "auto", "tolerance": 1e-10}
    folder = tmp_path / "federation"
    federation = Federation(folder, fork_server, ("north", "south"), tls=False, run=run)
    write_parts(folder / "parts", ward_table(folder / "north.csv"), [15, 20, 5])
    yield federation
    federation.close()


def write(federation, address, **options):
    """The files of both nodes; the north has its rows on a cluster."""
    for name in federation.names:
        federation.write(name, **options)
    config = federation.folder / "north.toml"
    told = f'data = "parts"\nrows = "dask"\nscheduler = "{address}"'
    config.write_text(config.read_text().replace('data = "north.csv"', told))
    return config


def test_a_node_on_a_cluster_sends_what_one_process_sends_though_a_worker_is_killed(
    mortal, federation, tmp_path
):
    first, second = mortal.add_worker(), mortal.add_worker()
    mortal.wait_for(2)
    config = write(federation, mortal.address, simulation=KEY)
    setup = prepare_node(load_node_config(config), insecure_loopback=True)
    (looked,) = [check for check in check_node(setup) if check.check == "cluster"]
    assert looked.ok
    assert "answers and has 2 workers" in looked.words
    federation.start("north")
    # Its rows are encoded, and it waits for the other node.
    federation.wait_for("north", "agreeing")
    mortal.kill(first)
    federation.start("south")
    federation.finish()
    mortal.kill(second)
    expected = in_process(federation, tmp_path, KEY)
    site = federation.agreed.plan(federation.schema).site
    digest = federation.agreed.digest(federation.schema)
    kept = federation.messages("south")
    assert len(kept) == 3
    for t, messages in enumerate(kept):
        for party, data in messages.items():
            found = decode_message(data, run=digest, party=party, t=t, shape=site.shape[1:])
            np.testing.assert_allclose(found, expected[t, party], atol=1e-7)
    assert load_model(federation.folder / "north.model").provenance["rows"] == {"north": 40}


def test_a_node_without_workers_ends_and_goes_on_under_the_same_reservation(mortal, federation):
    worker = mortal.add_worker()
    mortal.wait_for(1)
    for name in federation.names:
        federation.make_ledger(name)
    config = write(federation, mortal.address)
    words = [sys.executable, "-m", "dpadmm"]
    words += ["node", "--config", str(config), "--insecure-loopback"]
    impatient = os.environ | {"DASK_DPADMM__PATIENCE": "0.5"}
    with (federation.folder / "north.out").open("wb") as output:
        north = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=impatient)
    federation.wait_for("north", "agreeing")
    mortal.kill(worker)
    federation.start("south")
    assert north.wait(120) == 75
    said = " ".join(federation.output("north").split())
    assert "(no worker is left), and nothing was sent" in said
    with SQLiteLedger(federation.folder / "north.ledger", read_only=True) as ledger:
        (before,) = ledger.account.runs.values()
        reserved = dict(before.events)
        assert (len(reserved), len(before.commits)) == (1, 0)
    # Without workers it is refused before anything is opened: nothing more is reserved.
    refused = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 75
    assert "must have workers; it has none" in " ".join(refused.stderr.split())
    mortal.add_worker()
    mortal.wait_for(1)
    federation.start("north")
    federation.finish()
    with SQLiteLedger(federation.folder / "north.ledger", read_only=True) as ledger:
        (after,) = ledger.account.runs.values()
        assert after.events[0] == reserved[0]
        assert len(after.events) == len(after.commits) == 3
        assert ledger.account.spent_epsilon <= federation.run["epsilon"]


def test_what_a_cluster_needs_goes_together(federation):
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
