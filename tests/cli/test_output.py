"""Tables on a terminal: they fit, and no name in them is broken. How commands end."""

import errno
import io
import json
import os
import random
import subprocess
import sys

import pytest
import typer
from rich.console import Console
from typer.core import TyperGroup

from dpadmm.__main__ import main
from dpadmm.cli import app, output
from dpadmm.cli.output import Commands
from dpadmm.durable import write_whole
from dpadmm.errors import DataError, LedgerError, ParameterError, is_passing, passing
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

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
    rows = [("a" * 100, "b" * 30, "", "c" * 40, "two words")]
    text = printed(monkeypatch, ("first", "second", "none", "third", "fourth"), rows)
    assert text.splitlines()[1:] == [
        "a" * 100,
        f"  second: {'b' * 30};",
        f"  third: {'c' * 40}; fourth: two words",
    ]


def test_a_table_without_rows_has_its_heads(monkeypatch):
    assert "epsilon" in printed(monkeypatch, ("who", "epsilon"), [])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_that_is_stopped_says_so_and_how_it_goes_on(capsys, as_json):
    """Typer itself would end it with 130 and without a word."""
    with (
        pytest.raises(typer.Exit) as ended,
        output.refusals("compare", as_json, "The same command goes on."),
    ):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    told = capsys.readouterr()
    assert told.err == "dpadmm: stopped. The same command goes on.\n"
    words = json.loads(told.out)["error"] if as_json else told.out
    assert words == ("stopped. The same command goes on." if as_json else "")


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_is_answered_before_a_command_has_begun(monkeypatch, capsys, as_json):
    app = typer.Typer(cls=Commands)

    @app.command()
    def first() -> None:
        raise KeyboardInterrupt

    @app.command()
    def second() -> None: ...

    monkeypatch.setattr(sys, "argv", ["dpadmm", "first", *["--json"] * as_json])
    with pytest.raises(SystemExit) as ended:
        app(["first"])
    assert ended.value.code == 130
    told = capsys.readouterr()
    assert told.err == "dpadmm: stopped.\n"
    assert (json.loads(told.out)["command"] if as_json else told.out) == "first" * as_json


def test_ctrl_c_is_answered_before_the_command_line_has_begun(monkeypatch, capsys):
    def load(args: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpadmm.cli.app", load)
    with pytest.raises(SystemExit) as ended:
        main(["train"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "dpadmm: stopped.\n"


def test_ctrl_c_is_answered_while_the_command_line_loads():
    program = """
import sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "dpadmm.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
import dpadmm.__main__
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "dpadmm: stopped.\n")


def test_words_break_between_words_on_a_terminal_and_nowhere_in_a_file(monkeypatch):
    path = "/a/path/" + "x" * 40
    words = f"what is guaranteed to everybody who is in {path}\nand a second line"
    for terminal in (True, False):
        for name in ("console", "errors"):
            screen = Console(
                file=io.StringIO(), width=30, force_terminal=terminal, color_system=None
            )
            screen.soft_wrap = name == "errors"
            monkeypatch.setattr(output, name, screen)
        output.say(words, "Guarantee")
        output.warn(words)
        output.print_refusal("train", words)
        said, complained = output.console.file.getvalue(), output.errors.file.getvalue()
        if terminal:
            for line in (said + complained).splitlines():
                assert len(line) <= 30 or line.strip() == path
            assert said.startswith("Guarantee: what is guaranteed\n  to everybody who is in\n  /a/")
        else:
            assert said == f"Guarantee: {words}\n"
            assert complained == f"Warning: {words}\ndpadmm: {words}\n"


@pytest.mark.parametrize("command", [(), ("train",), ("ledger",), ("schema", "draft")])
def test_help_fits_a_terminal_and_shows_no_type_beside_a_flag(dpadmm, command):
    text = dpadmm(*command, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "<bool>" not in text
    assert "--help" in text


def test_help_opens_with_an_example():
    def commands(group, path):
        for name in group.list_commands(None):
            command = group.get_command(typer.Context(group), name)
            yield f"{path} {name}", command.help + "\n\n"
            if isinstance(command, TyperGroup):
                yield from commands(command, f"{path} {name}")

    for words, text in commands(typer.main.get_command(app), "dpadmm"):
        _, example, *_ = text.split("\n\n", 2)
        if example == "For example:":
            example = text.split("\n\n")[2]
        assert f"`{words}" in example, words


def test_a_terminal_that_lacks_a_character_ends_no_command():
    """Where locales are missing or old, words are written out; what was spent is not lost."""
    done = subprocess.run(
        [sys.executable, "-m", "dpadmm", "account", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2022 dpadmm account" in done.stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ParameterError("epsilon must be less."), 2),
        (LedgerError("it was changed."), 2),
        (passing(LedgerError("another has it.")), 75),
        (passing(ParameterError("x"), when=False), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 75),
        (OSError(errno.EACCES, "Permission denied"), 2),
    ],
)
def test_a_refusal_that_may_be_over_later_has_a_code_of_its_own(error, code):
    with pytest.raises(typer.Exit) as ended, output.refusals("train", False):
        raise error
    assert ended.value.exit_code == code


def test_a_full_disk_may_be_over_later(tmp_path, monkeypatch):
    for number, code in ((errno.ENOSPC, True), (errno.EIO, False)):

        def fail(handle, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(DataError, match="enough room") as refused:
            write_whole(tmp_path / "model", b"x", "model")
        assert is_passing(refused.value) == code


def test_a_run_that_another_process_has_may_be_had_later(tmp_path):
    ledger = tmp_path / "a.ledger"
    SQLiteLedger.create(ledger, ChargedData("rows", "a", 40), Policy(1.0, 1e-3)).close()
    with (
        SQLiteLedger(ledger) as first,
        SQLiteLedger(ledger) as second,
        first.open_run("run", "mark"),
        pytest.raises(LedgerError, match="another has it") as held,
    ):
        second.open_run("run", "mark")
    assert is_passing(held.value)
