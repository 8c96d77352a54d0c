"""Markup, tables, scales and drawings, whatever they are given."""

import csv
import io
import math
import re
import tomllib
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadmm.privacy.figures import AtMost
from dpadmm.report.document import (
    Bar,
    BarPlot,
    GraphPlot,
    GuessPlot,
    LinePlot,
    Series,
    Table,
    cell_text,
    plain,
    shown_name,
)
from dpadmm.report.sections import configuration_text
from dpadmm.report.svg import FIGURE_STYLE, Html, draw, element, scale_over, standalone

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "]]></style><style>*{display:none}",
    "{name} {0} %s \\",
    "\u202egnp.exe",
    "مستشفى الشمال",
    "x" * 3000,
    "a\x00b\x1bc\ud800d",
    "=HYPERLINK(1)",
    "\u2069outside\u2068",
]
names = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))
numbers = st.floats(allow_nan=True, allow_infinity=True)


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def read(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(names, names)
def test_a_text_stays_a_text(word, value):
    read_back = read(element("p", word, title=value))
    assert [tag for tag, _ in read_back.tags] == ["p"]
    assert set(read_back.tags[0][1]) == {"title"}
    assert "".join(read_back.words) == plain(word)


@given(names)
def test_a_name_cannot_turn_the_sentence_around(name):
    shown = shown_name(name)
    assert len(shown) <= 62
    inner = shown[1:-1] if shown.startswith("\u2068") else shown
    assert not set(inner) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\n")


def test_markup_is_made_by_elements_only():
    assert element("p", Html("<b>"), "<b>") == "<p><b>&lt;b&gt;</p>"
    assert element("a", class_="x", hidden=True, id=None) == '<a class="x" hidden></a>'


@settings(max_examples=40)
@given(st.lists(st.tuples(names, st.floats(allow_nan=False), st.integers())))
def test_a_table_reads_back_from_its_csv(rows):
    table = Table("t", ("=head", "value", "count"), tuple(rows))
    head, *body = csv.reader(io.StringIO(table.spreadsheet(), newline=""))
    assert head[0] == "'=head"
    for (name, value, count), (read_name, read_value, read_count) in zip(rows, body, strict=True):
        assert read_name.removeprefix("'") == name.removeprefix("'")
        # A spreadsheet computes nothing that somebody called a party.
        assert not read_name.startswith(("=", "+", "-", "@"))
        assert float(read_value) == value
        assert int(read_count) == count


@given(st.floats(1e-12, 1e12))
def test_a_bound_is_never_shown_below_itself(value):
    # A bound that is such a number up to the rounding of doubles stays it.
    assert float(cell_text(AtMost(value))) >= value


def test_cells():
    shown = [cell_text(cell) for cell in (None, "a", 1234567, 1e-6, math.inf, AtMost(1.00001))]
    assert shown == ["", "a", "1,234,567", "1e-6", "infinite", "1.001"]


@settings(max_examples=50)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.booleans(), st.booleans(), st.integers(5, 8))
def test_scales_show_everything_between_round_ticks(values, log, from_zero, wanted):
    scale = scale_over(values, 10, 200, log=log, from_zero=from_zero)
    for value in values:
        if scale.shows(value):
            assert 10 <= scale.at(value) <= 200
    ticks = scale.ticks(wanted)
    assert 2 <= len(ticks) <= 3 * wanted
    assert list(ticks) == sorted(set(ticks))
    for tick in ticks:
        assert 10 - 1 <= scale.at(tick) <= 200 + 1


def plots(name, values):
    x = tuple(range(len(values)))
    lines = (Series(name, x, values), Series("other", x, values, values, values))
    yield LinePlot(name, name, name, lines[:1], name, limits=((name, 1.0),))
    yield LinePlot(name, name, name, lines, name, log_y=True)
    bars = tuple(Bar(name, value, abs(value), None, None) for value in values)
    yield BarPlot(name, name, name, bars, name, of_label="whole", marked=frozenset([name]))
    yield GraphPlot(name, (name, "b", "c"), (1, 2, 3), ((0, 1), (1, 2)), False, name)
    yield GraphPlot(name, (name, "b", "c"), (1, 2, 3), (), True, name)
    yield GuessPlot(name, 0.55, name)


@settings(max_examples=30)
@given(names, st.lists(numbers, min_size=1, max_size=30))
def test_a_drawing_is_a_picture_file_whatever_it_shows(name, values):
    for plot in plots(name, tuple(values)):
        drawing = draw(plot, "figure-1")
        root = ElementTree.fromstring(standalone(drawing).encode("utf-8", "replace"))
        assert root.tag.endswith("}svg")
        found = {node.tag.rpartition("}")[2] for node in root.iter()}
        shapes = {"line", "polyline", "polygon", "circle", "rect", "text", "title", "desc"}
        assert found <= shapes | {"svg", "style"}
        assert (
            "nan"
            not in " ".join(
                value
                for node in root.iter()
                for key, value in node.attrib.items()
                if key != "class"
            ).split()
        )
        table = plot.data()
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert plot.description()


def texts_of(plot, *names):
    """Where these names stand, and where the circles are."""
    root = ElementTree.fromstring(standalone(draw(plot, "figure-1")))
    found = {node.text: node for node in root.iter() if node.tag.endswith("}text")}
    circles = [node for node in root.iter() if node.tag.endswith("}circle")]
    return (
        [(float(found[name].get("x")), float(found[name].get("y"))) for name in names],
        [tuple(float(node.get(key)) for key in ("cx", "cy", "r")) for node in circles],
    )


def test_a_style_reads_the_same_whoever_writes_it_again():
    """Pythons differ in which of these signs they write out; notebooks keep what they wrote."""
    assert not set(FIGURE_STYLE) & set("\"'<>&")


@pytest.mark.parametrize("server", [True, False])
def test_twenty_parties_do_not_cover_each_other_nor_their_names(server):
    names = tuple(f"party-{number}" for number in range(20))
    edges = () if server else tuple((place, (place + 1) % 20) for place in range(20))
    places, circles = texts_of(GraphPlot("g", names, (300,) * 20, edges, server), *names)
    for place, (x, y, radius) in enumerate(circles):
        for other, (a, b, r) in enumerate(circles[:place]):
            assert math.hypot(x - a, y - b) > radius + r, (place, other)
        for other, (a, b) in enumerate(places):
            assert math.hypot(x - a, y - b) > radius, (place, other)


def test_levels_that_are_near_have_names_that_do_not_touch():
    line = Series("accuracy", (1, 100), (60.0, 88.0))
    limits = (("pooled", 88.6), ("best party alone", 87.5))
    plot = LinePlot("t", "round", "accuracy", (line,), limits=limits)
    ((_, first), (_, second)), _ = texts_of(plot, "pooled", "best party alone")
    assert second - first >= 13


def test_names_stand_beside_the_ends_of_their_lines_without_overlap():
    ends = {"low": 0.0, "high": 10.0, "next": 9.9, "third": 9.8, "lowest": -0.1}
    lines = tuple(Series(name, (1, 2), (5.0, end)) for name, end in ends.items())
    drawn = ElementTree.fromstring(draw(LinePlot("t", "x", "y", lines, beside=True), "plot"))
    texts = [each for each in drawn.iter() if each.tag.endswith("text") and each.text in ends]
    found = {each.text: (float(each.get("x")), float(each.get("y"))) for each in texts}
    assert list(found) == ["high", "next", "third", "low", "lowest"]
    heights = [y for _, y in found.values()]
    assert all(later - before >= 13 for before, later in pairwise(heights))
    width, height = (float(each) for each in drawn.get("viewBox").split()[2:])
    assert heights[-1] < height
    assert len({x for x, _ in found.values()}) == 1
    assert max(x for x, _ in found.values()) + 7 * 31 < width


def test_what_a_plot_shows_is_in_its_data():
    lines = (Series("a", (1, 2), (3.0, 4.0)), Series("b", (1, 2), (5.0, 6.0)))
    assert LinePlot("t", "x", "y", lines).data().rows == ((1, 3.0, 5.0), (2, 4.0, 6.0))
    banded = (Series("a", (1,), (3.0,), (2.0,), (4.0,)), Series("b", (2,), (5.0,)))
    expected = (("a", 1, 3.0, 2.0, 4.0), ("b", 2, 5.0, None, None))
    assert LinePlot("t", "x", "y", banded).data().rows == expected
    graph = GraphPlot("g", ("a", "b", "c"), (5, 6, 7), ((0, 1), (1, 2)))
    assert graph.data().rows[1] == ("b", 6, 2, "a, c")


def colours(text):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", text))


def contrast(first, second):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted([luminance(first), luminance(second)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drawings_can_be_told_apart_from_their_ground(scheme):
    style = files("dpadmm.report").joinpath("page.css").read_text(encoding="utf-8")
    dark = style[style.index(".drawing {") :].split("}")[0]
    palette = colours(FIGURE_STYLE) | (colours(dark) if scheme == "dark" else {})
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast(palette["ink"], palette["ground"]) > 7
    for part in ("s0", "s1", "s2", "s3", "s4", "s5", "rule", "chance"):
        assert contrast(palette[part], palette["ground"]) >= 3, part


@pytest.mark.parametrize(
    ("right", "shown"), [(0.5, 50), (0.55, 55), (0.55000000000004, 56), (0.56, 56), (1.0, 100)]
)
def test_guesses_are_rounded_up(right, shown):
    plot = GuessPlot("t", right)
    assert plot.of_hundred == shown
    assert float(cell_text(plot.data().rows[1][1])) >= right
    root = ElementTree.fromstring(draw(plot, "f"))
    kinds = [node.attrib["class"] for node in root.iter() if node.tag.endswith("circle")][:100]
    assert kinds.count("guess chance") == 50
    assert kinds.count("guess gained") == shown - 50


# Lone surrogates cannot be in a TOML file.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
leaves = st.one_of(words, st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False))
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
tables = st.dictionaries(words, values, max_size=4)


@settings(max_examples=40)
@given(st.dictionaries(words, st.one_of(values, tables, st.lists(tables, min_size=1, max_size=3))))
def test_a_configuration_reads_back(config):
    def said(value):
        return {key: item for key, item in value.items() if item not in ({}, None)}

    expected = {}
    for key, content in config.items():
        if content in ({}, []):
            continue
        expected[key] = said(content) if isinstance(content, dict) else content
        if isinstance(content, list) and all(isinstance(item, dict) for item in content):
            expected[key] = [said(item) for item in content]
    assert tomllib.loads(configuration_text(config)) == expected
