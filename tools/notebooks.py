"""Execute the notebooks of ``examples/`` in a real kernel and store what they print.

Usage: ``python tools/notebooks.py [NOTEBOOK...]``, without names all. A notebook with a cell
that fails stays as it was. A cell with the tag ``varies`` may print something else each time, as
private noise does; what all others print is compared by the tests.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def notebooks() -> list[Path]:
    """List the notebooks, by name."""
    return sorted(EXAMPLES.glob("*.ipynb"))


def execute(path: Path, commands_from: str = "") -> NotebookNode:
    """Return the notebook as a fresh kernel of this environment leaves it.

    Parameters
    ----------
    path
        The notebook.
    commands_from
        A folder of commands that go before those of this environment.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=120,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            # It would warn at every start that ports of this machine carry plain text.
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute(env=_environment(folder, commands_from))
    # The version of Python is this machine's, not the notebook's.
    notebook.metadata.language_info.pop("version", None)
    return notebook


def _environment(folder: str, commands_from: str) -> dict[str, str]:
    """Build the variables of a kernel: this environment's commands, these sources, no terminal."""
    places = [commands_from, str(Path(sys.executable).parent), os.environ["PATH"]]
    ours = {
        "PATH": os.pathsep.join(filter(None, places)),
        "PYTHONPATH": str(ROOT / "src"),
        "OPENBLAS_NUM_THREADS": "1",
        # No history of commands, and no settings of whoever runs it.
        "IPYTHONDIR": folder,
        "JUPYTER_CONFIG_DIR": folder,
    }
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return inherited | ours


if __name__ == "__main__":
    for chosen in [Path(name) for name in sys.argv[1:]] or notebooks():
        nbformat.write(execute(chosen), chosen)
        print(chosen)
