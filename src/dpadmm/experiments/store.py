"""Finished cells, kept by their description: work that is done is not done again."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Final, final

from dpadmm.archive import ModelError, pack, unpack
from dpadmm.datasets.whole_file import write_whole
from dpadmm.errors import ParameterError
from dpadmm.experiments.cells import Cell, Result
from dpadmm.version import __version__

__all__ = ["DamagedCellWarning", "Store"]

_FORMAT: Final = "dpadmm-cells/1"
_LABEL: Final = "store.json"


class DamagedCellWarning(UserWarning):
    """A kept result that is damaged; it is computed again."""


@final
class Store:
    """A folder of finished cells, one file each, written whole.

    Parameters
    ----------
    folder
        Made if it is not there. One that another version of this package wrote is refused: its
        figures may differ from what this version computes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        label = folder / _LABEL
        wanted = {"format": _FORMAT, "dpadmm": __version__}
        if label.exists():
            try:
                found = json.loads(label.read_text())
            except ValueError:
                found = None
            if found != wanted:
                has = found.get("dpadmm", "unknown") if isinstance(found, dict) else "unknown"
                raise ParameterError(
                    f"results in {folder} must be of this version of dpadmm, {__version__}; they "
                    f"are of {has}. Name another folder, or remove this one."
                )
            return
        if folder.exists() and any(folder.iterdir()):
            raise ParameterError(
                f"folder must be new, empty or one that dpadmm keeps results in; got {folder}, "
                "which holds something else. Name another."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(label, json.dumps(wanted).encode(), "label of the results")

    def path(self, cell: Cell) -> Path:
        """Where the cell's result is or will be."""
        return self.folder / f"{cell.key}.cell"

    def get(self, cell: Cell) -> Result | None:
        """The result, if the cell is finished; a damaged one counts as not finished."""
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            document, arrays = unpack(path.read_bytes(), str(path))
        except ModelError:
            warnings.warn(
                f"{path} is damaged: its cell is computed again.", DamagedCellWarning, stacklevel=2
            )
            return None
        return Result(arrays, document["facts"])

    def put(self, cell: Cell, result: Result) -> None:
        """Keep a result, whole or not at all."""
        document: dict[str, Any] = {"cell": cell.description(), "facts": result.facts}
        plain = json.loads(json.dumps(document, default=dict))
        write_whole(self.path(cell), pack(plain, result.values), "result of a cell")
