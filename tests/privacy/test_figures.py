"""Figures of privacy as they are shown: never less than what is spent, nor more than is left."""

import ast
import json
import math
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpadmm.privacy.figures import AtLeast, AtMost, Given, pair

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src" / "dpadmm", ROOT / "papers" / "src" / "dpadmm_papers")
BOUNDS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def unit(text):
    """What the last digit shown is worth."""
    shown = Decimal(text)
    return Decimal((0, (1,), shown.as_tuple().exponent))


@given(value=BOUNDS, digits=st.integers(1, 12))
@example(value=0.99996, digits=4)
@example(value=1.00004, digits=4)
@example(value=1e-6 * (1 + 1e-9), digits=6)
@example(value=5e-324, digits=3)
@example(value=math.nextafter(1, 2), digits=6)
@example(value=1.7976931348623157e308, digits=2)
def test_a_bound_is_shown_by_less_than_a_unit_of_its_last_digit_beside_itself(value, digits):
    above, below = f"{AtMost(value):{digits}}", f"{AtLeast(value):{digits}}"
    assert float(below) <= value <= float(above)
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1) if value else Decimal(1)
    assert 0 <= Decimal(above) - exact < step
    assert 0 <= exact - Decimal(below) < step


@given(BOUNDS)
@example(1e16)
def test_what_was_given_is_shown_with_all_its_digits(value):
    assert float(str(Given(value))) == value
    assert Decimal(str(Given(value))) == Decimal(repr(value))


def test_a_given_number_has_an_exponent_beyond_what_a_double_tells():
    assert (str(Given(1e16)), str(Given(1e17))) == ("10000000000000000", "1e+17")


@pytest.mark.parametrize(
    ("value", "four", "six"),
    [
        (0.0, "0", "0"),
        (0.1, "0.1", "0.1"),
        (1.0, "1", "1"),
        (1e-4, "0.0001", "0.0001"),
        (1e-5, "1e-5", "1e-5"),
        (1e4, "1e+4", "10000"),
        (0.99996, "1", "0.99996"),
        (1.00004, "1.001", "1.00004"),
        (1e-6 * (1 + 1e-9), "1.001e-6", "1.00001e-6"),
        (0.9999997614575877, "1", "1"),
        (1.2345671, "1.235", "1.23457"),
        (123456.7, "1.235e+5", "123457"),
        (math.inf, "infinite", "infinite"),
    ],
)
def test_how_bounds_look(value, four, six):
    assert (f"{AtMost(value):4}", str(AtMost(value))) == (four, six)


def test_what_is_left_is_rounded_down_and_a_pair_up():
    assert str(AtLeast(0.9999997)) == "0.999999"
    assert pair(1.0000001, 1e-6 * (1 + 1e-9)) == "(1.00001, 1.00001e-6)"
    assert str(AtMost(math.nan)) == "unknown"
    assert (str(Given(math.inf)), str(AtLeast(-math.inf))) == ("infinite", "-infinite")


@pytest.mark.parametrize("kind", [AtMost, AtLeast, Given])
@pytest.mark.parametrize("form", ["0", ".4g", "g", ".2f", "%", ">8"])
def test_no_other_format_is_taken(kind, form):
    with pytest.raises(ValueError, match="shown"):
        format(kind(0.5), form)


def test_machines_get_all_digits():
    value = 0.12345678901234567
    assert json.loads(json.dumps([AtMost(value), AtLeast(value), Given(value)])) == [value] * 3


# -- no other way to show them ---------------------------------------------------------------------

FIGURE = re.compile(r"(^|_)(eps|epsilons?|deltas?|mu|spent|left|lower_bound)(_|$)")
TEMPLATE = re.compile(r"\{[^{}:]*(epsilon|delta|spent)[^{}:]*:[^{}]+\}")
TYPES = {"AtMost", "AtLeast", "Given"}
#: Places on a drawing are no figures of privacy; and the types themselves tell how not to.
EXEMPT = {"report/svg.py", "privacy/figures.py"}
#: The keys of an experiment's cells, from which their seeds follow.
EXEMPT |= {"pr_admm/section.py"}


def names(node):
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from re.split(r"\W+", part.value)


def only_digits(form):
    """A number of digits, which a float by itself takes for a width and rounds nothing."""
    return isinstance(form, ast.JoinedStr) and all(
        isinstance(part, ast.Constant) and part.value.isdigit() for part in form.values
    )


def is_shown(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in TYPES


def rounded_to_the_nearest(tree):
    """Lines that show something called epsilon, delta or the like by a format of their own."""
    for node in ast.walk(tree):
        value = None
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            value = None if only_digits(node.format_spec) else node.value
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", None)) in ("round", "format")
            and node.args
        ):
            value = node.args[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if TEMPLATE.search(node.value):
                yield node.lineno
            continue
        if value is not None and not is_shown(value) and any(map(FIGURE.search, names(value))):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        'f"{epsilon:g}"',
        "f\"{party['delta']:.3g}\"",
        'f"{self.spent_epsilon:.6g}"',
        "round(guarantee.epsilon, 3)",
        'format(mu, ".5f")',
        'WORDS = "epsilon = {epsilon:g}"',
        'f"{100 * account.left / limit:.2f}%"',
    ],
)
def test_the_guard_sees_a_nearest_number(line):
    assert list(rounded_to_the_nearest(ast.parse(line)))


@pytest.mark.parametrize("line", ['f"{AtMost(epsilon):4} {Given(delta)} {epsilon!r} {rate:g}"'])
def test_the_guard_lets_bounds_pass(line):
    assert not list(rounded_to_the_nearest(ast.parse(line)))


def test_no_figure_of_privacy_is_rounded_to_the_nearest_number():
    found = [
        f"{file.relative_to(source)}:{line}"
        for source in SOURCES
        for file in sorted(source.rglob("*.py"))
        if str(file.relative_to(source)) not in EXEMPT
        for line in rounded_to_the_nearest(ast.parse(file.read_text()))
    ]
    assert not found
