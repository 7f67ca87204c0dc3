"""The notes of elements as they come in, for the controller's loop to wait on.

A thread reads the keeper's stream and connects again when it breaks. It then reads the notes that
came meanwhile: the keeper remembers them. It always knows which keeper there is now.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.protocol import NumberedNote

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_MOST_NOTES = 10_000  # notes that wait for the loop; then the keeper waits, and forgets old ones


class Feed:
    """Notes from the keeper. ``revive`` is called if it does not answer, and returns a keeper."""

    def __init__(self, client: KeeperClient, revive: Callable[[], KeeperClient]) -> None:
        self._client = client
        self._revive = revive
        self._identity = ""
        self._notes: queue.Queue[NumberedNote] = queue.Queue(_MOST_NOTES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    @property
    def keeper(self) -> tuple[str, KeeperClient]:
        """The identity of the present keeper (empty: none yet), and a client of it."""
        return self._identity, self._client

    def wait(self, timeout_s: float) -> list[NumberedNote]:
        """Return the notes that have come; wait for the first at most ``timeout_s`` seconds."""
        notes: list[NumberedNote] = []
        try:
            notes.append(self._notes.get(timeout=max(0.0, timeout_s)))
            while len(notes) < _MOST_NOTES:
                notes.append(self._notes.get_nowait())
        except queue.Empty:
            pass
        return notes

    def stop(self) -> None:
        """Stop reading; the thread ends with the process."""
        self._stopped.set()

    def _read(self) -> None:
        after = 0
        while not self._stopped.is_set():
            try:
                for keeper, note in self._client.watch(self._identity, after):
                    if keeper != self._identity:
                        self._identity, after = keeper, 0
                    if note is not None:
                        after = note.number
                        self._notes.put(note)
            except KeeperError as error:
                logger.warning("%s", error)
            except Exception:
                logger.exception("the keeper's notes cannot be read")
            if self._stopped.wait(_RETRY_S):
                return
            try:
                self._client = self._revive()
            except Exception as error:
                logger.error("no keeper: %s", error)
