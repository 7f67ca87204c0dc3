"""Elements that run, though nothing in them has ever contacted the keeper. Pure.

Each of them may train alone, into the same files. A trainer without torch is told the same, and
runs on.
"""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.controller.observe.reports import Progress
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView

JOIN_S = 25.0  # importing torch takes seconds, from a busy file system more
_NAMED = 5  # nodes in a sentence


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


def unheard_from_s(view: TrainerView, progress: Progress, joined: bool) -> float | None:
    """When it is time to say that none has joined; None: one has, or nothing runs."""
    if joined or progress.last is not None:
        return None
    starts_s = [start_s for start_s in since_s(view).values() if start_s is not None]
    return min(starts_s) + JOIN_S if starts_s else None


def unheard(view: TrainerView) -> str:
    """Say which elements have not joined, and what to write."""
    running = sorted(since_s(view))
    who = "runs, but has not" if len(running) == 1 else "run, but none has"
    return f"{named(running)} {who} joined: write 'srun torchrun train.py' without rendezvous flags"


def named(nodes: Sequence[str]) -> str:
    """Name the first of these nodes, and say how many more there are."""
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
