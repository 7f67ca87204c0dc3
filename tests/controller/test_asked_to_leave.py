"""Who was asked to leave is ended, whatever came in between: it trains no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId, ElementState
from bftrainer_slurm.replay.slurm import HELD
from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, note

OTHER = 99


class Growing(Setting):
    """A trainer on all four nodes, one of which the plan now gives to another trainer."""

    def __init__(self, history: History | None = None) -> None:
        super().__init__(4, ARRAY, history=history)
        self.settle()
        self.before = self.on()
        self.submit(OTHER, 1)

    def turn_in_vain(self) -> None:
        """Turn while slurmctld takes no shrink."""
        self.slurm.fails["shrink"] = SlurmUnavailableError("no answer")
        with pytest.raises(SlurmUnavailableError):
            self.turn()
        assert self.on() == self.before

    @property
    def asked(self) -> int:
        """The task that was asked to leave."""
        ((array, (task,)),) = self.told.parted
        assert array == ARRAY
        return task

    @property
    def node(self) -> str:
        """The node of that task."""
        return next(node for node, task in self.before.items() if task == self.asked)

    def the_other_goes(self) -> None:
        """So that the plan wants for the first one what it has given away."""
        self.slurm.cancel(OTHER)

    def all_is_forgotten(self) -> None:
        """The controller and its history are lost before the element was ended."""
        self.turn_in_vain()
        self.the_other_goes()
        self.history = History(":memory:")
        self.controller = self.started()

    def what_was_begun_is_finished(self) -> None:
        """The element is ended, another one takes its place, and no second one is asked."""
        task = self.asked
        self.turn()
        assert self.slurm.element_(ElementId(ARRAY, task)).state is HELD
        self.settle()
        assert len(self.on()) == 4
        assert len(self.told.parted) == 1


@pytest.mark.parametrize(("most", "happens"), [(1, "asked ended"), (0, "asked")])
def test_it_is_asked_before_it_is_ended(
    most: int, happens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, happened = Growing(), []
    part, shrink = setting.told.part, setting.slurm.shrink

    def asked(leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        happened.append("asked")
        return part(leaving)

    def ended(elements: Sequence[ElementId]) -> None:
        happened.append("ended")
        shrink(elements)

    monkeypatch.setattr(setting.told, "part", asked)
    monkeypatch.setattr(setting.slurm, "shrink", ended)
    setting.controller.deps = replace(setting.controller.deps, most_actions=most)
    setting.turn()
    assert " ".join(happened) == happens
    due_in_s = setting.controller.schedule.due_s() - setting.now_s
    assert due_in_s <= 5.0  # there is more to do


def test_where_the_budget_was_spent_before_it_was_ended() -> None:
    setting = Growing()
    deps = setting.controller.deps
    setting.controller.deps = replace(deps, most_actions=0)
    setting.turn()
    assert setting.on() == setting.before
    setting.the_other_goes()
    setting.controller.deps = deps
    setting.what_was_begun_is_finished()


def test_where_slurmctld_did_not_answer() -> None:
    setting = Growing()
    setting.turn_in_vain()
    setting.the_other_goes()
    setting.what_was_begun_is_finished()


def test_where_it_was_suspended_while_the_controller_restarted() -> None:
    setting = Growing()
    setting.turn_in_vain()
    setting.the_other_goes()
    id_ = ElementId(ARRAY, setting.asked)
    ran = setting.slurm.element_(id_)
    setting.slurm.put_(replace(ran, state=ElementState.SUSPENDED))
    setting.controller = setting.started()
    setting.turn()
    setting.slurm.put_(ran)
    setting.what_was_begun_is_finished()


def test_where_another_host_took_over(tmp_path: Path) -> None:
    first = History(tmp_path / "history.sqlite", remote=True)
    setting = Growing(first)
    setting.turn_in_vain()
    first.close()
    setting.the_other_goes()
    setting.history = History(tmp_path / "history.sqlite", remote=True)
    setting.controller = setting.started()
    setting.what_was_begun_is_finished()
    setting.history.close()


@pytest.mark.parametrize("looked", [False, True])
def test_where_the_history_is_lost_too_and_the_keeper_says_who_has_left(looked: bool) -> None:
    setting = Growing()
    setting.all_is_forgotten()
    if looked:
        setting.turn()
        assert setting.on() == setting.before
    setting.controller.take([note(NoteKind.LEFT, setting.now_s, setting.asked, setting.node)])
    assert setting.controller.schedule.due_s() - setting.now_s < 1.0
    setting.what_was_begun_is_finished()


def test_who_has_left_another_node_stays() -> None:
    setting = Growing()
    setting.all_is_forgotten()
    setting.controller.take([note(NoteKind.LEFT, setting.now_s, setting.asked, "n9")])
    setting.settle()
    assert setting.on() == setting.before


@pytest.mark.parametrize("ahead_s", [-7200.0, 0.0, 7200.0])
def test_no_clock_decides_whether_one_that_has_left_is_ended(ahead_s: float) -> None:
    setting = Growing()
    setting.all_is_forgotten()
    left = note(NoteKind.LEFT, setting.now_s + ahead_s, setting.asked, setting.node)
    setting.controller.take([left])
    setting.what_was_begun_is_finished()


def test_who_left_unseen_and_came_back_stays() -> None:
    setting = Growing()
    setting.turn_in_vain()
    setting.the_other_goes()
    id_ = ElementId(ARRAY, setting.asked)
    again = replace(setting.slurm.element_(id_), start_s=setting.now_s + 1)
    setting.slurm.put_(again)
    setting.controller = setting.started()
    setting.settle()
    assert setting.slurm.element_(id_) == again


@pytest.mark.parametrize("restarts", [False, True])
def test_whom_the_keeper_was_not_told_about_was_not_asked(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        return leaving

    setting = Growing()
    with monkeypatch.context() as patch:
        patch.setattr(setting.told, "part", unheard)
        setting.turn_in_vain()
    if restarts:
        setting.controller = setting.started()
    setting.turn()
    assert setting.told.parted == [(ARRAY, [setting.asked])]
    assert len(setting.on()) == 3


def test_where_slurm_has_not_acted_on_it() -> None:
    setting = Growing()
    setting.slurm.ignores.add("shrink")
    setting.turn()
    assert setting.on() == setting.before
    setting.slurm.ignores.clear()
    setting.the_other_goes()
    setting.turn()
    view = setting.controller.registry.view(ARRAY)
    assert view is not None
    assert view.state.of(setting.asked).phase is Phase.LEAVING  # Slurm has time for it
    setting.now_s += 30
    setting.what_was_begun_is_finished()


def test_who_was_reclaimed_instead_starts_anew_and_stays() -> None:
    setting = Growing()
    setting.slurm.ignores.add("shrink")
    setting.turn()
    setting.the_other_goes()
    setting.slurm.start_ordinary_(setting.node)
    setting.turn()
    setting.slurm.ordinary.clear()
    setting.slurm.ignores.clear()
    for _ in range(8):
        setting.turn(30)
    assert len(setting.on()) == 4
    ended = [one for one in setting.slurm.elements() if one.state is not ElementState.RUNNING]
    assert {one.id.array for one in ended} == {OTHER}
