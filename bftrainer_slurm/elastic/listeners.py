"""A script's functions that are called at each change of its nodes, and how they get it.

They are called between two steps, in the thread that trains. The node's agent sees the change and
writes it into the progress memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
    steps_per_s_before: float | None = None
    steps_per_s: float | None = None
    samples_per_s_before: float | None = None
    samples_per_s: float | None = None
    lost_steps: int | None = None  # trained before, and trained again after it
    lost_samples: float | None = None  # in these steps


Listener = Callable[[NodesChanged], object]

_MOST = 8  # changes that no process has read yet

_listeners: list[Listener] = []


def on_change(call: Listener) -> Listener:
    """Have ``call`` called at each change of the trainer's nodes; it can be used as a decorator.

    It is called on rank 0 when the change is written to the job's log: ten seconds after training
    goes on. If it raises, the error is printed to stderr, and training goes on. Outside an element
    there are no changes.
    """
    _listeners.append(call)
    return call


def tell(change: NodesChanged) -> None:
    """Call all functions of the script."""
    for call in _listeners:
        try:
            call(change)
        except Exception as error:
            say(f"elastic.on_change: {call!r}: {error!r}")


class Teller:
    """The agent's side: writes changes for the script, and keeps them until it has read them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._unheard: list[NodesChanged] = []

    def __call__(self, change: NodesChanged) -> None:
        """Write a change, after those that are not read yet."""
        kept = self._unheard if self._memory.unread else []
        self._unheard = [*kept, change]
        text = json.dumps([asdict(one) for one in self._unheard[-_MOST:]])
        self._memory.write(text.encode())


def hear_changes(memory: Memory) -> None:
    """Call the script's functions with the changes that the agent has written."""
    try:
        changes = [_parsed(**one) for one in json.loads(memory.text())]
    except ValueError:
        return  # half written; it is complete at the next step
    except TypeError:  # an agent of another version tells something else of a change
        changes = []
    memory.has_read()
    for change in changes:
        tell(change)


def _parsed(nodes_before: list[str], nodes: list[str], **others: Any) -> NodesChanged:
    return NodesChanged(tuple(nodes_before), tuple(nodes), **others)
