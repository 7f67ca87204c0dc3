"""What the planner is asked: who, over which nodes, and with what it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.planner.problem import Problem, value
from bftrainer_slurm.spec import Spec, TrainerRecord
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


@dataclass
class Known:
    """Knows all trainers to be alike."""

    loss_s: float = 0.0
    samples: float | None = None
    measured: bool = True

    def costs(self, _: TrainerView, now_s: float) -> RescaleCosts:
        return RescaleCosts(18.0, 12.0, start_s=8.0)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        curve = ThroughputCurve((0, 1, 4), (0.0, 5.0, 20.0))
        about = {"loss_s": self.loss_s, "samples": self.samples, "measured": self.measured}
        return [Estimate(curve, self.costs(one, now_s), **about) for one in views]  # type: ignore[arg-type]


known: Any = Known()


def asked(
    *views: TrainerView,
    free: str = "",
    hardware: dict[str, str] | None = None,
    eligible: Eligibility | None = None,
    objective: str = "speedup",
    knows: Any = known,
    told: dict[str, float] | None = None,
    **seen: object,
) -> Problem:
    now = cluster(*views, life_s={"n1": 60.0, "n9": 99.0}, **seen)
    units, limits = dict.fromkeys(free.split(), 1), (hardware or {}, eligible or Eligibility())
    return problem_of(now, units, find(objective), knows, *limits, **(told or {}))  # type: ignore[arg-type]


def limited(view: TrainerView, **limits: Any) -> Problem:
    return asked(view, free="n7 n8", **limits)


def test_the_planner_is_told_who_has_and_may_have_which_nodes_since_and_until_when() -> None:
    problem = asked(view(replace(ON_N1, start_s=NOW_S - 60.0), HELD), free="n7 n8")
    (one,) = problem.trainers
    assert problem.pool == {"n1", "n7", "n8"}
    assert (problem.since_s, problem.life_s) == ({"n1": NOW_S - 60.0}, {"n1": 60.0})
    assert (one.current, one.max_nodes, one.curve.at(4)) == ({"n1"}, 2, 4.0)


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
    elsewhere = Eligibility(bars=(Bar("no", frozenset({"n99"}), ARRAY),))
    assert limited(view(ON_N1, HELD), eligible=elsewhere).classes == ()


def test_a_trainer_that_is_stuck_keeps_at_most_what_it_has() -> None:
    eligible = Eligibility(stuck={ARRAY: "a limit"})
    assert limited(view(ON_N1, HELD), eligible=eligible).trainers[0].max_nodes == 1
    assert limited(view(HELD), eligible=eligible).trainers == ()


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


def test_who_loses_much_at_a_change_is_left_at_its_size() -> None:
    problem = asked(view(ON_N1, HELD), free="n7", knows=Known(loss_s=700.0))
    assert problem.trainers[0].loss_s == 700.0
    assert value(problem, [(1,)]) > value(problem, [(2,)])


ASKED = limited(view(ON_N1, HELD))


def costing(**changes: float) -> Problem:
    (one,) = ASKED.trainers
    return replace(ASKED, trainers=(replace(one, **changes),))  # type: ignore[arg-type]


@cases(
    "before, now, same",
    while_its_moves_are_made=(asked(view(ON_N1, HELD), free="n2"), asked(view(ON_N1, ON_N2)), True),
    while_only_time_passes=(ASKED, replace(ASKED, life_s={}, forward_time_s=60.0), True),
    not_for_another_pool=(ASKED, asked(view(ON_N1, HELD)), False),
    not_without_a_trainer=(ASKED, replace(ASKED, trainers=()), False),
    not_for_other_sizes=(asked(sized(4, (1, 2, 4))), asked(sized(4, (1, 4))), False),
    where_a_change_loses_a_little_more=(costing(loss_s=0), costing(loss_s=29), True),
    not_where_it_has_to_be_worth_more_now=(costing(loss_s=5), costing(loss_s=60), False),
    where_it_loses_a_little_more_of_much=(costing(loss_s=80), costing(loss_s=110), True),
    where_no_change_was_worth_that_and_none_is=(costing(loss_s=130), costing(loss_s=3000), True),
    not_where_it_saved_and_a_change_is_cheap=(costing(loss_s=3000), costing(loss_s=0), False),
    not_where_it_loses_much_less=(costing(loss_s=130), costing(loss_s=40), False),
    where_rescaling_costs_a_little_more=(costing(), costing(rescale_up_s=22.0), True),
    not_where_it_costs_much_more=(costing(), costing(rescale_up_s=60.0), False),
    not_where_it_costs_much_less=(costing(), costing(rescale_up_s=3.0), False),
)  # fmt: skip
def test_a_plan_stands(before: Problem, now: Problem, same: bool) -> None:
    assert same_question(now, before) is same


def test_more_nodes_than_are_under_one_switch_count_as_much_as_the_site_says() -> None:
    switch_of = {"n1": "s1", "n7": "s1", "n8": "s2"}
    of = replace(snapshot(), configuration=Configuration(switch_of=switch_of))
    about = {"objective": "throughput", "told": {"cross_switch": 0.5}}
    problem = limited(view(ON_N1, HELD), of=of, **about)
    assert (problem.switch_of, ASKED.switch_of) == (switch_of, {})
    curve = problem.trainers[0].curve
    assert [curve.at(size) for size in (1, 2, 3, 4)] == [5.0, 10.0, 7.5, 10.0]


def due(
    samples: float | None = 0.0, measured: bool = True, share: float = 1.0, left_s: float = 100.0
) -> Problem:
    """A trainer of 5 samples/s a node, on up to four nodes, that needs 1,000 in 100 s."""
    spec = Spec(samples=1000.0, by_s=NOW_S + left_s)
    mine = view_of(replace(trainer(*["held"] * 4), record=TrainerRecord(1, 4, spec)))
    about: dict[str, Any] = {"knows": Known(0.0, samples, measured), "objective": "throughput"}
    return asked(mine, free="n1 n2 n3 n4", told={"deadline_share": share}, **about)


@cases(
    "problem, gains, needs",
    which_it_needs_more=(due(), [15, 15, 15, 5], [Need(3)]),  # 10 samples/s, rounded up
    its_least_ones_so_that_it_is_measured=(due(None, measured=False), [15, 5, 5, 5], [Need(1)]),
    all_as_usual_where_it_has_no_samples=(due(None), [5] * 4, []),
    and_where_it_has_all=(due(1000.0), [5] * 4, []),
    and_beyond_the_sites_share=(due(share=0.5), [5] * 4, [Need(3, left=2)]),
    all_more_where_they_just_meet_it=(due(left_s=50.4), [15] * 4, [Need(4)]),
    as_usual_where_they_do_not=(due(left_s=49.8), [5] * 4, [Need(0)]),
)  # fmt: skip
def test_for_a_deadline_count_the_nodes(
    problem: Problem, gains: list[float], needs: list[Need]
) -> None:
    at = problem.trainers[0].curve.at
    assert [at(size + 1) - at(size) for size in range(4)] == pytest.approx(gains)
    assert list(problem.needs.values()) == needs


def test_what_a_deadline_needs_is_another_question() -> None:
    assert not same_question(due(share=0.5), due(share=0.25))  # refused in both, with one curve
