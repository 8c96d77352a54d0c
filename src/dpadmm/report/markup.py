"""Markup in which every text is escaped: an :class:`Html` is made by :func:`element` alone.

Names of parties and columns come from others. A plain string is text wherever it stands, and
characters that would hide something (control characters, changes of the writing direction) are
shown by their number.
"""

from __future__ import annotations

import unicodedata
from html import escape
from typing import Final, TypeAlias

# Elements of HTML that have no end tag.
_VOID: Final = frozenset({"meta", "link", "br"})
# Controls, surrogates, and formats such as a change of direction; line breaks and tabs are kept.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT: Final = frozenset("\n\t\u2068\u2069")


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child: TypeAlias = str | None
Attribute: TypeAlias = str | int | float | bool | None


def plain(text: str) -> str:
    """The text with every character visible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(character):04X}"
        "\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
        if character not in _KEPT and unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def shown_name(name: str, longest: int = 60) -> str:
    """A name for the middle of a sentence: cut, on one line, in its own writing direction."""
    # What isolates a name must not come from within it.
    inner = plain(name.replace("\u2068", "\ufffd").replace("\u2069", "\ufffd"))
    inner = cut(inner, longest)
    return inner if inner.isascii() else f"\u2068{inner}\u2069"


def cut(label: str, longest: int) -> str:
    """A label that fits: on one line, every character visible, no longer than this."""
    label = " ".join(plain(label).split())
    return label if len(label) <= longest else label[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """``<name attributes>children</name>``; strings are escaped unless they are markup.

    An underscore in an attribute's name stands for a hyphen, one at its end is dropped; None and
    False leave an attribute out.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(plain(str(value)))}"')
    parts.append(">")
    if name not in _VOID:
        parts += [_safe(child) for child in children if child is not None]
        parts.append(f"</{name}>")
    return Html("".join(parts))


def _safe(child: str) -> str:
    return child if isinstance(child, Html) else escape(plain(child))
