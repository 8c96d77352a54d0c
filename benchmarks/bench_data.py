"""How fast files are encoded, against reading them with pandas."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpadmm.data.dataset import WAVE_DIMENSION, waveform
from dpadmm.data.named import adult_schema, adult_table
from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.data.tables import encode

CHUNK_ROWS = 100_000


class Row(NamedTuple):
    """One line of the table of benchmarks; `target` is None for a mere figure."""

    name: str
    measured: float
    target: float | None


def waveform_schema(bound: float = 10.0) -> Schema:
    """Public schema of the files made by :func:`write_generated`."""
    columns = tuple(
        NumericColumn(name=f"x{number + 1}", lower=-bound, upper=bound, missing=False)
        for number in range(WAVE_DIMENSION)
    )
    return Schema(label=Label(column="y", classes=("-1", "1")), columns=columns, constant=True)


def write_generated(path: str | Path, rows: int, seed: int = 0) -> Path:
    """Write waveform rows to a CSV or Parquet file, a piece at a time.

    Columns are ``x1`` to ``x21`` and the label ``y`` (-1 or 1); :func:`waveform_schema`
    describes them.
    """
    path = Path(path)
    names = [*(f"x{number + 1}" for number in range(WAVE_DIMENSION)), "y"]
    types = [*([pa.float64()] * WAVE_DIMENSION), pa.int8()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    parquet = path.suffix == ".parquet"
    generator = np.random.default_rng(seed)
    make = pyarrow.parquet.ParquetWriter if parquet else pyarrow.csv.CSVWriter
    with make(path, schema) as writer:
        for start in range(0, rows, CHUNK_ROWS):
            X, y = waveform(min(CHUNK_ROWS, rows - start), generator)
            arrays = [*(pa.array(column) for column in X.T), pa.array(y.astype(np.int8))]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return path


def seconds(*actions: Callable[[], object], times: int) -> list[float]:
    """Return the shortest of some runs of each action.

    The actions take turns, so that whatever else runs on the machine disturbs all alike.
    """
    found = [float("inf")] * len(actions)
    for _ in range(times):
        for number, action in enumerate(actions):
            start = time.perf_counter()
            action()
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def adult_ratio(folder: Path, times: int = 15) -> Row | None:
    """Encode all of Adult from a CSV file, over reading it with pandas."""
    import pandas as pd

    table = adult_table()
    if table is None:
        return None
    path = folder / "adult.csv"
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(quoting_style="needed"))
    schema = adult_schema()
    encoded, read = seconds(lambda: encode(path, schema), lambda: pd.read_csv(path), times=times)
    return Row("encode Adult from CSV / pandas.read_csv", encoded / read, 2.0)


def to_disk(folder: Path, suffix: str, rows: int) -> Row:
    """Encode drawn rows from a file to a file on disk, in rows a second."""
    path = write_generated(folder / f"waveform{suffix}", rows)
    schema = waveform_schema()
    (spent,) = seconds(lambda: encode(path, schema, into=folder / "rows.npy"), times=3)
    return Row(f"rows/s encoded to disk from {suffix[1:]} (22 columns)", rows / spent, None)


def main(rows: int = 300_000) -> list[Row]:
    """Run the benchmarks of this file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [to_disk(folder, suffix, rows) for suffix in (".csv", ".parquet")]
        ratio = adult_ratio(folder)
    return found if ratio is None else [ratio, *found]


if __name__ == "__main__":
    for row in main():
        print(f"{row.name}: {row.measured:.3g} (target {row.target})")
