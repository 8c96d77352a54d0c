"""The map of the papers: what it names exists, and every experiment is on it."""

import importlib
import re
from pathlib import Path

from dpadmm_papers import EXPERIMENTS

DOCS = Path(__file__).parents[2] / "docs" / "papers"
TEXT = (DOCS / "map.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
QUOTED = set(re.findall(r"`([^`]+)`", TEXT))
EXPERIMENT = re.compile(r"(pr-admm|dvp|r-admm|pdml|ps-admm)-[a-z0-9-]+")


def resolve(name):
    """The object that a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_every_dotted_name_is_code():
    names = {name for name in QUOTED if name.startswith(("dpadmm.", "dpadmm_papers."))}
    assert len(names) > 40
    for name in names:
        assert resolve(name) is not None, name


def test_every_experiment_is_named_and_every_named_one_is_registered():
    named = {name for name in QUOTED if EXPERIMENT.fullmatch(name)}
    assert named == set(EXPERIMENTS)


def test_every_page_that_is_linked_exists():
    links = set(re.findall(r"\]\(([^)#]+)\)", TEXT))
    assert {"pr-admm.md", "../reproduction/index.md"} <= links
    for link in links:
        assert (DOCS / link).is_file(), link


def test_every_line_says_where_it_is_or_that_it_is_missing():
    told = [row for row in ROWS if row[0] != "of the paper"]
    assert len(told) > 90
    for row in told:
        assert len(row) == 2, row
        assert row[1], row
    missing = [row[0] for row in told if row[1].startswith("**missing**")]
    # So few that they can be listed: whoever adds one says so here.
    assert len(missing) == 5, missing
