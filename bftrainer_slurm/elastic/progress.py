"""Telling the controller how far the training has come: one call in the user's script.

Does nothing outside an element, costs at most one small message a second, and never raises: a
report that does not arrive must not hurt the training.
"""

from __future__ import annotations

import contextlib
import os
import time

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.protocol import Note, NoteKind, ProtocolError, whole

INTERVAL_S = 1.0
_TIMEOUT_S = 0.2


class Progress:
    """Reports of one training process; call it on rank 0 only."""

    def __init__(self) -> None:
        self._client = _client()
        self._last_s = float("-inf")

    def report(self, samples: float, **measures: float) -> None:
        """Tell how many samples the trainer has trained in all, and say loss=, accuracy=, ...

        Calls within a second of the one before are dropped.
        """
        now_s = time.monotonic()
        if self._client is None or now_s - self._last_s < INTERVAL_S:
            return
        self._last_s = now_s
        client, array = self._client
        note = Note(
            NoteKind.PROGRESS, array, measures=(("samples", float(samples)), *measures.items())
        )
        with contextlib.suppress(KeeperError):
            client.tell(note)


def _client() -> tuple[KeeperClient, int] | None:
    array = os.environ.get("BFTRAINER_ELEMENT", "").partition("_")[0]
    address = os.environ.get("BFTRAINER_KEEPER", "")
    try:
        return KeeperClient(address, timeout_s=_TIMEOUT_S), whole(array)
    except ProtocolError:
        return None
