"""Drawing: a legend that serves several panels must be right for all of them."""

import re

from dpadmm.experiments.figures import Curve, Panel, draw

NAMES = [f"algorithm {letter}" for letter in "abcdefgh"]


def panel(title, names):
    curves = tuple(Curve(name, (1, 2), (0.1, 0.2), calibration="proven") for name in names)
    return Panel(title, "x", "y", curves)


def colours_of(svg):
    """The colours of the curves' lines, panel by panel; grid and axes are not coloured."""
    panels = re.split(r'<g id="axes_\d+">', svg)[1:]
    lines = re.compile(
        r'<g id="line2d_\d+">\s*<path [^>]*stroke: (#[0-9a-f]{6}); stroke-width: 1.5'
    )
    return [lines.findall(part.split('<g id="legend_')[0]) for part in panels]


def test_one_legend_below_has_one_colour_for_a_name_in_all_panels(tmp_path):
    draw([panel("all", NAMES), panel("some", NAMES[:2:-1])], tmp_path / "figure", "heading")
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.count('<g id="legend_') == 1
    every, some = colours_of(svg)
    assert len(set(every)) == len(NAMES)
    assert some[: len(NAMES) - 3] == every[:2:-1]


def test_panels_that_differ_have_legends_of_their_own(tmp_path):
    draw([panel("one", NAMES[:2]), panel("two", NAMES[2:4])], tmp_path / "figure", "heading")
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.count('<g id="legend_') == 2
