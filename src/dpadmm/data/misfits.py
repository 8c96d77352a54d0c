"""What to write where a file does not fit its schema.

The sentences quote cells that many rows have. They describe private rows, and no budget covers
them: only the owner of the rows may see them.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic_core import PydanticCustomError

from dpadmm.data.encode import Survey
from dpadmm.data.schema import CategoricalColumn, NumericColumn, Schema
from dpadmm.data.tables import Source, own_words, read_batches
from dpadmm.data.values import MISSING, OTHER, Spelling, cells_as_numbers, cells_as_text, codes_of

# A text is a spelling if at least this share of the rows has it, and more than one row. A rarer
# text may be about one person, and is not shown.
_FREQUENT: Final = 0.05
_MOST_SHOWN: Final = 10
# A column with more different texts than this has no spellings of levels.
_MOST_TEXTS: Final = 10_000
_FLAGS: Final = (("trim",), ("ignore_case",), ("trim", "ignore_case"))
_DIFFER: Final = {"trim": "white space", "ignore_case": "capitals"}
_OR_ELSE: Final = "or where the file is named: [data], [[party]] or [node]"


def misfits(
    source: Source, schema: Schema, survey: Survey, *, delimiter: str | None = None
) -> tuple[str, ...]:
    """Say what the file has that is not read as it was meant, and what to write instead.

    The sentences are about bad labels, columns without a cell that fits, and cells that are a
    number, a class or a level but for a comma, capitals or blanks. The file is read once more.

    Parameters
    ----------
    source, schema
        The file, and what it should fit, with the file's own way of writing.
    survey
        Of the same file by the same schema.
    delimiter
        Between the cells of a CSV file, if not as the schema says.
    """
    if not survey.counts.rows:
        return ()
    with own_words(source):
        cells = _looked_at(source, schema, delimiter)
    sentences: list[str] = []
    for column in schema.columns:
        if isinstance(column, NumericColumn):
            sentences += _about_numbers(column, survey, cells.commas[column.name])
        else:
            sentences += _about_levels(column, survey, cells.unknown[column.name])
    return (*sentences, *_about_labels(schema, survey, cells))


class _Cells(NamedTuple):
    """Count per column: texts without a meaning, numbers with a comma, and missing texts."""

    unknown: dict[str, Counter[str]]
    commas: Counter[str]
    missing: Counter[str]


def _looked_at(source: Source, schema: Schema, delimiter: str | None) -> _Cells:
    label = schema.label
    spelt: list[tuple[str, Sequence[str], Spelling]] = [(label.column, label.told, label)]
    spelt += [(column.name, column.levels, column) for column in schema.categorical]
    found = _Cells({name: Counter() for name, _, _ in spelt}, Counter(), Counter())
    for batch, _ in read_batches(source, schema, delimiter=delimiter):
        for name, known, part in spelt:
            texts = cells_as_text(batch[name])
            codes = codes_of(texts, known, schema.all_missing_values, part)
            _count(found.unknown[name], texts.filter(pa.array(codes == OTHER)))
            found.missing[name] += int(np.count_nonzero(codes == MISSING))
        for column in () if schema.decimal == "," else schema.numeric:
            found.commas[column.name] += _commas(batch[column.name])
    return found


def _count(counter: Counter[str], texts: pa.StringArray) -> None:
    for entry in texts.value_counts().to_pylist():
        if entry["values"] in counter or len(counter) < _MOST_TEXTS:
            counter[entry["values"]] += entry["counts"]


def _commas(cells: pa.Array) -> int:
    """How many cells are numbers only if a comma in them is read as a point."""
    plain, comma = (cells_as_numbers(cells, decimal_comma=told) for told in (False, True))
    return int(np.count_nonzero(np.isfinite(comma) & ~np.isfinite(plain)))


class _Mend(NamedTuple):
    """Return the keys that make texts known, how many rows have such texts, and the others."""

    keys: tuple[str, ...]
    rows: int
    left: Counter[str]

    def advice(self, where: str) -> list[str]:
        """Return what to write, if that helps."""
        if not self.rows:
            return []
        written = " and ".join(f"{key} = true" for key in self.keys)
        differ = " and ".join(_DIFFER[key] for key in self.keys)
        many = "1 differs" if self.rows == 1 else f"{self.rows} differ"
        return [f"{many} by {differ} only: write {written} {where}, {_OR_ELSE}"]


def _mend(part: Spelling, known: Sequence[str], unknown: Counter[str]) -> _Mend:
    best, texts = _Mend((), 0, unknown), list(unknown)
    for keys in _FLAGS:
        told: dict[str, Any] = {"trim": part.trim, "ignore_case": part.ignore_case}
        wider = Spelling(aliases=part.aliases, **told | dict.fromkeys(keys, True))
        try:
            wider.check_spelling(known, "levels")
        except PydanticCustomError:
            continue
        codes = codes_of(pa.array(texts, pa.string()), known, (), wider).tolist()
        left = Counter({t: unknown[t] for t, code in zip(texts, codes, strict=True) if code < 0})
        mended = unknown.total() - left.total()
        if mended > best.rows:
            best = _Mend(keys, mended, left)
    return best


def _aliases(left: Counter[str], known: Sequence[str], rows: int, where: str) -> list[str]:
    """The table to write for texts that many rows have."""
    often = [
        text
        for text, count in left.most_common(_MOST_SHOWN)
        if count > 1 and count >= _FREQUENT * rows
    ]
    if not often:
        return []
    entries = [f"{_quoted(text)} = {_quoted(_nearest(text, known))}" for text in often]
    return [
        f"write aliases = {{{', '.join(entries)}}} {where}, each with what it means of "
        f"{', '.join(map(repr, known))}"
    ]


def _nearest(text: str, known: Sequence[str]) -> str:
    plain = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(text.casefold(), plain, n=1)
    return plain[near[0]] if near else "..."


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _about_labels(schema: Schema, survey: Survey, cells: _Cells) -> Iterator[str]:
    label, rows, bad = schema.label, survey.counts.rows, survey.counts.bad_labels
    mend = _mend(label, label.told, cells.unknown[label.column])
    where, first = "under [label]", schema.classes[0]
    advice = mend.advice(where)
    if label.classes is None:
        # Any text but the positive one is a label here, so that none of them counts as bad.
        if not advice and not survey.classes[str(label.positive)]:
            advice = _aliases(mend.left, label.told, rows, where)
            advice = [f"no label is {label.positive!r}", *(advice or ["compare the label's cells"])]
        if advice:
            yield f"labels that may mean {label.positive!r} are not: {'; '.join(advice)}."
        advice = []
    else:
        advice += _aliases(mend.left, label.told, rows, where)
    if bad:
        missing = cells.missing[label.column]
        if missing:
            advice.append(f"complete the {missing} that are missing, or take these rows out")
        head = "every label is bad" if bad == rows else f"{bad} of {rows} labels are bad"
        written = "; ".join(advice) or "compare the label's cells with the schema's classes"
        yield f"{head}, and taken as {first!r}: {written}."


def _about_levels(
    column: CategoricalColumn, survey: Survey, unknown: Counter[str]
) -> Iterator[str]:
    name, rows = column.name, survey.counts.rows
    mend = _mend(column, column.levels, unknown)
    advice = mend.advice("in its [[columns]] table")
    if name in survey.all_missing:
        yield _missing(name)
    elif name in survey.never_fitting:
        advice += _aliases(mend.left, column.levels, rows, "in its [[columns]] table")
        written = "; ".join(advice) or "compare its cells with the levels"
        yield f"column {name!r} has none of its levels in any row: {written}."
    elif advice:
        yield f"column {name!r} has cells that are spelt otherwise than its levels: {advice[0]}."


def _about_numbers(column: NumericColumn, survey: Survey, commas: int) -> Iterator[str]:
    name = column.name
    if commas:
        yield (
            f"column {name!r} has {commas} numbers with a comma, which are taken as missing: write "
            f'decimal = "," at the top of the schema, {_OR_ELSE}.'
        )
    elif name in survey.all_missing:
        yield _missing(name)
    elif name in survey.never_fitting:
        yield (
            f"column {name!r} is outside its bounds, {column.lower:g} and {column.upper:g}, in "
            "every row that has a number: compare the units of both."
        )


def _missing(name: str) -> str:
    return (
        f"column {name!r} is missing in every row: compare its cells with the schema's bounds or "
        "levels, its missing_values, delimiter and decimal."
    )
