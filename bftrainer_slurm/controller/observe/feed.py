"""The notes of elements as they come in, for the controller's loop to wait on.

A thread reads the keeper's stream and connects again when it breaks. It then reads the notes that
came meanwhile: the keeper remembers them. It always knows which keeper there is now.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError, SilentError
from bftrainer_slurm.keeper.protocol import NumberedNote

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_TOO_QUIET = 2  # streams in a row; one may be a pause of the keeper's host
_MOST_NOTES = 10_000  # notes that wait for the loop; then the keeper waits, and forgets old ones


class Feed:
    """Notes from the keeper. ``revive`` is called if it does not answer, and returns a keeper."""

    def __init__(self, client: KeeperClient, revive: Callable[[], KeeperClient]) -> None:
        self._client = client
        self._revive = revive
        self._identity = ""
        self.notes_arrive = False  # whether there is a stream of notes now
        self._quiet = 0  # streams in a row that began, and in which nothing came then
        self._caught_up, self._again = threading.Event(), threading.Event()
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

    @property
    def caught_up(self) -> bool:
        """Whether it has read all that the keeper remembers."""
        return self._caught_up.is_set() and not self._again.is_set()

    def again(self) -> None:
        """Read all that the keeper remembers once more, for a controller that begins anew."""
        self._again.set()
        self.wait(0.0)  # what has come meanwhile is told again too

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
            began = False
            try:
                for keeper, note in self._client.watch(self._identity, after):
                    if self._again.is_set():
                        break
                    self.notes_arrive = True
                    if keeper != self._identity:
                        self._identity, after = keeper, 0
                    if note is not None:
                        after = note.number
                        self._notes.put(note)
                    elif began:
                        self._caught_up.set()
                    began = True
            except KeeperError as error:
                self._say_why(error, began)
            except Exception:
                logger.exception("the keeper's notes cannot be read")
            if self._again.is_set():
                after = 0
                self._caught_up.clear()
                self._again.clear()
                continue
            self.notes_arrive = False
            if self._stopped.wait(_RETRY_S):
                return
            try:
                self._client = self._revive()
            except Exception as error:
                logger.error("no keeper: %s", error)

    def _say_why(self, error: KeeperError, began: bool) -> None:
        """Log why the stream has ended; once of a keeper that does not say that it is still there.

        It serves all else, so that it is found again each time.
        """
        silent = isinstance(error, SilentError) and isinstance(error.__cause__, TimeoutError)
        self._quiet = self._quiet + 1 if began and silent else 0
        if self._quiet < _TOO_QUIET:
            logger.warning("%s", error)
        elif self._quiet == _TOO_QUIET:
            logger.error(
                "the keeper at %s answers, but does not say that it is still there: it is of "
                "another version; upgrade keeper and controller together, and restart both",
                self._client.address,
            )
