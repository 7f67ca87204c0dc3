"""What the planner is asked: who, over which nodes, and with what it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.bars import Eligibility
from bftrainer_slurm.controller.decide.planning import problem_of, same_question
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.profiles import Estimate, RescaleCosts
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Element, ElementId, ElementState, ThroughputCurve
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Problem, value
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import ARRAY, NOW_S, element, picture, places, trainer, view, view_of

HELD = element(2, ElementState.HELD)
ON_N1 = element(0, ElementState.RUNNING, "n1")
ON_N2 = element(1, ElementState.RUNNING, "n2")


class Known:
    """Knows all trainers to be alike."""

    def costs(self, _: TrainerView, now_s: float) -> RescaleCosts:
        return RescaleCosts(18.0, 12.0, start_s=8.0)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        curve = ThroughputCurve((0, 1, 4), (0.0, 5.0, 20.0))
        return [Estimate(curve, self.costs(view, now_s)) for view in views]


known: Any = Known()


def asked(*views: TrainerView, free: str = "", **known_too: object) -> Problem:
    seen = picture(*views, life_s={"n1": 60.0, "n9": 99.0}, **known_too)
    return problem_of(seen, places(free), find("speedup"), known, {}, Eligibility())


def limited(
    view: TrainerView, hardware: dict[str, str] | None = None, eligible: Eligibility | None = None
) -> Problem:
    limits = hardware or {}, eligible or Eligibility()
    return problem_of(picture(view), places("n7 n8"), find("speedup"), known, *limits)


def test_the_pool_is_what_is_free_and_what_trainers_have() -> None:
    problem = asked(view(ON_N1, HELD), free="n7 n8")
    assert problem.pool == {"n1", "n7", "n8"}
    assert problem.trainers[0].current == {"n1"}


def test_the_planner_is_told_since_when_each_node_is_had() -> None:
    problem = asked(view(replace(ON_N1, start_s=NOW_S - 60.0), HELD), free="n7")
    assert problem.since_s == {"n1": NOW_S - 60.0}


def test_kinds_of_hardware_become_classes_of_nodes() -> None:
    kinds = {"n1": "a100", "n7": "v100", "n8": "", "n9": "a100"}
    problem = limited(view(ON_N1, HELD), hardware=kinds)
    assert {one.hardware: set(one.nodes) for one in problem.classes} == {
        "": {"n8"}, "a100": {"n1"}, "v100": {"n7"},
    }  # fmt: skip


def test_nodes_that_some_trainers_cannot_have_become_classes_of_their_own() -> None:
    eligible = Eligibility(bars=(Bar("no", frozenset({"n7", "n99"}), ARRAY),))
    problem = limited(view(ON_N1, HELD), eligible=eligible)
    assert {frozenset(one.nodes) for one in problem.classes} == {
        frozenset({"n7"}), frozenset({"n1", "n8"}),
    }  # fmt: skip
    (barred,) = problem.trainers[0].barred
    assert next(one.nodes for one in problem.classes if one.name == barred) == {"n7"}


def test_nodes_that_nobody_here_is_barred_from_need_no_classes() -> None:
    eligible = Eligibility(bars=(Bar("no", frozenset({"n99"}), ARRAY),))
    assert limited(view(ON_N1, HELD), eligible=eligible).classes == ()


def test_a_trainer_that_is_stuck_keeps_at_most_what_it_has() -> None:
    eligible = Eligibility(stuck={ARRAY: "a limit"})
    assert limited(view(ON_N1, HELD), eligible=eligible).trainers[0].max_nodes == 1
    assert limited(view(HELD), eligible=eligible).trainers == ()


def test_only_nodes_of_the_pool_have_an_expected_end() -> None:
    assert asked(view(ON_N1)).life_s == {"n1": 60.0}


def test_the_objective_makes_the_curve() -> None:
    assert asked(view(ON_N1, HELD)).trainers[0].curve.at(4) == 4.0


def test_no_trainer_gets_more_nodes_than_it_has_elements() -> None:
    assert asked(view(ON_N1, HELD)).trainers[0].max_nodes == 2


def sized(*elements: Element, sizes: tuple[int, ...] = (), step: int = 1) -> TrainerView:
    of = trainer(*elements)
    least, most = (sizes[0], sizes[-1]) if sizes else (step, len(elements) // step * step)
    return view_of(replace(of, record=TrainerRecord(least, most, sizes=sizes, step=step)))


def test_a_trainer_may_have_only_the_sizes_that_its_user_asked_for() -> None:
    held = [element(task, ElementState.HELD) for task in range(9)]
    (one,) = asked(sized(*held, sizes=(2, 4, 8))).trainers
    assert (one.min_nodes, one.max_nodes, one.sizes) == (2, 8, (2, 4, 8))
    (one,) = asked(sized(*held, step=4)).trainers
    assert (one.min_nodes, one.max_nodes, one.sizes) == (4, 8, (4, 8))


def test_and_of_these_only_those_for_which_it_has_elements() -> None:
    held = [element(task, ElementState.HELD) for task in range(3)]
    (one,) = asked(sized(*held, sizes=(2, 4))).trainers
    assert (one.min_nodes, one.max_nodes, one.sizes) == (2, 2, (2,))
    assert asked(sized(*held, sizes=(4, 8))).trainers == ()


def test_a_plan_does_not_stand_if_the_sizes_have_changed() -> None:
    held = [element(task, ElementState.HELD) for task in range(4)]
    before = asked(sized(*held, sizes=(1, 2, 4)))
    assert same_question(before, before)
    assert not same_question(asked(sized(*held, sizes=(1, 4))), before)


def test_a_trainer_that_has_failed_just_now_is_left_out() -> None:
    assert asked(view(HELD, rests_until_s=NOW_S + 1)).trainers == ()
    assert asked(view(HELD, rests_until_s=NOW_S)).trainers != ()


@pytest.mark.parametrize("why", ["finished", "failed 3 times"])
def test_so_is_one_that_is_over(why: str) -> None:
    assert asked(view(ON_N1, HELD, over=why)).trainers == ()


def test_so_is_one_that_its_owner_has_cancelled() -> None:
    revived = ElementRecord(Phase.REVIVED, NOW_S)
    cancelled = element(1, ElementState.CANCELLED)
    assert asked(view(HELD, cancelled, elements={2: revived})).trainers == ()


def other_trainer(*elements: Element) -> TrainerView:
    mine = [replace(one, id=ElementId(ARRAY + 1, one.id.task)) for one in elements]
    return view_of(replace(trainer(*mine), array=ARRAY + 1))


def test_nobody_loses_its_last_node_to_one_that_would_have_to_start_there() -> None:
    paused = view(ON_N1, HELD, paused_until_s=NOW_S + 5.0)  # it has just lost its other node
    problem = asked(paused, other_trainer(HELD, element(3, ElementState.HELD)))
    assert value(problem, [(1,), (0,)]) > value(problem, [(0,), (1,)])


@pytest.mark.parametrize("forward_time_s", [5.0, 120.0])
def test_a_node_that_nobody_has_is_worth_a_start(forward_time_s: float) -> None:
    assert value(asked(view(HELD), free="n7", forward_time_s=forward_time_s), [(1,)]) > 0


def test_a_trainer_that_stands_still_is_known_to_do_so_for_as_long_as_is_left() -> None:
    paused = view(ON_N1, HELD, paused_until_s=NOW_S + 18.0)
    assert asked(paused).trainers[0].paused_s == 18.0
    assert asked(view(ON_N1, HELD, paused_until_s=NOW_S - 1)).trainers[0].paused_s == 0.0


@pytest.mark.parametrize("change", [{"life_s": {}}, {"forward_time_s": 60.0}])
def test_a_plan_stands_while_only_time_passes(change: dict[str, object]) -> None:
    problem = asked(view(ON_N1, HELD), free="n7")
    assert same_question(replace(problem, **change), problem)  # type: ignore[arg-type]


def test_a_plan_stands_while_its_moves_are_made() -> None:
    before, after = asked(view(ON_N1, HELD), free="n2"), asked(view(ON_N1, ON_N2))
    before = replace(before, trainers=after.trainers[:0] + before.trainers)
    assert same_question(after, before)


def test_another_pool_or_another_trainer_needs_another_plan() -> None:
    problem = asked(view(ON_N1, HELD), free="n7")
    assert not same_question(asked(view(ON_N1, HELD)), problem)
    assert not same_question(replace(problem, trainers=()), problem)


def losing(seconds: float) -> Problem:
    problem = asked(view(ON_N1, HELD), free="n7 n8")
    (one,) = problem.trainers
    return replace(problem, trainers=(replace(one, loss_s=seconds),))


@pytest.mark.parametrize(
    ("before_s", "after_s", "same"),
    [
        (0, 29, True),
        (5, 60, False),  # its move has to be worth more now
        (80, 110, True),
        (130, 3000, True),  # no change was worth that, and none is
        (3000, 0, False),  # it has begun anew, or saved: a move is cheap now
        (130, 40, False),
    ],
)
def test_a_plan_stands_until_a_change_loses_much_more_or_less(
    before_s: float, after_s: float, same: bool
) -> None:
    assert same_question(losing(after_s), losing(before_s)) is same


def test_the_planner_is_told_what_a_change_loses() -> None:
    class Loses(Known):
        def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
            return [replace(one, loss_s=700.0) for one in super().estimates(views, now_s)]

    seen: Any = picture(view(ON_N1, HELD))
    problem = problem_of(seen, places("n7"), find("speedup"), Loses(), {}, Eligibility())  # type: ignore[arg-type]
    assert problem.trainers[0].loss_s == 700.0
    assert value(problem, [(1,)]) > value(problem, [(2,)]), "it is left at its size"


@pytest.mark.parametrize(
    ("up_s", "same"), [(18.5, True), (22.0, True), (60.0, False), (3.0, False)]
)
def test_a_plan_stands_until_rescaling_costs_much_more_or_less(up_s: float, same: bool) -> None:
    problem = asked(view(ON_N1, HELD), free="n7 n8")
    (one,) = problem.trainers
    dearer = replace(problem, trainers=(replace(one, rescale_up_s=up_s),))
    assert same_question(dearer, problem) is same
