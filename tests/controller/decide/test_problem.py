"""What the planner is asked: who, over which nodes, and with what it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.eligibility import Eligibility
from bftrainer_slurm.controller.decide.planning import problem_of, same_question
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.profiles import Estimate, RescaleCosts
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Configuration, ThroughputCurve
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Problem, value
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    cluster,
    element,
    snapshot,
    trainer,
    view,
    view_of,
)

HELD = element(2, "held")
ON_N1 = element(0, "running n1")
ON_N2 = element(1, "running n2")
REVIVED = ElementRecord(Phase.REVIVED, NOW_S)


class Known:
    """Knows all trainers to be alike."""

    def costs(self, _: TrainerView, now_s: float) -> RescaleCosts:
        return RescaleCosts(18.0, 12.0, start_s=8.0)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        curve = ThroughputCurve((0, 1, 4), (0.0, 5.0, 20.0))
        return [Estimate(curve, self.costs(view, now_s)) for view in views]


known: Any = Known()


def asked(*views: TrainerView, free: str = "", **known_too: object) -> Problem:
    seen = cluster(*views, life_s={"n1": 60.0, "n9": 99.0}, **known_too)
    units = dict.fromkeys(free.split(), 1)
    return problem_of(seen, units, find("speedup"), known, {}, Eligibility())


def limited(
    view: TrainerView, hardware: dict[str, str] | None = None, eligible: Eligibility | None = None
) -> Problem:
    limits = hardware or {}, eligible or Eligibility()
    return problem_of(cluster(view), {"n7": 1, "n8": 1}, find("speedup"), known, *limits)


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


def test_the_objective_makes_the_curve_and_the_elements_the_most_nodes() -> None:
    (one,) = asked(view(ON_N1, HELD)).trainers
    assert (one.curve.at(4), one.max_nodes) == (4.0, 2)


def sized(elements: int, sizes: tuple[int, ...] = (), step: int = 1) -> TrainerView:
    of = trainer(*["held"] * elements)
    least, most = (sizes[0], sizes[-1]) if sizes else (step, elements // step * step)
    return view_of(replace(of, record=TrainerRecord(least, most, sizes=sizes, step=step)))


@cases(
    "mine, sizes",
    of_which_its_user_has_named=(sized(9, (2, 4, 8)), (2, 4, 8)),
    in_steps_of_which_its_user_has_asked=(sized(9, step=4), (4, 8)),
    for_which_it_has_elements=(sized(3, (2, 4)), (2,)),
)
def test_a_trainer_may_have_only_the_sizes(mine: TrainerView, sizes: tuple[int, ...]) -> None:
    (one,) = asked(mine).trainers
    assert (one.min_nodes, one.max_nodes, one.sizes) == (sizes[0], sizes[-1], sizes)


def test_a_plan_does_not_stand_if_the_sizes_have_changed() -> None:
    before = asked(sized(4, (1, 2, 4)))
    assert same_question(before, before)
    assert not same_question(asked(sized(4, (1, 4))), before)


@cases(
    "mine",
    that_has_failed_just_now=view(HELD, rests_until_s=NOW_S + 1),
    that_has_elements_for_none_of_its_sizes=sized(3, (4, 8)),
    that_has_finished=view(ON_N1, HELD, over="finished"),
    that_is_given_up=view(ON_N1, HELD, over="failed 3 times"),
    that_its_owner_has_cancelled=view(HELD, element(1, "cancelled"), elements={2: REVIVED}),
)
def test_left_out_is_a_trainer(mine: TrainerView) -> None:
    assert asked(mine).trainers == ()
    assert asked(view(HELD, rests_until_s=NOW_S)).trainers != ()


def test_nobody_loses_its_last_node_to_one_that_would_have_to_start_there() -> None:
    paused = view(ON_N1, HELD, paused_until_s=NOW_S + 5.0)  # it has just lost its other node
    problem = asked(paused, view(HELD, element(3, "held"), array=ARRAY + 1))
    assert value(problem, [(1,), (0,)]) > value(problem, [(0,), (1,)])


@pytest.mark.parametrize("forward_time_s", [5.0, 120.0])
def test_a_node_that_nobody_has_is_worth_a_start(forward_time_s: float) -> None:
    assert value(asked(view(HELD), free="n7", forward_time_s=forward_time_s), [(1,)]) > 0


def test_a_trainer_that_stands_still_is_known_to_do_so_for_as_long_as_is_left() -> None:
    paused = view(ON_N1, HELD, paused_until_s=NOW_S + 18.0)
    assert asked(paused).trainers[0].paused_s == 18.0
    assert asked(view(ON_N1, HELD, paused_until_s=NOW_S - 1)).trainers[0].paused_s == 0.0


def test_a_plan_stands_while_its_moves_are_made_and_only_time_passes() -> None:
    problem = asked(view(ON_N1, HELD), free="n2")
    assert same_question(asked(view(ON_N1, ON_N2)), problem)
    assert same_question(replace(problem, life_s={}), problem)
    assert same_question(replace(problem, forward_time_s=60.0), problem)


def test_another_pool_or_another_trainer_needs_another_plan() -> None:
    problem = asked(view(ON_N1, HELD), free="n7")
    assert not same_question(asked(view(ON_N1, HELD)), problem)
    assert not same_question(replace(problem, trainers=()), problem)


def losing(seconds: float) -> Problem:
    problem = asked(view(ON_N1, HELD), free="n7 n8")
    (one,) = problem.trainers
    return replace(problem, trainers=(replace(one, loss_s=seconds),))


@cases(
    "before_s, after_s, same",
    a_little_more=(0, 29, True),
    a_move_has_to_be_worth_more_now=(5, 60, False),
    a_little_more_of_much=(80, 110, True),
    no_change_was_worth_that_and_none_is=(130, 3000, True),
    it_has_begun_anew_or_saved_and_a_move_is_cheap_now=(3000, 0, False),
    much_less=(130, 40, False),
)
def test_a_plan_stands_until_a_change_loses_much_more_or_less(
    before_s: float, after_s: float, same: bool
) -> None:
    assert same_question(losing(after_s), losing(before_s)) is same


def test_the_planner_is_told_what_a_change_loses() -> None:
    class Loses(Known):
        def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
            return [replace(one, loss_s=700.0) for one in super().estimates(views, now_s)]

    seen: Any = cluster(view(ON_N1, HELD))
    problem = problem_of(seen, {"n7": 1}, find("speedup"), Loses(), {}, Eligibility())  # type: ignore[arg-type]
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


def under_two_switches(cross_switch: float) -> Problem:
    slurm = Configuration(switch_of={"n1": "s1", "n7": "s1", "n8": "s2"})
    seen = cluster(view(ON_N1, HELD), of=replace(snapshot(), configuration=slurm))
    about = seen, {"n7": 1, "n8": 1}, find("throughput"), known, {}, Eligibility()
    return problem_of(*about, cross_switch=cross_switch)


def test_the_planner_is_told_which_switch_each_node_is_under() -> None:
    assert under_two_switches(1.0).switch_of == {"n1": "s1", "n7": "s1", "n8": "s2"}
    assert asked(view(ON_N1, HELD), free="n7").switch_of == {}


def test_more_nodes_than_are_under_one_switch_count_as_much_as_the_site_says() -> None:
    curve = under_two_switches(0.5).trainers[0].curve
    assert [curve.at(size) for size in (1, 2, 3, 4)] == [5.0, 10.0, 7.5, 10.0]
