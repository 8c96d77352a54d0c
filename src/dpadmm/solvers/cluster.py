"""A Dask cluster: the rows of a party on the workers of its own, and jobs for any.

Parts are encoded by the workers, one task each, and stay in their memory for as long as this
process is connected; Dask lets them go when it is not. A pass is one task for every part. Tasks are
pure: where a worker is lost, Dask encodes its parts again elsewhere and repeats its tasks, and what
comes back has the same bits. Noise is drawn here, after the pass, once: nothing that a worker does
or that is done twice is a release.

Whoever runs the cluster sees everything: rows, and gradients before noise. It belongs to the party.
"""

from __future__ import annotations

import platform
import re
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeVar, final

import numpy as np
from scipy import sparse

from dpadmm.data.encode import Survey, is_sparse, survey
from dpadmm.data.parts import RowPart, encode_part
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encoded_batches
from dpadmm.durable import Closable
from dpadmm.errors import (
    ClusterError,
    DataError,
    ParameterError,
    needs_extra,
    passing,
    positive_number,
)
from dpadmm.problem.rows import RowBlock, Shard, label_signs
from dpadmm.version import NUMBERS_FORMAT, __version__

_ADDRESS: Final = re.compile(r"(tls|tcp)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_LOOPBACK: Final = ("127.0.0.1", "[::1]", "localhost")
# Seconds: to reach a scheduler, to look whether workers are left, and to wait for one.
_CONNECT: Final = 10.0
_LOOK_EVERY: Final = 5.0
_PATIENCE: Final = 120.0

Result = TypeVar("Result")


def check_scheduler(address: object) -> str:
    """Return the address of a scheduler, or refuse one that cannot be or that goes without TLS."""
    found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 0 < int(found[3]) < 65536:
        raise ParameterError(
            f"scheduler must be tls://host:port, where a Dask scheduler listens; got {address!r}."
        )
    if found[1] == "tcp" and found[2] not in _LOOPBACK:
        raise ParameterError(
            f"scheduler must be tls://host:port unless it is on this machine: without TLS, anybody "
            f"on the way reads what is sent, and sends work; got {address}. Give scheduler and "
            "workers certificates, and this process by Dask's own settings (distributed.comm.tls)."
        )
    return found[0]


@cache
def _versions() -> dict[str, str]:
    """Versions that must agree here and at every worker, for the same rows and bits."""
    named = {name: version(name) for name in ("numpy", "scipy", "pyarrow", "distributed")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"dpadmm": f"{__version__}/{NUMBERS_FORMAT}", "python": python, **named}


def _versions_here() -> dict[str, str]:
    return _versions()


@final
class Cluster(Closable):
    """A connection to a Dask cluster; one that is given rows is the party's own.

    Parameters
    ----------
    address
        Of its scheduler, ``tls://host:port``; certificates are Dask's own settings.
    patience
        Seconds without any worker after which a pass counts as failed; unless given, what Dask's
        settings have under ``dpadmm.patience``, or 120.
    """

    def __init__(self, address: str, *, patience: float | None = None) -> None:
        with needs_extra("dask"):
            from dask import config
            from distributed import Client

        self._address = check_scheduler(address)
        told = config.get("dpadmm.patience", _PATIENCE) if patience is None else patience
        self._patience = positive_number("dpadmm.patience in Dask's settings", told)
        self._backwards = False
        try:
            with warnings.catch_warnings():
                # Versions are compared below, and in words of our own.
                warnings.simplefilter("ignore")
                self._client = Client(self._address, timeout=_CONNECT, set_as_default=False)
        except Exception as error:
            raise passing(
                ParameterError(
                    f"scheduler must be a Dask scheduler that answers; got {self._address}: "
                    f"{type(error).__name__}. Start it, correct the address, or see to Dask's own "
                    "settings for TLS (distributed.comm.tls). Nothing more was spent."
                )
            ) from None
        try:
            self._check_workers()
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        """Leave the cluster; parts that it held are let go."""
        self._client.close()

    @property
    def workers(self) -> int:
        """How many workers there are now."""
        return len(self._client.nthreads())

    def _check_workers(self) -> None:
        """Refuse a cluster without workers, or with other versions than here."""
        if not self.workers:
            raise passing(
                ParameterError(
                    f"the scheduler {self._address} must have workers; it has none. Start some "
                    f"(dask worker {self._address}). Nothing more was spent."
                )
            )
        for worker, found in self._client.run(_versions_here, on_error="return").items():
            wrong = _difference(found)
            if wrong:
                raise ParameterError(f"worker {worker} {wrong} Nothing more was spent.")

    def hold(self, parts: Sequence[RowPart], schema: Schema) -> ClusterRows:
        """Let the workers encode parts and keep them; return once they have.

        Parameters
        ----------
        parts
            As :func:`~dpadmm.data.parts.list_parts` found them.
        schema
            The public description.
        """
        heights = [part.rows for part in parts]
        layout = "sparse" if is_sparse(schema, sum(heights)) else "dense"
        return self.keep(
            _encode, parts, heights, schema=schema, layout=layout, expected=_versions()
        )

    def survey(self, parts: Sequence[RowPart], schema: Schema) -> Survey:
        """Let the workers count what parts hold; they keep nothing of them."""
        each = self.results(_survey, parts, schema=schema, expected=_versions())
        return sum(each, survey([], schema))

    def keep(
        self,
        make: Callable[..., RowBlock],
        items: Sequence[Any],
        heights: Sequence[int],
        **same: Any,
    ) -> ClusterRows:
        """Let the workers make blocks of one node, of items, and keep them.

        Parameters
        ----------
        make, items, same
            ``make(item, **same)`` makes a block, the same one whenever it is asked.
        heights
            How many rows each has.
        """
        held = self._client.map(make, items, pure=False, **same)
        found = ClusterRows(self, tuple(map(_Held, held, heights)))
        if tuple(found.map(_height)) != found.heights:
            raise DataError("parts must have the rows that they say; one has not: write it again")
        return found

    def results(
        self, task: Callable[..., Result], /, *columns: Sequence[Any], **same: Any
    ) -> list[Result]:
        """Results of one task for each item of the columns, in their order.

        Raises
        ------
        ClusterError
            If the cluster cannot give them.
        DataError
            If a part has changed.
        """
        # Every other pass begins at the last part. Where workers keep some parts on disk, those
        # that a pass used last are still in memory when the next one begins with them.
        turn = slice(None, None, -1 if self._backwards else 1)
        self._backwards = not self._backwards
        try:
            turned = [column[turn] for column in columns]
            futures = self._client.map(task, *turned, pure=False, **same)
            gathered = self._client.gather(futures, asynchronous=True)
            return list(self._awaited(gathered))[turn]
        except (DataError, ClusterError):
            raise
        except Exception as error:
            # A library's message may quote a row, so only the kind of the error is passed on.
            raise _failed(self._address, type(error).__name__) from None

    def each(self, task: Callable[..., Result], items: Sequence[Any]) -> Iterator[Result]:
        """Results of one task for each item, as they come; those of a lost worker run again.

        Raises
        ------
        ClusterError
            If no worker is left, or the scheduler is gone.
        """
        from distributed import as_completed

        futures = self._client.map(task, items, pure=False)
        coming = as_completed(futures, loop=self._client.loop, with_results=True)
        # The cluster need not keep a result that was handed out.
        del futures
        for _ in items:
            task_done, result = self._awaited(coming.__anext__())
            # Dask hands out an error in the place of the result, and does not raise it.
            if task_done.cancelled():
                raise _failed(self._address, "its scheduler is gone")
            yield result

    def _awaited(self, gathered: Coroutine[Any, Any, Any]) -> Any:
        """What Dask is gathering, unless no worker is left for too long."""
        # A node without a cluster does not load this, and stays smaller.
        from asyncio import run_coroutine_threadsafe

        waiting = run_coroutine_threadsafe(gathered, self._client.loop.asyncio_loop)
        alone: float | None = None
        try:
            while True:
                try:
                    return waiting.result(timeout=min(_LOOK_EVERY, self._patience))
                except TimeoutError:
                    now = time.monotonic()
                    alone = None if self.workers else alone or now
                    if alone is not None and now - alone >= self._patience:
                        raise _failed(self._address, "no worker is left") from None
        finally:
            waiting.cancel()


def _difference(found: object) -> str:
    """Say how versions differ from those here, as the rest of a sentence; empty if they agree."""
    if not isinstance(found, dict):
        return (
            f"must have dpadmm {__version__}, as here; it could not answer "
            f"({type(found).__name__}): install the same there."
        )
    for name, here in _versions().items():
        there = found.get(name)
        if there != here:
            return f"must have {name} {here}, as here; it has {there}: install the same there."
    return ""


def _failed(address: str, reason: str) -> ClusterError:
    return passing(
        ClusterError(
            f"the cluster at {address} must finish every pass; it did not ({reason}), and nothing "
            "was sent. Once it has workers again, start this again: with a ledger it goes on where "
            "it was, and nothing is spent twice."
        )
    )


@dataclass(frozen=True)
class _Held:
    """Rows ``first`` to ``stop`` of one part, which Dask keeps."""

    future: Any = field(repr=False)
    stop: int
    first: int = 0


@final
@dataclass(frozen=True)
class ClusterRows:
    """The rows of a party on a cluster: a :class:`~dpadmm.problem.rows.PartedRows`.

    Attributes
    ----------
    cluster, parts
        Who works, and on what.
    """

    cluster: Cluster = field(repr=False)
    parts: tuple[_Held, ...] = field(repr=False)

    def __len__(self) -> int:
        """How many rows there are."""
        return sum(self.heights)

    @property
    def heights(self) -> tuple[int, ...]:
        """How many rows each part has."""
        return tuple(part.stop - part.first for part in self.parts)

    def between(self, first: int, stop: int) -> ClusterRows:
        """The rows of these numbers, of all parts together; nothing is copied."""
        cut, start = [], 0
        for part, height in zip(self.parts, self.heights, strict=True):
            low, high = max(first - start, 0), min(stop - start, height)
            if low < high:
                cut.append(_Held(part.future, part.first + high, part.first + low))
            start += height
        return ClusterRows(self.cluster, tuple(cut))

    def map(
        self, work: Callable[..., Result], *arguments: Any, each: Sequence[Any] | None = None
    ) -> Iterator[Result]:
        """``work(block, *arguments)`` of every part, in the order of the parts: one pass."""
        columns = [
            [part.future for part in self.parts],
            [(part.first, part.stop) for part in self.parts],
        ]
        if each is not None:
            columns.append(list(each))
        same = {"work": work, "arguments": arguments, "expected": _versions()}
        yield from self.cluster.results(_work_on, *columns, **same)


# -- at a worker --------------------------------------------------------------------------------


def _check_here(expected: dict[str, str]) -> None:
    """Refuse to work where versions differ: a worker may have joined since they were compared."""
    if _versions() != expected:
        raise DataError(
            f"workers must have the versions of {', '.join(expected)} that the run began with; one "
            "that joined has others: install the same there"
        )


def _encode(part: RowPart, schema: Schema, layout: Any, expected: dict[str, str]) -> RowBlock:
    """Encode one part and lay it out as every other block of rows."""
    _check_here(expected)
    encoded = encode_part(part, schema, layout)
    signs = label_signs(encoded.labels, schema.outputs)
    (block,) = Shard.from_parties([(encoded.rows, signs)]).blocks
    return block


def _survey(part: RowPart, schema: Schema, expected: dict[str, str]) -> Survey:
    """Count what one part holds."""
    _check_here(expected)
    return survey(encoded_batches(part.file, schema), schema)


def _work_on(
    block: RowBlock,
    between: tuple[int, int],
    *last: Any,
    work: Callable[..., Result],
    arguments: tuple[Any, ...],
    expected: dict[str, str],
) -> Result:
    _check_here(expected)
    part, labels = slice(*between), block.labels
    if between != (0, labels.shape[1]):
        rows = block.rows[part] if sparse.issparse(block.rows) else block.rows[:, part]
        block = RowBlock(np.array([0]), rows, labels[:, part])
    return work(block, *arguments, *last)


def _height(block: RowBlock) -> int:
    return int(block.labels.shape[1])
