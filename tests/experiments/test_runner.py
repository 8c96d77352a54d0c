"""Work that is done is kept, and not done again."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.small_experiments import SMALL, Note

from dpadmm.errors import ParameterError
from dpadmm.experiments.job import TrainingJob
from dpadmm.experiments.runner import DamagedCellWarning, Store, WorkerError, backend, compute
from dpadmm.run.parameters import TrainingParameters


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
    with pytest.warns(DamagedCellWarning, match="is damaged: its cell is computed again"):
        compute(cells, store)
    assert computed(tmp_path) == ["n0", "n0"]
    assert path.read_bytes() == whole


def test_results_of_another_version_are_refused(tmp_path):
    Store(tmp_path / "cells")
    label = tmp_path / "cells" / "store.json"
    label.write_text(json.dumps(json.loads(label.read_text()) | {"dpadmm": "0.0.1"}))
    with pytest.raises(
        ParameterError, match=r"must be of this version of dpadmm, .*; they are of 0\.0\.1"
    ):
        Store(tmp_path / "cells")
    label.write_text("{")
    with pytest.raises(ParameterError, match="they are of unknown"):
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
    with backend("loky", 2), pytest.raises(WorkerError, match="finished cells are kept"):
        compute(cells, store, jobs=2)
    with backend("loky", 2):
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


def test_every_process_computes_the_same(tmp_path):
    here = compute(small_cells(), Store(tmp_path / "here"))
    with backend("loky", 2):
        there = compute(small_cells(), Store(tmp_path / "there"), jobs=2)
    for label, result in here.items():
        assert np.array_equal(result.final("AUC"), there[label].final("AUC"))
    assert not np.array_equal(here["seed 0"].final("AUC"), here["seed 1"].final("AUC"))


@pytest.mark.filterwarnings("ignore")
def test_dask_computes_the_same(tmp_path):
    pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    here = compute(small_cells(), Store(tmp_path / "here"))
    with backend("dask", 2):
        there = compute(small_cells(), Store(tmp_path / "there"), jobs=2)
    for label, result in here.items():
        assert np.array_equal(result.final("AUC"), there[label].final("AUC"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_computes_the_same(tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    here = compute(small_cells(), Store(tmp_path / "here"))
    with backend("ray", 2):
        there = compute(small_cells(), Store(tmp_path / "there"), jobs=2)
    ray.shutdown()
    for label, result in here.items():
        assert np.array_equal(result.final("AUC"), there[label].final("AUC"))


def test_unknown_backends_are_refused():
    with (
        pytest.raises(ParameterError, match="backend must be one of: dask, loky, ray"),
        backend("mpi", 1),
    ):
        pass
    with (
        pytest.raises(ParameterError, match="address must be left out"),
        backend("loky", 1, "tcp://x"),
    ):
        pass


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
