"""The whole loop on a made-up Slurm of a few nodes: notes and readings in, commands out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.act import MOST_ACTIONS
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import Spans
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.registry import REST_S
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.replay.slurm import HELD, RUNNING
from bftrainer_slurm.sizes import ANY, Sizes
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from bftrainer_slurm.spec import Spec
from tests.controller.setting import Setting, at_work
from tests.controller.worlds import ARRAY, NOW_S, cases, element, failed, note


def test_the_keeper_knows_whose_a_trainer_is_before_its_first_element_runs() -> None:
    setting = Setting(2, ARRAY)
    setting.slurm.fails["grow"] = SlurmUnavailableError("no answer")
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    assert setting.told.owned[-1] == (ARRAY, "alice", 2)
    setting.has_also("n3")
    assert setting.told.owned[-1] == (ARRAY, "alice", 3)


def test_the_keeper_knows_whose_a_trainer_is_before_anything_is_planned() -> None:
    """After the loss of both, the members of the group wait for that."""
    setting = at_work(2)
    setting.told.owned.clear()
    told_before: list[tuple[int, str, int]] = []
    plan = setting.planner.plan

    def watched(problem: Problem) -> Plan:
        told_before.extend(setting.told.owned)
        return plan(problem)

    setting.planner.plan = watched  # type: ignore[method-assign]
    setting.restart()
    setting.turn()
    assert told_before == [(ARRAY, "alice", 2)]


def test_a_trainer_that_has_used_its_node_hours_ends() -> None:
    setting = Setting(2, ARRAY, most=1)
    setting.slurm.change_(ARRAY, spec=Spec(node_hours=1))
    setting.turn()
    setting.turn(3590)
    assert (setting.slurm.cancelled_, setting.shown()["node_hours"]) == ([], 1)
    setting.turn(20)
    assert setting.slurm.cancelled_ == [ARRAY]
    for _ in range(2):
        why = "it has used its 1 node-hours (node_hours=1)"
        assert (setting.shown()["state"], setting.shown()["why"]) == ("given up", why)
        setting.restart()
        setting.settle()


def test_who_has_no_other_element_grows_back_as_soon_as_one_may_start_again() -> None:
    setting = at_work(3, most=2, settings=Settings())
    setting.slurm.start_ordinary_(next(iter(setting.on())))
    setting.turn()
    assert setting.due_in_s <= REST_S
    setting.turn(setting.due_in_s)
    assert len(setting.on()) == 2


def test_what_happens_is_counted_and_in_the_status() -> None:
    setting = at_work(3)
    setting.slurm.start_ordinary_("n2")
    setting.turn()
    counts = setting.controller.status({})["counts"]
    assert (counts["started"], counts["ended"]) == (3, {"reclaimed": 1})
    assert counts["plans"] == {"optimal": len(setting.planner.asked)}
    assert counts["looks"]["count"] == 5
    setting.restart()  # it counts on
    setting.turn()
    counts = setting.controller.status({})["counts"]
    assert (counts["started"], counts["looks"]["count"]) == (3, 6)


def test_the_plan_that_stands_is_explained() -> None:
    setting, explained = at_work(3), list[tuple[int, str]]()
    for _ in range(2):
        plan: Any = setting.shown()["plan"]
        explained.append((plan["nodes"], plan["limit"]))
        setting.slurm.start_ordinary_("n2")
        setting.turn()
    assert explained == [(3, "pool"), (2, "pool")]


def test_where_a_trainers_time_went_is_known_after_a_restart_too() -> None:
    setting = Setting(2, ARRAY)
    setting.slurm.node_names = []
    assert setting.shown_goodput()["trained_s"] is None
    setting.slurm.node_names = ["n1", "n2"]
    setting.turn(20)
    setting.train(60)
    setting.restart()
    spent = setting.shown_goodput()
    assert spent["waiting_s"] == 20
    assert spent["trained_s"] == pytest.approx(59, abs=6)  # it is kept every few seconds
    assert spent["with_nodes_s"] == 60


# Elements that do not train together: their user is told so, once.

Step = Callable[[Setting], object]


def quiet(seconds: float) -> Step:
    """Nobody says anything."""
    return lambda setting: setting.turn(seconds)


def forms(nodes: int, generation: int = 1) -> Step:
    """So many members form a group."""
    return lambda setting: setting.say(NoteKind.REFORMED, generation=generation, nodes=nodes)


def script(leads: float, trains: float) -> Step:
    """The script on the node of a task trains, or does not train any more."""
    return lambda setting: setting.say(NoteKind.SCRIPT, leads=leads, trains=trains)


def trains(seconds: int, *worlds: int, **more: float) -> Step:
    """Groups of so many nodes each train and report, and know nothing of one another."""

    def step(setting: Setting) -> None:
        for second in range(seconds):
            setting.now_s += 1
            for since_s, nodes in enumerate(worlds, round(NOW_S)):
                measures = {"samples": 2.0 * second, "nodes": nodes, "generation": since_s}
                setting.say(NoteKind.PROGRESS, **measures, **more)
        setting.turn(0)

    return step


def comes(node: str) -> Step:
    return lambda setting: setting.has_also(node)


def restarts(setting: Setting) -> None:
    setting.restart()
    setting.turn(0)


def apart(nodes: str, what: str = "do not train together") -> str:
    return (
        f"{nodes} run, but {what}: start the training by 'srun torchrun train.py', with all its "
        f"processes in one group; 'bftrainer logs {ARRAY}' has the last lines of each node. Else "
        "each may train alone into the same files"
    )


ONLY_TWO = "only 2 of them train together"


@cases(
    "nodes, before, then, said",
    none_has_joined=(2, [quiet(59)], quiet(1), apart("n1, n2")),
    none_has_since_the_script_trains=(
        3, [quiet(30), script(1, 1), quiet(50)], quiet(30), apart("n1, n2, n3")
    ),
    a_script_said_what_cannot_be=(2, [script(-1, 0), quiet(59)], quiet(1), apart("n1, n2")),
    a_script_said_something_else_that_cannot_be=(
        2, [script(1, 2), quiet(59)], quiet(1), apart("n1, n2")
    ),
    each_trains_alone=(2, [trains(50, 1, 1)], trains(15, 1, 1), apart("n1, n2")),
    two_train_together=(3, [trains(50, 2, 1)], trains(15, 2, 1), apart("n1, n2, n3", ONLY_TWO)),
    two_do_among_four=(
        4, [trains(50, 1, 2, 1)], trains(15, 1, 2, 1), apart("n1, n2, n3, n4", ONLY_TWO)
    ),
    they_meet_and_form_no_group_of_their_processes=(
        2, [forms(2), trains(50, 2, alone=1.0)], trains(30, 2, alone=1.0), apart("n1, n2")
    ),
    one_never_joins_the_others_that_report=(
        3, [forms(2), trains(50, 2)], trains(15, 2), apart("n1, n2, n3", ONLY_TWO)
    ),
    one_never_joins_the_others_that_do_not=(
        3, [forms(2), quiet(50)], quiet(15), apart("n1, n2, n3", ONLY_TWO)
    ),
    one_was_lost_to_the_group_and_does_not_come_back=(
        3, [forms(3), trains(200, 3), forms(2, 2), trains(50, 2)], trains(15, 2),
        apart("n1, n2, n3", ONLY_TWO),
    ),
)  # fmt: skip
def test_their_user_is_told_once_a_minute_after(
    nodes: int, before: list[Step], then: Step, said: str
) -> None:
    setting = Setting(nodes, ARRAY)
    setting.turn()
    for step in before:
        step(setting)
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])
    for step in (then, then, quiet(600)):
        step(setting)
        assert setting.shown()["notice"] == said
        [(one, text)] = setting.slurm.said  # in the output of its first element
        assert (one, text) == (ElementId(ARRAY, setting.on()["n1"]), f"bftrainer: {said}")
    setting.say(NoteKind.REFORMED, generation=9, nodes=nodes)
    setting.say(NoteKind.PROGRESS, generation=9, nodes=nodes, samples=1.0)
    assert setting.shown()["notice"] is None
    assert (setting.shown()["state"], len(setting.on())) == ("running", nodes)


@cases(
    "nodes, most, steps",
    a_group_was_formed=(2, 4, [forms(2), quiet(100)]),
    it_was_before_the_controller_began=(2, 4, [forms(2), restarts, quiet(100)]),
    the_nodes_train_together_without_the_keeper=(2, 4, [trains(600, 2)]),
    there_is_one_node=(1, 4, [trains(600, 1)]),
    a_trainer_of_one_node_need_not_join=(1, 1, [quiet(600)]),
    nodes_wait_for_the_next_training_of_a_script=(3, 4, [forms(2), script(0, 0), quiet(100)]),
    a_node_that_joins_by_the_users_own_endpoint_has_the_time_to_start=(
        1, 4, [trains(100, 1), comes("n2"), trains(5, 1), trains(100, 2)]
    ),
    one_waits_until_the_others_have_done_a_long_step=(
        2, 4, [forms(2), trains(10, 2), comes("n3"), trains(20, 2), quiet(300)]
    ),
)  # fmt: skip
def test_nobody_is_told_anything_where(nodes: int, most: int, steps: list[Step]) -> None:
    setting = Setting(nodes, ARRAY, most=most)
    setting.turn()
    for step in steps:
        step(setting)
        assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


def test_one_that_leaves_is_not_missed() -> None:
    setting = at_work(3)
    for step in (forms(3), trains(10, 3)):
        step(setting)
    setting.slurm.ignores.add("shrink")  # they are slow to end
    setting.submit(99, 4)
    setting.settle()
    for step in (forms(2, 2), *[trains(20, 2)] * 5):
        step(setting)
        assert len(setting.on()) == 3
        assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


def test_a_word_to_an_element_that_has_just_ended_is_not_said_again() -> None:
    setting = at_work(2)
    setting.slurm.fails["tell"] = RefusedError("it has ended")
    setting.turn(60)
    setting.turn(60)
    assert setting.slurm.said == []
    assert setting.shown()["notice"] == apart("n1, n2")


# Scripts that fail.


def fails_whenever_it_joins(setting: Setting, node: str, generation: int) -> None:
    """An element joins the others, all stand still, and its script fails; the others train on."""
    setting.say(NoteKind.REFORMED, generation=generation, nodes=len(setting.on()))
    setting.turn(62)
    setting.slurm.put_(failed(setting.on()[node], node))
    setting.turn()
    left = len(setting.on())
    setting.say(NoteKind.REFORMED, generation=generation + 1, nodes=left)
    setting.train(15, generation=generation + 1)
    setting.settle()


def test_a_node_that_fails_whenever_it_joins_is_left_out_though_the_others_train() -> None:
    setting = at_work(3, most=3)
    setting.train(30)
    fails_whenever_it_joins(setting, "n1", 2)
    assert (setting.shown()["failures"], "n1" in setting.on()) == (1, True)
    fails_whenever_it_joins(setting, "n1", 4)
    assert setting.on().keys() == {"n2", "n3"}
    assert str(setting.shown()["notice"]).startswith("failed 2 times in a row on n1: ")


def test_a_trainer_whose_script_has_just_failed_is_waiting_and_not_cancelled() -> None:
    setting = at_work(1, most=1, settings=Settings())
    setting.slurm.put_(failed(0, "n1"))
    setting.slurm.ignores.add("revive")
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["failures"]) == ("waiting", 1)
    assert setting.due_in_s == 5  # then it has rested


def test_a_trainer_is_cancelled_though_slurm_still_knows_its_failed_element() -> None:
    setting = at_work(2, most=2)
    setting.slurm.put_(element(0, "failed n1"))
    setting.slurm.ignores.add("revive")
    setting.turn()
    assert setting.shown()["state"] == "running"
    setting.slurm.put_(element(1, "cancelled"))
    for _ in range(3):
        setting.turn(20)
        assert (setting.shown()["state"], setting.shown()["why"]) == ("cancelled", None)


def test_the_size_on_which_a_script_fails_is_left_out_and_it_trains_on_others() -> None:
    setting = at_work(2)
    setting.say(NoteKind.REFORMED, generation=1.0, nodes=2.0)
    setting.train(12)
    setting.has_also("n3")
    for generation, node in ((2.0, "n1"), (3.0, "n3")):
        assert setting.told.sizes == ANY
        setting.say(NoteKind.REFORMED, generation=generation, nodes=3.0)
        setting.now_s += 3
        setting.say(NoteKind.FAILED, node, "Traceback\nAssertionError: not on 3 nodes", nodes=3.0)
    setting.turn()
    assert setting.told.sizes == Sizes((1, 2)), "what is smaller comes first"
    setting.settle()
    assert len(setting.on()) == 2
    left_out = "3 nodes, where its script fails: AssertionError: not on 3 nodes"
    assert [text for _, text in setting.slurm.said] == [f"bftrainer: left out: {left_out}"]
    setting.say(NoteKind.REFORMED, generation=4.0, nodes=2.0)
    setting.train(12, generation=4)
    setting.restart()
    setting.settle()
    assert (setting.told.sizes, setting.shown()["left_out"]) == (Sizes(without=(3,)), left_out)
    setting.has_also("n4")
    assert len(setting.on()) == 4


# What goes wrong, and what is waited for.


def test_notes_of_trainers_that_are_not_ours_change_nothing() -> None:
    setting = at_work(3)
    before = setting.controller.status({})
    for kind in (NoteKind.PROGRESS, NoteKind.REFORMED, NoteKind.FAILED):
        setting.controller.take([note(kind, setting.now_s, 0, "n1", array=4711, samples=1.0)])
    assert setting.controller.status({}) == before


def test_a_history_that_cannot_be_written_hinders_nobody_and_is_shown(tmp_path: Path) -> None:
    setting = Setting(3, ARRAY, history=History(tmp_path / "history.sqlite"))
    with sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        setting.settle()
        assert len(setting.on()) == 3
        assert "locked" in setting.controller.status({})["controller"]["history"]
        other.execute("ROLLBACK")
    setting.history.close()
    assert len(History(tmp_path / "history.sqlite").open_allocations()) == 3


def test_where_the_ends_of_all_elements_take_longer_than_before_no_node_is_left_alone() -> None:
    setting = Setting(4, ARRAY)
    for ends_s in (0, 0, 10):
        setting.settle()
        for one in setting.slurm.elements():
            setting.slurm.put_(element(one.id.task, "ending", one.node))
        for _ in range(ends_s):
            setting.turn(1)
        for one in setting.slurm.elements():  # one after the other
            setting.slurm.put_(element(one.id.task, "held"))
            setting.turn(0.2)
    setting.settle()
    assert len(setting.on()) == 4


def test_a_burst_is_bounded_and_all_nodes_come_into_use() -> None:
    arrays = range(100, 220)
    setting = Setting(240, *arrays, most=2, settings=Settings())
    setting.controller.deps = replace(setting.controller.deps, most_actions=MOST_ACTIONS)
    starts, until_s = list[int](), setting.now_s + 15
    while setting.now_s < until_s:
        setting.slurm.asked_.clear()
        setting.turn(max(0.0, setting.due_in_s) + 0.1)
        starts.append(setting.slurm.requests_.count("grow"))
    assert (max(starts), sum(starts)) == (MOST_ACTIONS, 120)
    assert sum(len(setting.on(array)) for array in arrays) == 240


def test_after_many_starts_it_looks_soon() -> None:
    setting = Setting(40, *range(100, 120), most=2, settings=Settings())
    setting.turn()
    assert (len(setting.slurm.starts_), setting.due_in_s) == (40, 2.0)


def test_an_element_that_starts_or_ends_as_slurm_is_read_leaves_its_node_in_its_hole() -> None:
    setting = Setting(2, ARRAY, most=1)

    def holes(*meanwhile: Callable[[], object]) -> dict[str, float]:
        """Since when nodes are in holes, if this happens between the first two readings."""
        setting.slurm.meanwhile = [lambda: None, *meanwhile]
        setting.turn(15)
        return dict(Spans(setting.history, "holes").open())

    setting.slurm.works = False
    before = holes()
    assert before.keys() == {"n1", "n2"}
    setting.slurm.works = True
    assert (holes(setting.slurm.schedule), holes()) == (before, before)
    (job,) = setting.slurm.elements(RUNNING)
    assert holes(lambda: setting.slurm.end(job, HELD)) == before
    setting.settle()
    assert setting.slurm.elements(RUNNING)
