"""A file that appears under its name complete and durable, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dpadmm.schema import DataError

__all__ = ["check_writable", "write_whole", "written_whole"]


@contextmanager
def written_whole(
    path: Path, what: str, *, private: bool = False, new: bool = False
) -> Iterator[BinaryIO]:
    """Open a file beside `path` and rename it at the end; leave nothing behind otherwise.

    Parameters
    ----------
    path
        The file to make; one that is there is replaced at the end, unless ``new``.
    what
        How a refusal calls it.
    private
        Only its owner may read it.
    new
        Refuse where a file of this name has come to be in the meantime.

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
            # A link, unlike a rename, never replaces: of two writers one is refused.
            os.link(partial, path)
        else:
            os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _refusal(path, what, error) from None
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Write all of a file at once (see :func:`written_whole`)."""
    with written_whole(path, what) as file:
        file.write(content)


def check_writable(path: Path, what: str) -> None:
    """Refuse now what could only fail after hours: a place where no file can be made."""
    if path.is_dir():
        raise DataError(f"{what} must be a file; {path} is a folder: choose another name")
    if not path.parent.is_dir():
        raise DataError(f"{what} must be in a folder that exists; got {path}: make the folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DataError(f"{what} must be in a folder that can be written; got {path}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(path: Path, what: str, error: OSError) -> DataError:
    return DataError(
        f"{what} must be writable with enough room; got {path}: {error.strerror or error}: choose "
        "another place or free some room"
    )
