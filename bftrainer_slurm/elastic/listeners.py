"""A script's functions that are told of each change of its nodes, and how they hear of it.

They are called between two steps, in the thread that trains. With ``Trainer`` the change is this
process's own; else the node's agent has seen it, and writes it into the progress memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A change of a trainer's nodes, as ``elastic.on_change`` tells it; None is not known."""

    nodes_before: tuple[str, ...]
    nodes: tuple[str, ...]
    why: str  # begin, join, leave, loss or failure (of the script)
    stood_still_s: float | None = None  # from the last step before to the first one after
    steps_per_s_before: float | None = None
    steps_per_s: float | None = None
    samples_per_s_before: float | None = None
    samples_per_s: float | None = None


Listener = Callable[[NodesChanged], object]

_MOST = 8  # changes that nobody has heard of yet

_listeners: list[Listener] = []


def on_change(call: Listener) -> Listener:
    """Have ``call`` told of each change of the trainer's nodes; also to be used as a decorator.

    It is called on rank 0 when the change is told in the job's log: ten seconds after training
    goes on. What it raises is said on stderr, and training goes on. Outside an element nothing
    changes.
    """
    _listeners.append(call)
    return call


def tell(change: NodesChanged) -> None:
    """Tell all of them."""
    for call in _listeners:
        try:
            call(change)
        except Exception as error:
            print(f"bftrainer: elastic.on_change: {call!r}: {error!r}", file=sys.stderr)


class Changes(Protocol):
    """Where an agent writes, and the script reads (``steps.Memory``)."""

    @property
    def unread(self) -> bool:
        """Whether the text has not been read."""

    def write(self, text: bytes) -> None:
        """Write a text."""

    def text(self) -> bytes:
        """Return it."""

    def has_read(self) -> None:
        """Say that it has been read."""


class Teller:
    """The agent's side: writes changes for a script, until it has heard of them."""

    def __init__(self, memory: Changes) -> None:
        self._memory = memory
        self._unheard: list[NodesChanged] = []

    def __call__(self, change: NodesChanged) -> None:
        """Tell of a change."""
        kept = self._unheard if self._memory.unread else []
        self._unheard = [*kept, change]
        self._memory.write(written(self._unheard))


def hear(memory: Changes) -> None:
    """Tell the script's functions what its agent has written."""
    try:
        changes = read(memory.text())
    except (ValueError, TypeError):
        return  # half written; at the next step it is whole
    memory.has_read()
    for change in changes:
        tell(change)


def written(changes: list[NodesChanged]) -> bytes:
    """Return changes as a process of the script will read them; only the last ones."""
    return json.dumps([asdict(change) for change in changes[-_MOST:]]).encode()


def read(text: bytes) -> list[NodesChanged]:
    """Return the changes that were written.

    Raises:
        ValueError, TypeError: the text is being written.
    """
    found = json.loads(text)
    for one in found:
        one["nodes_before"], one["nodes"] = tuple(one["nodes_before"]), tuple(one["nodes"])
    return [NodesChanged(**one) for one in found]
