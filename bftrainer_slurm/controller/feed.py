"""The notes of elements as they come in, for the controller's loop to wait on.

A thread reads the keeper's stream and connects again when it breaks; notes that came meanwhile
are read then, as the keeper remembers them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.protocol import NumberedNote, ProtocolError

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


class Feed:
    """Notes from the keeper. ``revive`` is called when it does not answer, and returns it."""

    def __init__(self, client: KeeperClient, revive: Callable[[], KeeperClient]) -> None:
        self._client = client
        self._revive = revive
        self._notes: queue.SimpleQueue[NumberedNote] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def wait(self, timeout_s: float) -> list[NumberedNote]:
        """Return the notes that are there; wait for the first at most ``timeout_s`` seconds."""
        notes: list[NumberedNote] = []
        try:
            notes.append(self._notes.get(timeout=max(0.0, timeout_s)))
            while True:
                notes.append(self._notes.get_nowait())
        except queue.Empty:
            return notes

    def stop(self) -> None:
        """Read no more; the thread ends with the process."""
        self._stopped.set()

    def _read(self) -> None:
        identity, after = "", 0
        while not self._stopped.is_set():
            try:
                for keeper, note in self._client.watch(identity, after):
                    identity = keeper
                    if note is None:
                        continue
                    after = note.number
                    self._notes.put(note)
            except (KeeperError, ProtocolError) as error:
                logger.warning("%s", error)
            if self._stopped.wait(_RETRY_S):
                return
            try:
                revived = self._revive()
            except KeeperError as error:
                logger.error("%s", error)
                continue
            if revived != self._client:
                identity, after = "", 0
            self._client = revived
