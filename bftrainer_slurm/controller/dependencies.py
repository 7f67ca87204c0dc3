"""What the controller's loop works with, and gets from its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bftrainer_slurm.controller.act.execute import Pacer
from bftrainer_slurm.controller.act.groups import Groups
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import PerformanceModel
from bftrainer_slurm.model import Trainer
from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.slurm.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the loop works with.

    ``mine`` says which trainers this controller runs, ``performance`` knows what they can do,
    ``hears`` whether the notes of elements come through.
    """

    gateway: Gateway
    planner: PlanMaker
    history: History
    groups: Groups
    clock: Callable[[], float]
    pacer: Pacer
    mine: Callable[[Trainer], bool]
    performance: PerformanceModel
    hears: Callable[[], bool] = lambda: False
