"""Where requests are paced the controller takes longer, and still does all that it has to."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import Configuration, RateLimit
from bftrainer_slurm.slurm.gateway import Gateway
from bftrainer_slurm.slurm.pacer import Pacer
from bftrainer_slurm.slurm.wrappers import metered
from tests.controller.setting import Setting

RL_ENABLE = RateLimit(30, 2)


class Paced(Setting):
    """Many trainers of two elements; looks and changes share one credit, as in the daemon."""

    def __init__(self, trainers: int, limit: RateLimit | None, rpcs_per_s: float) -> None:
        self.arrays = range(100, 100 + trainers)
        super().__init__(2 * trainers, *self.arrays, most=2, settings=Settings())
        pacer = Pacer(rpcs_per_s, lambda: self.now_s, self.slurm.sleep_)
        self.slurm.queue_rpcs = 2
        self.slurm.configured = Configuration(rate_limit=limit)
        gateway = metered(cast(Gateway, self.slurm), self.history.counts.note_request, pacer.draw)
        deps = self.controller.deps
        self.controller.deps = replace(deps, pacer=pacer, gateway=gateway)

    def work(self, seconds: float) -> None:
        """Look whenever a look is due."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.turn(max(0.0, self.controller.schedule.due_s() - self.now_s) + 0.1)

    @property
    def used(self) -> int:
        """How many nodes trainers have."""
        return sum(len(self.on(array)) for array in self.arrays)


@pytest.mark.parametrize(("limit", "rpcs_per_s"), [(RL_ENABLE, 10.0), (None, 2.0)])
def test_at_a_slow_pace_all_nodes_come_into_use(limit: RateLimit | None, rpcs_per_s: float) -> None:
    setting = Paced(120, limit, rpcs_per_s)
    setting.work(150.0)
    assert setting.used == 240


@pytest.mark.parametrize(
    ("limit", "rpcs_per_s"), [(None, 1.0), (None, 0.3), (None, 0.05), (RateLimit(30, 1), 10.0)]
)
@pytest.mark.parametrize("grow_rpcs", [1, 2])
def test_looks_leave_room_for_changes_however_slow_the_pace_is(
    limit: RateLimit | None, rpcs_per_s: float, grow_rpcs: int
) -> None:
    setting = Paced(40, limit, rpcs_per_s)
    setting.slurm.grow_rpcs = grow_rpcs
    setting.work(50 * grow_rpcs / min(rpcs_per_s, 0.2))
    assert setting.used == 80
