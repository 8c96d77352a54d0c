"""Progress of work that is made of cells, with a time left that follows the measured pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dpadmm.cli.output import errors

__all__ = ["cell_progress"]


@contextmanager
def cell_progress(title: str, *, quiet: bool) -> Iterator[Callable[[float, float, str], None]]:
    """A bar on standard error; yields what to call with (done, whole, label).

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
