"""The picture that a decision is made from: what Slurm says, and what is known beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.passes import Judgement
from bftrainer_slurm.controller.state.view import TrainerView


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment. Times are Unix seconds, durations seconds.

    ``avoid`` says until when nodes are left alone; ``out_of_reach`` are nodes of trainers that
    cannot be handled. Of holes it tells since when each is there, how long it will last, and how
    far ahead to plan; ``reserve`` is how many nodes to keep idle for ordinary jobs that nobody
    knows of yet; ``judgement`` is what Slurm's backfill scheduler has made of holes and jobs.
    """

    snapshot: Snapshot
    views: tuple[TrainerView, ...] = ()
    avoid: Mapping[str, float] = field(default_factory=dict)
    out_of_reach: frozenset[str] = frozenset()
    since_s: Mapping[str, float] = field(default_factory=dict)
    life_s: Mapping[str, float] = field(default_factory=dict)
    forward_time_s: float = 120.0
    reserve: int = 0
    judgement: Judgement = field(default_factory=Judgement)

    @property
    def now_s(self) -> float:
        """When it was taken."""
        return self.snapshot.time_s
