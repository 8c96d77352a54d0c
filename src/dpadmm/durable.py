"""Files: written atomically and durably, read within limits, closed at the end."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NoReturn, Self

from dpadmm.errors import DataError, ParameterError, is_passing, passing


class Closable(ABC):
    """Something that a ``with`` block closes, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; calling it once is enough."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


#: Far more than any configuration, record or status file needs.
LARGEST: Final = 64 << 20

_PIECE: Final = 1 << 20

# dpadmm writes a few levels only; code that walks over the data may recurse so deep.
_DEEPEST: Final = 100


class FileRefusal(ParameterError):
    """A file cannot be used; the sentence says why, without the file's name."""


def read_regular(path: str | Path, *, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file.

    Raises
    ------
    FileRefusal
        If it cannot be read, is no regular file, or is longer than ``largest`` bytes.
    """
    try:
        # Do not wait for a pipe that nobody writes to.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise FileRefusal(error.strerror or str(error)) from None
    except ValueError:
        # Our own words: those of Python differ between releases.
        raise FileRefusal("its name has a null byte or cannot be encoded") from None
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
    # Some files, such as those in /proc, do not report their length.
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
    """Parse JSON that is not too deep and has finite numbers only.

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


@contextmanager
def written_whole(
    path: Path, what: str, *, private: bool = False, new: bool = False
) -> Iterator[BinaryIO]:
    """Write a file beside `path` and rename it at the end; leave nothing behind on failure.

    Parameters
    ----------
    path
        The file to make; it replaces an existing file, unless ``new``.
    what
        What a refusal calls the file.
    private
        Only its owner may read it.
    new
        Refuse if a file of this name exists by then.

    Raises
    ------
    DataError
        If the disk is full or the place cannot be written.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        mode = 0o600 if private else 0o666
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if new:
            # Unlike a rename, a link never replaces a file: one of two writers is refused.
            os.link(partial, path)
        else:
            os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise _refusal(path, what, error) from None
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Write all of a file at once (see :func:`written_whole`)."""
    with written_whole(path, what) as file:
        file.write(content)


def check_writable(path: Path, what: str) -> None:
    """Refuse now a path that would fail only after hours: no file can be made there."""
    if path.is_dir():
        raise DataError(f"{what} must be a file; {path} is a folder: choose another name")
    if not path.parent.is_dir():
        raise DataError(f"{what} must be in a folder that exists; got {path}: make the folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DataError(f"{what} must be in a folder that can be written; got {path}")


def sync_folder(folder: Path) -> None:
    """Make the names of files in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(path: Path, what: str, error: OSError) -> DataError:
    return passing(
        DataError(
            f"{what} must be writable with enough room; got {path}: {error.strerror or error}: "
            "choose another place or free some room"
        ),
        when=is_passing(error),
    )
