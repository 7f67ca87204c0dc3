"""When turns come, and how much each does: a large change takes longer, and all of it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.act import MOST_ACTIONS
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from tests.controller.setting import Setting


class Paced(Setting):
    """Many trainers of two elements."""

    def __init__(self, trainers: int) -> None:
        self.arrays = range(100, 100 + trainers)
        super().__init__(2 * trainers, *self.arrays, most=2, settings=Settings())
        self.controller.deps = replace(self.controller.deps, most_actions=MOST_ACTIONS)

    def work(self, seconds: float) -> list[int]:
        """Look whenever a look is due; return how many actions each turn had."""
        until_s, actions = self.now_s + seconds, []
        while self.now_s < until_s:
            before = len(self.slurm.asked_)
            self.turn(max(0.0, self.due_in_s) + 0.1)
            actions.append(sum(what == "grow" for what, _ in self.slurm.asked_[before:]))
        return actions

    @property
    def used(self) -> int:
        """How many nodes trainers have."""
        return sum(len(self.on(array)) for array in self.arrays)


def test_a_burst_is_bounded_and_all_nodes_come_into_use() -> None:
    setting = Paced(120)
    actions = setting.work(15.0)
    assert (setting.used, max(actions), sum(actions)) == (240, MOST_ACTIONS, 120)


def test_where_slurm_refuses_a_request_the_turn_ends_and_the_next_one_waits() -> None:
    setting = Paced(120)
    setting.slurm.fails["grow"] = SlurmUnavailableError("Rate limit exceeded")
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    assert (setting.used, setting.slurm.requests_.count("grow")) == (0, 1)
    assert setting.due_in_s >= 2.0
    setting.work(20.0)
    assert setting.used == 240


def test_after_many_starts_it_looks_soon() -> None:
    setting = Paced(20)
    setting.turn()
    assert (setting.used, setting.due_in_s) == (40, 2.0)
