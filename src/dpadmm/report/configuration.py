"""A recorded configuration as the TOML text that reads back as it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["configuration_text"]


def configuration_text(config: Mapping[str, Any]) -> str:
    """The text of a ``run.toml``: tables by their heads, everything inside on one line each."""
    lines: list[str] = []
    for head, content in config.items():
        if content in ({}, [], None):
            continue
        if isinstance(content, Mapping):
            lines += [f"[{_key(head)}]", *_entries(content), ""]
        elif isinstance(content, list) and all(isinstance(item, Mapping) for item in content):
            for item in content:
                lines += [f"[[{_key(head)}]]", *_entries(item), ""]
        else:
            lines.insert(0, f"{_key(head)} = {_value(content)}")
    return "\n".join(lines).strip() + "\n"


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if value not in ({}, None)
    ]


def _key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, bool | str):
        # JSON's escapes are TOML's, but for the one control character JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
