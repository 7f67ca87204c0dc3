"""A queue of notes from the keeper, on which the controller's loop can wait.

A thread reads the keeper's stream and reconnects when the stream breaks. The keeper then sends the
notes that arrived in between. The thread also knows which keeper is running now.
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
_MOST_NOTES = 10_000  # the queue's size; if it is full, the keeper waits and drops its oldest notes


class Feed:
    """Reads notes from the keeper. If it does not answer, ``revive`` returns a new client."""

    def __init__(self, client: KeeperClient, revive: Callable[[], KeeperClient]) -> None:
        self._client = client
        self._revive = revive
        self._identity = ""
        self.notes_arrive = False  # whether a stream of notes is open now
        self.caught_up = False  # whether it has read all notes that the keeper remembers
        self._notes: queue.Queue[NumberedNote] = queue.Queue(_MOST_NOTES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def start(self) -> None:
        """Start the thread that reads."""
        self._thread.start()

    @property
    def keeper(self) -> tuple[str, KeeperClient]:
        """The identity of the present keeper (empty before the first contact), and its client."""
        return self._identity, self._client

    def wait(self, timeout_s: float) -> list[NumberedNote]:
        """Return the notes in the queue; wait at most ``timeout_s`` seconds for the first."""
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
            began = False
            try:
                for keeper, note in self._client.watch(self._identity, after):
                    self.notes_arrive = True
                    if keeper != self._identity:
                        self._identity, after = keeper, 0
                    if note is not None:
                        after = note.number
                        self._notes.put(note)
                    elif began:
                        self.caught_up = True
                    began = True
            except KeeperError as error:
                logger.warning("%s", error)
            except Exception:
                logger.exception("the keeper's notes cannot be read")
            self.notes_arrive = False
            if self._stopped.wait(_RETRY_S):
                return
            try:
                self._client = self._revive()
            except Exception as error:
                logger.error("no keeper: %s", error)
