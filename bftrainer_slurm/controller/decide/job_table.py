"""How much of slurmctld's job table trainers may hold, and what they give up above that.

Pure. Each task of an array counts (MaxJobCount) from its submission on, whether it runs or not.
When the table is full, no user can submit a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bftrainer_slurm.controller.decide.actions import Trim
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import ElementId, ElementState, Trainer


@dataclass(frozen=True, slots=True)
class Excess:
    """What to give up: held elements, and trainers of which no element has started.

    ``why`` is for users and the log.
    """

    trims: tuple[Trim, ...] = ()
    refused: frozenset[int] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many jobs a trainer is. Slurm forgets ended ones within minutes (MinJobAge)."""

    trainer: Trainer
    size: int
    held: tuple[ElementId, ...]

    @property
    def is_held(self) -> bool:
        """Whether no element of it runs or is about to."""
        return 0 < self.size == len(self.held)

    @property
    def needed(self) -> int:
        """What it cannot do without: its least size, and what is not held."""
        return min(self.size, max(self.trainer.record.min_nodes, self.size - len(self.held)))


def excess(
    trainers: Iterable[Trainer],
    max_jobs: int | None,
    settings: Settings,
    has_begun: Callable[[int], bool],
) -> Excess:
    """Return what to give up if trainers together hold more than they may.

    The largest give up held elements, down to one size for all. No trainer goes below its least
    size, or loses elements that are not held. Trainers that have begun stay. Others are refused if
    their least size has no room, the latest ones first. ``max_jobs`` is how many jobs slurmctld
    holds, None if that is unknown. ``has_begun`` says whether an array has ever had a node.
    """
    if max_jobs is None:
        return Excess()
    room, trainers = int(settings.job_table_share * max_jobs), tuple(trainers)
    if sum(len(trainer.elements) for trainer in trainers) <= room:
        return Excess()
    holdings = sorted(map(_holding, trainers), key=lambda one: (one.trainer.submit_s, one.held))
    if sum(one.size for one in holdings) <= room:
        return Excess()
    new = [one for one in holdings if one.is_held and not has_begun(one.trainer.array)]
    kept = [one for one in holdings if one not in new]
    needed = sum(one.needed for one in kept)
    refused: set[int] = set()
    for one in new:
        if needed + one.needed > room:
            refused.add(one.trainer.array)
        else:
            kept.append(one)
            needed += one.needed
    level = _level(kept, room)
    why = f"trainers may hold {room:,} of slurmctld's {max_jobs:,} jobs (job_table_share)"
    trims = tuple(
        Trim(one.held[-beyond:], why)
        for one in kept
        if (beyond := one.size - max(level, one.needed)) > 0
    )
    return Excess(trims, frozenset(refused), why)


def _holding(trainer: Trainer) -> _Holding:
    size = sum(not element.state.over for element in trainer.elements)
    held = sorted(one.id for one in trainer.elements if one.state is ElementState.HELD)
    return _Holding(trainer, size, tuple(held))


def _level(holdings: Sequence[_Holding], room: int) -> int:
    """Return the greatest size that all may have; trainers that need more may have more."""
    low, high = 0, max((one.size for one in holdings), default=0)
    while low < high:
        level = (low + high + 1) // 2
        taken = sum(min(one.size, max(level, one.needed)) for one in holdings)
        low, high = (level, high) if taken <= room else (low, level - 1)
    return low
