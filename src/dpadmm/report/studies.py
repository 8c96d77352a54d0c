"""Pages of studies, from their records: what was asked, found and spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from dpadmm.privacy.figures import AtMost, pair
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import (
    SIMULATION,
    Banner,
    Bar,
    BarPlot,
    Block,
    Facts,
    Plot,
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
#: Bars that stand beside the answers, at most.
_MOST_BESIDE: Final = 12


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
    words = (
        f"{len(given)} figures, each with a {percent} interval for sampling and noise together"
        + (
            f"; for {len(found) - len(given)} there is not enough data for this budget."
            if len(given) < len(found)
            else "."
        )
    )
    asked = f"{asked[:1].upper()}{asked[1:]}."
    return study_report(record, "Description of the rows of all parties", asked, words, sections)


def study_report(
    record: Mapping[str, Any],
    title: str,
    asked: str,
    found: str,
    sections: Sequence[Section],
    picture: Plot | None = None,
) -> Report:
    """The page of a study: its answers, what it spent, and what stands below.

    Parameters
    ----------
    record
        As :meth:`dpadmm.studies.study.StudyRun.record` has it.
    title, asked, found, sections, picture
        What the study says.
    """
    privacy = PrivacyStatement.from_dict(record["privacy"])
    parties = record["parties"]
    banners: tuple[Banner, ...] = ()
    if privacy.simulated:
        text = "Its noise is reproducible: the figures are those of a rehearsal, and not private."
        banners = (Banner("danger", SIMULATION, text),)
    split = dict(privacy.details).get("Split of the budget")
    cost = f"{pair(privacy.epsilon, privacy.delta)}-differential privacy"
    spent = f"{cost} of each party, in all{'' if split is None else f': {split}'}."
    tiles = (
        Tile(f"{record['rows']:,}", "rows"),
        Tile(str(len(parties)), "parties" if len(parties) > 1 else "party"),
        Tile(f"{AtMost(privacy.epsilon):4}", "epsilon spent"),
    )
    shown = Table.of(
        ("party", "rows", "epsilon", "delta"),
        [
            (
                shown_name(party["name"]),
                party["rows"],
                AtMost(record["privacy"]["parties"][party["name"]]["epsilon"]),
                AtMost(record["privacy"]["parties"][party["name"]]["delta"]),
            )
            for party in parties
            # A node states its own party's guarantee alone.
            if party["name"] in record["privacy"]["parties"]
        ],
        "Parties",
    )
    below = (
        Section("What each party spent", (shown,)),
        Section("The guarantee", (Facts(tuple(privacy.lines())),)),
    )
    return Report(
        title=title,
        subtitle=f"Study {record['run_id']}, dpadmm {record['dpadmm']}",
        banners=banners,
        tiles=tiles,
        answers=(
            ("What was asked?", asked),
            ("What was found?", found),
            ("What was spent?", spent),
        ),
        picture=picture,
        sections=(*sections, *below),
        headline=f"{found} It cost a row of one party {cost} at most.",
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
    # What no figure has is no column.
    keys = [key for key in ("group", "item") if any(key in figure for figure in figures)]
    heads = ("of", *keys, "value", f"{percent} from", "to")
    rows = [
        (
            shown_name(figure["column"]),
            *(shown_name(figure.get(key, "")) for key in keys),
            figure.get("value", figure.get("reason", "")),
            figure.get("low"),
            figure.get("high"),
        )
        for figure in figures
    ]
    return Table.of(heads, rows, f"Figures, with {percent} intervals")


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
            each["upper"],
            each["transform"] or "",
        )
        for each in proposed
    ]
    words = (
        "Bounds in powers of two that hold nearly all values, as far as the noise tells. They come "
        "from private rows: a schema that takes them says so, and what it cost."
    )
    table = Table.of(("column", "lower", "upper", "transform"), rows, "Bounds")
    return Section("Proposed bounds", (Words(words), table))


def infer_report(
    record: Mapping[str, Any], without: Sequence[Mapping[str, Any]] | None = None
) -> Report:
    """The page of a regression.

    Parameters
    ----------
    record
        As :meth:`dpadmm.studies.infer_files.Inference.record` has it.
    without
        In a simulation: the coefficients of the same regression without privacy.
    """
    found = record["found"]
    effects = [each for each in found["coefficients"] if not each["constant"]]
    percent, ratio = f"{100 * found['level']:g}%", found["effect"]
    given = [each for each in effects if each["low"] is not None]
    clear = [each for each in given if each["low"] > 0 or each["high"] < 0]
    names = ", ".join(shown_name(each["name"]) for each in clear)
    words = "No intervals are given: there is not enough data for this budget."
    if given:
        words = (
            f"{len(effects)} coefficients with {percent} intervals for sampling and noise "
            "together. "
            f"{f'The intervals of {names} leave out zero.' if clear else 'All of them include 0.'}"
        )
    asked = f"A {found['family']} regression of {shown_name(record['asked']['response'])}."
    blocks: list[Block] = [_effects_table(found["coefficients"], percent, ratio)]
    drawn = _forest("with privacy", effects, percent) if given else None
    # What is compared, or is longer than the answers, stands below.
    beside = drawn if without is None and len(effects) <= _MOST_BESIDE else None
    if drawn is not None and beside is None:
        blocks.append(drawn)
    if without is not None:
        blocks.append(_forest("without privacy", without, percent))
    title = f"{found['family'].capitalize()} regression on the rows of all parties"
    sections = [Section("Coefficients", tuple(blocks))]
    return study_report(record, title, asked, words, sections, beside)


def _forest(title: str, effects: Sequence[Mapping[str, Any]], percent: str) -> BarPlot:
    bars = tuple(
        Bar(shown_name(each["name"]), each["coefficient"], low=each["low"], high=each["high"])
        for each in effects[:_MOST_BARS]
    )
    caption = f"Lines are {percent} intervals for sampling and noise together."
    return BarPlot(f"Coefficients {title}", "what", "coefficient", bars, caption=caption)


def _effects_table(effects: Sequence[Mapping[str, Any]], percent: str, ratio: str) -> Table:
    heads = ["coefficient", "value", "standard error", "p", f"{percent} from", "to"]
    keys = ["coefficient", "standard_error", "pvalue", "low", "high"]
    if ratio:
        heads += [ratio, "from", "to"]
        keys += ["ratio", "ratio_low", "ratio_high"]
    rows = [(shown_name(each["name"]), *(each.get(key) for key in keys)) for each in effects]
    return Table.of(heads, rows, f"Coefficients, with {percent} intervals")


#: The page of each kind of study.
REPORTS: Final[dict[str, Callable[[Mapping[str, Any]], Report]]] = {
    "describe": describe_report,
    "infer": infer_report,
}
