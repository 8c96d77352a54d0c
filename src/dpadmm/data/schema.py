"""A schema: numeric and categorical columns, the label, and what a weight means in their units."""

from __future__ import annotations

import hashlib
import math
import operator
import tomllib
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import tomli_w
from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from dpadmm.data.feature_maps import (
    FeatureMap,
    FourierFeatures,
    FourierMap,
    PolynomialMap,
    ProductFeatures,
    default_scale,
)
from dpadmm.data.values import Delimiter, Reading, Spelling
from dpadmm.durable import FileRefusal, read_text
from dpadmm.errors import DataError, fail, finding, refuse_repeats, shown_value
from dpadmm.plain import Array, Finite, Name, Names, Part, Text, Texts, as_tuple, canonical_json

DEFAULT_MISSING_VALUES: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells that mean "not known" unless the schema says otherwise (compared after trimming)."""


#: What the bounds of a numeric column may become: the lower one, and the upper one.
RANGES: Final = ((-1.0, 1.0), (0.0, 1.0))
_CENTRED, _FROM_ZERO = RANGES
# Beside a larger constant, a row scaled down to norm 1 has next to nothing left of its columns.
_LARGEST_CONSTANT: Final = 1000


def _as_range(value: Any) -> Any:
    found = tuple(value) if isinstance(value, (list, tuple)) else value
    if found is not None and found not in RANGES:
        raise fail(f"must be [-1, 1] or [0, 1]; got {shown_value(value)}: correct it")
    return found if found is None else (float(found[0]), float(found[1]))


def _as_constant(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and 0 < value <= _LARGEST_CONSTANT:
        return float(value)
    raise fail(
        f"must be true, false or a positive number up to {_LARGEST_CONSTANT}, the constant's "
        f"weight; got {shown_value(value)}: correct it"
    )


Range = Annotated[tuple[float, float] | None, BeforeValidator(_as_range)]
Constant = Annotated[bool | float, BeforeValidator(_as_constant)]


class NumericColumn(Part):
    r"""A number between two public bounds, which become the ends of ``range``.

    .. math:: x = r_0 + (r_1 - r_0)\,
              \frac{f(v) - f(\mathrm{lower})}{f(\mathrm{upper}) - f(\mathrm{lower})}

    with f(v) = v, or the transform.

    Parameters
    ----------
    name
        Name of the column in the file.
    lower, upper
        Public bounds; a value outside is moved to the nearer one.
    missing
        Whether a column says that the value is missing (not a finite number).
    fill
        What stands for a missing value; unless given, what becomes the middle of ``range``.
    range
        ``[-1, 1]`` or ``[0, 1]``; unless given, the former in a schema of version 2 and the latter
        in one of version 1.
    transform
        ``"log1p"`` takes log(1 + v) of a value and of both bounds, for counts and amounts of which
        most are small and a few are large; the value itself unless given.
    """

    name: Name
    kind: Literal["numeric"] = "numeric"
    lower: Finite
    upper: Finite
    missing: bool = True
    fill: Finite | None = None
    range: Range = None
    transform: Literal["log1p"] | None = None

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without them a column is written as before there were any, to the byte.
        return {
            key: value
            for key, value in serialize(self).items()
            if key not in ("range", "transform") or value is not None
        }

    @model_validator(mode="after")
    def _check(self) -> NumericColumn:
        if not self.lower < self.upper:
            raise fail(
                f"lower must be less than upper; got lower = {self.lower:g} and "
                f"upper = {self.upper:g}: swap them or widen them"
            )
        if not math.isfinite(self.upper - self.lower):
            raise fail(
                f"upper - lower must be a finite number; got lower = {self.lower:g} and "
                f"upper = {self.upper:g}: narrow them"
            )
        if self.fill is not None and not self.lower <= self.fill <= self.upper:
            raise fail(
                f"fill must be between lower = {self.lower:g} and upper = {self.upper:g}; "
                f"got {self.fill:g}: choose one inside"
            )
        if self.transform is not None and self.lower < 0:
            raise fail(
                f"lower must be 0 or more with transform = {self.transform!r}; got {self.lower:g}: "
                "raise it, or remove transform"
            )
        if not operator.lt(*self.bounds):
            raise fail(
                f"lower and upper must have different logarithms; got {self.lower!r} and "
                f"{self.upper!r}: widen them, or remove transform"
            )
        return self

    @property
    def fill_value(self) -> float:
        """The value that stands for a missing one."""
        if self.fill is not None:
            return self.fill
        low, high = self.bounds
        middle = low / 2 + high / 2
        return middle if self.transform is None else min(math.expm1(middle), self.upper)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds after the transform."""
        if self.transform is None:
            return self.lower, self.upper
        low, high = np.log1p([self.lower, self.upper]).tolist()
        return low, high

    def transformed(self, values: Array) -> Array:
        """Values within the bounds, after the transform; they stay within its bounds."""
        if self.transform is None:
            return values
        return np.clip(np.log1p(values), *self.bounds)

    @property
    def encoded_name(self) -> str:
        """The name of the encoded column."""
        return self.name if self.transform is None else f"{self.transform}({self.name})"

    @property
    def ends(self) -> tuple[float, float]:
        """What the bounds become."""
        return _FROM_ZERO if self.range is None else self.range


class CategoricalColumn(Spelling):
    """One of a public list of levels; encoded as one column per level (one-hot).

    Files may spell levels otherwise: see :class:`~dpadmm.data.values.Spelling`.

    Parameters
    ----------
    name
        Name of the column in the file.
    levels
        The levels, as text (numbers are compared as text: ``1`` and ``1.0`` agree).
    missing, other
        Whether there is a column for a missing value, and one for a value that is no level.
        Without it such a value encodes as zeros.
    """

    name: Name
    kind: Literal["categorical"] = "categorical"
    levels: Texts
    missing: bool = True
    other: bool = True

    @field_validator("levels")
    @classmethod
    def _check(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        if not levels:
            raise fail("levels must have at least one value; got none: list the levels")
        return refuse_repeats(levels, "levels must list each value once")

    @model_validator(mode="after")
    def _check_levels(self) -> CategoricalColumn:
        self.check_spelling(self.levels, "levels")
        return self


Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]


class Label(Spelling):
    """The column to predict.

    Files may spell classes otherwise: see :class:`~dpadmm.data.values.Spelling`.

    Parameters
    ----------
    column
        Name of the column in the file.
    classes
        The list of classes (at least two). Of two, the second is the positive one.
    positive
        Instead of ``classes``: the positive value, against all others together.

    Notes
    -----
    A label that is missing or no class becomes the first class (the negative one where there
    are two) and is counted.
    """

    column: Name
    classes: Texts | None = None
    positive: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.classes is None) == (self.positive is None):
            raise fail(
                "exactly one of classes (a list) and positive (one value) must be given; got "
                f"{'neither' if self.classes is None else 'both'}: keep one"
            )
        if self.classes is not None:
            if len(self.classes) < 2:
                raise fail(
                    f"classes must have at least two values; got {len(self.classes)}: "
                    "list all classes"
                )
            refuse_repeats(self.classes, "classes must list each value once")
        self.check_spelling(self.told, "positive" if self.classes is None else "classes")
        return self

    @property
    def told(self) -> tuple[str, ...]:
        """The values that are written in files: the classes, or the positive one alone."""
        return (str(self.positive),) if self.classes is None else self.classes

    @property
    def names(self) -> tuple[str, ...]:
        """The classes in the order of their codes."""
        if self.classes is not None:
            return self.classes
        return (f"not {self.positive}", str(self.positive))


SCHEMA_HASH_PREFIX: Final = "dpadmm-schema/1"
_WRITTEN_IF_GIVEN: Final = (
    *("fourier", "polynomial", "delimiter", "decimal", "missing_marks", "measured"),
)


class FormerBounds(Part):
    """Bounds and scale of a numeric column before a look at private rows proposed others."""

    name: Name
    lower: Finite
    upper: Finite
    fill: Finite | None = None
    transform: Literal["log1p"] | None = None


class Measured(Part):
    """Columns whose bounds a charged look at private rows proposed, and at which cost."""

    columns: Names
    before: Annotated[tuple[FormerBounds, ...], BeforeValidator(as_tuple)] = ()
    epsilon: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0)]
    study: Name


def _positive_zero(value: float) -> float:
    # -0.0 and 0.0 encode alike, so they must hash alike.
    return value + 0.0


class Schema(Part):
    """Columns, label, constant and map: all that fixes the encoding of a row.

    Parameters
    ----------
    version
        1, which a file without it has, or 2: the range of numeric columns without one.
    columns
        :class:`NumericColumn` and :class:`CategoricalColumn` in any order.
    label
        The column to predict.
    constant
        Whether a column of ones is added (before the row is brought to norm 1), or the positive
        number to add instead of ones.
    missing_values
        Texts that mean a missing value. A level of the same text wins.
    party
        Name of a column that says which party a row belongs to, if one file holds several.
    ignore
        Columns that a file may have and that are not read.
    fourier
        Random Fourier features that the encoded columns become
        (:class:`~dpadmm.data.feature_maps.FourierMap`), which have norm 1 and no constant. Without
        a scale it is :func:`~dpadmm.data.feature_maps.default_scale` of these columns.
    polynomial
        Products of pairs of encoded columns, which stand between the columns and the constant
        (:class:`~dpadmm.data.feature_maps.PolynomialMap`). A schema has one map at most.
    delimiter
        Between the cells of CSV files, unless who reads one says otherwise; a comma (a tab for
        ``.tsv``) without it.
    decimal
        ``","`` where numbers in files may be written with a comma; those with a point are read as
        ever.
    missing_marks
        Further texts that mean a missing value in files, which are no part of the hash.
    measured
        Where bounds came from private rows; no part of the hash.

    Notes
    -----
    The encoded columns are, in this order: every numeric column in the order of the schema;
    their ``missing`` columns; for every categorical column its levels, then ``missing``, then
    ``other``; the constant. With a map they are not brought to norm 1 but become the features that
    classifiers are trained on, which are.
    """

    version: Literal[1, 2] = 1
    label: Label
    columns: Annotated[tuple[Column, ...], BeforeValidator(as_tuple)]
    constant: Constant = False
    missing_values: Texts = DEFAULT_MISSING_VALUES
    party: Name | None = None
    ignore: Names = ()
    fourier: FourierMap | None = None
    polynomial: PolynomialMap | None = None
    delimiter: Delimiter | None = None
    decimal: Literal[".", ","] | None = None
    missing_marks: Texts = ()
    measured: Annotated[tuple[Measured, ...], BeforeValidator(as_tuple)] = ()

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without them a schema is written as before there were any, to the byte.
        return {
            key: value
            for key, value in serialize(self).items()
            if key not in _WRITTEN_IF_GIVEN or value
        }

    @field_validator("columns")
    @classmethod
    def _with_ranges(cls, columns: tuple[Column, ...], info: ValidationInfo) -> tuple[Column, ...]:
        if info.data.get("version") != 2:
            return columns
        return tuple(
            column.model_copy(update={"range": _CENTRED})
            if isinstance(column, NumericColumn) and column.range is None
            else column
            for column in columns
        )

    @field_validator("fourier")
    @classmethod
    def _with_scale(cls, told: FourierMap | None, info: ValidationInfo) -> FourierMap | None:
        columns = info.data.get("columns", ())
        if told is None or not columns:
            return told
        ends = [column.ends for column in columns if isinstance(column, NumericColumn)]
        widths = (highest - lowest for lowest, highest in ends)
        return told.with_scale(default_scale(widths, len(columns) - len(ends)))

    @model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.columns:
            raise fail("columns must have at least one column besides the label; got none")
        refuse_repeats(self.missing_values, "missing_values must list each value once")
        party = () if self.party is None else (self.party,)
        names = (*(c.name for c in self.columns), self.label.column, *party, *self.ignore)
        refuse_repeats(names, "a column must have one role (a column, the label, party or ignore)")
        # Names must not make two encoded columns look the same in a report.
        refuse_repeats(self.column_names, "the encoded columns must list each value once")
        if self.fourier is not None and self.polynomial is not None:
            raise fail("a schema must have one of [fourier] and [polynomial]; got both: remove one")
        if self.fourier is not None and self.constant:
            raise fail(
                "constant must be false with [fourier], whose rows have norm 1 without one; got "
                f"{shown_value(self.constant)}: remove one of the two"
            )
        if self.polynomial is not None:
            columns = len(self.column_names) - bool(self.constant)
            if (why := self.polynomial.excess(columns)) is not None:
                raise fail(why)
            refuse_repeats(self.feature_names, "the features must list each name once")
        return self

    @cached_property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns in the order of the schema."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @cached_property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns in the order of the schema."""
        return tuple(c for c in self.columns if isinstance(c, CategoricalColumn))

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of what classifiers are trained on, in order: encoded columns or what they become.

        Their number is the number of weights of each output.
        """
        return self.column_names if self.feature_map is None else self.feature_map.names

    @cached_property
    def feature_map(self) -> FeatureMap | None:
        """What encoded columns become; None if classifiers are trained on them as they are."""
        if self.fourier is not None:
            return FourierFeatures(self.fourier, len(self.column_names))
        if self.polynomial is None:
            return None
        return ProductFeatures(
            [name for _, name in self._sourced_names],
            sources=[source for source, _ in self._sourced_names],
            numbers=len(self.numeric),
            constant=bool(self.constant),
        )

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the encoded columns, in order."""
        names = (name for _, name in self._sourced_names)
        return (*names, *(["constant"] * bool(self.constant)))

    @cached_property
    def _sourced_names(self) -> tuple[tuple[str, str], ...]:
        """For each encoded column but the constant: the column of a file, and its own name."""
        found = [(column.name, column.encoded_name) for column in self.numeric]
        found += [(c.name, f"{c.name} is missing") for c in self.numeric if c.missing]
        for column in self.categorical:
            name = column.name
            found += [(name, f"{name}={level}") for level in column.levels]
            found += [(name, f"{name} is missing")] * column.missing
            found += [(name, f"{name} is other")] * column.other
        return tuple(found)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the order of their codes."""
        return self.label.names

    @property
    def outputs(self) -> int:
        """Columns of a classifier: 1 for two classes, else one for each."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def all_missing_values(self) -> tuple[str, ...]:
        """Every text that means a missing value."""
        return (*self.missing_values, *self.missing_marks)

    @cached_property
    def entries_per_row(self) -> int:
        """The most entries other than zero that a row can have."""
        if self.feature_map is not None:
            return self.feature_map.outputs
        return len(self.numeric) + self.other_entries

    @cached_property
    def other_entries(self) -> int:
        """The most entries other than zero that an encoded row can have beside its numbers."""
        indicators = sum(column.missing for column in self.numeric)
        return indicators + len(self.categorical) + bool(self.constant)

    @cached_property
    def least_constant(self) -> float | None:
        """The smallest value that the constant has in a row of norm 1; None without a constant."""
        if not self.constant or self.fourier is not None:
            return None
        squares = sum(max(map(abs, column.ends)) ** 2 for column in self.numeric)
        squares += self.other_entries - 1
        if self.polynomial is not None:
            # The squares of all products of two columns add up to at most that.
            squares += squares**2
        return float(self.constant) / math.sqrt(max(1.0, squares + self.constant**2))

    @cached_property
    def sha256(self) -> str:
        """What runs compare: the sha256 of everything that changes the encoding of a row.

        Comments, layout and order of keys in the file do not matter, nor do ``party``, ``ignore``,
        ``delimiter``, ``decimal``, ``missing_marks``, ``aliases``, ``trim`` and ``ignore_case``,
        which say what a party's own file looks like.
        """
        columns: list[dict[str, Any]] = []
        spelling = set(Spelling.model_fields)
        for column in self.columns:
            entry = column.model_dump(exclude=spelling)
            if isinstance(column, NumericColumn):
                entry["fill"] = column.fill_value
                # Whichever version says it, and as before there were ranges.
                entry.pop("range", None)
                if column.ends != _FROM_ZERO:
                    entry["range"] = column.ends
                for key in ("lower", "upper", "fill"):
                    entry[key] = _positive_zero(entry[key])
            columns.append(entry)
        content = {
            "format": SCHEMA_HASH_PREFIX,
            "label": self.label.model_dump(exclude=spelling),
            "columns": columns,
            "constant": True if self.constant == 1.0 else self.constant,
            "missing_values": sorted(self.missing_values),
        }
        if self.fourier is not None:
            content["fourier"] = self.fourier.model_dump()
        if self.polynomial is not None:
            content["polynomial"] = {"degree": self.polynomial.degree}
        return hashlib.sha256(canonical_json(content).encode("ascii")).hexdigest()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """Its hash, and those of the schemas whose bounds, and no more, studies narrowed to its.

        Each is computed from the bounds that ``[[measured]]`` says a column had, never taken on
        its word: rows of the one are rows of the other.
        """
        if not self.measured or not self.measured[-1].before:
            return (self.sha256,)
        *earlier, last = self.measured
        former = {each.name: each.model_dump() for each in last.before}
        columns = tuple(
            NumericColumn.model_validate(column.model_dump() | former.get(column.name, {}))
            if isinstance(column, NumericColumn)
            else column
            for column in self.columns
        )
        content = {"columns": columns, "measured": tuple(earlier)}
        return (self.sha256, *Schema.from_dict(self.model_dump() | content).hashes)

    @property
    def reading(self) -> dict[str, Any]:
        """How a file is written, as plain data: what its hash leaves out and its rows depend on."""
        parts = [("", self.label), *((column.name, column) for column in self.categorical)]
        return {
            "delimiter": self.delimiter,
            "decimal": self.decimal,
            "missing_marks": sorted(self.missing_marks),
            "spelt": [
                [name, sorted(map(list, part.aliases)), part.trim, part.ignore_case]
                for name, part in parts
            ],
        }

    def read_as(self, reading: Reading) -> Schema:
        """The schema for a file that is written in a way of its own; its hash is the same.

        Raises
        ------
        DataError
            If a spelling has two meanings then, or none.
        """
        told = dict(reading.told)
        if not told:
            return self
        aliases = told.pop("aliases", {})
        for name in aliases:
            if name not in (self.label.column, *(column.name for column in self.categorical)):
                raise DataError(
                    "aliases must be for the label or a categorical column of the schema; got "
                    f"{name!r}: correct it"
                )
        flags = {key: told.pop(key) for key in ("trim", "ignore_case") if key in told}

        def spelt(name: str, part: Label | Column) -> dict[str, Any]:
            written = part.model_dump()
            if isinstance(part, Spelling):
                more = (*part.aliases, *aliases.get(name, ()))
                written |= flags | {"aliases": tuple(dict.fromkeys(more))}
            return written

        marks = (*self.missing_marks, *told.get("missing_marks", ()))
        content = self.model_dump() | told | {"missing_marks": tuple(dict.fromkeys(marks))}
        content["label"] = spelt(self.label.column, self.label)
        content["columns"] = tuple(spelt(column.name, column) for column in self.columns)
        return Schema.from_dict(content)

    def without_party(self) -> Schema:
        """Return the schema without the party column, which a file may have or not."""
        if self.party is None:
            return self
        ignore = (*self.ignore, self.party)
        return Schema.from_dict(self.model_dump() | {"party": None, "ignore": ignore})

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Schema:
        """Build a schema from plain data; what is wrong with it is said in one sentence."""
        if "label" not in content:
            raise DataError(
                "schema: label must be given; got no [label] table: add one with "
                "column = ... and classes = [...] or positive = ..."
            )
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise DataError("schema: " + finding(error, partial(_place, content))) from None

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read a schema from the text of a ``schema.toml``."""
        try:
            content = tomllib.loads(text)
        # A number of thousands of digits is a ValueError of its own.
        except (ValueError, RecursionError) as error:
            raise DataError(f"schema: the file must be valid TOML; got: {error}") from None
        return cls.from_dict(content)

    def to_toml(self) -> str:
        """Write the text of a ``schema.toml`` that reads back as this schema."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def _place(content: dict[str, Any], location: tuple[int | str, ...]) -> str:
    """Where a finding is, with columns by their name instead of their number."""
    parts: list[str] = []
    items = list(location)
    if len(items) > 1 and items[0] == "columns" and isinstance(items[1], int):
        column = content["columns"][items[1]]
        name = column.get("name") if isinstance(column, dict) else None
        parts.append(f"column {name!r}" if name else f"column number {items[1] + 1}")
        # The third item is the tag of the union, which is no key of the file.
        items = items[3:]
    parts += [f"entry {item + 1}" if isinstance(item, int) else str(item) for item in items]
    return ", ".join(parts)


def load_schema(path: str | Path) -> Schema:
    """Read a ``schema.toml``.

    Raises
    ------
    DataError
        If the file cannot be read or is no valid schema.
    """
    try:
        text = read_text(path)
    except FileRefusal as error:
        raise DataError(f"schema must be a readable UTF-8 file; got {path}: {error}") from None
    try:
        return Schema.from_toml(text)
    except DataError as error:
        raise DataError(f"{error} (in {path})") from None


class ColumnWeights(NamedTuple):
    """A classifier in the units of a file.

    Attributes
    ----------
    coef
        ``(outputs, encoded columns)``: of a numeric column the weight of one unit of it, of a level
        or a missing value the weight of its being there, of the constant zero.
    intercept
        ``(outputs,)``.
    """

    coef: Array
    intercept: Array


def units_per_column(schema: Schema) -> Array:
    """How far one unit of its column moves each encoded column: 1 for levels and the constant."""
    units = np.ones(len(schema.column_names))
    for place, column in enumerate(schema.numeric):
        (lowest, highest), (lower, upper) = column.ends, column.bounds
        units[place] = (highest - lowest) / (upper - lower)
    return units


def column_weights(schema: Schema, coef: Array) -> ColumnWeights:
    r"""Turn weights of encoded columns into weights of the columns of a file.

    .. math:: w_j\,\Bigl(r_0 + (r_1-r_0)\frac{v-\ell}{u-\ell}\Bigr)
              = \frac{(r_1-r_0)\,w_j}{u-\ell}\,v
              + w_j\Bigl(r_0 - \frac{(r_1-r_0)\,\ell}{u-\ell}\Bigr)

    The first is the weight of a column with the bounds l and u, which with a transform are those of
    the transformed value, as is v. The second goes to the intercept, as does the constant with its
    weight. An encoded row is scaled down to norm 1 afterwards: the score of a file's row is that of
    its encoded row, times a positive number of its own.

    Parameters
    ----------
    schema
        How rows were encoded.
    coef
        ``(outputs, encoded columns)``.
    """
    units = units_per_column(schema)
    intercept = np.zeros(len(coef))
    for place, column in enumerate(schema.numeric):
        intercept += coef[:, place] * (column.ends[0] - units[place] * column.bounds[0])
    weights = coef * units
    if schema.constant:
        intercept += coef[:, -1] * float(schema.constant)
        weights[:, -1] = 0.0
    return ColumnWeights(weights, intercept)
