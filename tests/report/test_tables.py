"""A table comes back from CSV as it was written."""

import csv
import io

from hypothesis import example, given
from hypothesis import strategies as st

from dpadmm.report.document import Table

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
@example([("a\rb", "c\nd"), ('"', "\r\n")])
def test_whatever_the_cells_hold(rows):
    text = Table.of(("first", "second"), rows).csv()
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert read == [["first", "second"], *(list(row) for row in rows)]
    assert text.startswith("first,second\n")
