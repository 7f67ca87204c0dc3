"""A script's functions that are called at each change of its nodes, and how they get it.

They are called between two steps, in the thread that trains. The node's agent sees the change and
writes it into the progress memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bftrainer_slurm.elastic.log import say

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.memory import Memory


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A change of a trainer's nodes, as ``elastic.on_change`` gives it; None: not known."""

    nodes_before: tuple[str, ...]
    nodes: tuple[str, ...]
    why: str  # begin, join, leave, loss or failure (of the script)
    stood_still_s: float | None = None  # from the last step before to the first one after
    lost_steps: int | None = None  # trained before, and trained again after it
    samples_per_s: float | None = None  # since then


Listener = Callable[[NodesChanged], object]

_listeners: list[Listener] = []


def on_change(call: Listener) -> Listener:
    """Have ``call`` called at each change of the trainer's nodes; it can be used as a decorator.

    It is called on rank 0 when the change is written to the job's log: ten seconds after training
    goes on. If it raises, the error is printed to stderr, and training goes on. Outside an element
    there are no changes.
    """
    _listeners.append(call)
    return call


def write(memory: Memory, change: NodesChanged) -> None:
    """Write a change for the script: the agent's side."""
    memory.tell(json.dumps(asdict(change)).encode())


def hear(memory: Memory) -> None:
    """Call the script's functions with the changes that the agent has written."""
    for text in memory.told():
        with suppress(LookupError, TypeError, ValueError):  # another version's
            told = json.loads(text)
            nodes = {name: tuple(told[name]) for name in ("nodes_before", "nodes")}
            _call_all(NodesChanged(**{**told, **nodes}))


def _call_all(change: NodesChanged) -> None:
    for call in _listeners:
        try:
            call(change)
        except Exception as error:
            say(f"elastic.on_change: {call!r}: {error!r}")
