"""The whole loop on a made-up Slurm of a few nodes: notes and readings in, commands out."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import RescaleCosts
from bftrainer_slurm.controller.state.registry import REST_S
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.sizes import ANY, Sizes
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from bftrainer_slurm.spec import Spec
from tests.controller.setting import Setting, at_work
from tests.controller.worlds import ARRAY, NOW_S, cases, element, failed, note


def test_the_keeper_knows_whose_a_trainer_is_before_its_first_element_runs() -> None:
    setting = Setting(2, ARRAY)
    heard_before: list[list[tuple[int, str, int]]] = []
    grow = setting.slurm.grow

    def watched(*request: Any, **others: Any) -> None:
        heard_before.append([*setting.told.owned])
        grow(*request, **others)

    setting.slurm.grow = watched  # type: ignore[method-assign]
    setting.turn()
    assert heard_before[0][-1] == (ARRAY, "alice", 2)


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
    setting.controller = setting.started()
    setting.turn()
    assert told_before == [(ARRAY, "alice", 2)]


def test_a_new_run_begins_with_the_first_element_only() -> None:
    setting = Setting(3, ARRAY)
    setting.turn()
    assert setting.told.ended == [ARRAY]
    setting.slurm.node_names.append("n4")
    setting.settle()
    assert (len(setting.on()), setting.told.ended) == (4, [ARRAY])


def test_the_keeper_is_told_when_the_plan_gives_a_trainer_another_number_of_nodes() -> None:
    setting = Setting(2, ARRAY)
    setting.turn()
    setting.slurm.node_names.append("n3")
    setting.settle()
    assert setting.told.owned[-1] == (ARRAY, "alice", 3)


def test_a_trainer_that_has_used_its_node_hours_ends() -> None:
    setting = Setting(2, ARRAY)
    setting.slurm.change_(ARRAY, spec=Spec(node_hours=1))
    setting.settle()
    setting.slurm.start_ordinary_("n2")
    setting.turn()
    setting.turn(1700)
    assert (setting.slurm.cancelled_, setting.shown()["node_hours"]) == ([], 1)
    setting.turn(1800)
    assert setting.slurm.cancelled_ == []
    setting.turn(100)
    assert setting.slurm.cancelled_ == [ARRAY]
    why = "it has used its 1 node-hours (node_hours=1)"
    assert (setting.shown()["state"], setting.shown()["why"]) == ("given up", why)
    setting.controller = setting.started()
    setting.settle()
    assert setting.shown()["why"] == why


def test_who_has_no_other_element_grows_back_as_soon_as_one_may_start_again() -> None:
    setting = at_work(3, most=2, settings=Settings())
    setting.slurm.start_ordinary_(next(iter(setting.on())))
    setting.turn()
    seconds = setting.controller.schedule.due_s() - setting.now_s
    assert seconds <= REST_S
    setting.turn(seconds)
    assert len(setting.on()) == 2


def test_what_happens_is_counted_and_in_the_status() -> None:
    setting = at_work(3)
    setting.slurm.start_ordinary_("n2")
    setting.turn()
    counts = setting.controller.status({})["counts"]
    assert (counts["started"], counts["ended"]) == (3, {"reclaimed": 1})
    assert counts["plans"] == {"optimal": len(setting.planner.asked)}
    assert counts["looks"]["count"] == 5
    setting.controller = setting.started()  # it counts on
    setting.turn()
    counts = setting.controller.status({})["counts"]
    assert (counts["started"], counts["looks"]["count"]) == (3, 6)


def not_together(nodes: str, what: str = "do not train together") -> str:
    return (
        f"{nodes} run, but {what}: start the training by 'srun torchrun train.py', with all its "
        f"processes in one group; 'bftrainer logs {ARRAY}' has the last lines of each node. Else "
        "each may train alone into the same files"
    )


NONE_HAS_JOINED = not_together("n1, n2")


def test_where_a_trainers_time_went_is_known_after_a_restart_too() -> None:
    setting = Setting(2, ARRAY)
    setting.slurm.node_names = []
    assert setting.shown_goodput()["trained_s"] is None
    setting.slurm.node_names = ["n1", "n2"]
    setting.turn(20)
    setting.train(60)
    setting.controller = setting.started()
    spent = setting.shown_goodput()
    assert spent["waiting_s"] == 20
    assert spent["trained_s"] == pytest.approx(59, abs=6)  # it is kept every few seconds
    assert spent["with_nodes_s"] == 60


def test_a_trainer_none_of_whose_elements_joins_is_told_so_and_runs_on() -> None:
    setting = at_work(2)
    assert setting.shown()["notice"] is None
    setting.turn(60)
    assert setting.shown()["notice"] == NONE_HAS_JOINED
    for _ in range(200):
        setting.turn(60)
    assert (setting.shown()["state"], len(setting.on())) == ("running", 2)
    [(element, text)] = setting.slurm.said  # once
    assert element == ElementId(ARRAY, setting.on()["n1"])
    assert text == f"bftrainer: {NONE_HAS_JOINED}"


def test_a_word_to_an_element_that_has_just_ended_is_not_said_again() -> None:
    setting = at_work(2)
    setting.slurm.fails["tell"] = RefusedError("it has ended")
    setting.turn(60)
    setting.turn(60)
    assert setting.slurm.said == []
    assert setting.shown()["notice"] == NONE_HAS_JOINED


@pytest.mark.parametrize("kind", [NoteKind.REFORMED, NoteKind.PROGRESS])
def test_a_trainer_that_was_heard_of_is_not_told_that_none_has_joined(kind: NoteKind) -> None:
    setting = at_work(2)
    setting.say(kind, generation=1, nodes=2)
    setting.turn(60)
    assert setting.shown()["notice"] is None
    assert setting.slurm.said == []


def test_from_when_the_script_trains_all_nodes_have_the_time_to_join() -> None:
    setting = at_work(3)
    setting.turn(30)
    setting.say(NoteKind.SCRIPT, leads=setting.on()["n2"], trains=1)
    setting.turn(50)
    assert setting.shown()["notice"] is None
    setting.turn(30)
    assert setting.shown()["notice"] == not_together("n1, n2, n3")


def test_nodes_that_wait_for_the_next_training_of_a_script_are_not_missed() -> None:
    setting = on_some(2, of=3)
    setting.say(NoteKind.SCRIPT, leads=setting.on()["n1"], trains=0)
    setting.turn(100)
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


@pytest.mark.parametrize("impossible", [{"leads": -1, "trains": 0}, {"leads": 1, "trains": 2}])
def test_a_script_that_cannot_be_changes_nothing(impossible: dict[str, float]) -> None:
    setting = at_work(2)
    setting.say(NoteKind.SCRIPT, **impossible)
    setting.turn(60)
    assert setting.shown()["notice"] == NONE_HAS_JOINED


def alone(setting: Setting, seconds: int, *worlds: int) -> None:
    """Groups of so many nodes each train and report, and know nothing of one another."""
    for second in range(seconds):
        setting.now_s += 1
        for begun, nodes in enumerate(worlds):
            since_s = NOW_S + begun
            setting.say(NoteKind.PROGRESS, samples=2.0 * second, nodes=nodes, generation=since_s)
    setting.turn(0)


@pytest.mark.parametrize(
    ("worlds", "said"),
    [
        ((1, 1), not_together("n1, n2")),
        ((2, 1), not_together("n1, n2, n3", "only 2 of them train together")),
        ((1, 2, 1), not_together("n1, n2, n3, n4", "only 2 of them train together")),
    ],
)
def test_nodes_that_each_train_alone_and_report_it_are_named(
    worlds: tuple[int, ...], said: str
) -> None:
    setting = Setting(sum(worlds), ARRAY)
    setting.turn()
    alone(setting, 50, *worlds)
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])
    alone(setting, 15, *worlds)
    assert setting.shown()["notice"] == said
    [(_, text)] = setting.slurm.said
    assert said in text
    alone(setting, 100, *worlds)
    assert setting.shown()["notice"] is not None
    assert len(setting.slurm.said) == 1


def test_nodes_that_meet_and_form_no_group_of_their_processes_are_named() -> None:
    setting = on_some(2, of=2)
    for second in range(80):
        setting.now_s += 1
        setting.say(NoteKind.PROGRESS, steps=2.0 * second, nodes=2, generation=1, alone=1)
    setting.turn(0)
    assert setting.shown()["notice"] == NONE_HAS_JOINED
    assert [text for _, text in setting.slurm.said] == [f"bftrainer: {NONE_HAS_JOINED}"]
    setting.say(NoteKind.PROGRESS, steps=200.0, nodes=2, generation=1)
    assert setting.shown()["notice"] is None


@cases(
    "nodes, most, reports",
    a_trainer_of_one_node_need_not_join=(1, 1, False),
    one_that_trains_on_one_node=(1, 4, True),
    one_whose_nodes_train_together_without_the_keeper=(2, 4, True),
)
def test_not_named_is(nodes: int, most: int, reports: bool) -> None:
    setting = at_work(nodes, most=most)
    if reports:
        alone(setting, 600, nodes)
    else:
        setting.turn(600)
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


def test_a_node_that_joins_later_by_the_users_own_endpoint_has_the_time_to_start() -> None:
    setting = Setting(1, ARRAY)
    setting.turn()
    alone(setting, 100, 1)
    setting.slurm.node_names.append("n2")
    setting.settle()
    alone(setting, 5, 1)
    alone(setting, 100, 2)
    assert (len(setting.on()), setting.slurm.said) == (2, [])


ONLY_TWO = not_together("n1, n2, n3", "only 2 of them train together")


def on_some(nodes: int, of: int) -> Setting:
    """Of the nodes of a trainer so many have formed a group half a second ago."""
    setting = Setting(of, ARRAY)
    setting.turn()
    setting.say(NoteKind.REFORMED, generation=1, nodes=nodes)
    return setting


@pytest.mark.parametrize("reports", [True, False])
def test_an_element_that_never_joins_the_others_is_missed(reports: bool) -> None:
    setting = on_some(2, of=3)
    for second in (50, 15):
        assert (setting.shown()["notice"], setting.slurm.said) == (None, [])
        if reports:
            alone(setting, second, 2)
        else:
            setting.turn(second)
    assert setting.shown()["notice"] == ONLY_TWO
    assert [text for _, text in setting.slurm.said] == [f"bftrainer: {ONLY_TWO}"]
    setting.say(NoteKind.REFORMED, generation=2, nodes=3)
    setting.turn()
    assert setting.shown()["notice"] is None


def test_one_that_is_lost_to_the_group_may_come_back_before_it_is_missed() -> None:
    setting = on_some(3, of=3)
    alone(setting, 200, 3)
    setting.say(NoteKind.REFORMED, generation=2, nodes=2)
    alone(setting, 50, 2)
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])
    alone(setting, 15, 2)
    assert setting.shown()["notice"] == ONLY_TWO


def test_one_that_waits_until_the_others_have_done_a_long_step_is_not_missed() -> None:
    setting = on_some(2, of=2)
    alone(setting, 10, 2)
    setting.slurm.node_names.append("n3")
    setting.settle()
    alone(setting, 20, 2)
    setting.turn(300)
    assert len(setting.on()) == 3
    assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


def test_one_that_leaves_is_not_missed() -> None:
    setting = on_some(3, of=3)
    alone(setting, 10, 3)
    setting.slurm.ignores.add("shrink")  # they are slow to end
    setting.submit(99, 4)
    setting.settle()
    setting.say(NoteKind.REFORMED, generation=2, nodes=2)
    for _ in range(5):
        alone(setting, 20, 2)
        assert len(setting.on()) == 3
        assert (setting.shown()["notice"], setting.slurm.said) == (None, [])


def test_a_trainer_that_formed_a_group_before_the_controller_began_has_joined() -> None:
    setting = at_work(2)
    setting.say(NoteKind.REFORMED, generation=1, nodes=2)
    setting.controller = setting.started()
    setting.turn(60)
    assert setting.shown()["notice"] is None


def test_a_trainer_whose_script_fails_everywhere_is_given_up_and_its_nodes_go_to_others() -> None:
    setting = at_work(4, ARRAY, 99)
    for node in ("n1", "n2"):
        for _ in range(2):
            if node in setting.on():
                setting.say(NoteKind.FAILED, node, "ImportError: no toch")
            setting.settle()
    mine = list(setting.on())
    for node in mine:
        setting.say(NoteKind.FAILED, node, "ImportError: no toch")
    setting.settle()
    assert setting.slurm.cancelled_ == [ARRAY]
    assert len(setting.on(99)) == 4
    shown = setting.shown()
    assert shown["state"] == "given up"
    assert "without progress" in str(shown["why"])
    assert shown["error"] == "ImportError: no toch"


def test_a_script_that_fails_at_once_is_given_up_within_a_minute_beside_ordinary_jobs() -> None:
    setting = Setting(3, ARRAY, most=1)
    setting.slurm.ordinary |= {"n2", "n3"}
    while not setting.slurm.cancelled_ and setting.now_s < NOW_S + 60:
        setting.turn(1)
        for node, task in setting.on().items():
            over = element(task, "failed", node, start_s=setting.now_s, exit_status=2)
            setting.slurm.put_(over)
    assert setting.shown()["state"] == "given up"
    setting.submit(99, 1)
    setting.turn(1)
    assert setting.on(99).keys() == {"n1"}


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
    assert setting.shown()["failures"] == 1
    assert "n1" in setting.on()
    fails_whenever_it_joins(setting, "n1", 4)
    assert setting.on().keys() == {"n2", "n3"}
    assert str(setting.shown()["notice"]).startswith("failed 2 times in a row on n1: ")
    for generation in range(6, 16, 2):  # hours later it has not been given up
        setting.train(880, generation=generation - 1)
        setting.settle()
        fails_whenever_it_joins(setting, "n1", generation)
        assert setting.on().keys() == {"n2", "n3"}
    assert setting.shown()["failures"] == 7


def test_what_a_trainer_shows_is_what_the_next_plan_is_made_with() -> None:
    setting = at_work(3)
    asked = len(setting.planner.asked)
    setting.turn()
    assert len(setting.planner.asked) == asked  # nothing is new
    setting.train(90, rate=777.0)
    setting.turn()
    assert len(setting.planner.asked) == asked + 1
    assert setting.shown()["samples_per_s"] == pytest.approx(777.0)


def test_notes_of_trainers_that_are_not_ours_change_nothing() -> None:
    setting = at_work(3)
    before = setting.controller.status({})
    for kind in (NoteKind.PROGRESS, NoteKind.REFORMED, NoteKind.FAILED):
        setting.controller.take([note(kind, setting.now_s, 0, "n1", array=4711, samples=1.0)])
    assert setting.controller.status({}) == before


def test_elements_that_were_ended_before_slurm_went_away_were_not_reclaimed() -> None:
    setting = at_work(4)
    setting.submit(99, 1)
    shrink = setting.slurm.shrink

    def shrinks_then_away(elements: Sequence[ElementId]) -> None:
        shrink(elements)
        setting.slurm.away = True

    setting.slurm.shrink = shrinks_then_away  # type: ignore[method-assign]
    setting.turn()
    setting.slurm.fails["grow"] = SlurmUnavailableError("no answer")
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    setting.slurm.away = False
    with pytest.raises(SlurmUnavailableError):
        setting.turn()
    assert (setting.shown()["shrank"], setting.shown()["reclaimed"]) == (1, 0)
    assert len(setting.told.gone) == 1  # the keeper hears of each that Slurm has ended


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


def test_what_ordinary_jobs_take_of_the_reserve_trainers_make_up_for() -> None:
    setting = at_work(4, settings=Settings(queue_interval_s=0.25, reserve=1))
    assert setting.controller.status({})["left_alone"]["kept for ordinary jobs"] == 1
    (idle,) = {"n1", "n2", "n3", "n4"} - set(setting.on())
    setting.slurm.start_ordinary_(idle)
    setting.settle()
    assert len(setting.on()) == 2
    setting.slurm.ordinary.clear()
    setting.settle()
    assert len(setting.on()) == 3


def test_a_node_that_has_just_come_is_taken_once_it_has_been_idle_for_a_while() -> None:
    setting = Setting(1, ARRAY, settings=Settings(queue_interval_s=0.25, min_idle_s=60))
    setting.turn()
    assert not setting.on()
    setting.turn(60)
    assert set(setting.on()) == {"n1"}


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


def test_a_trainer_whose_script_has_just_failed_is_waiting_and_not_cancelled() -> None:
    setting = at_work(1, most=1, settings=Settings())
    setting.slurm.put_(failed(0, "n1"))
    setting.slurm.ignores.add("revive")
    setting.turn()
    assert (setting.shown()["state"], setting.shown()["failures"]) == ("waiting", 1)
    assert setting.controller.schedule.due_s() == setting.now_s + 5  # then it has rested


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
    setting = Setting(2, ARRAY)
    setting.settle()
    setting.say(NoteKind.REFORMED, generation=1.0, nodes=2.0)
    setting.train(12)
    setting.slurm.node_names.append("n3")
    setting.settle()
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
    assert setting.shown()["left_out"] == left_out
    setting.say(NoteKind.REFORMED, generation=4.0, nodes=2.0)
    setting.train(12, generation=4)
    setting.controller = setting.started()
    setting.settle()
    assert (setting.told.sizes, setting.shown()["left_out"]) == (Sizes(without=(3,)), left_out)
    setting.slurm.node_names.append("n4")
    setting.settle()
    assert len(setting.on()) == 4


def test_a_script_that_never_trained_is_tried_on_fewer_nodes_before_it_is_given_up() -> None:
    setting = Setting(4, ARRAY)
    setting.settle()
    for size, node in ((4, "n1"), (4, "n2"), (2, "n1"), (1, "n1")):
        assert len(setting.on()) == size
        assert setting.shown()["state"] == "running"
        there = node if node in setting.on() else min(setting.on())
        setting.say(NoteKind.FAILED, there, "no module named toch", nodes=float(size))
        setting.settle()
    assert setting.shown()["state"] == "given up"
    assert setting.shown()["error"] == "no module named toch"


def test_a_trainer_that_cannot_be_handled_is_named_and_the_others_are_served() -> None:
    setting = Setting(4, ARRAY, 99)
    costs = setting.controller.performance.costs

    def broken(view: TrainerView, now_s: float) -> RescaleCosts:
        if view.array == ARRAY:
            raise ZeroDivisionError("of this one")
        return costs(view, now_s)

    setting.controller.performance.costs = broken  # type: ignore[method-assign]
    setting.settle()
    assert len(setting.on(99)) == 4
    assert "of this one" in setting.controller.status({})["malformed"][str(ARRAY)]


def test_users_are_told_the_terms_of_the_plan() -> None:
    setting = at_work(3, most=2)
    terms = setting.shown()["plan"]
    assert isinstance(terms, dict)
    assert (terms["nodes"], terms["limit"], terms["free"]) == (2, "most", 1)
    assert terms["time_s"] <= setting.now_s
