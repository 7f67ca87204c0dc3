"""An element that the keeper cannot hear, while others wait for it, is ended; nobody else is."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.replay.slurm import HELD
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, element, note


class CutOff(Setting):
    """A trainer on two nodes."""

    def __init__(self) -> None:
        super().__init__(2, ARRAY, settings=Settings())
        self.settle()
        self.before = self.on()
        self.tasks = frozenset(self.before.values())
        self.task = self.before["n1"]
        self.other = self.before["n2"]

    def hears(self, kind: NoteKind, node: str = "n1", **measures: float) -> None:
        self.controller.take([note(kind, self.now_s, self.task, node, **measures)])

    def formed(self, nodes: int, tasks: str) -> None:
        """The keeper says that these tasks are its fourth group."""
        measures = (("generation", 4.0), ("nodes", float(nodes)))
        told = Note(NoteKind.REFORMED, ARRAY, measures=measures, tasks=tasks)
        self.controller.take([NumberedNote(1, self.now_s, told)])


@pytest.mark.parametrize("node", ["n1", ""], ids=["node", "the keeper does not know the node"])
def test_it_is_ended_and_another_takes_its_place(node: str) -> None:
    setting = CutOff()
    setting.hears(NoteKind.CUT, node)
    assert setting.due_in_s < 1.0
    setting.turn()
    assert setting.slurm.element_(ElementId(ARRAY, setting.task)).state is HELD
    setting.settle()
    assert len(setting.on()) == 2


@pytest.mark.parametrize(
    "says",
    [
        pytest.param([(NoteKind.CUT, "n1"), (NoteKind.BACK, "")], id="is heard again before that"),
        pytest.param([(NoteKind.CUT, "n2")], id="was cut off elsewhere"),
        pytest.param([(NoteKind.CUT, "n2.cluster.org")], id="was cut off on a host elsewhere"),
    ],
)
def test_one_stays_that(says: list[tuple[NoteKind, str]]) -> None:
    setting = CutOff()
    for kind, node in says:
        setting.hears(kind, node)
    setting.settle()
    assert (setting.on(), setting.told.gone) == (setting.before, [])


def test_nobody_waits_for_one_that_slurm_does_not_run_any_more() -> None:
    setting = CutOff()
    setting.slurm.start_ordinary_("n1")
    setting.turn()
    setting.told.gone.clear()
    setting.hears(NoteKind.CUT, "n1.cluster.org")
    setting.turn()
    assert setting.told.gone == [(ElementId(ARRAY, setting.task), "n1.cluster.org")]


def test_a_new_keeper_is_told_who_took_part_and_whom_slurm_still_has() -> None:
    setting = CutOff()
    setting.formed(3, f"{setting.task},{setting.other},99")
    setting.hears(NoteKind.SCRIPT, leads=setting.task, trains=0)
    setting.turn()
    assert setting.told.engaged == Engaged(4, setting.tasks, setting.task)
    setting.controller.take([note(NoteKind.FINISHED, setting.now_s, setting.other)])
    setting.turn()
    assert setting.told.engaged == Engaged(4, frozenset({setting.task}), setting.task)


def test_who_has_left_its_node_took_no_part_where_it_starts_next() -> None:
    setting = CutOff()
    setting.formed(2, f"{setting.task},{setting.other}")
    setting.slurm.node_names.append("n3")
    for look in ("delayed", "running n3"):
        setting.slurm.put_(element(setting.task, look, start_s=setting.now_s))
        setting.turn()
    assert setting.told.engaged == Engaged(4, frozenset({setting.other}))
