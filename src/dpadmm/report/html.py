"""A report as one page of HTML: nothing to fetch, every text escaped; no script unless it is live.

A plotting library's page was the first choice for reports; its script alone weighs 4.5 MB, draws on
a canvas that no screen reader reads and needs permission to run. Here every drawing is SVG with its
data beside it, downloads are links that hold the file itself, and the page forbids itself every
request and every script (Content-Security-Policy), so that a hostile name can do no harm.

A live page is the same page with one script, by its hash: it asks whoever serves the page for the
page again and puts in what has changed. A text that came along stays a text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import count, groupby
from pathlib import Path
from typing import Final

from dpadmm.durable import write_whole
from dpadmm.report.document import (
    Banner,
    Block,
    Cell,
    Code,
    Facts,
    Plot,
    Report,
    Section,
    Table,
    Words,
    cell_text,
    cut,
    report_json,
)
from dpadmm.report.svg import FIGURE_STYLE, Html, draw, element, standalone
from dpadmm.version import __version__

#: What a report is saved as beside its page, to make the page again.
SAVED: Final = "report.json"

_STYLE: Final = FIGURE_STYLE + files("dpadmm.report").joinpath("page.css").read_text("utf-8")
_SCRIPT: Final = files("dpadmm.report").joinpath("live.js").read_text("utf-8")
_FOOTER: Final = (
    f"dpadmm {__version__} made this page. It is one file: it opens without a network, runs no "
    "script and asks nothing of any server."
)
_LIVE_FOOTER: Final = (
    f"dpadmm {__version__} makes this page. It keeps itself up to date: its one script asks the "
    "command that serves it, and nobody else."
)
# Longer tables scroll by themselves.
_TALL: Final = 14
# A longer text is cut in a table; the data to save have all of it.
_LONGEST_CELL: Final = 400
# From here on a cell is given more room.
_LONG_CELL: Final = 30


def content_policy(*, live: bool) -> str:
    """The page's permissions: show itself, and reload itself if it is live."""
    script = f"script-src {_source(_SCRIPT)}; connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; {script}style-src {_source(_STYLE)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def render(report: Report, *, every: float | None = None) -> str:
    """The whole page.

    Parameters
    ----------
    report
        What it says.
    every
        Seconds after which a live page, which somebody serves, asks for itself again.
    """
    live, numbers = every is not None, count(1)
    policy = content_policy(live=live)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", report.title),
        # Where scripts are off a live page is loaded anew.
        element("noscript", element("meta", http_equiv="refresh", content=5)) if live else None,
        element("style", Html(_STYLE)),
    )
    main = element(
        "main",
        _top(report, numbers),
        element(
            "div",
            *(
                _section(section, place, beside, numbers)
                for place, (section, beside) in enumerate(_paired(report.sections))
            ),
            class_="sections",
        ),
        id="content",
    )
    body = element(
        "body",
        element("a", "Skip to the report", class_="skip", href="#content"),
        element(
            "header",
            element("h1", report.title),
            element("p", report.headline, class_="headline") if report.headline else None,
            element("p", report.subtitle, class_="subtitle"),
            _lost() if live else None,
            *(_banner(banner) for banner in report.banners),
        ),
        main,
        element("footer", element("p", _LIVE_FOOTER if live else _FOOTER)),
        element("script", Html(_SCRIPT)) if live else None,
        data_every=every,
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def write_page(place: Path, report: Report) -> None:
    """Write a report's page, whole or not at all."""
    write_whole(place, render(report).encode(), "report")


def write_report(folder: Path, report: Report) -> None:
    """Write a report's page into a folder, and what it says beside it."""
    write_whole(folder / SAVED, report_json(report).encode(), "report")
    write_page(folder / "report.html", report)


def _top(report: Report, numbers: Iterator[int]) -> Html:
    tiles = element(
        "dl",
        *(
            element("div", element("dt", tile.label), element("dd", tile.figure))
            for tile in report.tiles
        ),
        class_="tiles",
    )
    answers = _pairs(report.answers, "answers")
    picture = None if report.picture is None else _figure(report.picture, next(numbers))
    links = [
        element("li", element("a", section.title, href=f"#section-{place}"))
        for place, section in enumerate(report.sections)
    ]
    return element(
        "div",
        element(
            "section",
            element("h2", "At a glance", id="glance", class_="hidden"),
            tiles if report.tiles else None,
            picture,
            answers,
            class_="card top" if picture else "card",
            aria_labelledby="glance",
        ),
        element("nav", element("ul", *links), aria_label="Contents") if links else None,
    )


def _paired(sections: Sequence[Section]) -> list[tuple[Section, bool]]:
    """Each section with whether it stands beside another: two narrow ones in turn do."""
    paired: list[tuple[Section, bool]] = []
    for narrow, group in groupby(sections, key=lambda section: section.narrow):
        members = list(group)
        pairs = len(members) - len(members) % 2 if narrow else 0
        paired += [(section, place < pairs) for place, section in enumerate(members)]
    return paired


def _section(section: Section, place: int, beside: bool, numbers: Iterator[int]) -> Html:
    parts, words = list[Html](), list[Html]()

    def put(shown: Html | None = None) -> None:
        """Put what was told so far beside what it is about, or by itself."""
        told = element("div", *words) if words else None
        both = told is not None and shown is not None and not beside
        if both:
            parts.append(element("div", told, shown, class_="pair"))
        else:
            parts.extend(part for part in (told, shown) if part is not None)
        words.clear()

    for drawn, blocks in groupby(section.blocks, key=lambda block: isinstance(block, Plot)):
        if drawn:
            figures = [_figure(block, next(numbers)) for block in blocks if isinstance(block, Plot)]
            put(element("div", *figures, class_="figures"))
            continue
        for block in blocks:
            if isinstance(block, Table):
                put(_block(block))
            else:
                words.append(_block(block))
    put()
    return element(
        "section",
        element("h2", section.title, id=f"section-{place}"),
        *parts,
        class_="card beside" if beside else "card",
        aria_labelledby=f"section-{place}",
    )


def _block(block: Block) -> Html:
    match block:
        case Words():
            return element("p", block.text)
        case Facts():
            return _pairs(block.pairs, "facts")
        case Table():
            note = element("p", block.note, class_="note") if block.note else None
            return element("div", _table(block), _downloads((block.title, block)), note)
        case Code():
            return element("div", element("h3", block.title), element("pre", block.text))
        case Banner():
            return _banner(block)
        case _:
            raise TypeError(f"no rule to show {type(block).__name__}")


def _banner(banner: Banner) -> Html:
    words = element("strong", banner.heading)
    return element("p", words, " ", banner.text, class_=f"banner {banner.tone}")


def _lost() -> Html:
    """What the script shows when the server does not answer."""
    words = element("strong", "NO ANSWER.")
    advice = (
        "The command that serves this page has ended or cannot be reached: what is below is old."
    )
    return element(
        "p", words, " ", advice, id="lost", class_="banner caution", role="status", hidden=True
    )


def _pairs(pairs: Iterable[tuple[str, str]], class_: str) -> Html:
    rows = (element("div", element("dt", head), element("dd", words)) for head, words in pairs)
    return element("dl", *rows, class_=class_)


def _figure(plot: Plot, number: int) -> Html:
    name = f"figure-{number}"
    drawing = draw(plot, name)
    data = plot.data()
    return element(
        "figure",
        element("h3", plot.title),
        drawing,
        element("figcaption", plot.caption) if plot.caption else None,
        _downloads((plot.title, data), standalone(drawing)),
        element("details", element("summary", data.title), _table(data), class_="data"),
        id=name,
    )


def _downloads(named: tuple[str, Table], drawing: str | None = None) -> Html:
    """Links that hold the file themselves: nothing is fetched."""
    title, table = named
    name = _file_name(title)
    links = []
    if drawing is not None:
        links.append(
            _link("Save the drawing (SVG)", title, f"{name}.svg", "image/svg+xml", drawing)
        )
    links.append(
        _link("Save the data (CSV)", title, f"{name}.csv", "text/csv", table.spreadsheet())
    )
    return element("div", *links, class_="more")


def _link(words: str, title: str, name: str, kind: str, content: str) -> Html:
    data = base64.b64encode(content.encode("utf-8", "replace")).decode()
    return element(
        "a",
        words,
        href=f"data:{kind};charset=utf-8;base64,{data}",
        download=name,
        aria_label=f"{words}: {title}",
    )


def _file_name(title: str) -> str:
    """A plain name of a file, whatever the title."""
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower())
    return "-".join(plain.split())[:60] or "data"


def _table(table: Table) -> Html:
    numeric = [
        any(row[place] is not None for row in table.rows)
        and all(not isinstance(row[place], str) for row in table.rows)
        for place in range(len(table.columns))
    ]
    head = element(
        "tr",
        *(
            element("th", column, scope="col", class_="number" if number else None)
            for column, number in zip(table.columns, numeric, strict=True)
        ),
    )
    body = (_row(row, numeric) for row in table.rows)
    tall = " tall" if len(table.rows) > _TALL else ""
    return element(
        "div",
        element(
            "table",
            element("caption", table.title),
            element("thead", head),
            element("tbody", *body),
        ),
        class_=f"scroll{tall}",
        tabindex=0,
        role="group",
        aria_label=table.title,
    )


def _row(row: tuple[Cell, ...], numeric: list[bool]) -> Html:
    cells = []
    for place, (cell, number) in enumerate(zip(row, numeric, strict=True)):
        shown = cell_text(cell) if number else cut(cell_text(cell), _LONGEST_CELL)
        long = "long" if len(shown) > _LONG_CELL else None
        attributes = {"class_": "number"} if number else {"dir": "auto", "class_": long}
        if place == 0:
            cells.append(element("th", shown, scope="row", **attributes))
        else:
            cells.append(element("td", shown, **attributes))
    return element("tr", *cells)
