"""A trainer that waits for something other than nodes takes none from others meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bftrainer_slurm.model import Demands, Queue
from tests.controller.test_loop import Setting
from tests.controller.worlds import ARRAY, NOW_S


class Waiting(Setting):
    """One trainer on all nodes, and then another that waits: for jobs, or for its time."""

    def __init__(self) -> None:
        super().__init__(4, 99)
        self.behind: Mapping[int, str] = {}
        self.begin_s = 0.0
        self.turn()
        queue = self.slurm.queue

        def waiting() -> Queue:
            read = queue()
            trainers = (
                replace(one, demands=Demands(begin_s=self.begin_s)) if one.array == ARRAY else one
                for one in read.trainers
            )
            return replace(read, trainers=tuple(trainers), behind=self.behind)

        self.slurm.queue = waiting  # type: ignore[method-assign]
        self.slurm.submit(ARRAY, 4)

    def waits(self) -> None:
        """It takes no node, and makes no plan, for an hour."""
        self.turn()
        asked = len(self.planner.asked)
        for _ in range(60):
            self.turn(60)
            assert len(self.slurm.on(99)) == 4
        assert len(self.planner.asked) == asked

    def why(self) -> str:
        return str(self.shown()["why"])


def test_while_a_job_that_it_depends_on_has_not_ended() -> None:
    setting = Waiting()
    setting.behind = {ARRAY: "afterok:7"}
    setting.waits()
    assert setting.why() == "it waits for another job (afterok:7)"
    setting.behind = {}
    setting.settle()
    assert len(setting.slurm.on()) == 2


def test_until_its_user_lets_it_begin() -> None:
    setting = Waiting()
    setting.begin_s = NOW_S + 7200
    setting.waits()
    assert "it is not to begin before" in setting.why()
    setting.now_s = setting.begin_s
    setting.settle()
    assert len(setting.slurm.on()) == 2


def test_the_delay_after_a_requeue_keeps_nobody_from_nodes() -> None:
    setting = Waiting()
    setting.settle()
    assert len(setting.slurm.on()) == 2
    setting.begin_s = setting.now_s + 121
    (node, *_) = setting.slurm.on()
    setting.slurm.reclaim(node)
    setting.slurm.reclaimed.clear()
    setting.settle()
    assert len(setting.slurm.on()) + len(setting.slurm.on(99)) == 4
