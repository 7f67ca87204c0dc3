"""An element that the keeper cannot hear, while others wait for it, is ended; nobody else is."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.replay.slurm import HELD
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, element, note


class CutOff(Setting):
    """A trainer on two nodes."""

    def __init__(self) -> None:
        super().__init__(2, ARRAY)
        self.settle()
        self.before = self.on()
        self.node, self.task = min(self.before.items())

    def hears(self, kind: NoteKind, node: str | None = None) -> None:
        where = self.node if node is None else node
        self.controller.take([note(kind, self.now_s, self.task, where)])

    def formed(self, nodes: int, tasks: str) -> None:
        """The keeper says that these tasks are its fourth group."""
        measures = (("generation", 4.0), ("nodes", float(nodes)))
        told = Note(NoteKind.REFORMED, ARRAY, measures=measures, tasks=tasks)
        self.controller.take([NumberedNote(1, self.now_s, told)])


@pytest.mark.parametrize("node", [None, ""], ids=["node", "the keeper does not know the node"])
def test_it_is_ended_and_another_takes_its_place(node: str | None) -> None:
    setting = CutOff()
    setting.hears(NoteKind.CUT, node)
    assert setting.controller.schedule.due_s() - setting.now_s < 1.0
    setting.turn()
    assert setting.slurm.element_(ElementId(ARRAY, setting.task)).state is HELD
    setting.settle()
    assert len(setting.on()) == 2


def test_one_that_is_heard_again_before_that_stays() -> None:
    setting = CutOff()
    setting.hears(NoteKind.CUT)
    setting.hears(NoteKind.BACK, "")
    setting.settle()
    assert setting.on() == setting.before


@pytest.mark.parametrize("node", ["n2", "n2.cluster.org"])
def test_one_that_was_cut_off_elsewhere_stays(node: str) -> None:
    setting = CutOff()
    setting.hears(NoteKind.CUT, node)
    setting.settle()
    assert setting.on() == setting.before
    assert setting.told.gone == []


def test_nobody_waits_for_one_that_slurm_does_not_run_any_more() -> None:
    setting = CutOff()
    setting.slurm.start_ordinary_(setting.node)
    setting.turn()
    setting.told.gone.clear()
    setting.hears(NoteKind.CUT, "n1.cluster.org")
    setting.turn()
    assert setting.told.gone == [(ElementId(ARRAY, setting.task), "n1.cluster.org")]


def test_a_new_keeper_is_told_who_took_part_and_whom_slurm_still_has() -> None:
    setting = CutOff()
    tasks = sorted(setting.before.values())
    setting.formed(3, f"{tasks[0]}-{tasks[1]},99")
    setting.controller.take(
        [note(NoteKind.SCRIPT, setting.now_s, leads=float(tasks[0]), trains=0.0)]
    )
    setting.turn()
    assert setting.told.engaged == Engaged(4, frozenset(tasks), tasks[0])
    setting.controller.take([note(NoteKind.FINISHED, setting.now_s, tasks[1], "")])
    setting.turn()
    assert setting.told.engaged == Engaged(4, frozenset(tasks[:1]), tasks[0])


def test_who_has_left_its_node_took_no_part_where_it_starts_next() -> None:
    setting = CutOff()
    tasks = sorted(setting.before.values())
    setting.formed(2, f"{tasks[0]},{tasks[1]}")
    setting.slurm.node_names.append("n3")
    for look in ("delayed", "running n3"):
        setting.slurm.put_(element(setting.task, look, start_s=setting.now_s))
        setting.turn()
    assert setting.told.engaged == Engaged(4, frozenset(tasks) - {setting.task})


@pytest.mark.parametrize("history", ["kept", "lost"])
def test_a_new_controller_knows_it_from_the_history(history: str) -> None:
    setting = CutOff()
    tasks = sorted(setting.before.values())
    setting.formed(2, f"{tasks[0]},{tasks[1]}")
    if history == "lost":
        setting.history = History(":memory:")
    setting.controller = setting.started()
    setting.turn()
    assert setting.told.engaged.tasks == (frozenset(tasks) if history == "kept" else frozenset())
