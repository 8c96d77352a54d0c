"""A node is small: what it does not use it does not import."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

# Each of them is tens of megabytes, at every node, for nothing.
NOT_FOR_NODES = {
    "dp_accounting",
    "joblib",
    "matplotlib",
    "networkx",
    "numba",
    "pandas",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.stats",
    "sklearn",
}
# The command itself; at its end it says what it has imported and what it takes.
PROGRAM = """
import atexit, json, pathlib, sys
def tell():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
    told = {"modules": sorted(sys.modules), "megabytes": kilobytes / 1000}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(told))
atexit.register(tell)
from dpadmm.cli import main
main(["node", "--config", sys.argv[2], "--json"])
"""


def test_a_node_imports_what_it_needs_and_stays_small(tmp_path):
    names = ("north", "south", "west")
    federation = Federation(tmp_path / "federation", None, names)
    running = {}
    for name in names:
        federation.make_ledger(name)
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / name), str(federation.write(name))]
        with open(federation.folder / f"{name}.out", "wb") as output:
            running[name] = subprocess.Popen(
                words,
                stdout=output,
                stderr=output,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
    try:
        codes = [process.wait(60) for process in running.values()]
    finally:
        for process in running.values():
            process.kill()
    assert codes == [0, 0, 0], [federation.output(name) for name in names]
    # What a node cannot do without brings some of it along: scipy.special since SciPy 1.18.
    words = "import json, sys, scipy.special; print(json.dumps(list(sys.modules)))"
    needed = json.loads(subprocess.check_output([sys.executable, "-c", words]))
    for name in names:
        # The report was written, too, by then.
        assert (federation.folder / f"{name}.html").exists()
        told = json.loads((tmp_path / name).read_text())
        assert NOT_FOR_NODES & set(told["modules"]) <= set(needed)
        assert told["megabytes"] < 100
