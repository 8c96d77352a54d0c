"""What the epsilons of a table or a page mean: theorem, adjacency, adversary, claim.

The text is made from the statements of the results, so no table repeats it by hand and none can
leave it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from dpadmm.privacy.events import PostProcessing
from dpadmm.privacy.figures import AtMost
from dpadmm.report.document import Table

HEADING: Final = "What the epsilons mean"
#: The title of the table of proven epsilons.
GUARANTEES: Final = "Guarantees"
#: The title of the table of theorems: mark, theorem, releases.
THEOREMS: Final = "Theorems"
#: The kinds of event in words; the docstring of each class states its theorem.
RELEASES: Final = {
    "post-processing": "functions of earlier releases",
    "non-private": "releases without noise",
    "gaussian": "Gaussian noise on a value of bounded sensitivity",
    "shared-gaussian": "Gaussian noise of all honest parties, on a sum of which no part is seen",
    "pure": "pure releases: the exact minimiser under noise of density exp(-rate ||b||)",
    "gaussian-objective": "the exact minimiser under Gaussian noise in the objective (Theorem OP)",
    "inexact-solve": "Gaussian noise on what the solver returns (AMP)",
    "subsampled-gaussian": "Gaussian noise on a secret batch, amplified by sampling",
    "label-randomized-response": "randomised response on labels",
    "composed": "several releases at once",
    "repeated": "the same release several times",
}
_SIMULATED: Final = (
    "noise comes from a seed, so these runs protect nobody; the epsilons are what the same runs "
    "would guarantee with secret noise"
)
_TOTAL: Final = (
    "the total of one party over the whole run, the largest of the parties' figures; as published: "
    "the paper's claim, with what is proven of the same noise beside it"
)
_NOISE: Final = {"published": "as published", "proven": "proven"}
_NO_GUARANTEE: Final = "No guarantee, epsilon is infinite"
#: A range replaces more different numbers than this.
_MOST_NUMBERS: Final = 6
#: The start of a guarantee in words: "(1, 1e-5)-" or "0.4-".
_QUANTITY: Final = re.compile(r"^(\([^()]*\)|[0-9.e+]+)-(?=[a-z])")


@dataclass(frozen=True)
class Shown:
    """A run whose epsilon is shown: its name on the page, and its statement as plain data."""

    who: str
    privacy: Mapping[str, Any]


class Ground(NamedTuple):
    """The theorem of an epsilon, and the releases that it is about."""

    theorem: str
    releases: str


@dataclass(frozen=True)
class Meaning:
    """Facts (a heading and its words) and small tables by title, ready to be shown.

    Attributes
    ----------
    facts
        What holds for all runs; a fact that holds for some runs names them.
    tables
        The guarantees, the theorems with their marks, the claims, and further guarantees.
    marks
        The mark of each theorem and its releases.
    """

    facts: tuple[tuple[str, str], ...]
    tables: Mapping[str, Table]
    marks: Mapping[Ground, str]

    def mark(self, privacy: Mapping[str, Any]) -> str:
        """The mark of the theorem of a statement; empty without a guarantee."""
        return self.marks.get(_ground(privacy), "") if _private(privacy) else ""

    def markdown(self) -> str:
        """The facts and tables as Markdown."""
        facts = "".join(f"* **{heading}**: {words}.\n" for heading, words in self.facts)
        tables = "".join(
            f"\n{title}:\n\n{table.markdown()}" for title, table in self.tables.items()
        )
        return facts + tables

    def sentences(self) -> tuple[tuple[str, str], ...]:
        """The facts as sentences, for a report; names of runs keep their spelling."""
        return tuple(
            (heading, f"{words if heading == _NO_GUARANTEE else words[:1].upper() + words[1:]}.")
            for heading, words in self.facts
        )

    def titled_tables(self) -> tuple[Table, ...]:
        """The tables with their titles, for a report."""
        return tuple(replace(table, title=title) for title, table in self.tables.items())

    def plain(self) -> dict[str, Any]:
        """Plain data, for a manifest."""
        return {
            "facts": [list(pair) for pair in self.facts],
            "tables": {title: table.plain() for title, table in self.tables.items()},
        }


def epsilon_of(privacy: Mapping[str, Any]) -> float:
    """The proven epsilon; infinite if none is."""
    return math.inf if isinstance(privacy["epsilon"], str) else float(privacy["epsilon"])


def bound_of(privacy: Mapping[str, Any]) -> AtMost | str:
    """The proven epsilon as a table shows it."""
    return AtMost(epsilon_of(privacy)) if _private(privacy) else "infinite"


def releases_of(privacy: Mapping[str, Any]) -> str:
    """The releases of the party with the weakest guarantee, without free post-processing."""
    weakest = max(privacy["parties"].values(), key=epsilon_of)
    kinds = [kind for kind in weakest["events"] if kind != PostProcessing.kind]
    return "; ".join(RELEASES[kind] for kind in kinds or [PostProcessing.kind])


def _private(privacy: Mapping[str, Any]) -> bool:
    return math.isfinite(epsilon_of(privacy))


def _ground(privacy: Mapping[str, Any]) -> Ground:
    reviewed = "" if privacy["reviewed"] else " (not reviewed: the algorithm is from outside)"
    return Ground(privacy["theorem"] + reviewed, releases_of(privacy))


def meaning_of(shown: Sequence[Shown]) -> Meaning:
    """Collect what the statements say, each fact once."""
    private = [each for each in shown if _private(each.privacy)]
    grounds = dict.fromkeys(_ground(each.privacy) for each in private)
    marks = {ground: f"[{number}]" for number, ground in enumerate(grounds, start=1)}
    tables = {
        GUARANTEES: _guarantees(private, marks),
        THEOREMS: Table.of(
            ("mark", "theorem", "of"), [(marks[ground], *ground) for ground in grounds]
        ),
        "As published, not proven": _claims(shown),
        "Guarantees beside that of a row": _beside(shown),
    }
    return Meaning(
        tuple(_facts(shown, private)),
        {title: table for title, table in tables.items() if table.rows},
        marks,
    )


def _facts(shown: Sequence[Shown], private: Sequence[Shown]) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if private:
        facts += [("Epsilon", _TOTAL)]
        for heading, name in (("Delta", "delta"), ("Adjacency", "adjacency")):
            facts += _shared(heading, private, name)
        facts += _shared("Adversary", private, "adversary")
        facts += _shared("Not covered", private, "not_covered")
    without = dict.fromkeys(each.who for each in shown if not _private(each.privacy))
    if without:
        facts.append((_NO_GUARANTEE, "; ".join(without)))
    if not shown:
        facts.append(("Epsilon", "none is stated here: no run of these was accounted"))
    if any(each.privacy["simulated"] for each in private):
        facts.append(("Simulation", _SIMULATED))
    return facts


def _shared(heading: str, shown: Sequence[Shown], name: str) -> list[tuple[str, str]]:
    """One pair if all agree; otherwise one for each value, with the names of its runs."""
    found: dict[str, dict[str, None]] = {}
    for each in shown:
        found.setdefault(_text(each.privacy[name]), {})[each.who] = None
    if len(found) == 1:
        return [(heading, words) for words in found]
    return [(f"{heading} ({'; '.join(who)})", words) for words, who in found.items()]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return str(AtMost(value))
    return value if isinstance(value, str) else "; ".join(value)


def _guarantees(private: Sequence[Shown], marks: Mapping[Ground, str]) -> Table:
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for each in private:
        key = (
            each.who,
            _NOISE[each.privacy["calibration"]],
            str(AtMost(each.privacy["delta"])),
            marks[_ground(each.privacy)],
        )
        found.setdefault(key, []).append(epsilon_of(each.privacy))
    rows = [
        (who, noise, _numbers(e), delta, mark) for (who, noise, delta, mark), e in found.items()
    ]
    return Table.of(("run", "noise", "proven epsilon", "delta", "theorem"), rows)


def _claims(shown: Sequence[Shown]) -> Table:
    """Every claim of a paper, with what is proven for the same runs."""
    found: dict[tuple[str, str], list[Shown]] = {}
    for each in shown:
        if each.privacy["claim"]:
            found.setdefault((each.who, each.privacy["claim"]), []).append(each)
    rows = []
    for (who, claim), runs in found.items():
        deltas = dict.fromkeys(str(AtMost(run.privacy["delta"])) for run in runs)
        proven = _numbers(epsilon_of(run.privacy) for run in runs)
        rows.append((who, claim, f"epsilon {proven} at delta {', '.join(deltas)}"))
    return Table.of(("run", "what the paper claims", "what is proven of the same noise"), rows)


def _beside(shown: Sequence[Shown]) -> Table:
    """Guarantees for other things than rows; joins those that differ only in numbers."""
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for each in shown:
        for heading, words in each.privacy["details"].items():
            quantity = _QUANTITY.match(words)
            number, rest = (quantity[1], words[quantity.end(1) :]) if quantity else ("", words)
            noise = _NOISE[each.privacy["calibration"]]
            found.setdefault((each.who, noise, heading, rest), {})[number] = None
    rows = [
        (who, noise, heading, _quantities(list(numbers)) + rest)
        for (who, noise, heading, rest), numbers in found.items()
    ]
    return Table.of(("run", "noise", "of what, against whom", "guarantee"), rows)


def _quantities(words: list[str]) -> str:
    if len(words) <= _MOST_NUMBERS:
        return ", ".join(words)
    ordered = sorted(words, key=lambda word: float(word.strip("()").split(",")[0]))
    return f"{ordered[0]} to {ordered[-1]}"


def _numbers(values: Iterable[float]) -> str:
    words = list(dict.fromkeys(_bound(value) for value in sorted(values)))
    return ", ".join(words) if len(words) <= _MOST_NUMBERS else f"{words[0]} to {words[-1]}"


def _bound(value: float) -> str:
    return f"{AtMost(value):4}"
