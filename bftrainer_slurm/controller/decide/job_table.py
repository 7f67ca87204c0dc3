"""How much of slurmctld's job table trainers may hold, and what they give up above that.

Pure. Each task of an array counts (MaxJobCount) from its submission on, whether it runs or not.
When the table is full, no user can submit a job.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bftrainer_slurm.controller.decide.actions import Trim
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many jobs a trainer is. Slurm forgets ended ones within minutes (MinJobAge)."""

    view: TrainerView
    size: int
    held: tuple[ElementId, ...]

    @property
    def is_held(self) -> bool:
        """Whether no element of it runs or is about to."""
        return 0 < self.size == len(self.held)

    @property
    def needed(self) -> int:
        """What it cannot do without: its least size, and what is not held."""
        return min(self.size, max(self.view.trainer.record.min_nodes, self.size - len(self.held)))


def excess(
    views: Iterable[TrainerView],
    snapshot: Snapshot,
    settings: Settings,
    has_begun: Callable[[int], bool],
) -> tuple[list[Trim], dict[int, TrainerState]]:
    """Return what to give up if trainers together hold more than they may.

    These are held elements, and trainers of which no element has started: their next states (by
    array). The largest trainers give up held elements, down to one size for all. No trainer goes
    below its least size, or loses elements that are not held. Trainers that have begun stay. Others
    are refused if their least size has no room, the latest ones first. ``has_begun`` says whether
    an array has ever had a node.
    """
    max_jobs, views = snapshot.configuration.max_jobs, [view for view in views if not view.over]
    if max_jobs is None:
        return [], {}
    room = int(settings.job_table_share * max_jobs)
    if sum(len(view.trainer.elements) for view in views) <= room:
        return [], {}
    holdings = sorted(map(_holding, views), key=lambda one: (one.view.trainer.submit_s, one.held))
    if sum(one.size for one in holdings) <= room:
        return [], {}
    why = f"trainers may hold {room:,} of slurmctld's {max_jobs:,} jobs (job_table_share)"
    new = [one for one in holdings if one.is_held and not has_begun(one.view.array)]
    kept = [one for one in holdings if one not in new]
    needed = sum(one.needed for one in kept)
    refused: dict[int, TrainerState] = {}
    for one in new:
        if needed + one.needed > room:
            refused[one.view.array] = replace(one.view.state, over=why)
        else:
            kept.append(one)
            needed += one.needed
    level = _level(kept, room)
    trims = [
        Trim(one.held[-beyond:], why)
        for one in kept
        if (beyond := one.size - max(level, one.needed)) > 0
    ]
    return trims, refused


def _holding(view: TrainerView) -> _Holding:
    elements = view.trainer.elements
    held = sorted(one.id for one in elements if one.state is ElementState.HELD)
    return _Holding(view, sum(not one.state.over for one in elements), tuple(held))


def _level(holdings: Sequence[_Holding], room: int) -> int:
    """Return the greatest size that all may have; trainers that need more may have more."""

    def taken(level: int) -> int:
        return sum(min(one.size, max(level, one.needed)) for one in holdings)

    most = max((one.size for one in holdings), default=0)
    return max(0, bisect_right(range(most + 1), room, key=taken) - 1)
