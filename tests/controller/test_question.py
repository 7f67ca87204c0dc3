"""What the planner is asked: who, over which nodes, and with what it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.appraisal import Appraisal, RescaleCosts
from bftrainer_slurm.controller.limits import Limits
from bftrainer_slurm.controller.question import (
    Outlook,
    problem_of,
    remember_changes,
    same_question,
)
from bftrainer_slurm.controller.view import Memory, TrainerView, view_trainer
from bftrainer_slurm.model import Element, ElementId, ElementState, ThroughputCurve
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Problem, value
from tests.controller.worlds import ARRAY, NOW_S, element, trainer, view

HELD = element(2, ElementState.HELD)
ON_N1 = element(0, ElementState.RUNNING, "n1")
ON_N2 = element(1, ElementState.RUNNING, "n2")


class Known:
    """Knows all trainers to be alike."""

    def costs(self, _: TrainerView) -> RescaleCosts:
        return RescaleCosts(18.0, 12.0, start_s=8.0)

    def appraise(self, views: Sequence[TrainerView], _: float) -> list[Appraisal]:
        curve = ThroughputCurve((0, 1, 4), (0.0, 5.0, 20.0))
        return [Appraisal(curve, self.costs(view)) for view in views]


known: Any = Known()


def asked(*views: TrainerView, free: str = "", memory: Memory | None = None) -> Problem:
    outlook = Outlook(find("speedup"), known, 120.0, {"n1": 60.0, "n9": 99.0})
    return problem_of(views, frozenset(free.split()), memory or Memory(), NOW_S, outlook)


def limited(view: TrainerView, limits: Limits) -> Problem:
    outlook = Outlook(find("speedup"), known, 120.0, limits=limits)
    return problem_of((view,), frozenset({"n7", "n8"}), Memory(), NOW_S, outlook)


def test_the_pool_is_what_is_free_and_what_trainers_have() -> None:
    problem = asked(view(ON_N1, HELD), free="n7 n8")
    assert problem.pool == {"n1", "n7", "n8"}
    assert problem.contenders[0].current == {"n1"}


def test_kinds_of_hardware_become_classes_of_nodes() -> None:
    kinds = {"n1": "a100", "n7": "v100", "n8": "", "n9": "a100"}
    outlook = Outlook(find("speedup"), known, 120.0, hardware=kinds)
    problem = problem_of((view(ON_N1, HELD),), frozenset({"n7", "n8"}), Memory(), NOW_S, outlook)
    assert {one.hardware: set(one.nodes) for one in problem.classes} == {
        "": {"n8"}, "a100": {"n1"}, "v100": {"n7"},
    }  # fmt: skip


def test_nodes_that_some_trainers_cannot_have_become_classes_of_their_own() -> None:
    limits = Limits(barred={ARRAY: frozenset({"n7", "n99"})})
    problem = limited(view(ON_N1, HELD), limits=limits)
    assert {frozenset(one.nodes) for one in problem.classes} == {
        frozenset({"n7"}), frozenset({"n1", "n8"}),
    }  # fmt: skip
    (barred,) = problem.contenders[0].barred
    assert next(one.nodes for one in problem.classes if one.name == barred) == {"n7"}


def test_nodes_that_nobody_here_is_barred_from_need_no_classes() -> None:
    limits = Limits(barred={ARRAY: frozenset({"n99"})})
    assert limited(view(ON_N1, HELD), limits=limits).classes == ()


def test_a_trainer_that_is_stuck_keeps_at_most_what_it_has() -> None:
    limits = Limits(stuck={ARRAY: "a limit"})
    assert limited(view(ON_N1, HELD), limits=limits).contenders[0].max_nodes == 1
    assert limited(view(HELD), limits=limits).contenders == ()


def test_only_nodes_of_the_pool_have_an_expected_end() -> None:
    assert asked(view(ON_N1)).life_s == {"n1": 60.0}


def test_the_objective_makes_the_curve() -> None:
    assert asked(view(ON_N1, HELD)).contenders[0].curve.at(4) == 4.0


def test_no_trainer_gets_more_nodes_than_it_has_elements() -> None:
    assert asked(view(ON_N1, HELD)).contenders[0].max_nodes == 2


def test_a_trainer_that_has_failed_just_now_is_left_out() -> None:
    memory = Memory(patient_until={ARRAY: NOW_S + 1})
    assert asked(view(HELD), memory=memory).contenders == ()


def other_trainer(*elements: Element) -> TrainerView:
    mine = [replace(one, id=ElementId(ARRAY + 1, one.id.task)) for one in elements]
    return view_trainer(replace(trainer(*mine), array=ARRAY + 1), Memory())


def test_where_a_start_costs_less_than_a_growth_a_trainer_in_reserve_is_worth_something() -> None:
    assert asked(view(HELD), other_trainer(HELD)).spares[0] > 0


def test_nobody_loses_its_last_node_to_one_that_would_have_to_start_there() -> None:
    both = view(ON_N1, HELD), other_trainer(HELD, element(3, ElementState.HELD))
    paused = Memory(paused_until={ARRAY: NOW_S + 5.0})  # it has just lost its other node
    problem = asked(*both, memory=paused)
    assert value(problem, [1, 0]) > value(problem, [0, 1])


@pytest.mark.parametrize("forward_time_s", [5.0, 120.0])
def test_a_node_that_nobody_has_is_worth_a_start(forward_time_s: float) -> None:
    outlook = Outlook(find("speedup"), known, forward_time_s)
    problem = problem_of((view(HELD),), frozenset({"n7"}), Memory(), NOW_S, outlook)
    assert value(problem, [1]) > 0


def test_a_trainer_stands_still_for_a_while_after_each_change() -> None:
    before, after = view(ON_N1, HELD), view(ON_N1, ON_N2)
    grown = remember_changes((before,), (after,), Memory(), NOW_S, known)
    assert asked(after, memory=grown).contenders[0].paused_s == 18.0
    shrunk = remember_changes((after,), (before,), Memory(), NOW_S, known)
    assert asked(before, memory=shrunk).contenders[0].paused_s == 12.0


def test_nobody_pauses_for_a_start_or_for_nothing() -> None:
    for before, after in ((view(HELD), view(ON_N1)), (view(ON_N1), view(ON_N1))):
        memory = remember_changes((before,), (after,), Memory(), NOW_S, known)
        assert not memory.paused_until


def test_nodes_that_come_together_are_one_start_also_where_they_come_from_others() -> None:
    first, second = replace(ON_N1, start_s=NOW_S - 3), replace(ON_N2, start_s=NOW_S - 3)
    before, after = view(first, HELD), view(first, second)
    memory = remember_changes((before,), (after,), Memory(), NOW_S, known)
    assert memory.paused_until.get(ARRAY, NOW_S) <= NOW_S


def test_a_growth_counts_from_when_the_node_came_not_from_when_it_was_seen() -> None:
    first, second = replace(ON_N1, start_s=NOW_S - 60), replace(ON_N2, start_s=NOW_S - 3)
    before, after = view(first, HELD), view(first, second)
    memory = remember_changes((before,), (after,), Memory(), NOW_S, known)
    assert memory.paused_until[ARRAY] == NOW_S - 3 + 18


def test_pauses_that_are_over_are_forgotten() -> None:
    memory = Memory(paused_until={ARRAY: NOW_S})
    assert not remember_changes((), (), memory, NOW_S, known).paused_until


@pytest.mark.parametrize("change", [{"life_s": {}}, {"forward_time_s": 60.0}])
def test_a_plan_stands_while_only_time_passes(change: dict[str, object]) -> None:
    problem = asked(view(ON_N1, HELD), free="n7")
    assert same_question(replace(problem, **change), problem)  # type: ignore[arg-type]


def test_a_plan_stands_while_its_moves_are_made() -> None:
    before, after = asked(view(ON_N1, HELD), free="n2"), asked(view(ON_N1, ON_N2))
    before = replace(before, contenders=after.contenders[:0] + before.contenders)
    assert same_question(after, before)


def test_another_pool_or_another_trainer_needs_another_plan() -> None:
    problem = asked(view(ON_N1, HELD), free="n7")
    assert not same_question(asked(view(ON_N1, HELD)), problem)
    assert not same_question(replace(problem, contenders=()), problem)
    assert not same_question(problem, None)
