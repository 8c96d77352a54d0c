"""A Dask cluster of worker processes on this machine, and folders of Parquet parts."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet

WORKER = ["--nthreads", "1", "--no-dashboard", "--death-timeout", "30"]


class LocalCluster:
    """A scheduler and workers, each a process; ends only what it began."""

    def __init__(self, folder, workers=2, memory="auto"):
        self._folder, self._processes, self._memory = folder, [], memory
        self._address_file = folder / "scheduler.json"
        words = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.scheduler = self._start(*words, "--scheduler-file", str(self._address_file))
        deadline = time.monotonic() + 60
        while not self._address_file.exists() or not self._address_file.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.workers = [self.add_worker() for _ in range(workers)]

    def _start(self, *words):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        output = (self._folder / f"{len(self._processes)}.out").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        output.close()
        self._processes.append(process)
        return process

    def add_worker(self):
        place = ["--scheduler-file", str(self._address_file), "--no-nanny"]
        place += ["--local-directory", str(self._folder), "--memory-limit", self._memory]
        return self._start("worker", *place, *WORKER)

    @property
    def address(self):
        return json.loads(self._address_file.read_text())["address"]

    def wait_for(self, count, seconds=60.0):
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            deadline = time.monotonic() + seconds
            while len(client.nthreads()) != count:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        return self

    def kill(self, process):
        """As a machine ends that loses its power."""
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                self.kill(process)


def write_parts(folder, table, heights):
    """A table as a folder of Parquet files, with so many rows each."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = np.cumsum([0, *heights])
    assert ends[-1] == table.num_rows
    for number, (first, stop) in enumerate(itertools.pairwise(ends)):
        path = folder / f"part-{number:03}.parquet"
        pyarrow.parquet.write_table(table.slice(first, stop - first), path)
    return folder


def ward_table(path):
    """What a CSV file of wards says, as a table."""
    lines = [line.split(",") for line in path.read_text().splitlines()]
    columns = list(zip(*lines[1:], strict=True))
    age, ward, label = columns
    return pa.table({"age": [int(cell) for cell in age], "ward": list(ward), "y": list(label)})
