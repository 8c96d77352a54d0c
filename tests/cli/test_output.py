"""Tables on a terminal: they fit, and no name in them is broken."""

import io
import os
import random
import subprocess
import sys

import pytest
from rich.console import Console

from dpadmm.cli import output

NAMES = ("pr-admm-figure-2", "r-admm-figures-3-and-4", "consensus", "x")


def printed(monkeypatch, columns, rows, width=80):
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(output, "console", console)
    output.show_table("A title", columns, rows)
    return console.file.getvalue()


@pytest.mark.parametrize("seed", range(8))
def test_every_word_is_whole_and_every_line_fits(monkeypatch, seed):
    draw = random.Random(seed)
    columns = ["name", *(f"column {place}" for place in range(draw.randint(1, 9)))]
    cells = [*NAMES, "12.3456", "-0.5", "", "two (missing), three and some more words"]
    rows = [[draw.choice(cells) for _ in columns] for _ in range(6)]
    text = printed(monkeypatch, columns, rows)
    assert max(map(len, text.splitlines())) <= 80
    for cell in {cell for row in rows for cell in row}:
        for word in cell.split():
            assert word in text


def test_numbers_stand_on_the_right_and_are_never_cut(monkeypatch):
    text = printed(monkeypatch, ("who", "epsilon"), [("north", "1.25"), ("south", "12345678.5")])
    assert "│       1.25 │" in text
    words = "a sentence of many words that gives way " * 4
    narrow = printed(monkeypatch, ("who", "epsilon"), [(words, "1234567.890123456")], width=40)
    assert "1234567.890123456" in narrow


def test_what_cannot_stand_beside_each_other_stands_under_each_other(monkeypatch):
    rows = [("a" * 30, "b" * 30, "c" * 30)]
    text = printed(monkeypatch, ("first", "second", "third"), rows)
    assert text.splitlines()[1:] == ["a" * 30, f"  second: {'b' * 30}", f"  third: {'c' * 30}"]


def test_a_table_without_rows_has_its_heads(monkeypatch):
    assert "epsilon" in printed(monkeypatch, ("who", "epsilon"), [])


def test_a_terminal_that_lacks_a_character_ends_no_command():
    """Where locales are missing or old, words are written out; what was spent is not lost."""
    words = "from dpadmm.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", words, "account", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2022 dpadmm account" in done.stdout
