"""The whole loop on a made-up Slurm of a few nodes: notes and readings in, commands out."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bftrainer_slurm.controller.act import Pacer
from bftrainer_slurm.controller.groups import NoGroups
from bftrainer_slurm.controller.history import History
from bftrainer_slurm.controller.learnt import Learnt
from bftrainer_slurm.controller.loop import Controller, World
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import (
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Reservation,
    Trainer,
)
from bftrainer_slurm.planner.equal_share import equal_share_counts
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Plan, Problem, value
from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import ARRAY, NOW_S

RUNNING, HELD = ElementState.RUNNING, ElementState.HELD


class Planner:
    """Shares equally, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    def plan(self, problem: Problem) -> Plan:
        self.asked.append(problem)
        counts = equal_share_counts(problem)
        return Plan(place(problem, counts), value(problem, counts), 0.0, "optimal")


class Slurm:
    """Does at once what it is asked."""

    name = "made up"
    grow_rpcs = 1
    away = False
    submit_s = NOW_S

    def __init__(self, nodes: int, *arrays: int, most: int = 4) -> None:
        self.in_service = [f"n{number}" for number in range(1, nodes + 1)]
        self.reclaimed: set[str] = set()
        self.cancelled: list[int] = []
        self.elements = {
            ElementId(array, task): Element(ElementId(array, task), HELD)
            for array in arrays
            for task in range(most)
        }

    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(name, NodeState.IDLE, frozenset({"bftrainer"})) for name in self.in_service
        )

    def queue(self) -> Queue:
        if self.away:
            raise SlurmUnavailableError("no answer")
        arrays = sorted({id_.array for id_ in self.elements})
        trainers = tuple(
            Trainer(array, "digits", "alice", "bftrainer", self._record(array), self.submit_s, own)
            for array in arrays
            for own in [tuple(one for id_, one in self.elements.items() if id_.array == array)]
        )
        return Queue(trainers, (), frozenset(self.reclaimed))

    def reservations(self) -> tuple[Reservation, ...]:
        return ()

    def grow(self, element: ElementId, node: str, minutes: int | None = None) -> None:
        self.elements[element] = Element(element, RUNNING, node, NOW_S)

    def shrink(self, elements: Sequence[ElementId]) -> None:
        for element in elements:
            self.elements[element] = Element(element, HELD)

    revive = hold = shrink

    def lengthen(self, elements: Sequence[ElementId], minutes: int) -> None:
        raise AssertionError("nothing has a limit")

    def cancel(self, array: int) -> None:
        self.cancelled.append(array)
        for id_ in [id_ for id_ in self.elements if id_.array == array]:
            self.elements[id_] = Element(id_, ElementState.CANCELLED)

    def reclaim(self, node: str) -> None:
        """An ordinary job takes a node."""
        self.reclaimed.add(node)
        for id_, one in self.elements.items():
            if one.node == node:
                self.elements[id_] = Element(id_, ElementState.DELAYED)

    def on(self, array: int = ARRAY) -> dict[str, int]:
        """The task on each of a trainer's nodes."""
        return {
            one.node: id_.task
            for id_, one in self.elements.items()
            if id_.array == array and one.state is RUNNING and one.node
        }

    def _record(self, array: int) -> TrainerRecord:
        return TrainerRecord(1, sum(id_.array == array for id_ in self.elements))


@dataclass
class Told(NoGroups):
    """What the keeper is told."""

    owned: list[tuple[int, str, int]] = field(default_factory=list)
    parted: list[tuple[int, list[int]]] = field(default_factory=list)
    gone: list[ElementId] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def own(self, array: int, user: str, want: int) -> None:
        self.owned.append((array, user, want))

    def part(self, leaving: Mapping[int, Sequence[int]]) -> None:
        self.parted += [(array, list(tasks)) for array, tasks in leaving.items()]

    def lost(self, element: ElementId) -> None:
        self.gone.append(element)

    def end(self, array: int) -> None:
        self.ended.append(array)


class Setting:
    """A controller on a made-up Slurm, with a clock that is set by hand."""

    def __init__(
        self,
        nodes: int,
        *arrays: int,
        most: int = 4,
        history: History | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.now_s = NOW_S
        self.settings = settings or Settings(nodes_interval_s=1)
        self.slurm = Slurm(nodes, *arrays, most=most)
        self.told = Told()
        self.planner = Planner()
        self.history = history or History(":memory:")
        self.controller = self.started()

    def started(self) -> Controller:
        """Return a controller that has just been started."""
        world = World(
            gateway=self.slurm,
            planner=self.planner,
            history=self.history,
            groups=self.told,
            clock=lambda: self.now_s,
            pacer=Pacer(1e9, lambda: self.now_s, lambda _: None),
            mine=lambda trainer: True,
            appraiser=Learnt(self.history.lessons),
        )
        return Controller(world, self.settings)

    def turn(self, seconds: float = 5.0) -> None:
        """Let time pass, and the controller look."""
        self.now_s += seconds
        self.controller.turn()

    def settle(self) -> None:
        """Turn until what was given up is given on."""
        for _ in range(4):
            self.turn()

    def say(self, kind: NoteKind, node: str = "", text: str = "", **measures: float) -> None:
        """A member of the trainer says something."""
        task = self.slurm.on().get(node, 0)
        note = Note(kind, ARRAY, task, node, tuple(measures.items()), text)
        self.controller.take([NumberedNote(1, self.now_s, note)])

    def train(self, seconds: int, rate: float = 100.0, generation: int = 1) -> None:
        """The trainer reports every second."""
        nodes = len(self.slurm.on())
        for second in range(seconds):
            self.now_s += 1
            self.say(NoteKind.PROGRESS, samples=rate * second, nodes=nodes, generation=generation)

    def shown(self) -> dict[str, object]:
        """What users are shown of the trainer."""
        status = self.controller.status({})
        found: dict[str, object] = next(one for one in status["trainers"] if one["array"] == ARRAY)
        return found


def test_the_keeper_knows_whose_a_trainer_is_before_its_first_element_runs() -> None:
    setting = Setting(2, ARRAY)
    heard_before: list[int] = []
    grow = setting.slurm.grow

    def watched(element: ElementId, node: str, minutes: int | None = None) -> None:
        heard_before.append(len(setting.told.owned))
        grow(element, node, minutes)

    setting.slurm.grow = watched  # type: ignore[method-assign]
    setting.turn()
    assert setting.told.owned[0] == (ARRAY, "alice", 2)
    assert heard_before[0] > 0


def test_a_new_run_begins_with_the_first_element_only() -> None:
    setting = Setting(3, ARRAY)
    setting.turn()
    assert setting.told.ended == [ARRAY]
    setting.slurm.in_service.append("n4")
    setting.settle()
    assert (len(setting.slurm.on()), setting.told.ended) == (4, [ARRAY])


def test_the_keeper_is_told_when_the_plan_gives_a_trainer_another_number_of_nodes() -> None:
    setting = Setting(2, ARRAY)
    setting.turn()
    setting.slurm.in_service.append("n3")
    setting.settle()
    assert setting.told.owned[-1] == (ARRAY, "alice", 3)


def test_elements_are_asked_to_leave_before_their_nodes_go_to_others() -> None:
    setting = Setting(4, ARRAY)
    setting.settle()
    setting.slurm.elements[ElementId(99, 0)] = Element(ElementId(99, 0), HELD)
    setting.settle()
    ((array, tasks),) = setting.told.parted
    assert (array, len(tasks), len(setting.slurm.on(99))) == (ARRAY, 1, 1)
    assert setting.told.gone == []


def test_a_reclaimed_element_is_said_to_be_lost() -> None:
    setting = Setting(3, ARRAY)
    setting.settle()
    task = setting.slurm.on()["n2"]
    setting.slurm.reclaim("n2")
    setting.turn()
    assert setting.told.gone == [ElementId(ARRAY, task)]
    setting.settle()
    assert len(setting.told.gone) == 1


def test_a_trainer_whose_script_fails_everywhere_is_given_up_and_its_nodes_go_to_others() -> None:
    setting = Setting(4, ARRAY, 99)
    setting.settle()
    for node in ("n1", "n2"):
        for _ in range(2):
            if node in setting.slurm.on():
                setting.say(NoteKind.FAILED, node, "ImportError: no toch")
            setting.settle()
    mine = list(setting.slurm.on())
    for node in mine:
        setting.say(NoteKind.FAILED, node, "ImportError: no toch")
    setting.settle()
    assert setting.slurm.cancelled == [ARRAY]
    assert len(setting.slurm.on(99)) == 4
    shown = setting.shown()
    assert shown["state"] == "given up"
    assert "without progress" in str(shown["why"])
    assert shown["error"] == "ImportError: no toch"


def test_a_step_or_two_before_each_failure_do_not_save_it() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    for generation, node in enumerate(("n1", "n2", "n1"), start=1):
        setting.now_s += 30  # the keeper waits longer and longer between its tries
        setting.say(NoteKind.REFORMED, generation=generation, nodes=2, mode=0)
        setting.train(3, generation=generation)
        setting.say(NoteKind.FAILED, node, "CUDA out of memory")
    setting.turn()
    assert setting.shown()["state"] == "given up"


def test_progress_that_lasts_does() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    for generation, node in enumerate(("n1", "n2", "n1"), start=1):
        setting.say(NoteKind.REFORMED, generation=generation, nodes=2, mode=0)
        setting.train(30, generation=generation)
        setting.say(NoteKind.FAILED, node, "CUDA out of memory")
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["failures"]) == ("running", 1)


def test_it_stays_given_up_after_a_restart_of_the_controller() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    for node in ("n1", "n2", "n1"):
        setting.say(NoteKind.FAILED, node, "ImportError: no toch")
    setting.turn()
    setting.controller = setting.started()
    setting.turn()
    shown = setting.shown()
    assert (shown["state"], shown["error"]) == ("given up", "ImportError: no toch")


def test_a_cancel_that_slurm_did_not_hear_is_said_again() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    for node in ("n1", "n2", "n1"):
        setting.say(NoteKind.FAILED, node)
    cancel = setting.slurm.cancel

    def away(array: int) -> None:
        raise SlurmUnavailableError("no answer")

    setting.slurm.cancel = away  # type: ignore[method-assign]
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    setting.slurm.cancel = cancel  # type: ignore[method-assign]
    setting.turn(60)
    assert setting.slurm.cancelled == [ARRAY]


def test_a_bad_node_is_taken_from_the_trainer_and_given_to_nobody_for_a_while() -> None:
    setting = Setting(3, ARRAY)
    setting.settle()
    setting.train(30)
    for _ in range(2):
        setting.say(NoteKind.FAILED, "n2", "CUDA error: device is lost")
    setting.settle()
    assert setting.slurm.on().keys() == {"n1", "n3"}
    setting.train(30, generation=2)
    setting.turn()
    assert setting.shown()["failures"] == 0
    assert "n2" not in setting.slurm.on()
    setting.turn(900)
    setting.settle()
    assert "n2" in setting.slurm.on()


def test_of_a_node_that_is_not_its_own_a_trainer_has_nothing_to_say() -> None:
    setting = Setting(3, ARRAY, 99)
    setting.settle()
    (node, *_) = setting.slurm.on(99)
    for _ in range(3):
        setting.say(NoteKind.FAILED, node)
    assert setting.shown()["failed_on"] == []


def test_what_a_trainer_shows_is_what_the_next_plan_is_made_with() -> None:
    setting = Setting(3, ARRAY)
    setting.settle()
    asked = len(setting.planner.asked)
    setting.turn()
    assert len(setting.planner.asked) == asked  # nothing is new
    setting.train(90, rate=777.0)
    setting.turn()
    assert len(setting.planner.asked) == asked + 1
    assert setting.shown()["samples_per_s"] == pytest.approx(777.0)


def test_a_report_that_cannot_be_true_is_counted_and_forgotten() -> None:
    setting = Setting(3, ARRAY)
    setting.settle()
    setting.say(NoteKind.PROGRESS, samples=float("nan"), nodes=3)
    setting.say(NoteKind.PROGRESS, samples=-1.0, nodes=3)
    shown = setting.shown()
    assert (shown["refused_reports"], shown["samples"]) == (2, None)


def test_notes_of_trainers_that_are_not_ours_change_nothing() -> None:
    setting = Setting(3, ARRAY)
    setting.settle()
    before = setting.controller.status({})
    for kind in (NoteKind.PROGRESS, NoteKind.REFORMED, NoteKind.FAILED):
        note = Note(kind, 4711, 0, "n1", (("samples", 1.0),))
        setting.controller.take([NumberedNote(1, setting.now_s, note)])
    assert setting.controller.status({}) == before


def test_elements_that_were_ended_before_slurm_went_away_were_not_reclaimed() -> None:
    setting = Setting(4, ARRAY)
    setting.settle()
    setting.slurm.elements[ElementId(99, 0)] = Element(ElementId(99, 0), HELD)
    shrink = setting.slurm.shrink

    def shrinks_then_away(elements: Sequence[ElementId]) -> None:
        shrink(elements)
        setting.slurm.away = True

    def away(element: ElementId, node: str, minutes: int | None = None) -> None:
        raise SlurmUnavailableError("no answer")

    setting.slurm.shrink = shrinks_then_away  # type: ignore[method-assign]
    setting.turn()
    setting.slurm.grow = away  # type: ignore[method-assign]
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    setting.slurm.away = False
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    assert (setting.shown()["shrank"], setting.shown()["reclaimed"]) == (1, 0)
    assert setting.told.gone == []


def test_a_history_that_cannot_be_written_hinders_nobody_and_is_shown(tmp_path: Path) -> None:
    setting = Setting(3, ARRAY, history=History(tmp_path / "history.sqlite"))
    with sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        setting.settle()
        assert len(setting.slurm.on()) == 3
        assert "locked" in setting.controller.status({})["controller"]["history"]
        other.execute("ROLLBACK")
    setting.history.close()
    assert len(History(tmp_path / "history.sqlite").open_stays()) == 3


def test_trainers_leave_a_reserve_to_ordinary_jobs() -> None:
    setting = Setting(4, ARRAY, settings=Settings(nodes_interval_s=1, reserve_nodes=1))
    setting.settle()
    assert len(setting.slurm.on()) == 3


def test_what_ordinary_jobs_take_of_the_reserve_trainers_make_up_for() -> None:
    setting = Setting(4, ARRAY, settings=Settings(nodes_interval_s=1, reserve_nodes=1))
    setting.settle()
    (idle,) = {"n1", "n2", "n3", "n4"} - set(setting.slurm.on())
    setting.slurm.reclaim(idle)
    setting.settle()
    assert len(setting.slurm.on()) == 2
    setting.slurm.reclaimed.clear()
    setting.settle()
    assert len(setting.slurm.on()) == 3


def test_for_the_reserve_no_trainer_goes_below_its_least_size() -> None:
    setting = Setting(2, ARRAY, settings=Settings(nodes_interval_s=1, reserve_nodes=1))
    setting.settle()
    (idle,) = {"n1", "n2"} - set(setting.slurm.on())
    setting.slurm.reclaim(idle)
    setting.settle()
    assert len(setting.slurm.on()) == 1


def test_a_node_that_has_just_come_is_taken_once_it_has_been_idle_for_a_while() -> None:
    setting = Setting(1, ARRAY, settings=Settings(nodes_interval_s=1, min_idle_s=60))
    setting.turn()
    assert not setting.slurm.on()
    setting.turn(60)
    assert set(setting.slurm.on()) == {"n1"}


def test_a_node_where_an_elements_end_takes_long_is_left_alone_for_a_while() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    element = ElementId(ARRAY, setting.slurm.on()["n1"])
    setting.slurm.elements[element] = Element(element, ElementState.ENDING, "n1")
    setting.turn()
    setting.turn()
    setting.slurm.elements[element] = Element(element, HELD)
    setting.turn(60)
    assert set(setting.slurm.on()) == {"n2"}
    setting.turn(setting.settings.bad_node_s)
    assert set(setting.slurm.on()) == {"n1", "n2"}


def as_submitted(setting: Setting) -> None:
    """All elements of a new job under the trainer's id, that nobody has touched."""
    for id_ in setting.slurm.elements:
        setting.slurm.elements[id_] = Element(id_, HELD, reason="JobHeldUser")
    setting.slurm.submit_s = setting.now_s


def test_a_new_trainer_with_the_id_of_one_that_was_given_up_is_run(tmp_path: Path) -> None:
    setting = Setting(2, ARRAY, history=History(tmp_path / "history.sqlite"))
    setting.settle()
    setting.history.give_up(ARRAY, setting.now_s, "it failed")
    setting.now_s += 60
    as_submitted(setting)
    setting.controller = setting.started()  # it was away while slurmctld lost its state
    setting.settle()
    assert len(setting.slurm.on()) == 2
    assert setting.shown()["why"] is None
    assert setting.shown()["grew"] == 2


def test_a_trainer_that_was_given_up_stays_so_after_a_restart(tmp_path: Path) -> None:
    setting = Setting(2, ARRAY, history=History(tmp_path / "history.sqlite"))
    setting.settle()
    setting.history.give_up(ARRAY, setting.now_s, "it failed")
    setting.controller = setting.started()
    setting.settle()
    assert setting.shown()["why"] == "it failed"
    assert setting.slurm.cancelled == [ARRAY]


def test_a_trainer_all_of_whose_elements_were_requeued_meanwhile_keeps_its_past() -> None:
    setting = Setting(2, ARRAY)
    setting.settle()
    setting.now_s += 60
    for id_, one in setting.slurm.elements.items():
        state = ElementState.DELAYED if one.state is RUNNING else HELD
        setting.slurm.elements[id_] = Element(id_, state, reason="BeginTime")
    setting.slurm.submit_s = setting.now_s
    setting.controller = setting.started()
    setting.turn()
    assert setting.shown()["grew"] == 2


def test_a_trainer_whose_owner_cancels_it_as_an_element_is_brought_back_is_over() -> None:
    setting = Setting(2, ARRAY, most=2)
    setting.settle()
    first = ElementId(ARRAY, 0)
    setting.slurm.elements[first] = Element(first, ElementState.FAILED, "n1")

    def revive(elements: Sequence[ElementId]) -> None:
        setting.slurm.cancel(ARRAY)
        setting.slurm.hold(elements)

    setting.slurm.revive = revive  # type: ignore[method-assign]
    setting.turn()
    assert setting.slurm.elements[first].state is HELD
    setting.turn()
    assert setting.slurm.elements[first].state is ElementState.CANCELLED
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["why"]) == ("cancelled", None)
