import gc
import random

import pytest
from hypothesis import settings

settings.register_profile("dpadmm", deadline=None, print_blob=True)
settings.load_profile("dpadmm")


def pytest_collection_modifyitems(items):
    """Spread files that wait for nodes among those that compute: both at any time."""
    places = {}
    for waits in (True, False):
        files = {item.path for item in items if ("federation" in item.path.parts) is waits}
        places |= {path: place / len(files) for place, path in enumerate(sorted(files))}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish(session):
    """Do not look for garbage among all tests and modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def hospitals(tmp_path):
    """Three CSV files, their schema and a run.toml that trains on them without noise."""
    from tests.helpers.wards import SCHEMA, write_ward

    (tmp_path / "schema.toml").write_text(SCHEMA)
    draw = random.Random(0)
    lines = ['[run]\nalgorithm = "admm"\nrounds = 12\n', '[data]\nschema = "schema.toml"\n']
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        write_ward(tmp_path / f"{name}.csv", draw, rows)
        lines.append(f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\n')
    lines.append('[result]\nmodel = "m.model"\nrecord = "record.json"\n')
    (tmp_path / "run.toml").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture(scope="session")
def fork_server():
    """One process for all tests of a worker that start commands or nodes."""
    from tests.helpers.fork_server import ForkServer

    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def dask_workers(tmp_path_factory):
    """A Dask cluster of two worker processes for all tests of a session; none may end them."""
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    from tests.helpers.clusters import LocalCluster

    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.wait_for(2)
    finally:
        cluster.close()
