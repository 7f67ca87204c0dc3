"""Nothing is done twice and nothing is forgotten: restarts, repeated notes, a silent keeper."""

from __future__ import annotations

from pathlib import Path

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import Element, ElementId, ElementState
from tests.controller.test_loop import Setting
from tests.controller.worlds import ARRAY


def purge(setting: Setting, *tasks: int) -> None:
    """MinJobAge is over: Slurm forgets elements that have ended."""
    for task in tasks:
        del setting.slurm.elements[ElementId(ARRAY, task)]


def finished(task: int, time_s: float) -> NumberedNote:
    return NumberedNote(task + 1, time_s, Note(NoteKind.FINISHED, ARRAY, task))


def test_a_trainer_that_finished_while_the_controller_was_away_does_not_run_again() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    before = setting.shown()["grew"]
    purge(setting, *setting.slurm.on().values())
    setting.controller = setting.started()
    setting.now_s += 400
    setting.controller.take([finished(task, setting.now_s - 390) for task in (0, 1)])
    setting.turn()
    assert setting.slurm.cancelled == [ARRAY]
    for seconds in (5, 400, 5):
        setting.turn(seconds)
    assert (setting.shown()["state"], setting.shown()["grew"]) == ("finished", before)


def test_an_element_that_came_up_again_after_it_had_finished_tells_no_end() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    setting.controller = setting.started()
    setting.slurm.elements[ElementId(ARRAY, 0)] = Element(ElementId(ARRAY, 0), ElementState.HELD)
    up = NumberedNote(2, setting.now_s, Note(NoteKind.UP, ARRAY, 0, "n1"))
    setting.controller.take([finished(0, setting.now_s - 60), up])
    purge(setting, 0)
    setting.turn()
    assert (setting.slurm.cancelled, setting.shown()["state"]) == ([], "running")


def reports(setting: Setting, *samples: float) -> list[NumberedNote]:
    """Reports of one generation, a second apart, of which the last one has just come."""
    said = [Note(NoteKind.PROGRESS, ARRAY, measures=(("samples", one),)) for one in samples]
    first_s = setting.now_s - len(said)
    return [NumberedNote(n, first_s + n, note) for n, note in enumerate(said, 1)]


def test_samples_that_the_keeper_tells_again_after_a_restart_count_once(tmp_path: Path) -> None:
    setting = Setting(2, ARRAY, history=History(tmp_path / "history.sqlite"))
    setting.settle()
    told = reports(setting, *(100.0 * n for n in range(1, 11)))
    setting.controller.take(told)
    assert setting.shown()["samples"] == 1000
    for _ in range(2):
        setting.controller = setting.started()
        setting.controller.take(told)
        setting.turn()
        assert setting.shown()["samples"] == 1000
    setting.now_s += 1
    setting.controller.take(reports(setting, 1100.0))
    assert setting.shown()["samples"] == 1100


def test_samples_that_came_while_the_controller_was_away_count(tmp_path: Path) -> None:
    setting = Setting(2, ARRAY, history=History(tmp_path / "history.sqlite"))
    setting.settle()
    told = reports(setting, 100.0, 200.0)
    setting.controller.take(told)
    setting.controller = setting.started()
    setting.now_s += 3
    setting.controller.take(told + reports(setting, 300.0, 400.0, 500.0))
    setting.turn()
    assert setting.shown()["samples"] == 500


def test_a_pause_that_is_told_again_is_one_pause(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    setting = Setting(2, ARRAY, history=history)
    setting.settle()
    first, second = reports(setting, 100.0, 200.0)
    more = (("generation", 2.0), ("nodes", 2.0), ("pause_s", 0.5))
    paused = Note(NoteKind.PROGRESS, ARRAY, measures=(*second.note.measures, *more))
    told = [first, NumberedNote(2, second.time_s, paused)]
    setting.controller.take(told)
    setting.controller = setting.started()
    setting.controller.take(told)
    setting.turn()
    pauses = history._database.read("SELECT seconds FROM pauses WHERE array = ?", ARRAY)
    assert pauses == [(0.5,)]
