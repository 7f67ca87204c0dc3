"""Elements that run, though they do not train with a trainer's others, as far as is known. Pure.

Each of them may train alone, into the same files. A trainer without torch is told the same, and
runs on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView

JOIN_S = 25.0  # importing torch takes seconds, from a busy file system more
_LAST_S = 10.0  # a group that has not been heard of for so long is over
_NAMED = 5  # nodes in a sentence
_WRITE = "write 'srun torchrun train.py' without rendezvous flags"
_ELSE = ", else each node may train alone into the same files"


@dataclass(slots=True)
class Together:
    """How many ``nodes`` train together: the largest group that a trainer's members tell of.

    There are others beside it if nodes train apart from each other. It became smaller at
    ``fell_s``. 0 nodes: nothing was told yet.
    """

    nodes: int = 0
    fell_s: float = -math.inf
    heard_s: float = -math.inf

    def hear(self, nodes: int, time_s: float) -> None:
        """Take a note of a group of so many nodes."""
        if nodes < self.nodes:
            if time_s - self.heard_s < _LAST_S:
                return
            self.fell_s = time_s
        self.nodes, self.heard_s = nodes, time_s


@dataclass(frozen=True, slots=True)
class Unheard:
    """What to say from ``due_s`` on, if nothing changes until then."""

    due_s: float
    notice: str

    @property
    def in_output(self) -> str:
        """What to say in the trainer's own output."""
        return f"bftrainer: {self.notice}{_ELSE}"


def since_s(view: TrainerView) -> dict[str, float | None]:
    """Since when an element runs on each node; until the next look at Slurm, by its own report."""
    running: dict[str, float | None] = {}
    for id_, place in view.placed.items():
        record = view.state.of(id_.task)
        if record.phase is Phase.RUNNING:
            running[place.node] = record.start_s
        elif record.up is not None:
            running[record.up[0]] = record.up[1]
    for _, record in view.within(Phase.LEAVING):
        if record.node is not None:
            running[record.node] = record.start_s
    return running


def unheard(view: TrainerView, together: Together, joined: bool) -> Unheard | None:
    """Return what to say of elements that do not train together; None: they do, or few run.

    ``joined``: a group was formed as it should be. Progress alone does not show that.
    """
    running = since_s(view)
    starts_s = sorted(start_s for start_s in running.values() if start_s is not None)
    if joined or together.nodes >= len(starts_s):
        return None
    due_s = max(starts_s[together.nodes], together.fell_s) + JOIN_S
    return Unheard(due_s, f"{_apart(sorted(running), together.nodes)}: {_WRITE}")


def _apart(nodes: Sequence[str], together: int) -> str:
    match together:
        case 0 if len(nodes) == 1:
            said = "runs, but has not joined"
        case 0:
            said = "run, but none has joined"
        case 1:
            said = "run, but each seems to train alone"
        case _:
            said = f"run, but no more than {together} seem to train together"
    return f"{named(nodes)} {said}"


def named(nodes: Sequence[str]) -> str:
    """Name the first of these nodes, and say how many more there are."""
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
