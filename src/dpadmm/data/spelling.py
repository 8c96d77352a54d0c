"""How the texts and numbers of a party's own file are written: no part of what a row means.

What a cell becomes still depends on that cell alone, and every cell becomes something. Like the
delimiter these keys are no part of a schema's hash: parties whose files are written differently
train together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from dpadmm.sentences import Name, Part, Text, Texts, as_tuple, canonical_text, fail, shown_value

WHOLE: Final = re.compile(r"-?[0-9]+")
# White space of any script, and what no one sees: byte-order marks and joiners of width zero.
_BLANK: Final = r"[\s\ufeff\u200b\u2060]+"
_AROUND: Final = re.compile(rf"\A{_BLANK}|{_BLANK}\Z")


def _one_character(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0' or not value.isascii():
        raise fail(f"must be one ASCII character; got {shown_value(value)}: correct it")
    return value


def _as_pairs(value: Any) -> Any:
    """A table of a file as pairs, none of which replaces another that is written alike."""
    if not isinstance(value, dict):
        return as_tuple(value)
    pairs = {canonical_text(alias): meant for alias, meant in value.items()}
    if len(pairs) < len(value):
        raise fail("must list each spelling once, blanks around it aside: remove one")
    return tuple(pairs.items())


Delimiter = Annotated[str, BeforeValidator(_one_character)]
"""What stands between the cells of a CSV file."""
Aliases = Annotated[
    tuple[tuple[Text, Text], ...], BeforeValidator(_as_pairs), PlainSerializer(dict)
]
"""Other spellings, and what each of them means: a table in a file, pairs here."""


def twin(text: str | None) -> str:
    """Return the same whole number with or without ``.0``; programs that write files differ."""
    text = text or ""
    whole = text.removesuffix(".0")
    if not WHOLE.fullmatch(whole):
        return text
    return whole if whole != text else f"{text}.0"


class Spelling(Part):
    """How classes or levels are spelt in files; public, and no part of a schema's hash.

    Parameters
    ----------
    aliases
        A table of other spellings, and the class or level that each means.
    trim
        Whether white space of any kind around a cell is taken off, such as no-break spaces, and
        byte-order marks; blanks, tabs and line ends always are.
    ignore_case
        Whether capital and small letters are the same.
    """

    aliases: Aliases = ()
    trim: bool = False
    ignore_case: bool = False

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without them a part is written as before there were any, to the byte.
        return {
            key: value
            for key, value in serialize(self).items()
            if key not in Spelling.model_fields or value
        }

    @property
    def folds(self) -> bool:
        """Whether texts that differ may be the same."""
        return self.trim or self.ignore_case

    def folded(self, text: str) -> str:
        """A text as it is compared."""
        if self.trim:
            text = _AROUND.sub("", text)
        return text.casefold() if self.ignore_case else text

    def check_spelling(self, known: Sequence[str], what: str) -> None:
        """Refuse spellings with two meanings or with none; ``what`` is the key of ``known``."""
        meanings: dict[str, str] = {}
        for text in known:
            same = meanings.setdefault(self.folded(text), text)
            if same != text:
                key = "ignore_case" if same.casefold() == text.casefold() else "trim"
                raise fail(
                    f"{what} must differ by more than {key} lets differ; got {same!r} and "
                    f"{text!r}: remove one of them, or {key}"
                )
        for alias, meant in self.aliases:
            if meant not in known:
                raise fail(
                    f"aliases must mean one of the {what}; got {shown_value(alias)} for "
                    f"{shown_value(meant)}, which is none: correct it"
                )
            key = self.folded(alias)
            same = meanings.get(key, meanings.get(twin(key), meant))
            if same != meant:
                raise fail(
                    f"aliases must have one meaning each; {alias!r} is {same!r} and {meant!r}: "
                    "remove one"
                )
            meanings[key] = meant


class Reading(Part):
    """How one file is written; what is not given is as the schema says.

    Parameters
    ----------
    delimiter
        Between the cells of a CSV file.
    decimal
        ``","`` where numbers may be written with a comma.
    missing_marks
        Texts that mean a missing value, beside the schema's.
    aliases
        For the label or a categorical column, by its name: a table of other spellings, and the
        class or level that each means, beside the schema's.
    trim, ignore_case
        As in :class:`Spelling`, for the label and all categorical columns.
    """

    delimiter: Delimiter | None = None
    decimal: Literal[".", ","] | None = None
    missing_marks: Texts | None = None
    aliases: dict[Name, Aliases] | None = None
    trim: bool | None = None
    ignore_case: bool | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What is given of these keys."""
        found = {key: getattr(self, key) for key in Reading.model_fields}
        return {key: value for key, value in found.items() if value is not None}
