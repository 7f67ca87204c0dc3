"""Who was asked to leave is ended, whatever came in between: it trains no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Element, ElementId, ElementState
from bftrainer_slurm.replay.slurm import HELD
from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, note

OTHER = 99


class Growing(Setting):
    """A trainer on all four nodes, one of which the plan now gives to another trainer."""

    def __init__(self) -> None:
        super().__init__(4, ARRAY, settings=Settings())
        self.settle()
        self.before = self.on()
        self.submit(OTHER, 1)

    def turn_in_vain(self) -> None:
        """Turn while slurmctld takes no shrink."""
        self.slurm.fails["shrink"] = SlurmUnavailableError("no answer")
        with pytest.raises(SlurmUnavailableError):
            self.turn()
        assert self.on() == self.before

    def turn_without_a_budget(self) -> None:
        """Turn, and ask it, and have no action left to end it: there is more to do soon."""
        deps = self.controller.deps
        self.controller.deps = replace(deps, most_actions=0)
        self.turn()
        assert self.on() == self.before
        assert self.due_in_s <= 5.0
        self.controller.deps = deps

    @property
    def asked(self) -> ElementId:
        """Who was asked to leave."""
        ((array, (task,)),) = self.told.parted
        return ElementId(array, task)

    @property
    def element(self) -> Element:
        """That element."""
        return self.slurm.element_(self.asked)

    def the_other_goes(self) -> None:
        """So that the plan wants for the first one what it has given away."""
        self.slurm.cancel(OTHER)

    def all_is_forgotten(self) -> None:
        """The controller and its history are lost before the element was ended."""
        self.turn_in_vain()
        self.the_other_goes()
        self.restart(lost=True)

    def hears_that_it_has_left(self, node: str | None, ahead_s: float = 0.0) -> None:
        """The keeper says so; its clock may be wrong."""
        said = note(NoteKind.LEFT, self.now_s + ahead_s, self.asked.task, node or "")
        self.controller.take([said])

    def what_was_begun_is_finished(self) -> None:
        """The element is ended, another one takes its place, and no second one is asked."""
        self.turn()
        assert self.element.state is HELD
        self.settle()
        assert len(self.on()) == 4
        assert len(self.told.parted) == 1


@pytest.mark.parametrize("turn", [Growing.turn_in_vain, Growing.turn_without_a_budget])
def test_where_slurmctld_did_not_answer_or_the_budget_was_spent(
    turn: Callable[[Growing], None],
) -> None:
    setting = Growing()
    turn(setting)
    assert setting.asked.array == ARRAY, "before it is ended"
    setting.the_other_goes()
    setting.what_was_begun_is_finished()


def test_where_it_was_suspended_while_the_controller_restarted() -> None:
    setting = Growing()
    setting.turn_in_vain()
    setting.the_other_goes()
    ran = setting.element
    setting.slurm.put_(replace(ran, state=ElementState.SUSPENDED))
    setting.restart()
    setting.turn()
    setting.slurm.put_(ran)
    setting.what_was_begun_is_finished()


@pytest.mark.parametrize(
    ("looked", "ahead_s"), [(False, 0.0), (True, 0.0), (False, 7200.0), (False, -7200.0)]
)
def test_where_the_history_is_lost_too_and_the_keeper_says_by_whatever_clock_who_has_left(
    looked: bool, ahead_s: float
) -> None:
    setting = Growing()
    setting.all_is_forgotten()
    if looked:
        setting.turn()
        assert setting.on() == setting.before
    setting.hears_that_it_has_left(setting.element.node, ahead_s)
    assert not looked or setting.due_in_s < 1.0
    setting.what_was_begun_is_finished()


def test_who_has_left_another_node_stays() -> None:
    setting = Growing()
    setting.all_is_forgotten()
    setting.hears_that_it_has_left("n9")
    setting.settle()
    assert setting.on() == setting.before


def test_who_left_unseen_and_came_back_stays() -> None:
    setting = Growing()
    setting.turn_in_vain()
    setting.the_other_goes()
    again = replace(setting.element, start_s=setting.now_s + 1)
    setting.slurm.put_(again)
    setting.restart()
    setting.settle()
    assert setting.element == again


@pytest.mark.parametrize("restarts", [False, True])
def test_whom_the_keeper_was_not_told_about_was_not_asked(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Growing()
    with monkeypatch.context() as patch:
        patch.setattr(setting.told, "part", lambda leaving: leaving)
        setting.turn_in_vain()
    if restarts:
        setting.restart()
    setting.turn()
    assert setting.asked.array == ARRAY
    assert len(setting.on()) == 3


def test_where_slurm_has_not_acted_on_it_it_is_told_again_after_a_while() -> None:
    setting = Growing()
    setting.slurm.ignores.add("shrink")
    setting.turn()
    assert setting.on() == setting.before
    setting.slurm.ignores.clear()
    setting.the_other_goes()
    setting.turn()
    assert setting.on() == setting.before  # Slurm has time for it
    setting.now_s += 30
    setting.what_was_begun_is_finished()


def test_who_was_reclaimed_instead_starts_anew_and_stays() -> None:
    setting = Growing()
    setting.slurm.ignores.add("shrink")
    setting.turn()
    setting.the_other_goes()
    setting.slurm.start_ordinary_(setting.element.node or "")
    setting.turn()
    setting.slurm.ordinary.clear()
    setting.slurm.ignores.clear()
    for _ in range(8):
        setting.turn(30)
    assert len(setting.on()) == 4
    ended = [one for one in setting.slurm.elements() if one.state is not ElementState.RUNNING]
    assert {one.id.array for one in ended} == {OTHER}
