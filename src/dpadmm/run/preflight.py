"""The pre-flight: what looks wrong with rows, told to their owner alone before anything is spent.

Rows are read once and counted. What is found goes to a file that only its owner may read, and to
the terminal where its owner sits. It is in no log, status, metric, record, report or message, and
it changes nothing of a run: the owner's rule (``[policy] preflight``) decides whether there is one.

* "ask": the owner is asked at the terminal. Without a terminal the run goes on: nobody has said
  that what rows hold may decide what others see.
* "stop": the run does not begin. Whoever waits for it sees that, and no budget covers it.
* "off": rows are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dpadmm.data.survey import Survey
from dpadmm.durable import written_whole
from dpadmm.errors import PreflightStop
from dpadmm.sentences import Part

#: The largest share of bad labels that does not look wrong.
MOST_BAD_LABELS: Final = 0.05
#: The largest share of a column's cells, but for missing ones, that may be no level or out of
#: bounds without looking wrong.
MOST_UNFIT_CELLS: Final = 0.5

Preflight: TypeAlias = Literal["ask", "stop", "off"]
#: The owner at a terminal: is shown lines and, where asked whether to go on, answers.
Owner: TypeAlias = Callable[[Sequence[str], bool], bool]

_PRIVATE: Final = (
    "Not covered by the privacy guarantee: do not share this. It is about private rows, and for "
    "the eyes of their owner alone."
)
_ADVICE: Final = (
    "Compare the file with the schema: how labels and levels are spelt, bounds, decimal, delimiter "
    "and missing_values."
)


class PolicySection(Part):
    """``[policy]``: what the owner of the rows wants; nobody else sees it.

    Parameters
    ----------
    preflight
        What to do where the rows look wrong before anything is spent: "ask" on a terminal, and go
        on without one; "stop"; or "off", which does not look.
    """

    preflight: Preflight = "ask"


@dataclass(frozen=True)
class Findings:
    """What was found in the rows of a run; private, like the rows.

    Attributes
    ----------
    surveys
        What was counted, by the name of the party or of the one file of all.
    """

    # Printing the object must not show what rows hold.
    surveys: Mapping[str, Survey] = field(repr=False)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What looks wrong, a sentence each; by the owner's rule it ends a run."""
        return self._told(_wrong)

    @property
    def lines(self) -> tuple[str, ...]:
        """What its owner should know at once: what looks wrong, and levels that never occur."""
        wrong = tuple(f"LOOKS WRONG: {each}" for each in self.wrong)
        return (*wrong, *((_ADVICE,) if wrong else ()), *self._told(_unused))

    @property
    def text(self) -> str:
        """All of it, with the counts behind it."""
        lines = self.lines or ("Nothing looks wrong.",)
        return "\n".join((_PRIVATE, "", *lines, "", *self._told(_counts))) + "\n"

    def _told(self, tell: Callable[[Survey], Iterator[str]]) -> tuple[str, ...]:
        return tuple(
            f"{who}: {told}." for who, found in self.surveys.items() for told in tell(found)
        )


def preflight(
    rule: Preflight, look: Callable[[], Findings], place: Path, owner: Owner | None
) -> None:
    """Look at the rows of a run that has not begun, and end it where its owner's rule says so.

    Parameters
    ----------
    rule
        The owner's (:class:`PolicySection`).
    look
        Reads the rows, of a run whose every public fact was checked.
    place
        The file for what is found; written whatever that is, unless nobody looks.
    owner
        Who sits at a terminal; None if nobody does.

    Raises
    ------
    PreflightStop
        If the rows look wrong, by the rule "stop" or the owner's answer.
    """
    if rule == "off":
        return
    found = look()
    wrong = bool(found.wrong)
    goes_on = tell_owner(found, place, owner, ask=wrong and rule == "ask")
    if wrong and (rule == "stop" or not goes_on):
        raise PreflightStop(
            "the pre-flight ended this run before it began, by its owner's rule (preflight under "
            f"[policy]). Nothing was charged or sent. {place} says why, to its owner alone."
        )


def tell_owner(found: Findings, place: Path, owner: Owner | None, *, ask: bool = False) -> bool:
    """Write what was found where only its owner reads it, and show it; whether to go on."""
    with written_whole(place, "preflight", private=True) as file:
        file.write(found.text.encode())
    if owner is None or not found.lines:
        return True
    return owner((*found.lines, f"All counts are in {place}. {_PRIVATE}"), ask)


def _wrong(found: Survey) -> Iterator[str]:
    counts, rows = found.counts, found.counts.rows
    if found.bad_share > MOST_BAD_LABELS:
        first = next(iter(found.classes))
        yield (
            f"{counts.bad_labels} of {rows} labels ({found.bad_share:.1%}) are no class, and are "
            f"taken as {first!r}"
        )
    for name in found.unused_classes:
        yield f"no label says {name!r}"
    for name, cells in counts.columns.items():
        held, unfit = rows - cells.missing, cells.other + cells.clipped
        if rows and not held:
            yield f"column {name!r} is missing in all {rows} rows"
        elif unfit > MOST_UNFIT_CELLS * held:
            what = "no level" if cells.other else "outside the bounds"
            yield f"{unfit} of the {held} cells of column {name!r} are {what}"


def _unused(found: Survey) -> Iterator[str]:
    for name, levels in found.unused_levels.items():
        yield f"levels of column {name!r} that never occur: {', '.join(map(repr, levels))}"


def _counts(found: Survey) -> Iterator[str]:
    counts = found.counts
    yield f"{counts.rows} rows, {counts.ragged_rows} ragged lines, {counts.bad_labels} bad labels"
    for name, cells in counts.columns.items():
        yield (
            f"column {name!r}: {cells.missing} cells missing, {cells.other} no level, "
            f"{cells.clipped} outside the bounds"
        )
