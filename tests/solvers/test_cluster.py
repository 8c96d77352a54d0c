"""Rows on a Dask cluster of real processes: the same bits, lost workers, refusals."""

import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.row_parts import PartsHere
from tests.helpers.wards import FOURIER_SCHEMA, POLYNOMIAL_SCHEMA, SCHEMA, write_ward

pytest.importorskip("distributed", reason="the extra 'dask' is not installed")

from tests.helpers.clusters import LocalCluster, ward_table, write_parts

from dpadmm.data.parts import list_parts
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encode_party
from dpadmm.errors import ClusterError, DataError, ParameterError
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import RowBlock, Shard, label_signs
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train
from dpadmm.solvers import cluster as cluster_module
from dpadmm.solvers.cluster import Cluster, check_scheduler
from dpadmm.solvers.workspace import drawn_rows

HEIGHTS = [40, 1, 25, 54]


@pytest.fixture
def wards(tmp_path):
    """A CSV file of 120 rows, and the same rows in a folder of parts."""
    write_ward(tmp_path / "north.csv", random.Random(1), sum(HEIGHTS))
    write_parts(tmp_path / "parts", ward_table(tmp_path / "north.csv"), HEIGHTS)
    return tmp_path


def encoded_here(folder, schema):
    """The rows of the one file, cut into the same parts."""
    party = encode_party(folder / "north.csv", schema, folder)
    return party.rows, label_signs(party.labels, schema.outputs)


def messages_of(shard, schema, algorithm, rounds=5):
    told = TrainingParameters(
        algorithm, epsilon=8.0, delta=1e-3, rounds=rounds, topology="server", penalty="auto"
    )
    if algorithm == "admm":
        told = TrainingParameters(algorithm, rounds=rounds, topology="complete")
    features = len(schema.feature_names)
    rows = [int(count) for count in shard.counts]
    planned = plan(told, rows, features=features, outputs=schema.outputs)
    kept = []
    train(
        planned,
        shard,
        noise=SimulatedNoise(3),
        on_round=lambda done, message: kept.append(message.copy()),
    )
    return np.stack(kept)


@pytest.mark.parametrize("text", [SCHEMA, FOURIER_SCHEMA, POLYNOMIAL_SCHEMA])
def test_dp_gd_on_a_cluster_sends_the_bits_of_the_same_parts_here(dask_workers, wards, text):
    schema = Schema.from_toml(text)
    rows, signs = encoded_here(wards, schema)
    other = (rows[:50], signs[:50])
    here = PartsHere(rows, signs, HEIGHTS)
    with Cluster(dask_workers.address) as cluster:
        held = cluster.hold(list_parts(str(wards / "parts"), schema), schema)
        assert held.heights == tuple(HEIGHTS)
        shards = [Shard.from_parties([other]).beside({0: parts}) for parts in (here, held)]
        expected, found = (messages_of(shard, schema, "dp-gd") for shard in shards)
        np.testing.assert_array_equal(found, expected)
        # Solves agree, too: tasks are pure, and sums are made in the order of the parts.
        expected, found = (messages_of(shard, schema, "admm", 3) for shard in shards)
        np.testing.assert_array_equal(found, expected)
        # And with all rows in one place, to what a solve is certified to.
        whole = messages_of(Shard.from_parties([(rows, signs), other]), schema, "dp-gd")
        np.testing.assert_allclose(messages_of(shards[1], schema, "dp-gd"), whole, atol=1e-14)


def test_a_cut_of_the_rows_is_that_of_the_file(dask_workers, wards):
    schema = Schema.from_toml(SCHEMA)
    rows, signs = encoded_here(wards, schema)
    with Cluster(dask_workers.address) as cluster:
        held = cluster.hold(list_parts(str(wards / "parts"), schema), schema)
        for first, stop in ((0, 120), (0, 41), (39, 67), (66, 120), (41, 42)):
            cut = held.between(first, stop)
            assert len(cut) == stop - first
            found = np.concatenate([block.rows[0] for block in cut.map(_block)])
            np.testing.assert_array_equal(found, rows[first:stop])
        # What stochastic algorithms draw: in any order, and twice.
        drawn = np.array([119, 0, 40, 41, 40, 7])
        for found, expected in zip(drawn_rows(held, drawn), (rows, signs), strict=True):
            np.testing.assert_array_equal(found, expected[drawn])


def _block(block):
    return block


def test_lost_workers_change_nothing_and_the_last_one_ends_the_run(tmp_path, wards, monkeypatch):
    """Parts are encoded again elsewhere in the middle of a run; without workers it ends."""
    schema = Schema.from_toml(SCHEMA)
    expected = messages_of(
        Shard.from_parties([]).beside({0: PartsHere(*encoded_here(wards, schema), HEIGHTS)}),
        schema,
        "dp-gd",
    )
    cluster = LocalCluster(tmp_path, workers=2)
    first, second = cluster.wait_for(2).workers
    try:
        with Cluster(cluster.address, patience=1.0) as connected:
            held = connected.hold(list_parts(str(wards / "parts"), schema), schema)

            class Killing:
                heights = held.heights
                passes = 0

                def map(self, work, *arguments, each=None):
                    self.passes += 1
                    if self.passes != 3:
                        return held.map(work, *arguments, each=each)
                    # While its tasks are under way: each takes a moment.
                    timer = threading.Timer(0.3, cluster.kill, [first])
                    timer.start()
                    found = list(held.map(_slowly, work, arguments))
                    timer.join()
                    return iter(found)

            found = messages_of(Shard.from_parties([]).beside({0: Killing()}), schema, "dp-gd")
            assert first.returncode == -signal.SIGKILL
            np.testing.assert_array_equal(found, expected)
            cluster.kill(second)
            with pytest.raises(ClusterError, match=r"no worker is left.*nothing was sent"):
                list(held.map(_block))
        with pytest.raises(
            ParameterError, match=r"must have workers; it has none.*Nothing more was"
        ):
            Cluster(cluster.address)
        address = cluster.address
    finally:
        cluster.close()
    monkeypatch.setattr(cluster_module, "_CONNECT", 0.5)
    with pytest.raises(ParameterError, match=r"must be a Dask scheduler that answers; got tcp"):
        Cluster(address)


def _slowly(block, work, arguments):
    time.sleep(0.3)
    return work(block, *arguments)


def test_parts_beyond_a_worker_s_memory_go_to_disk_and_every_pass_has_the_same_bits(tmp_path):
    """700 MB of rows at a worker that may have 400 MB, most of it taken by libraries."""
    cluster = LocalCluster(tmp_path, workers=1, memory="400MB")
    try:
        with Cluster(cluster.wait_for(1).address) as connected:
            held = connected.keep(_drawn_block, range(16), [_HEIGHT] * 16)
            kept = sum(file.stat().st_size for file in tmp_path.rglob("storage/*"))
            assert kept > 16 * _HEIGHT * _WIDTH * 8 - 400e6
            # One pass begins at the first part, the next one at the last.
            passes = [list(held.map(_row_sum)) for _ in range(3)]
            assert max(held.map(_largest_size)) < 600e6
    finally:
        cluster.close()
    np.testing.assert_array_equal(passes[0], [_row_sum(_drawn_block(n)) for n in range(16)])
    np.testing.assert_array_equal(passes[1], passes[0])
    np.testing.assert_array_equal(passes[2], passes[0])


_HEIGHT, _WIDTH = 250_000, 21


def _drawn_block(number):
    rows = np.random.default_rng(number).random((1, _HEIGHT, _WIDTH))
    return RowBlock(np.array([0]), rows, np.ones((1, _HEIGHT, 1)))


def _row_sum(block):
    return block.rows.sum(axis=1)


def _largest_size(block):
    # Of this program alone: the system's own figure also counts the one that started it.
    told = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(told["VmHWM"].split()[0])


def test_words_of_a_worker_are_not_passed_on(dask_workers, wards):
    schema = Schema.from_toml(SCHEMA)
    with Cluster(dask_workers.address) as cluster:
        held = cluster.hold(list_parts(str(wards / "parts"), schema), schema)
        with pytest.raises(ClusterError) as caught:
            list(held.map(_quote))
    assert "(KeyError)" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def _quote(block):
    raise KeyError("secret cell")


def test_other_versions_are_refused(dask_workers, wards, monkeypatch):
    schema = Schema.from_toml(SCHEMA)
    here = cluster_module._versions()
    with Cluster(dask_workers.address) as cluster:
        held = cluster.hold(list_parts(str(wards / "parts"), schema), schema)
        monkeypatch.setattr(cluster_module, "_versions", lambda: here | {"numpy": "1.0"})
        # A worker that joins later is asked again with every task.
        with pytest.raises(DataError, match="workers must have the versions"):
            list(held.map(_block))
    with pytest.raises(ParameterError, match=r"worker tcp://.* must have numpy 1\.0, as here; it"):
        Cluster(dask_workers.address)


def test_a_worker_without_this_package_is_refused(dask_workers, monkeypatch):
    monkeypatch.setattr(cluster_module, "_versions_here", _not_there)
    with pytest.raises(ParameterError, match=r"could not answer \(ModuleNotFoundError\)"):
        Cluster(dask_workers.address)


def _not_there():
    raise ModuleNotFoundError("dpadmm")


def test_a_part_that_changes_is_not_encoded_again(dask_workers, wards):
    schema = Schema.from_toml(SCHEMA)
    parts = list_parts(str(wards / "parts"), schema)
    table = ward_table(wards / "north.csv")
    # As many rows as before, in another order.
    write_parts(wards / "parts", table.take(list(range(119, -1, -1))), HEIGHTS)
    with (
        Cluster(dask_workers.address) as cluster,
        pytest.raises(DataError, match=r"parts must stay as they were.*part-00\d\.parquet was"),
    ):
        cluster.hold(parts, schema)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://10.0.0.7:8786", "must be tls://host:port unless it is on this machine"),
        ("scheduler:8786", "must be tls://host:port, where a Dask scheduler listens; got 'sch"),
        ("tls://host", "must be tls://host:port, where"),
        ("tls://host:99999", "must be tls://host:port, where"),
        (8786, "must be tls://host:port, where"),
    ],
)
def test_an_address_is_refused_before_anything_is_opened(address, words):
    with pytest.raises(ParameterError, match=words):
        check_scheduler(address)


@pytest.mark.parametrize("address", ["tls://dask.example.org:8786", "tcp://127.0.0.1:1"])
def test_an_address_is_taken(address):
    assert check_scheduler(address) == address
