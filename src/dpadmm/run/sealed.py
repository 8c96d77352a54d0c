"""A file of one JSON document and some arrays, in which a single changed byte shows.

It is a zip file without compression: ``model.json`` and one ``.npy`` member per array (numbers in
little-endian order, or text). The comment at its end is ``dpadmm-model/<version> sha256:<digest>``
with the sha256 of every byte before the digest. Nothing in it is ever executed: there is no pickle.

The digest finds damage. It does not prove who made the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.durable import parse_json

MODEL_VERSION: Final = 1
"""Version of the layout."""
COLUMNS_VERSION: Final = 2
"""Version of the layout where weights are for columns as given, before ``data_norm`` divides."""
_VERSIONS: Final = (MODEL_VERSION, COLUMNS_VERSION)

DOCUMENT: Final = "model.json"
DIGEST_LENGTH: Final = 64
COMMENT: Final = re.compile(rb"dpadmm-model/(\d{1,9}) sha256:[0-9a-f]{64}\Z")
LARGEST_COMMENT: Final = 128
# A fixed time keeps the bytes a function of the content; zip knows none before 1980.
TIME: Final = (1980, 1, 1, 0, 0, 0)
_KINDS: Final = "biufU"
MOST_EMPTY_TEXTS: Final = 1_000_000


class ModelError(ValueError):
    """A model that cannot be saved or loaded, in one sentence."""


def pack(
    document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], version: int = MODEL_VERSION
) -> bytes:
    """Put a document and arrays together."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        text = json.dumps(document, indent=1, allow_nan=False)
        file.writestr(zipfile.ZipInfo(DOCUMENT, TIME), text)
        for name, array in arrays.items():
            file.writestr(zipfile.ZipInfo(f"{name}.npy", TIME), _array_bytes(array))
        file.comment = f"dpadmm-model/{version} sha256:{'0' * DIGEST_LENGTH}".encode()
    covered = buffer.getvalue()[:-DIGEST_LENGTH]
    return covered + hashlib.sha256(covered).hexdigest().encode()


def unpack(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Take apart what :func:`pack` made; `where` is how a refusal calls it.

    Raises
    ------
    ModelError
        If it is something else, of another version, or has a changed byte.
    """
    comment = COMMENT.search(data[-LARGEST_COMMENT:])
    if comment is None:
        raise ModelError(
            f"model must be a whole file that dpadmm wrote; got {where}, which is none or damaged"
        )
    version = int(comment[1])
    if version not in _VERSIONS:
        raise ModelError(
            f"model must be of format version {' or '.join(map(str, _VERSIONS))}; {where} is of "
            f"version {version}: use the dpadmm that wrote it"
        )
    damaged = ModelError(f"model must be as it was written; {where} is damaged: get it again")
    covered, digest = data[:-DIGEST_LENGTH], data[-DIGEST_LENGTH:]
    if hashlib.sha256(covered).hexdigest().encode() != digest:
        raise damaged
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            _check_members(file, len(data))
            document = parse_json(file.read(DOCUMENT))
            names = [name for name in file.namelist() if name != DOCUMENT]
            arrays = {name.removesuffix(".npy"): _array(file.read(name)) for name in names}
    except Exception:  # whatever the parsers of zip files, JSON and arrays raise
        raise damaged from None
    if not isinstance(document, dict):
        raise damaged
    return document, arrays


def _check_members(file: zipfile.ZipFile, size: int) -> None:
    """Refuse members that would take more memory than the file has bytes."""
    members = file.infolist()
    stored = all(item.compress_type == zipfile.ZIP_STORED for item in members)
    if not stored or sum(item.file_size for item in members) > size:
        raise ValueError("not an archive that was written here")


def _array_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    np.lib.format.write_array(buffer, little.reshape(array.shape), (1, 0), allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes) -> NDArray[Any]:
    """Read an array whose header must agree with its length, so that none asks for memory."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("another version of the array format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    body = data[stream.tell() :]
    if fortran or dtype.kind not in _KINDS or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("not an array that was written here")
    if not dtype.itemsize and math.prod(shape) > MOST_EMPTY_TEXTS:
        raise ValueError("texts without letters that take memory")
    # A copy: what is read from bytes cannot be written to. Text without letters has no items.
    flat = np.frombuffer(body, dtype) if dtype.itemsize else np.zeros(math.prod(shape), dtype)
    return flat.reshape(shape).astype(dtype.newbyteorder("="))
