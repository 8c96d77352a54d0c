"""Work that is done is kept, and not done again."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.small_experiments import SMALL, Note

from dpadmm.errors import ParameterError
from dpadmm.experiments import jobs as runner
from dpadmm.experiments.jobs import DamagedCellWarning, Store, TrainingJob, WorkerError, compute
from dpadmm.run.options import TrainingParameters


def computed(folder):
    return sorted((folder / "computed").read_text().split())


def notes(folder, count=4):
    return {f"note {n}": Note(f"n{n}", str(folder)) for n in range(count)}


def test_finished_cells_are_not_computed_again(tmp_path):
    store = Store(tmp_path / "cells")
    told = []
    compute({"note 0": notes(tmp_path)["note 0"]}, store)
    compute(notes(tmp_path), store, on_done=lambda *words: told.append(words))
    results = compute(notes(tmp_path), Store(tmp_path / "cells"))
    assert computed(tmp_path) == ["n0", "n1", "n2", "n3"]
    assert told[0] == (1.0, 4.0, "")
    assert told[-1][:2] == (4.0, 4.0)
    assert results["note 2"].facts == {"name": "n2"}
    assert np.array_equal(results["note 2"].values["value"], [0.0, 1.0, 2.0])


def test_a_damaged_result_is_computed_again_with_a_warning(tmp_path):
    store = Store(tmp_path / "cells")
    cells = notes(tmp_path, 1)
    compute(cells, store)
    path = store.path(cells["note 0"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(DamagedCellWarning, match="is damaged; dpadmm computes its cell again"):
        compute(cells, store)
    assert computed(tmp_path) == ["n0", "n0"]
    assert path.read_bytes() == whole


def test_results_of_another_version_are_refused(tmp_path):
    Store(tmp_path / "cells")
    label = tmp_path / "cells" / "store.json"
    label.write_text(json.dumps(json.loads(label.read_text()) | {"dpadmm": "0.0.1"}))
    with pytest.raises(
        ParameterError, match=r"must be from this version of dpadmm, .*; they are from 0\.0\.1"
    ):
        Store(tmp_path / "cells")
    label.write_text("{")
    with pytest.raises(ParameterError, match="they are from an unknown version"):
        Store(tmp_path / "cells")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ParameterError, match="which holds something else"):
        Store(tmp_path)


def test_a_killed_worker_is_told_and_loses_nothing(tmp_path):
    store = Store(tmp_path / "cells")
    cells = notes(tmp_path, 2)
    compute(cells, store)
    cells["deadly"] = Note("deadly", str(tmp_path), deadly=True)
    cells["other"] = Note("other", str(tmp_path))
    with pytest.raises(WorkerError, match="finished cells are kept"):
        compute(cells, store, jobs=2)
    assert set(compute(cells, store, jobs=2)) == set(cells)
    assert [computed(tmp_path).count(name) for name in ("n0", "n1", "deadly")] == [1, 1, 2]


def small_cells():
    parameters = TrainingParameters("pr-admm", rounds=2, epsilon=1.0, delta=1e-3)
    return {
        f"seed {seed}": TrainingJob(SMALL, parameters, runs=2, seed=seed, finals=("AUC",))
        for seed in range(3)
    }


def test_rounds_that_are_left_open_count_as_the_algorithm_s():
    weights = [
        TrainingJob(SMALL, TrainingParameters(name), runs=2).weight for name in ("dvp", "dp-gd")
    ]
    assert weights == [100.0, 200.0]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """What this process computes."""
    return compute(small_cells(), Store(tmp_path_factory.mktemp("here") / "cells"))


def assert_same(results, expected):
    assert set(results) == set(expected)
    for label, result in expected.items():
        np.testing.assert_array_equal(result.final("AUC"), results[label].final("AUC"))


def test_every_process_computes_the_same(tmp_path, here):
    assert_same(compute(small_cells(), Store(tmp_path / "cells"), jobs=2), here)
    assert not np.array_equal(here["seed 0"].final("AUC"), here["seed 1"].final("AUC"))


@pytest.mark.filterwarnings("ignore")
def test_dask_computes_the_same(tmp_path, here):
    """On processes of its own, where no cluster is named."""
    pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    there = compute(small_cells(), Store(tmp_path / "cells"), jobs=2, backend="dask")
    assert_same(there, here)


def slow_cells(folder):
    """Notes that take a moment each, and cells that train."""
    waits = {f"note {n}": Note(f"n{n}", str(folder), seconds=0.2) for n in range(12)}
    return waits | small_cells()


class KillingOnce:
    """Kills by a function once some cells are done, and notes what was told."""

    def __init__(self, kill, after=4):
        self.kill, self.after, self.told = kill, after, []

    def __call__(self, done, whole, label):
        self.told.append((done, label))
        if len(self.told) == self.after:
            self.kill()

    def assert_told_one_by_one(self, cells):
        assert sorted(label for _, label in self.told[1:]) == sorted(cells)
        done = [done for done, _ in self.told]
        assert done == sorted(set(done))


def test_a_lost_worker_s_cells_run_again_and_without_any_a_sweep_ends(tmp_path, here):
    """A real cluster, by its address; workers are killed in the middle of a sweep."""
    dask = pytest.importorskip("dask", reason="the extra 'dask' is not installed")
    from tests.helpers.clusters import LocalCluster

    cluster = LocalCluster(tmp_path, workers=2)
    try:
        first, second = cluster.wait_for(2).workers
        told = {"backend": "dask", "address": cluster.address}
        cells = slow_cells(tmp_path)
        killing = KillingOnce(lambda: cluster.kill(first))
        there = compute(cells, Store(tmp_path / "cells"), on_done=killing, **told)
        assert first.returncode == -signal.SIGKILL
        assert set(there) == set(cells)
        assert_same({label: there[label] for label in here}, here)
        killing.assert_told_one_by_one(cells)
        # What was told as done before the kill was not done twice.
        early = [cells[label].name for _, label in killing.told[1:4] if label.startswith("note")]
        assert [computed(tmp_path).count(name) for name in early] == [1] * len(early)

        store = Store(tmp_path / "again")
        killing = KillingOnce(lambda: cluster.kill(second), after=2)
        with (
            dask.config.set({"dpadmm.patience": 0.5}),
            pytest.raises(WorkerError, match="finished cells are kept"),
        ):
            compute(cells, store, on_done=killing, **told)
        kept = [label for _, label in killing.told[1:]]
        assert kept
        assert all(store.get(cells[label]) is not None for label in kept)
        with pytest.raises(ParameterError, match="must have workers; it has none"):
            compute(cells, store, **told)

        cluster.add_worker()
        cluster.wait_for(1)
        killing = KillingOnce(lambda: cluster.kill(cluster.scheduler), after=2)
        with pytest.raises(WorkerError, match="finished cells are kept"):
            compute(cells, store, on_done=killing, **told)
        assert cluster.scheduler.returncode == -signal.SIGKILL
    finally:
        cluster.close()


def test_a_cluster_that_is_not_there_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    monkeypatch.setattr("dpadmm.solvers.cluster._CONNECT", 0.5)
    store = Store(tmp_path / "cells")
    for address, words in {
        "tcp://127.0.0.1:1": "must be a Dask scheduler that answers; got tcp://127",
        "tcp://10.0.0.7:8786": "must be tls://host:port unless it is on this machine",
        "somewhere": "must be tls://host:port, where a Dask scheduler listens",
    }.items():
        with pytest.raises(ParameterError, match=words):
            compute(notes(tmp_path), store, backend="dask", address=address)
    assert not (tmp_path / "computed").exists()


def test_a_worker_of_another_version_is_refused(tmp_path):
    cell = notes(tmp_path)["note 0"]
    with pytest.raises(
        ParameterError, match="workers must have the same version of dpadmm as the caller"
    ):
        runner._finish(("note 0", cell, "the key of another version"))
    assert not (tmp_path / "computed").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_computes_the_same_though_a_worker_is_killed(tmp_path, here):
    pytest.importorskip("ray", reason="ray is not installed")
    cells = slow_cells(tmp_path) | {"deadly": Note("deadly", str(tmp_path), deadly=True)}
    noting = KillingOnce(lambda: None)
    there = compute(cells, Store(tmp_path / "cells"), jobs=2, backend="ray", on_done=noting)
    assert computed(tmp_path).count("deadly") == 2
    assert set(there) == set(cells)
    assert_same({label: there[label] for label in here}, here)
    noting.assert_told_one_by_one(cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_that_is_not_there_is_refused(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(ParameterError, match="must name a Ray cluster that answers; got '127"):
        compute(notes(tmp_path), Store(tmp_path / "cells"), backend="ray", address="127.0.0.1:1")
    assert not (tmp_path / "computed").exists()


def test_unknown_backends_are_refused(tmp_path):
    store = Store(tmp_path / "cells")
    with pytest.raises(ParameterError, match="backend must be one of: dask, loky, ray"):
        compute(notes(tmp_path), store, backend="mpi")
    with pytest.raises(ParameterError, match="address must be left out"):
        compute(notes(tmp_path), store, address="tcp://x")


def test_what_decides_a_cell_decides_its_key():
    cell = small_cells()["seed 0"]
    others = [
        replace(cell, seed=9),
        replace(cell, runs=3),
        replace(cell, note="again"),
        replace(cell, problem=replace(SMALL, split_seed=1)),
        replace(cell, parameters=replace(cell.parameters, algorithm_options={"threshold": 1.0})),
    ]
    keys = {each.key for each in [cell, *others]}
    assert len(keys) == 6
    assert replace(cell, seed=0).key == cell.key


def test_a_refused_plan_is_a_result_only_where_it_may_be():
    cell = small_cells()["seed 0"]
    wrong = replace(cell, parameters=replace(cell.parameters, algorithm_options={"colour": 1}))
    with pytest.raises(ParameterError, match="colour"):
        wrong.compute()
    assert "colour" in replace(wrong, may_refuse=True).compute().facts["refused"]
