"""One decision: what of one trainer cannot be decided hinders no other, nor does a missing plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.decide.actions import (
    Cancel,
    Grow,
    Hold,
    Revive,
    Shrink,
)
from bftrainer_slurm.controller.decide.available import POWERED_DOWN
from bftrainer_slurm.controller.decide.decision import Decider, Decision
from bftrainer_slurm.controller.decide.reconcile import SOON_OFF
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.profiles import (
    Estimate,
    PerformanceModel,
    RescaleCosts,
    reported_before,
)
from bftrainer_slurm.controller.state.registry import TrainerErrors
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Demands,
    Element,
    ElementId,
    NodeState,
    WaitingJob,
)
from bftrainer_slurm.planner.instance import parse
from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.reader.past import past_problem
from tests.controller.setting import Planner
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cluster,
    element,
    failed,
    named,
    node,
    released,
    snapshot,
    trainer,
    until,
    view,
    view_of,
)

OTHER = ARRAY + 1
HELD = element(0, "held")
ON_N1 = element(0, "running n1")
NODES = snapshot("n1 n2")


class OddTrainers(PerformanceModel):
    """Knows nothing of some trainers, and breaks where it is asked about them."""

    def __init__(self, *odd: int) -> None:
        measured = Measurements(History(":memory:"))
        super().__init__(lambda of: reported_before(measured, of))
        self.odd = set(odd)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        if self.odd & {view.array for view in views}:
            raise ZeroDivisionError("of this trainer's curve")
        return super().estimates(views, now_s)


class BrokenPlanner(Planner):
    """Plans nothing."""

    def plan(self, problem: Problem) -> Plan:
        raise MemoryError("too many nodes")


class Deciding:
    """A decider, with what it is handed."""

    def __init__(
        self, *odd: int, planner: Planner | None = None, history: History | None = None
    ) -> None:
        self.planner, self.faults = planner or Planner(), TrainerErrors()
        self.performance = OddTrainers(*odd)
        knows = self.performance, history or History(":memory:"), Settings()
        self.decider = Decider(self.planner, *knows, self.faults)

    def __call__(self, *views: TrainerView, of: ClusterView | None = None) -> Decision:
        self.faults.begin()
        return self.decider.decide(of or cluster(*views, of=NODES))


def other(*elements: Element | str) -> TrainerView:
    return view(*elements, array=OTHER)


def who_grows(decision: Decision) -> set[int]:
    return {action.array for action in decision.actions if isinstance(action, Grow)}


def test_trainers_grow_onto_free_nodes_as_the_plan_says() -> None:
    decision = Deciding()(view(HELD), other(HELD))
    assert who_grows(decision) == {ARRAY, OTHER}
    assert (set(decision.free), decision.trouble) == (named("n1 n2"), None)


def test_a_node_that_the_controller_takes_from_a_trainer_stays_in_the_plan_meanwhile() -> None:
    leaving = view("ending n1", "running n2")

    def asked(ours: bool) -> tuple[frozenset[str], Decision]:
        record = replace(leaving.state.of(0), ours=ours)
        state = replace(leaving.state, elements={**leaving.state.elements, 0: record})
        deciding = Deciding()
        decision = deciding(replace(leaving, state=state), other(HELD))
        return deciding.planner.asked[-1].pool, decision

    pool, decision = asked(ours=True)
    assert pool == {"n1", "n2"}
    assert not who_grows(decision)  # not before it is idle
    assert asked(ours=False)[0] == {"n2"}  # an ordinary job has it next


def test_nobody_grows_onto_a_node_that_a_job_is_to_find_idle_or_that_is_being_left_for_it() -> None:
    seen = [node(name, partition="main bftrainer") for name in ("n1", "n2")]
    waits = snapshot(seen, waiting=(WaitingJob(7, "main", 2),))

    def decided(due_in_s: float) -> Decision:
        due = BackfillForecast(NOW_S + due_in_s, NOW_S + due_in_s, NOW_S)
        found = replace(cluster(view(ON_N1), other(HELD), of=waits), forecast=due)
        return Deciding()(of=found)

    assert decided(60.0).free == decided(0.0).free == {}
    assert decided(60.0).left_alone["kept for ordinary jobs"] == 1
    assert [type(action) for action in decided(60.0).actions] == []
    assert [type(action) for action in decided(0.0).actions] == [Shrink]


def test_trainers_leave_for_a_job_as_long_before_a_pass_as_elements_take_to_end() -> None:
    both = node("n1", partition="main bftrainer")
    waits = snapshot([both], waiting=(WaitingJob(7, "main", 1),))
    in_8_s = BackfillForecast(NOW_S + 8, NOW_S + 8, NOW_S)

    def leaves(lead_s: float) -> bool:
        found = replace(cluster(view(ON_N1), of=waits), forecast=in_8_s, lead_s=lead_s)
        return any(isinstance(action, Shrink) for action in Deciding()(of=found).actions)

    assert leaves(9.0)
    assert not leaves(3.0)


def test_a_trainer_whose_problem_cannot_be_built_is_left_alone_and_named() -> None:
    deciding = Deciding(ARRAY)
    decision = deciding(view(HELD), other(HELD))
    assert who_grows(decision) == {OTHER}
    assert decision.trouble is None
    assert "of this trainer's curve" in deciding.faults.why[ARRAY]
    assert deciding.faults.why.keys() == {ARRAY}
    deciding.performance.odd.clear()
    assert who_grows(deciding(view(HELD), other(HELD))) == {ARRAY, OTHER}, "once it can be"


def test_it_keeps_its_nodes_and_its_upkeep() -> None:
    decision = Deciding(ARRAY)(view(ON_N1, failed(1, "n9")), other(HELD))
    (grow,) = [action for action in decision.actions if isinstance(action, Grow)]
    assert (grow.array, grow.nodes) == (OTHER, named("n2"))
    assert Revive((ElementId(ARRAY, 1),), "failed") in decision.actions


def test_a_planner_that_raises_stops_nobodys_upkeep() -> None:
    mine = view(ON_N1, "pending", "delayed")
    decision = Deciding(planner=BrokenPlanner())(mine, other(HELD))
    held = [one.elements for one in decision.actions if isinstance(one, Hold)]
    assert held == [(ElementId(ARRAY, 1),), (ElementId(ARRAY, 2),)]
    assert len(decision.actions) == 2
    assert (decision.plan, decision.trouble) == (None, "no plan: MemoryError: too many nodes")


def test_after_a_planner_has_raised_it_is_asked_again() -> None:
    deciding = Deciding()
    deciding.planner.plan, plan = BrokenPlanner().plan, deciding.planner.plan  # type: ignore[method-assign]
    assert who_grows(deciding(view(HELD))) == set()
    deciding.planner.plan = plan  # type: ignore[method-assign]
    assert who_grows(deciding(view(HELD))) == {ARRAY}


@pytest.mark.parametrize(("status", "asked"), [("optimal", 1), ("feasible", 1), ("greedy", 2)])
def test_a_plan_stands_while_nothing_is_new_one_without_the_solver_for_a_minute(
    status: str, asked: int
) -> None:
    deciding = Deciding(planner=Planner(status))
    for _ in range(3):
        deciding(view(HELD))
    assert len(deciding.planner.asked) == 1
    deciding(of=cluster(view(HELD), of=replace(NODES, time_s=NOW_S + 61)))
    assert len(deciding.planner.asked) == asked


def test_costs_that_creep_up_make_a_new_plan_once_they_differ_from_those_it_was_made_with() -> None:
    deciding, costs_s = Deciding(), 30.0
    deciding.performance.costs = lambda *_: RescaleCosts(costs_s, costs_s, 30.0)  # type: ignore[method-assign]
    for _ in range(61):
        deciding(view(HELD))
        costs_s += 1.0
    assert 2 <= len(deciding.planner.asked) <= 11
    used_s = deciding.planner.asked[-1].trainers[0].rescale_up_s
    assert abs(used_s - costs_s) <= 2 + costs_s / 3


def test_nobody_grows_onto_a_node_that_it_cannot_have() -> None:
    mine = trainer("held", "held")
    mine = replace(mine, demands=Demands(excluded=frozenset({"n1"})))
    (grow,) = Deciding()(view_of(mine)).actions
    assert isinstance(grow, Grow) and grow.nodes == named("n2")


def test_where_its_elements_may_still_start_no_other_trainer_grows() -> None:
    late = view("pending", elements={0: released("n1")})
    decision = Deciding(ARRAY)(late, other("held", "held"))
    assert set(decision.free) == named("n2")


def test_the_problem_of_a_plan_is_in_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    deciding = Deciding(history=History(path))
    deciding(view(HELD))
    assert parse(past_problem(path, 1)) == deciding.planner.asked[-1]


def test_a_node_on_which_an_element_did_not_start_is_left_alone_for_a_while() -> None:
    late = view("pending", elements={0: released("n1", since_s=NOW_S - 1000)})
    decision = Deciding()(late)
    assert until(decision.bad)["n1"] > NOW_S
    assert set(decision.free) == named("n2")
    assert [type(action) for action in decision.actions] == [Hold]


def test_a_node_that_an_element_leaves_for_an_admin_goes_to_nobody() -> None:
    draining = snapshot([node("n1", NodeState.DRAINING), node("n2")])
    decision = Deciding()(of=cluster(view(ON_N1), other(HELD), of=draining))
    ended = [action for action in decision.actions if isinstance(action, Shrink)]
    assert [action.why for action in ended] == ["its node is draining"]
    assert who_grows(decision) == {OTHER}
    assert set(decision.free) == named("n2")


def test_trainers_leave_a_node_that_slurm_may_switch_off_and_nobody_grows_there() -> None:
    off = named("n1")
    of = cluster(view(ON_N1), other(HELD), of=NODES, soon_off=off, let_off=off)
    decision = Deciding()(of=of)
    ended = [action for action in decision.actions if isinstance(action, Shrink)]
    assert [action.why for action in ended] == [SOON_OFF]
    assert set(decision.free) == named("n2")


def test_an_element_that_has_not_started_on_a_node_that_slurm_may_switch_off_is_held() -> None:
    starts = view(element(0, "pending"), elements={0: released("n1")})
    held = Deciding()(of=cluster(starts, of=NODES, soon_off=named("n1"))).actions
    assert [one.why for one in held if isinstance(one, Hold)] == [SOON_OFF]


def test_nodes_that_slurm_has_switched_off_are_named() -> None:
    asleep = snapshot([node("n1", NodeState.POWERED_DOWN), node("n2")])
    decision = Deciding()(of=cluster(view(HELD), of=asleep))
    assert set(decision.free) == named("n2")
    assert decision.left_alone[POWERED_DOWN] == 1
    assert [one.nodes for one in decision.bars if one.why == POWERED_DOWN] == [named("n1")]


def test_a_trainer_that_is_given_up_is_so_in_the_same_decision() -> None:
    failing = Failing(NOW_S, NOW_S, count=3, nodes=("n1", "n2"), node="n1", text="no toch")
    deciding = Deciding()
    decision = deciding(view(ON_N1, failing=failing), other(HELD))
    (cancel,) = [action for action in decision.actions if isinstance(action, Cancel)]
    assert cancel.array == ARRAY
    assert decision.states[ARRAY].over == cancel.why
    assert [one.key for one in deciding.planner.asked[-1].trainers] == [str(OTHER)]
    assert not any(isinstance(one, Shrink | Grow) and one.array == ARRAY
                   for one in decision.actions)  # fmt: skip


def test_who_is_stuck_is_told_why() -> None:
    stuck = view(HELD, refused=dict.fromkeys(("n1", "n2"), NOW_S + 60))
    decision = Deciding()(stuck)
    assert decision.stuck.keys() == {ARRAY}
    assert decision.actions == ()
