"""The architecture page tells the truth: the files are there, and are entered in that order."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dpadmm"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MOST_FILES = 12
# What tools/doors.py counts: modules of the package, those that a command imports, and those whose
# functions it calls.
MOST_MODULES = 187
MOST_IMPORTS = {"train": 85, "predict": 55}
MOST_ENTERED = 45


def walk(command):
    """The files of a walk, in the order of the page."""
    section = PAGE.split(f"## The way of a message of `dpadmm {command}`")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section, flags=re.MULTILINE)


def test_a_walk_is_short_and_its_files_exist():
    files = walk("node")
    assert files[0] == "cli/node.py"
    assert 5 < len(files) <= MOST_FILES
    assert [file for file in files if not (SOURCE / file).is_file()] == []


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"`((?!tests)(?:[a-z_]+/)+[a-z_0-9]+\.py)`", PAGE)
    assert [file for file in named if not (SOURCE / file).is_file()] == []


def test_the_picture_of_the_way_shows_files_of_the_walks_in_their_order():
    drawing = (ROOT / "docs" / "_static" / "message.svg").read_text()
    # Along the way; the first is the loop that drives it.
    loop, *shown = re.findall(r'data-file="([\w/]+\.py)"', drawing)
    assert loop == "run/engine.py"
    assert [file for file in shown if not (SOURCE / file).is_file()] == []
    named = re.findall(r"[` ]((?:[a-z_]+/)*[a-z_]+\.py)\b", PAGE)
    assert {file.rpartition("/")[2] for file in shown} <= {
        file.rpartition("/")[2] for file in named
    }
    sent = [file for file in walk("node") if file in shown and file != "run/engine.py"]
    assert [file for file in dict.fromkeys(shown) if file in sent] == sent
    assert "_static/message.svg" in PAGE


def test_every_room_is_in_the_drawing():
    drawing = PAGE.split("```text")[1].split("```")[0]
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(re.findall(r"^  ([a-z]+)  ", drawing, flags=re.MULTILINE)) - {"errors"}


@pytest.fixture
def guide(hospitals):
    """The run of the guide, as a simulation."""
    path = hospitals / "run.toml"
    algorithm = 'algorithm = "pr-admm"\nepsilon = 9.0\ndelta = 1e-3\nsimulation_key = 1'
    path.write_text(path.read_text().replace('algorithm = "admm"', algorithm))
    return path


def doors(*words, folder=ROOT):
    """What tools/doors.py prints for machines, in a process that has imported nothing yet."""
    command = [sys.executable, str(ROOT / "tools" / "doors.py"), "--json", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_package_has_few_modules():
    assert doors()["modules"] <= MOST_MODULES


def test_a_command_imports_little_beside_what_it_needs(guide):
    for words in (["train", guide.name], ["predict", "m.model", "north.csv"]):
        found = doors(*words, folder=guide.parent)
        assert found["exit"] == 0
        assert len(found["imported"]) <= MOST_IMPORTS[words[0]], found["imported"]


def test_the_page_lists_every_module_that_train_enters_in_that_order(guide):
    section = PAGE.split("## The way of `dpadmm train`")[1].split("\n## ")[0]
    listed = re.findall(r"^ *\d+ ([\w/]+\.py)", section, flags=re.MULTILINE)
    found = doors("train", guide.name, folder=guide.parent)
    assert listed == found["entered"], "run python tools/doors.py train run.toml, and paste"
    assert len(listed) <= MOST_ENTERED
