"""Pages of studies, from their records: what was asked, found and spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from dpadmm.privacy.figures import pair
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import (
    SIMULATION,
    Banner,
    Bar,
    BarPlot,
    Block,
    Facts,
    Report,
    Section,
    Table,
    Tile,
    Words,
    shown_name,
)

_KINDS: Final = {
    "count": "Counts",
    "proportion": "Proportions",
    "mean": "Means",
    "sd": "Standard deviations",
    "quantiles": "Quantiles",
    "histogram": "Histogram",
    "table": "Table",
    "correlation": "Correlations",
}
#: Kinds that are drawn; others have numbers of different units side by side.
_DRAWN: Final = ("proportion", "histogram", "table", "correlation", "count")
_MOST_BARS: Final = 64


def describe_report(record: Mapping[str, Any]) -> Report:
    """The page of a describe."""
    found = record["found"]
    given = [figure for figure in found if "value" in figure]
    percent = f"{100 * record['confidence']:g}%"
    sections = list(_figure_sections(found, percent))
    if "proposed" in record:
        sections.insert(0, _proposed_section(record["proposed"]))
    asked = ", ".join(
        f"{_KINDS.get(wish['kind'], wish['kind']).lower()} of {', '.join(wish['columns'])}"
        + (f" by {wish['by']}" if "by" in wish else "")
        for wish in record["asked"]
    )
    answers = (
        ("What was asked?", f"{asked[:1].upper()}{asked[1:]}."),
        (
            "What was found?",
            f"{len(given)} figures, each with a {percent} interval for sampling and noise together"
            + (
                f"; for {len(found) - len(given)} there is not enough data for this budget."
                if len(given) < len(found)
                else "."
            ),
        ),
    )
    return study_report(record, "Description of the rows of all parties", answers, sections)


def study_report(
    record: Mapping[str, Any],
    title: str,
    answers: Sequence[tuple[str, str]],
    sections: Sequence[Section],
) -> Report:
    """The page of a study: its answers, what it spent, and what stands below.

    Parameters
    ----------
    record
        As :meth:`dpadmm.studies.study.StudyRun.record` has it.
    title, answers, sections
        What the study says.
    """
    privacy = PrivacyStatement.from_dict(record["privacy"])
    parties = record["parties"]
    banners: tuple[Banner, ...] = ()
    if privacy.simulated:
        text = "Its noise is reproducible: the figures are those of a rehearsal, and not private."
        banners = (Banner("danger", SIMULATION, text),)
    spent = (
        f"{pair(privacy.epsilon, privacy.delta)}-differential privacy of each party, in all. "
        f"{'; '.join(words for _, words in privacy.details)}"
    ).strip()
    tiles = (
        Tile(str(record["rows"]), "rows"),
        Tile(str(len(parties)), "parties" if len(parties) > 1 else "party"),
        Tile(f"{privacy.epsilon:.3g}", "epsilon spent"),
    )
    shown = Table.of(
        ("party", "rows", "epsilon", "delta"),
        [
            (
                shown_name(party["name"]),
                party["rows"],
                record["privacy"]["parties"][party["name"]]["epsilon"],
                record["privacy"]["parties"][party["name"]]["delta"],
            )
            for party in parties
        ],
        "What each party spent",
    )
    guarantee = Section("The guarantee", (Facts(tuple(privacy.lines())), shown))
    return Report(
        title=title,
        subtitle=f"Study {record['run_id']}, dpadmm {record['dpadmm']}",
        banners=banners,
        tiles=tiles,
        answers=(*answers, ("What was spent?", spent)),
        sections=(*sections, guarantee),
    )


def _figure_sections(found: Sequence[Mapping[str, Any]], percent: str) -> Iterator[Section]:
    for kind, together in groupby(found, key=lambda figure: str(figure["kind"])):
        blocks: list[Block] = []
        figures = list(together)
        for column, same in groupby(figures, key=lambda figure: str(figure["column"])):
            each = list(same)
            if kind in _DRAWN and len(each) <= _MOST_BARS and any("value" in one for one in each):
                blocks.append(_bars(kind, column, each, percent))
        blocks.insert(0, figures_table(figures, percent))
        yield Section(_KINDS.get(kind, kind), tuple(blocks))


def figures_table(figures: Sequence[Mapping[str, Any]], percent: str) -> Table:
    """Figures with their intervals."""
    heads = ("of", "group", "item", "value", f"{percent} from", "to")
    rows = [
        (
            shown_name(figure["column"]),
            shown_name(figure.get("group", "")),
            shown_name(figure.get("item", "")),
            figure.get("value", figure.get("reason", "")),
            figure.get("low", ""),
            figure.get("high", ""),
        )
        for figure in figures
    ]
    return Table.of(heads, rows)


def _bars(kind: str, column: str, figures: Sequence[Mapping[str, Any]], percent: str) -> BarPlot:
    named = [(_bar_name(figure), figure) for figure in figures if "value" in figure]
    return BarPlot(
        shown_name(column),
        "what",
        "rows" if kind == "count" else "correlation" if kind == "correlation" else "share of rows",
        tuple(
            Bar(name or shown_name(column), figure["value"], low=figure["low"], high=figure["high"])
            for name, figure in named
        ),
        caption=f"Lines are {percent} intervals for sampling and noise together.",
    )


def _bar_name(figure: Mapping[str, Any]) -> str:
    return shown_name(", ".join(figure[key] for key in ("group", "item") if key in figure))


def _proposed_section(proposed: Sequence[Mapping[str, Any]]) -> Section:
    rows = [
        (
            shown_name(each["column"]),
            "hidden by the noise" if each["lower"] is None else each["lower"],
            "" if each["upper"] is None else each["upper"],
            each["transform"] or "",
        )
        for each in proposed
    ]
    words = (
        "Bounds in powers of two that hold nearly all values, as far as the noise tells. They come "
        "from private rows: a schema that takes them says so, and what it cost."
    )
    table = Table.of(("column", "lower", "upper", "transform"), rows)
    return Section("Proposed bounds", (Words(words), table))


#: The page of each kind of study.
REPORTS: Final[dict[str, Callable[[Mapping[str, Any]], Report]]] = {"describe": describe_report}
