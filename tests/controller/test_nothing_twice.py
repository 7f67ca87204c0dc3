"""Nothing is done twice and nothing is forgotten: restarts, repeated notes, a silent keeper."""

from __future__ import annotations

import gc

import pytest

from bftrainer_slurm.controller.act import SILENT_S
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.stopwatch import Rescale
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId
from tests.controller.setting import Setting, at_work
from tests.controller.worlds import ARRAY, element, note


def finished(task: int, time_s: float) -> NumberedNote:
    return note(NoteKind.FINISHED, time_s, task, number=task + 1)


def test_a_trainer_that_finished_while_the_controller_was_away_does_not_run_again() -> None:
    setting = at_work(2)
    before = setting.shown()["grew"]
    setting.slurm.forget(ARRAY, *setting.on().values())
    setting.restart()
    setting.now_s += 400
    setting.controller.take([finished(task, setting.now_s - 390) for task in (0, 1)])
    setting.turn()
    assert setting.slurm.cancelled_ == [ARRAY]
    for seconds in (5, 400, 5):
        setting.turn(seconds)
    assert (setting.shown()["state"], setting.shown()["grew"]) == ("finished", before)


def test_an_element_that_came_up_again_after_it_had_finished_tells_no_end() -> None:
    setting = at_work(2)
    setting.restart()
    setting.slurm.put_(element(0, "held"))
    up = note(NoteKind.UP, setting.now_s, 0, "n1", number=2)
    setting.controller.take([finished(0, setting.now_s - 60), up])
    setting.slurm.forget(ARRAY, 0)
    setting.turn()
    assert (setting.slurm.cancelled_, setting.shown()["state"]) == ([], "running")


def reports(setting: Setting, *samples: float) -> list[NumberedNote]:
    """Reports of one generation, a second apart, of which the last one has just come."""
    first_s = setting.now_s - len(samples)
    return [
        note(NoteKind.PROGRESS, first_s + number, number=number, samples=one)
        for number, one in enumerate(samples, 1)
    ]


def test_samples_that_the_keeper_tells_again_after_a_restart_count_once() -> None:
    setting = at_work(2)
    told = reports(setting, *(100.0 * n for n in range(1, 11)))
    for _ in range(3):
        setting.controller.take(told)
        setting.turn()
        assert setting.shown()["samples"] == 1000
        setting.restart()


@pytest.mark.parametrize("how", ["cancelled", "lost", "withheld", "suspended"])
def test_a_trainer_of_which_fewer_elements_are_left_than_it_needs_keeps_no_node(how: str) -> None:
    setting = Setting(4, ARRAY)
    setting.slurm.change_(ARRAY, min_nodes=4)
    setting.settle()
    before = setting.on()
    setting.slurm.put_(element(0, how, "n1"))
    setting.settle()
    assert (len(before), setting.on(), setting.shown()["state"]) == (4, {}, "waiting")
    assert "but only 3 of its elements can train" in str(setting.shown()["why"])
    if how in ("cancelled", "lost"):
        setting.slurm.forget(ARRAY, 0)
    setting.settle()
    assert setting.on() == {}
    setting.slurm.change_(ARRAY, min_nodes=3)  # its owner may write a smaller one into the comment
    setting.settle()
    assert len(setting.on()) == 3
    left = setting.on()
    setting.slurm.change_(ARRAY, min_nodes=2)  # and then it has enough without one of them
    setting.slurm.put_(element(1, "cancelled"))
    setting.settle()
    assert setting.on() == {node: task for node, task in left.items() if task != 1}


def test_a_keeper_that_was_silent_is_soon_told_which_elements_and_trainers_are_gone() -> None:
    setting = at_work(2, ARRAY, 99, most=1, settings=Settings())
    ((node, task),) = setting.on().items()
    setting.told.silent = True
    setting.slurm.forget(99)
    setting.turn()
    assert setting.due_in_s <= SILENT_S
    for every in ("n1", "n2"):
        setting.slurm.start_ordinary_(every)
    setting.turn()
    setting.told.silent = False
    setting.turn(setting.due_in_s)
    assert (setting.told.gone, setting.told.ended[-1]) == ([(ElementId(ARRAY, task), node)], 99)
    setting.settle()
    assert len(setting.told.gone) == 1


def test_what_is_gone_is_told_though_the_look_that_saw_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = at_work(3, ARRAY, 99, most=3)
    (own, *_) = setting.on()
    lost = ElementId(ARRAY, setting.on()[own]), own
    setting.slurm.start_ordinary_(own)
    setting.slurm.forget(99)
    setting.told.ended.clear()
    with monkeypatch.context() as patched:
        patched.setattr(ClusterState, "look", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            setting.turn()
    assert (setting.told.gone, setting.told.ended) == ([], [])
    setting.turn()
    setting.turn()
    assert (setting.told.gone, setting.told.ended) == ([lost], [99])


def test_but_not_of_an_element_that_has_a_node_again_or_whose_trainer_is_gone() -> None:
    setting = at_work(3, ARRAY, 99, most=3)
    (own, *_), (other, *_) = setting.on(), setting.on(99)
    back = setting.on()[own]
    setting.told.silent = True
    setting.slurm.start_ordinary_(own)
    setting.slurm.start_ordinary_(other)
    setting.turn()
    setting.slurm.ordinary.clear()
    setting.slurm.put_(element(back, "running", own, start_s=setting.now_s))
    setting.slurm.forget(99)
    setting.told.silent = False
    setting.settle()
    assert setting.told.gone == []
    assert 99 in setting.told.ended


def test_a_trainer_starts_only_when_the_keeper_knows_that_its_last_run_is_over() -> None:
    setting = Setting(2, ARRAY)
    setting.told.silent = True
    setting.settle()
    assert setting.on() == {}
    setting.told.silent = False
    setting.turn(setting.due_in_s)
    assert (setting.told.ended, len(setting.on())) == ([ARRAY], 2)


def test_what_is_known_of_a_trainer_is_kept_as_long_as_it_lives() -> None:
    setting = at_work(2)
    setting.controller.take(reports(setting, 100.0, 200.0))
    setting.slurm.start_ordinary_(next(iter(setting.on())))
    setting.turn()
    known = ("grew", "reclaimed", "samples")
    before = [setting.shown()[name] for name in known]
    setting.turn(100 * 86_400)
    for _ in range(25):  # the clock is believed after an hour
        setting.turn(150)
    setting.turn(86_400)
    setting.restart()
    setting.turn()
    setting.controller.take(reports(setting, 200.0))
    assert [setting.shown()[name] for name in known] == before


def rescales_in_memory() -> int:
    gc.collect()
    return sum(isinstance(one, Rescale) for one in gc.get_objects())


def test_a_trainer_that_changes_its_size_for_ever_takes_no_more_memory() -> None:
    setting = at_work(2)
    before = rescales_in_memory()
    for number in range(1, 501):
        setting.now_s += 5
        nodes = 1 + number % 2
        setting.say(NoteKind.REFORMED, generation=number, nodes=nodes)
        setting.say(NoteKind.PROGRESS, generation=number, nodes=nodes, samples=number, pause_s=0.5)
    assert 0 < rescales_in_memory() - before < 50


def test_a_comment_that_its_user_has_replaced_is_written_again() -> None:
    setting = at_work(2)
    setting.slurm.be_(ARRAY, comment="project-x", overwritten=True)
    setting.turn()
    assert (
        setting.slurm.trainers[ARRAY].comment
        == "bftrainer:min=1,max=4,weight=1,grace=0.5 project-x"
    )
    assert (setting.shown()["state"], len(setting.on())) == ("running", 2)


def test_a_suspended_element_does_not_run_and_its_node_is_nobodys() -> None:
    setting = at_work(3)
    one = setting.on()["n2"]
    for state in ("suspended", "running"):
        setting.slurm.put_(element(one, state, "n2", start_s=setting.now_s))
        setting.submit(99, 1)
        setting.settle()
        stands = state == "suspended"
        assert setting.shown()["nodes"] == sorted(setting.on())
        assert ("n2" in {*setting.on(), *setting.on(99)}) is not stands
        assert ("suspended on n2" in str(setting.shown()["notice"])) is stands
    assert ElementId(ARRAY, one) not in dict(setting.told.gone)
    assert setting.shown()["reclaimed"] == 0


def test_that_an_operator_holds_some_of_its_elements_is_said() -> None:
    setting = Setting(2, ARRAY)
    setting.slurm.put_(element(0, "withheld"))
    setting.settle()
    assert setting.shown()["why"] == "an operator holds 1 of its 4 elements (scontrol release)"
