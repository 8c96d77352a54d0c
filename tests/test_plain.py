"""Numbers and JSON in one form each: what is hashed, saved and shown to machines."""

import json
import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from dpadmm.plain import (
    Delta,
    Epsilon,
    canonical_json,
    html_table,
    json_data,
    json_number,
    number_of,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, 0.0), (1e-300, 1e-300), (math.inf, "infinite"), (-math.inf, "-infinite")],
)
def test_a_number_is_written_and_read_back(value, written):
    assert json_number(value) == written
    assert number_of(json.loads(json.dumps(written))) == value


def test_what_is_no_number_is_not_called_infinite():
    assert json_number(math.nan) is None


def test_data_for_json_has_no_arrays_and_no_infinities():
    data = {1: np.array([1.0, np.inf]), "b": (np.float64(2.0), [math.nan]), "c": np.int64(3)}
    found = json_data(data)
    assert json.dumps(found, allow_nan=False)
    assert found == {"1": [1.0, "infinite"], "b": [2.0, [None]], "c": 3}


@pytest.mark.parametrize("value", [-1e-9, "-infinite", "much", None, [1.0]])
def test_an_epsilon_is_a_number_from_zero_to_infinity(value):
    with pytest.raises(ValidationError):
        TypeAdapter(Epsilon).validate_python(value)


def test_a_bound_that_is_no_number_is_infinite():
    adapter = TypeAdapter(Epsilon)
    assert adapter.validate_python(math.nan) == math.inf
    assert adapter.dump_json(math.nan) == b'"infinite"'


def test_an_infinite_epsilon_and_a_delta_of_one_are_read():
    adapter = TypeAdapter(tuple[Epsilon, Delta])
    assert adapter.validate_python(("infinite", 1)) == (math.inf, 1.0)
    assert adapter.dump_json((math.inf, 1.0)) == b'["infinite",1.0]'


def test_canonical_json_does_not_depend_on_how_it_was_written():
    text = canonical_json({"b": [1, 2.0], "a": "\u00e9"})
    assert text == '{"a":"\\u00e9","b":[1,2.0]}'
    assert canonical_json(json.loads(json.dumps({"a": "\u00e9", "b": [1, 2.0]}, indent=3))) == text
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(math.nan)


def test_a_table_for_notebooks_escapes_every_text():
    shown = html_table([("<b>", "a & b"), ("x", 3)], columns=("<i>", "\x1b"), headline="<script>")
    assert "<script>" not in shown
    assert "&lt;b&gt;" in shown
    assert "a &amp; b" in shown
    assert "\\x1b" in shown
    assert shown.count("<tr>") == 3
