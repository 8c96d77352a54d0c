"""The notebooks run in a real kernel, and what is stored in them is what they print."""

import copy

import nbformat
import pytest
from tools.notebooks import EXAMPLES, ROOT, execute, notebooks

NAMES = [
    "a-federation-on-one-machine",
    "adding-an-algorithm",
    "first-private-model",
    "from-csv-to-a-threshold",
]
MOST_BYTES = 200_000


def read(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def shape(output):
    """What kind of output it is, whatever it says."""
    return output.output_type, output.get("name"), sorted(output.get("data", {}))


def said(output):
    """What an output says."""
    return output.get("text"), dict(output.get("data", {}))


def stale(stored, run):
    """Ids of the cells whose stored outputs are not those of a run."""
    found = []
    for before, after in zip(stored.cells, run.cells, strict=True):
        outputs = [before.get("outputs", []), after.get("outputs", [])]
        kinds = [[shape(output) for output in each] for each in outputs]
        words = [[said(output) for output in each] for each in outputs]
        varies = "varies" in before.metadata.get("tags", [])
        if kinds[0] != kinds[1] or (words[0] != words[1] and not varies):
            found.append(before.id)
    return found


def test_these_are_the_notebooks():
    assert [path.stem for path in notebooks()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_what_is_stored_is_what_it_prints(name, fork_server):
    if name == "a-federation-on-one-machine":
        pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
        pytest.importorskip("opendp", reason="the extra 'secure' is not installed")
    path = EXAMPLES / f"{name}.ipynb"
    # What this one installs is found by a command that starts anew.
    commands = "" if name == "adding-an-algorithm" else fork_server.commands()
    assert stale(read(name), execute(path, commands)) == []
    # In whatever folder it worked, it left nothing behind.
    assert [left.name for left in EXAMPLES.iterdir() if left.suffix != ".ipynb"] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_read_as_it_is_stored(name):
    path = EXAMPLES / f"{name}.ipynb"
    stored = read(name)
    nbformat.validate(stored)
    assert path.stat().st_size < MOST_BYTES
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs) or any(
        "text/markdown" in output.get("data", {}) for output in outputs
    )
    # Nothing of the machine that ran it.
    text = path.read_text(encoding="utf-8")
    assert [place for place in ("/tmp/", "/home/", "/root/", str(ROOT)) if place in text] == []
    assert "\\u001b[" not in text


@pytest.mark.parametrize("name", NAMES)
def test_it_says_that_private_numbers_differ_and_which_are_simulated(name):
    stored = read(name)
    words = " ".join(cell.source for cell in stored.cells if cell.cell_type == "markdown")
    private = [cell for cell in stored.cells if "varies" in cell.metadata.get("tags", [])]
    assert private
    assert "differ" in words or "simulated" in words


def test_a_changed_output_is_found():
    stored = read("first-private-model")
    assert stale(stored, stored) == []
    cells = {cell.id: place for place, cell in enumerate(stored.cells)}
    other = copy.deepcopy(stored)
    other.cells[cells["statement"]].outputs[0].text += "more"
    other.cells[cells["train"]].outputs[0].text += "more"  # private, never twice the same
    assert stale(stored, other) == ["statement"]
    other.cells[cells["train"]].outputs = []
    assert stale(stored, other) == ["train", "statement"]
