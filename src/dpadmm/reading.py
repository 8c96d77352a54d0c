"""Small files that dpadmm writes, read where somebody else may have made them.

A name may lead to a pipe, a device or an endless file, JSON may be deep or hold numbers that no
number is. So a file is opened without waiting, must be a regular one and is read up to a bound;
JSON is plain data of bounded depth with finite numbers. Whatever is wrong is one sentence.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

from dpadmm.errors import ParameterError

__all__ = ["FileRefusal", "parse_json", "read_json", "read_regular", "read_text"]

#: Far more than any configuration, record or status file takes.
LARGEST: Final = 64 << 20
_PIECE: Final = 1 << 20
# What dpadmm writes is a few levels deep; whatever walks over it may call itself so often.
_DEEPEST: Final = 100


class FileRefusal(ParameterError):
    """A file that cannot be used; the sentence says why, without the file's name."""


def read_regular(path: str | Path, *, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file.

    Raises
    ------
    FileRefusal
        If it cannot be read, is no regular file, or is longer than ``largest`` bytes.
    """
    try:
        # A pipe that nobody writes to must not keep us waiting.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise FileRefusal(getattr(error, "strerror", None) or str(error)) from None
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise FileRefusal("Is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise FileRefusal("it is a pipe, a socket or a device, and no file")
        if status.st_size > largest:
            raise FileRefusal(f"it has {status.st_size} bytes, more than the {largest} allowed")
        content = bytearray()
        while len(content) <= largest and (piece := os.read(handle, _PIECE)):
            content += piece
    except OSError as error:
        raise FileRefusal(error.strerror or str(error)) from None
    finally:
        os.close(handle)
    # Some files, such as those of /proc, do not say how long they are.
    if len(content) > largest:
        raise FileRefusal(f"it has more than the {largest} bytes allowed")
    return bytes(content)


def read_text(path: str | Path, *, largest: int = LARGEST) -> str:
    """The text of a regular file in UTF-8, without a byte order mark."""
    try:
        return read_regular(path, largest=largest).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileRefusal(f"it is not UTF-8: {error}") from None


def parse_json(data: bytes | str) -> Any:
    """Plain data from JSON; not too deep, and every number in it is finite.

    Raises
    ------
    FileRefusal
        If it is something else.
    """
    try:
        content = json.loads(data, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise FileRefusal("its JSON is too deep") from None
    except ValueError as error:
        raise FileRefusal(f"it is not JSON that dpadmm writes: {error}") from None
    _check_depth(content)
    return content


def read_json(path: str | Path, *, largest: int = LARGEST) -> Any:
    """Plain data from a regular file of JSON."""
    return parse_json(read_regular(path, largest=largest))


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _check_depth(content: Any) -> None:
    level = [content]
    for _ in range(_DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise FileRefusal("its JSON is too deep")
