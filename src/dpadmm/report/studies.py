"""Pages of studies, from their records: what was asked, found and spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from dpadmm.errors import unknown_name
from dpadmm.privacy.figures import AtMost, pair
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import (
    SIMULATION,
    Banner,
    Bar,
    BarPlot,
    Block,
    Cell,
    Facts,
    Plot,
    Report,
    Section,
    Table,
    Tile,
    Words,
    cell_text,
    shown_name,
)
from dpadmm.run.export import markdown_table, markdown_text

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
# Bars that stand beside the answers, at most.
_MOST_BESIDE: Final = 12
# Letters in a cell of a card.
_LONGEST: Final = 1 << 14


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
    title = "Description of the rows of all parties"
    headline = f"{len(given)} of {len(found)} figures of all parties' rows have an interval"
    return study_report(record, title, headline, answers, sections)


def study_report(
    record: Mapping[str, Any],
    title: str,
    headline: str,
    answers: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    picture: Plot | None = None,
) -> Report:
    """The page of a study: its answers, what it spent, and what stands below.

    Parameters
    ----------
    record
        As :meth:`dpadmm.studies.study.StudyRun.record` has it.
    title, headline, answers, sections, picture
        What the study says; the headline goes on with what it spent.
    """
    privacy = PrivacyStatement.from_dict(record["privacy"])
    parties = record["parties"]
    banners: tuple[Banner, ...] = ()
    if privacy.simulated:
        text = "Its noise is reproducible: the figures are those of a rehearsal, and not private."
        banners = (Banner("danger", SIMULATION, text),)
    split = dict(privacy.details).get("Split of the budget")
    spent = dict(privacy.brief())["Guarantee"]
    spent = f"{spent[:1].upper()}{spent[1:]}." + ("" if split is None else f" The split: {split}.")
    people = "a person" if privacy.rows_per_person > 1 else "a row"
    figures = pair(privacy.epsilon, privacy.delta)
    cost = f"It cost {people} of one party {figures}-differential privacy at most"
    if privacy.simulated:
        cost = f"With secret noise it would have cost {people} of one party {figures} at most"
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
    )
    below = (
        Section("What each party spent", (shown,)),
        Section("The guarantee", (Facts(tuple(privacy.lines())),)),
    )
    return Report(
        title=title,
        subtitle=f"Study {record['run_id']}, dpadmm {record['dpadmm']}",
        headline=f"{headline}. {cost}: see the guarantee below.",
        banners=banners,
        tiles=tiles,
        answers=(*answers, ("What was spent?", spent)),
        picture=picture,
        sections=(*sections, *below),
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
    table = Table.of(("column", "lower", "upper", "transform"), rows)
    return Section("Proposed bounds", (Words(words), table))


def infer_report(record: Mapping[str, Any]) -> Report:
    """The page of a regression."""
    found, without = record["found"], record.get("without_privacy", {})
    effects = [each for each in found["coefficients"] if not each["constant"]]
    percent, ratio = f"{100 * found['level']:g}%", found["effect"]
    given = [each for each in effects if each["low"] is not None]
    clear = [each for each in given if each["low"] > 0 or each["high"] < 0]
    names = ", ".join(shown_name(each["name"]) for each in clear)
    words = "No intervals are given: there is not enough data for this budget."
    if given:
        words = (
            f"{len(effects)} coefficients with {percent} intervals for sampling and noise "
            f"together. {f'Those of {names} leave out zero.' if clear else 'All include zero.'}"
        )
    asked = f"A {found['family']} regression of {shown_name(record['asked']['response'])}"
    about = f"on {', '.join(shown_name(each['name']) for each in effects)}"
    blocks: list[Block] = [_effects_table(found["coefficients"], percent, ratio)]
    exact = without.get("coefficients", ())
    drawn = _forest(effects, exact, percent) if given else None
    beside = drawn if len(effects) + len(exact) <= _MOST_BESIDE else None
    if drawn is not None and beside is None:
        blocks.insert(0, drawn)
    if "reason" in without:
        blocks.append(Words(f"Without privacy ({without['note']}): {without['reason']}"))
    elif without:
        told = f"The same rows without noise or bounds ({without['note']})"
        blocks.append(_effects_table(without["coefficients"], percent, ratio, told))
    answers = (("What was asked?", f"{asked} {about}."), ("What was found?", words))
    title = f"{found['family'].capitalize()} regression on the rows of all parties"
    clear_of = f"{len(clear)} of {len(effects)} intervals leave out zero"
    headline = f"{asked}: {clear_of if given else 'no intervals are given'}"
    sections = [Section("Coefficients", tuple(blocks))]
    return study_report(record, title, headline, answers, sections, beside)


def _forest(
    effects: Sequence[Mapping[str, Any]], without: Sequence[Mapping[str, Any]], percent: str
) -> BarPlot:
    """Private intervals, and those without privacy beside them."""
    exact = {each["name"]: each for each in without}
    bars, faint = [], []
    for each in effects[:_MOST_BARS]:
        bars.append(_effect_bar(shown_name(each["name"], 40), each))
        if each["name"] in exact:
            faint.append(f"{shown_name(each['name'], 28)}, not private")
            bars.append(_effect_bar(faint[-1], exact[each["name"]]))
    caption = f"Lines are {percent} intervals for sampling and noise together."
    if faint:
        caption += " Those in grey are of the same rows without privacy: simulation only."
    label = "effect of a column over its whole public range"
    return BarPlot(
        "Effects", "what", label, tuple(bars), caption, faint=frozenset(faint), dots=True
    )


def _effect_bar(name: str, effect: Mapping[str, Any]) -> Bar:
    value, low, high = (effect[key] for key in ("coefficient", "low", "high"))
    span = effect.get("span", 1.0)
    ends = (None, None) if low is None else (span * low, span * high)
    return Bar(name, span * value, low=ends[0], high=ends[1])


def _effects_table(
    effects: Sequence[Mapping[str, Any]], percent: str, ratio: str, title: str = ""
) -> Table:
    heads = ["coefficient", "value", "standard error", "p", f"{percent} from", "to"]
    keys = ["coefficient", "standard_error", "pvalue", "low", "high"]
    if ratio:
        heads += [ratio, "from", "to"]
        keys += ["ratio", "ratio_low", "ratio_high"]
    rows = [(shown_name(each["name"]), *(each.get(key) for key in keys)) for each in effects]
    return Table.of(heads, rows, title)


#: The page of each kind of study.
REPORTS: Final[dict[str, Callable[[Mapping[str, Any]], Report]]] = {
    "describe": describe_report,
    "infer": infer_report,
}


def study_card(record: Mapping[str, Any]) -> str:
    """The card of a study: Markdown with all that its page says, but for pictures."""
    if record["kind"] not in REPORTS:
        raise unknown_name("kind of a study", str(record["kind"]), REPORTS)
    report = REPORTS[record["kind"]](record)
    banners = [f"**{banner.heading}** {markdown_text(banner.text)}" for banner in report.banners]
    parts = [f"# {markdown_text(report.title)}", markdown_text(report.subtitle), *banners]
    parts += [markdown_text(report.headline), _in_markdown(("", ""), report.answers)]
    for section in report.sections:
        parts.append(f"## {markdown_text(section.title)}")
        for block in section.blocks:
            match block:
                case Facts(pairs):
                    parts.append(_in_markdown(("", ""), pairs))
                case Table(_, columns, rows):
                    parts.append(_in_markdown(columns, rows))
                case Words(text):
                    parts.append(markdown_text(text))
    return "\n\n".join(parts) + "\n"


def _in_markdown(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    told = [[markdown_text(cell_text(cell), longest=_LONGEST) for cell in row] for row in rows]
    return markdown_table([markdown_text(head) for head in heads], told)
