"""Figures: what a curve's colour and dashes say holds in every panel."""

import xml.etree.ElementTree as ElementTree

from dpadmm.experiments.figures import Curve, Panel, colours_of, write_figure

NAMES = [f"algorithm {letter}" for letter in "abcd"]


def panel(title, names, x=(1, 2)):
    kinds = ("proven", "published")
    curves = [Curve(name, x, (0.1, 0.2), calibration=kind) for name in names for kind in kinds]
    return Panel(title, "x", "y", tuple(curves))


def lines(svg):
    return [
        each.get("class").split()
        for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
    ]


def test_the_calibrations_of_one_thing_share_a_colour_and_differ_in_dashes(tmp_path):
    write_figure([panel("one", NAMES), panel("two", NAMES)], tmp_path / "f.svg", "heading")
    found = lines((tmp_path / "f.svg").read_text())
    expected = [["series", f"s{k}", dash] for k in range(4) for dash in ("solid", "dashed")]
    assert found == expected * 2


def test_words_along_x_are_its_ticks(tmp_path):
    write_figure([panel("one", NAMES[:1], ("banana", "splice"))], tmp_path / "f.svg", "heading")
    text = (tmp_path / "f.svg").read_text()
    assert ">banana</text>" in text
    assert ">splice</text>" in text


def test_a_figure_is_one_picture_whatever_its_panels(tmp_path):
    place = tmp_path / "f.svg"
    for count in (1, 2, 3, 4, 7):
        write_figure([panel(str(k), NAMES[:2]) for k in range(count)], place, "h " * 99)
        root = ElementTree.fromstring(place.read_text())
        width, height = (float(side) for side in root.get("viewBox").split()[2:])
        inner = [each for each in root.iter("{http://www.w3.org/2000/svg}svg") if each is not root]
        assert len(inner) == count
        for each in inner:
            assert float(each.get("x")) + float(each.get("width")) <= width
            assert float(each.get("y")) + float(each.get("height")) <= height


def test_a_label_has_one_colour_in_all_panels_and_none_that_stands_beside_it():
    names = [("b", "a"), ("c", "d"), ("a", "c", "e")]
    panels = [panel(str(place), each) for place, each in enumerate(names)]
    colours = colours_of(panels)
    assert colours["b"] == 0
    for each in names:
        assert len({colours[name] for name in each}) == len(each)
    drawn = [line.colour for each in panels for line in each.plot(colours).series]
    expected = [colours[name] for each in names for name in each for _ in range(2)]
    assert drawn == expected


def test_a_legend_has_one_entry_for_both_calibrations_in_the_order_of_colours(tmp_path):
    panels = [panel("one", ("b", "a")), panel("two", ("a", "b", "c"))]
    place = tmp_path / "f.svg"
    write_figure(panels, place, "heading")
    whole = ElementTree.fromstring(place.read_text())
    drawn = [each for each in whole.iter("{http://www.w3.org/2000/svg}svg") if each is not whole]
    told = [[text.text for text in each.iter("{http://www.w3.org/2000/svg}text")] for each in drawn]
    assert told[0][:3] == ["b", "a", "dashed: published"]
    assert told[1][:4] == ["b", "a", "c", "dashed: published"]


def test_a_legend_says_the_calibration_unless_the_title_does():
    both = panel("Published and proven", NAMES[:1]).plot().series
    assert [line.name for line in both] == [f"{NAMES[0]} (proven)", f"{NAMES[0]} (published)"]
    one = Curve("dvp", (1, 2), (0.1, 0.2), calibration="published")
    told = Panel("alpha = 1, published", "x", "y", (one,))
    assert [line.name for line in told.plot().series] == ["dvp"]
    untold = Panel("alpha = 1", "x", "y", (one,))
    assert [line.name for line in untold.plot().series] == ["dvp (published)"]
