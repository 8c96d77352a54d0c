"""Parts in an object store, by S3's own protocol on this machine: as from a folder, to the bit."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed (pip install s3fs)")
pytest.importorskip("moto.server", reason="moto is not installed (pip install 'moto[server]')")

from tests.helpers.clusters import LocalCluster, ward_table, write_parts
from tests.helpers.federation_net import Federation, free_ports

from dpadmm.data.parts import list_parts
from dpadmm.data.schema import load_schema
from dpadmm.errors import DataError
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run
from dpadmm.solvers.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A server that speaks S3, an empty bucket, and a file system that reaches it."""
    (port,) = free_ports(1)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "north",
        "AWS_SECRET_ACCESS_KEY": "north",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            from s3fs import S3FileSystem

            system = S3FileSystem()
            system.mkdir("north-private")
            yield system
        finally:
            server.kill()
            server.wait()


@pytest.fixture(scope="module")
def workers(bucket, tmp_path_factory):
    """Workers that reach the store by the same settings."""
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.wait_for(2)
    finally:
        cluster.close()


def put(bucket, folder, name):
    """The parts of a folder as objects; their address."""
    address = f"s3://north-private/{name}"
    bucket.put([str(path) for path in sorted(folder.iterdir())], f"{address}/")
    return address


def test_a_run_and_its_refusals_are_those_of_a_folder(hospitals, bucket, workers):
    write_parts(hospitals / "parts", ward_table(hospitals / "north.csv"), [25, 30, 5])
    address = put(bucket, hospitals / "parts", "admissions")
    config = hospitals / "run.toml"
    told = 'algorithm = "dp-gd"\ntopology = "server"\nrounds = 4\nsimulation_key = 1\n'
    text = config.read_text().replace('algorithm = "admm"\nrounds = 12\n', told)
    found = {}
    for place in ("parts", address):
        rows = f'"{place}"\nscheduler = "{workers.address}"\nrows = 60'
        config.write_text(text.replace('"north.csv"', rows))
        found[place] = train_run(load_config(config)).estimator.coef_
    np.testing.assert_array_equal(found[address], found["parts"])

    schema = load_schema(hospitals / "schema.toml")
    parts = list_parts(address, schema)
    assert [part.rows for part in parts] == [25, 30, 5]
    assert all(part.file.address.startswith("s3://north-private/") for part in parts)
    # Other rows of the same number, under the same name: the store has another mark of them.
    table = ward_table(hospitals / "north.csv").take(list(range(59, -1, -1)))
    write_parts(hospitals / "parts", table, [25, 30, 5])
    put(bucket, hospitals / "parts", "admissions")
    with (
        Cluster(workers.address) as cluster,
        pytest.raises(DataError, match=r"parts must stay as they were.*s3://.*part-00\d"),
    ):
        cluster.hold(parts, schema)
    bucket.copy(f"{address}/part-002.parquet", f"{address}/part-003.parquet")
    with pytest.raises(DataError, match=r"the 4 parts in s3://.* must have 60 rows, as declared"):
        train_run(load_config(config))


def test_a_node_checks_parts_in_a_store_and_spends_nothing(fork_server, tmp_path, bucket, workers):
    run = {"rounds": 3, "topology": "path", "penalty": "auto", "tolerance": 1e-10}
    names = ("north", "south")
    federation = Federation(tmp_path / "nodes", fork_server, names, tls=False, run=run)
    folder = federation.folder
    try:
        table = ward_table(folder / "north.csv")
        address = put(bucket, write_parts(folder / "parts", table, [15, 20, 5]), "node")
        for name in names:
            federation.make_ledger(name)
            federation.write(name)
        config = folder / "north.toml"
        told = f'data = "{address}"\nrows = "dask"\nscheduler = "{workers.address}"'
        config.write_text(config.read_text().replace('data = "north.csv"', told))
        words = [sys.executable, "-m", "dpadmm", "node", "--check"]
        words += ["--config", str(config), "--insecure-loopback"]
        checked = subprocess.run(words, capture_output=True, text=True, timeout=120, env=os.environ)
        assert "answers and has 2 workers" in " ".join(checked.stdout.split()), checked.stderr
        with SQLiteLedger(folder / "north.ledger", read_only=True) as ledger:
            assert ledger.account.runs == {}
    finally:
        federation.close()
