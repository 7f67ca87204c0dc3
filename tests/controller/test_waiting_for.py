"""A trainer that waits for something other than nodes takes none from others meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Demands, ElementId
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, NOW_S, element

LIMIT = "QOSMaxNodePerUserLimit"


class Waiting(Setting):
    """One trainer on all nodes, and then another that waits: for jobs, or for its time."""

    def __init__(self) -> None:
        super().__init__(4, 99)
        self.turn()
        self.submit(ARRAY, 4)

    def begins_at(self, time_s: float) -> None:
        self.slurm.be_(ARRAY, demands=Demands(begin_s=time_s))

    def waits(self) -> None:
        """It takes no node, and makes no plan, for an hour."""
        self.turn()
        asked = len(self.planner.asked)
        for _ in range(60):
            self.turn(60)
            assert len(self.on(99)) == 4
        assert len(self.planner.asked) == asked


def test_while_a_job_that_it_depends_on_has_not_ended() -> None:
    setting = Waiting()
    setting.slurm.behind = {ARRAY: "afterok:7"}
    setting.waits()
    assert setting.shown()["why"] == "it waits for another job (afterok:7)"
    setting.slurm.behind = {}
    setting.settle()
    assert len(setting.on()) == 2


def test_until_its_user_lets_it_begin() -> None:
    setting = Waiting()
    setting.begins_at(NOW_S + 7200)
    setting.waits()
    assert "it must not start before" in str(setting.shown()["why"])
    setting.now_s = NOW_S + 7200
    setting.settle()
    assert len(setting.on()) == 2


@pytest.mark.parametrize("lost", [False, True])
def test_the_delay_after_a_requeue_keeps_nobody_from_nodes(lost: bool) -> None:
    """Where the history is lost, the keeper knows that it has trained."""
    setting = Waiting()
    setting.settle()
    assert len(setting.on()) == 2
    setting.begins_at(setting.now_s + 3600)
    (node, *_) = setting.on()
    if lost:
        setting.slurm.put_(*(element(task, "held") for task in setting.on().values()))
        setting.restart(lost)
        setting.say(NoteKind.REFORMED, generation=1, nodes=2)
    else:
        setting.slurm.start_ordinary_(node)
        setting.slurm.ordinary.clear()
    setting.settle()
    assert len(setting.on()) + len(setting.on(99)) == 4
    assert setting.on()


class Limited(Setting):
    """One trainer on all nodes, and another of which Slurm starts none: a limit of its QOS."""

    def __init__(self) -> None:
        super().__init__(4, 99)
        self.limit = 0
        self.taken = 0  # how often the first one lost nodes
        self.turn()
        grow = self.slurm.grow

        def limited(
            elements: Sequence[ElementId], nodes: frozenset[str], *more: Any, **others: Any
        ) -> None:
            if elements[0].array == ARRAY and len(self.on()) + len(elements) > self.limit:
                for id_ in elements:
                    self.slurm.put_(element(id_.task, "pending", reason=LIMIT))
            else:
                grow(elements, nodes, *more, **others)

        self.slurm.grow = limited  # type: ignore[method-assign]
        self.submit(ARRAY, 4)

    def turn(self, seconds: float = 180.0) -> None:
        had = len(self.on(99))
        super().turn(seconds)
        self.taken += len(self.on(99)) < had

    def hours(self, hours: float) -> None:
        for _ in range(round(20 * hours)):
            self.turn()


def test_a_limit_that_stays_takes_nodes_from_others_ever_less_often() -> None:
    setting = Limited()
    setting.hours(6)
    assert 1 <= setting.taken <= 6
    before = setting.taken
    setting.hours(18)
    assert setting.taken <= before + 2
    assert LIMIT in str(setting.shown()["why"])
    assert len(setting.on(99)) == 4
    setting.slurm.cancel_(ARRAY)
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["why"]) == ("cancelled", None)


@pytest.mark.parametrize(
    ("nodes", "lasted_h", "noticed_h"),
    [
        pytest.param(5, 6, 0.2, id="soon where a node is free"),
        pytest.param(4, 1, 2, id="after as long as it has lasted elsewhere"),
    ],
)
def test_a_limit_that_is_lifted_is_noticed(nodes: int, lasted_h: int, noticed_h: float) -> None:
    setting = Limited()
    setting.slurm.node_names += ["n5"][: nodes - 4]
    setting.hours(lasted_h)
    assert setting.taken <= 6
    setting.limit = 4
    setting.hours(noticed_h)
    assert setting.on()
