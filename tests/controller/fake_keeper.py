"""The one fake keeper of the controller's tests, and a feed of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote


class FakeKeeper:
    """Notes what it is told in ``heard``, keeps what is ``published``, streams so many notes.

    ``silent``: it does not answer. ``answers`` is called before it notes something. ``then`` is how
    its stream ends once, and then only when it is to ``hang_up``.
    """

    address = "ctl1:6740"

    def __init__(self, identity: str = "a", notes: int = 0, then: Exception | None = None) -> None:
        self.identity, self.notes, self.then = identity, notes, then
        self.silent = False
        self.answers: Callable[[], object] = lambda: None
        self.heard: list[tuple[object, ...]] = []
        self.asked = 0
        self.published: list[dict[str, Any]] = []
        self.watched: list[tuple[str, int]] = []
        self.hang_up = threading.Event()

    def own(self, *words: object) -> None:
        self._hear("own", *words)

    def part(self, array: int, tasks: Sequence[int]) -> bool:
        self._hear("part", array, list(tasks))
        return True

    def lost(self, *words: object) -> None:
        self._hear("lost", *words)

    def say(self, array: int, what: str) -> None:
        self._hear(what, array)

    def _hear(self, *words: object) -> None:
        self.asked += 1
        self.answers()
        if self.silent:
            raise KeeperError("no answer")
        self.heard.append(words)

    def publish(self, status: dict[str, Any]) -> None:
        self.answers()
        self.published.append(status)

    def watch(self, identity: str, after: int) -> Iterator[tuple[str, NumberedNote | None]]:
        self.watched.append((identity, after))
        yield self.identity, None
        for number in range(after + 1 if identity == self.identity else 1, self.notes + 1):
            yield self.identity, NumberedNote(number, 0.0, Note(NoteKind.SUBMITTED))
        yield self.identity, None
        if self.then is not None:
            then, self.then = self.then, None
            raise then
        self.hang_up.wait(60)


class FakeFeed:
    """A feed of a keeper; ``comes`` are the notes that come next."""

    caught_up = notes_arrive = True

    def __init__(self, keeper: FakeKeeper | None = None) -> None:
        self.of = keeper or FakeKeeper()
        self.comes: list[NumberedNote] = []

    @property
    def keeper(self) -> tuple[str, FakeKeeper]:
        return self.of.identity, self.of

    def wait(self, timeout_s: float) -> list[NumberedNote]:
        come, self.comes = self.comes, []
        if not come:
            time.sleep(min(max(0.0, timeout_s), 0.01))
        return come

    @property
    def last(self) -> dict[str, Any]:
        """What the last status says of the controller."""
        published = self.of.published
        found: dict[str, Any] = published[-1]["controller"] if published else {}
        return found
