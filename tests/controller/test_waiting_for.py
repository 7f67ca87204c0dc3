"""A trainer that waits for something other than nodes takes none from others meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Demands, Element, ElementId, ElementState
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, NOW_S


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

    def why(self) -> str:
        return str(self.shown()["why"])


def test_while_a_job_that_it_depends_on_has_not_ended() -> None:
    setting = Waiting()
    setting.slurm.behind = {ARRAY: "afterok:7"}
    setting.waits()
    assert setting.why() == "it waits for another job (afterok:7)"
    setting.slurm.behind = {}
    setting.settle()
    assert len(setting.on()) == 2


def test_until_its_user_lets_it_begin() -> None:
    setting = Waiting()
    setting.begins_at(NOW_S + 7200)
    setting.waits()
    assert "it must not start before" in setting.why()
    setting.now_s = NOW_S + 7200
    setting.settle()
    assert len(setting.on()) == 2


def test_the_delay_after_a_requeue_keeps_nobody_from_nodes() -> None:
    setting = Waiting()
    setting.settle()
    assert len(setting.on()) == 2
    setting.begins_at(setting.now_s + 121)
    (node, *_) = setting.on()
    setting.slurm.start_ordinary_(node)
    setting.slurm.ordinary.clear()
    setting.settle()
    assert len(setting.on()) + len(setting.on(99)) == 4


def test_nor_does_it_where_the_history_is_lost_and_the_keeper_knows_that_it_has_trained() -> None:
    setting = Waiting()
    setting.settle()
    for id_ in (ElementId(ARRAY, task) for task in setting.on().values()):
        setting.slurm.put_(Element(id_, ElementState.HELD))
    setting.begins_at(setting.now_s + 3600)
    setting.history = History(":memory:")
    setting.controller = setting.started()
    setting.say(NoteKind.REFORMED, generation=1, nodes=2)
    setting.settle()
    assert len(setting.on()) == 2


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
                    waits = Element(id_, ElementState.PENDING, reason="QOSMaxNodePerUserLimit")
                    self.slurm.put_(waits)
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
    assert "QOSMaxNodePerUserLimit" in str(setting.shown()["why"])
    assert len(setting.on(99)) == 4
    setting.slurm.cancel_(ARRAY)
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["why"]) == ("cancelled", None)


def test_a_limit_that_is_lifted_is_noticed_soon_where_a_node_is_free() -> None:
    setting = Limited()
    setting.slurm.node_names.append("n5")
    setting.hours(6)
    taken, setting.limit = setting.taken, 4
    setting.hours(0.2)
    assert setting.on()
    assert taken <= 6


def test_a_limit_that_is_lifted_is_noticed_after_as_long_as_it_has_lasted_elsewhere() -> None:
    setting = Limited()
    setting.hours(1)
    setting.limit = 4
    setting.hours(2)
    assert len(setting.on()) == 2
