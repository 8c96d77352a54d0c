"""UCI Adult (Census Income), as the papers on private ADMM prepare it.

Rows with a missing value are left out (the data are public): 45,222 are left. The six numeric
columns are scaled to [0, 1] by the bounds of the schema shipped in ``adult.toml``, the eight
categorical ones become 98 columns, and a constant is added: 105 columns in the order numeric,
one-hot, constant. Then a row is scaled down to norm 1 where it is longer. The label is +1 for
an income above 50,000 dollars.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dpadmm.data.dataset import Dataset, cache_folder, find_file, read_unpacked
from dpadmm.data.encode import EncodedRows, assemble, encode_batch
from dpadmm.data.schema import Schema
from dpadmm.sentences import DataError

ADULT_COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
MD5: Final = {
    "adult.data": "5d7c39d7b8804f071cdd1f2a7c460872",
    "adult.test": "35238206dfdf7f1fe215bbb874adecdc",
}
COMPLETE_ROWS: Final = 45_222
NOTES: Final = (
    "Rows with a missing value left out; 6 numeric columns scaled to [0, 1] by public bounds, "
    "98 one-hot columns, a constant; rows scaled down to norm 1 where longer."
)
WHERE: Final = (
    "put adult.data and adult.test (also packed: .gz) from "
    "https://archive.ics.uci.edu/dataset/2/adult into the folder named by DPADMM_DATA"
)


def adult_schema() -> Schema:
    """Return the public schema shipped with the package."""
    text = resources.files("dpadmm.data").joinpath("adult.toml").read_text("utf-8")
    return Schema.from_toml(text)


def adult_table(folder: str | Path | None = None) -> pa.Table | None:
    """Read the two original files as text, all 48,842 rows; None if they are not there.

    Labels of the second file lose the full stop they end in.

    Raises
    ------
    DataError
        If a file is there but is not the original.
    """
    tables = []
    for name, expected in MD5.items():
        path = find_file(name, folder)
        if path is None:
            return None
        data = read_unpacked(path)
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != expected:
            raise DataError(
                f"{path} must be UCI's {name} with md5 {expected}; got {found}: fetch it again"
            )
        options = pyarrow.csv.ReadOptions(
            column_names=list(ADULT_COLUMNS), skip_rows=int(name == "adult.test")
        )
        types = dict.fromkeys(ADULT_COLUMNS, pa.string())
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=options,
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        columns = [pc.utf8_trim(column, " ") for column in table.columns]
        columns[-1] = pc.utf8_rtrim(columns[-1], ".")
        tables.append(pa.Table.from_arrays(columns, names=list(ADULT_COLUMNS)))
    return pa.concat_tables(tables)


def _from_openml() -> pa.Table:
    from sklearn.datasets import fetch_openml

    home = cache_folder() / "openml"
    frame: Any = fetch_openml("adult", version=2, as_frame=True, data_home=home).frame
    frame = frame.rename(columns={"class": "income"})
    return pa.Table.from_pandas(frame[list(ADULT_COLUMNS)], preserve_index=False)


def _encode(table: pa.Table) -> EncodedRows:
    schema = adult_schema()
    batches = table.combine_chunks().to_batches()
    # Public data: leaving rows out is what the papers do, and no budget is touched.
    encoded = (encode_batch(b, schema, drop_incomplete_public_rows=True) for b in batches)
    return assemble(encoded, schema, layout="dense")


def load_adult(folder: str | Path | None = None, *, download: bool = True) -> Dataset:
    """Load Adult from its original files, or from OpenML where there is a network.

    Parameters
    ----------
    folder
        Where the files are; without it, the folder in ``DPADMM_DATA``, then the cache folder.
    download
        Whether OpenML (through scikit-learn) may be asked for what is not there.
    """
    table = adult_table(folder)
    source = "UCI Adult, the original files adult.data and adult.test (md5 checked), CC BY 4.0"
    if table is None:
        if not download:
            raise DataError(f"adult must be on this machine; its files are not found: {WHERE}")
        try:
            table = _from_openml()
        except Exception as error:
            # scikit-learn passes on whatever the network, the parser or the disk raised.
            raise DataError(
                f"adult must be on this machine or at OpenML; got neither ({error}): {WHERE}"
            ) from None
        source = "UCI Adult, the copy at OpenML (data set 1590, version 2); rows in its order"
    encoded = _encode(table)
    found = encoded.counts
    if found.rows != COMPLETE_ROWS or found.bad_labels:
        raise DataError(
            f"adult must have {COMPLETE_ROWS} complete rows and known labels; got {found.rows} "
            f"rows and {found.bad_labels} unknown labels: {WHERE}"
        )
    return Dataset.of(
        "adult", np.asarray(encoded.rows), encoded.signs, encoded.feature_names, source, NOTES
    )
