"""What a simulated party sent, kept beside what it heard: a simulation has no ledger."""

from __future__ import annotations

from typing import final

import numpy as np

from dpadmm.federation.transport.store import MessageStore
from dpadmm.ledger.balance import STORED_TYPES
from dpadmm.ledger.base import MemoryLedger
from dpadmm.plain import Array


@final
class KeptLedger(MemoryLedger):
    """Counts one run in memory, and keeps its messages for the process that comes next.

    Parameters
    ----------
    store, run
        Where the messages are kept, under which run.
    """

    def __init__(self, store: MessageStore, run: bytes) -> None:
        super().__init__()
        self._store, self._run = store, run

    def commit(self, t: int, message: Array) -> None:
        """Keep the message of a reserved round."""
        super().commit(t, message)
        shape, kind = ",".join(str(size) for size in message.shape), message.dtype.name
        text = f"{kind}:{shape}:{message.astype(STORED_TYPES[kind]).tobytes().hex()}"
        self._store.take_note(self._run, f"simulated round {t}", text)

    def committed(self, t: int) -> Array | None:
        """The message of round ``t``, if it was committed."""
        note = self._store.note(self._run, f"simulated round {t}")
        if note is None:
            return None
        kind, shape, numbers = note.split(":")
        values = np.frombuffer(bytes.fromhex(numbers), dtype=STORED_TYPES[kind]).astype(kind)
        message: Array = values.reshape([int(size) for size in shape.split(",")])
        return message
