"""Bars of progress: on standard error, and only where a person watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from dpadmm.cli.output import console, errors


def rounds_bar(*, quiet: bool, shown: bool = False) -> Progress:
    """A bar of rounds: on standard error where a person watches, or among what is shown."""
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
    ]
    if not shown:
        columns.append(TextColumn("rounds"))
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=console if shown else errors,
        transient=True,
        disable=quiet or not (shown or errors.is_terminal),
    )


@contextmanager
def cell_progress(title: str, *, quiet: bool) -> Iterator[Callable[[float, float, str], None]]:
    """A bar of cells; yields what to call with (done, whole, label).

    What was kept from before is taken off both sides, so that the time left rests on the pace of
    this run alone.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    ) as progress:
        task = progress.add_task(title, total=None)
        kept: list[float] = []

        def on_done(done: float, whole: float, label: str) -> None:
            if not kept:
                kept.append(done)
            words = f"{title}: {label}" if label else title
            progress.update(
                task, description=words, completed=done - kept[0], total=whole - kept[0]
            )

        yield on_done
