"""One decision: what of one trainer cannot be decided hinders no other, nor does a missing plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bftrainer_slurm.controller.decide.actions import Cancel, Grow, Hold, Revive, Shrink
from bftrainer_slurm.controller.decide.available import POWERED_DOWN
from bftrainer_slurm.controller.decide.decision import Decider, Decision
from bftrainer_slurm.controller.decide.reconcile import SOON_OFF
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import Estimate, RescaleCosts
from bftrainer_slurm.controller.state.registry import TrainerErrors
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Element, ElementId, NodeState, WaitingJob
from bftrainer_slurm.planner.instance import parse
from bftrainer_slurm.reader.past import past_problem
from tests.controller.decide.test_planning import Known
from tests.controller.setting import Planner
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    cluster,
    element,
    failed,
    named,
    node,
    released,
    snapshot,
    until,
    view,
)

OTHER = ARRAY + 1
HELD = element(0, "held")
ON_N1 = element(0, "running n1")
NODES = snapshot("n1 n2")
FOR_A_JOB = "an ordinary job is expected there"


@dataclass
class OddTrainers(Known):
    """Breaks where it is asked about some trainers."""

    odd: set[int] = field(default_factory=set)

    def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
        if self.odd & {view.array for view in views}:
            raise ZeroDivisionError("of this trainer's curve")
        return super().estimates(views, now_s)


class Deciding:
    """A decider, with what it is handed."""

    def __init__(
        self, *odd: int, planner: Planner | None = None, history: History | None = None
    ) -> None:
        self.planner, self.faults = planner or Planner(), TrainerErrors()
        self.performance: Any = OddTrainers(odd=set(odd))
        knows = self.performance, history or History(":memory:"), Settings()
        self.decider = Decider(self.planner, *knows, self.faults)

    def __call__(self, *views: TrainerView, of: ClusterView | None = None) -> Decision:
        self.faults.begin()
        return self.decider.decide(of or cluster(*views, of=NODES))


def other(*elements: Element | str) -> TrainerView:
    return view(*elements, array=OTHER)


def who_grows(decision: Decision) -> set[int]:
    return {action.array for action in decision.actions if isinstance(action, Grow)}


def why_ended(decision: Decision) -> list[str]:
    """Why elements are ended, or held before they start."""
    return [action.why for action in decision.actions if isinstance(action, Shrink | Hold)]


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


@cases(
    "due_in_s, lead_s, ends",
    not_long_before_a_pass=(60.0, 3.0, []),
    not_yet=(8.0, 3.0, []),
    as_long_before_it_as_elements_take_to_end=(8.0, 9.0, [FOR_A_JOB]),
    as_it_is_due=(0.0, 3.0, [FOR_A_JOB]),
)
def test_trainers_leave_for_a_job_and_nobody_grows_there(
    due_in_s: float, lead_s: float, ends: list[str]
) -> None:
    seen = [node(name, partition="main bftrainer") for name in ("n1", "n2")]
    waits = snapshot(seen, waiting=(WaitingJob(7, "main", 2),))
    due = BackfillForecast(NOW_S + due_in_s, NOW_S + due_in_s, NOW_S)
    of = cluster(view(ON_N1), other(HELD), of=waits, forecast=due, lead_s=lead_s)
    decision = Deciding()(of=of)
    assert (decision.free, decision.left_alone["kept for ordinary jobs"]) == ({}, 1)
    assert why_ended(decision) == ends
    assert len(decision.actions) == len(ends)


def test_a_trainer_whose_problem_cannot_be_built_is_named_and_keeps_its_nodes_and_upkeep() -> None:
    deciding = Deciding(ARRAY)
    decision = deciding(view(ON_N1, failed(1, "n9")), other(HELD))
    (grow,) = [action for action in decision.actions if isinstance(action, Grow)]
    assert (grow.array, grow.nodes) == (OTHER, named("n2"))
    assert Revive((ElementId(ARRAY, 1),), "failed") in decision.actions
    assert decision.trouble is None
    assert deciding.faults.why.keys() == {ARRAY}
    assert "of this trainer's curve" in deciding.faults.why[ARRAY]
    deciding.performance.odd.clear()
    assert who_grows(deciding(view(HELD), other(HELD))) == {ARRAY, OTHER}, "once it can be"


def test_a_planner_that_raises_stops_nobodys_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, deciding = view(ON_N1, "pending", "delayed"), Deciding()
    with monkeypatch.context() as broken:
        broken.setattr(deciding.planner, "plan", Mock(side_effect=MemoryError("too many nodes")))
        decision = deciding(mine, other(HELD))
    held = [one.elements for one in decision.actions if isinstance(one, Hold)]
    assert held == [(ElementId(ARRAY, 1),), (ElementId(ARRAY, 2),)]
    assert len(decision.actions) == 2
    assert (decision.plan, decision.trouble) == (None, "no plan: MemoryError: too many nodes")
    assert who_grows(deciding(mine, other(HELD))) == {OTHER}, "it is asked again"


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
    deciding.performance.costs = lambda *_: RescaleCosts(costs_s, costs_s, 30.0)
    for _ in range(61):
        deciding(view(HELD))
        costs_s += 1.0
    assert 2 <= len(deciding.planner.asked) <= 11
    used_s = deciding.planner.asked[-1].trainers[0].rescale_up_s
    assert abs(used_s - costs_s) <= 2 + costs_s / 3


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


STARTS = view(element(0, "pending"), elements={0: released("n1")})
DRAINING = snapshot([node("n1", NodeState.DRAINING), node("n2")])


@cases(
    "mine, of, off, why",
    that_an_admin_drains=(view(ON_N1), DRAINING, "", "its node is draining"),
    that_slurm_may_switch_off=(view(ON_N1), NODES, "n1", SOON_OFF),
    that_it_may_switch_off_before_an_element_has_started=(STARTS, NODES, "n1", SOON_OFF),
)
def test_trainers_leave_a_node_and_nobody_grows_there(
    mine: TrainerView, of: Snapshot, off: str, why: str
) -> None:
    going = {"soon_off": named(off), "let_off": named(off)}
    decision = Deciding()(of=cluster(mine, other(HELD), of=of, **going))
    assert why_ended(decision) == [why]
    assert set(decision.free) == named("n2")


def test_nodes_that_slurm_has_switched_off_are_named() -> None:
    asleep = snapshot([node("n1", NodeState.POWERED_DOWN), node("n2")])
    decision = Deciding()(of=cluster(view(HELD), of=asleep))
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
    assert not why_ended(decision)


def test_who_is_stuck_is_told_why() -> None:
    stuck = view(HELD, refused=dict.fromkeys(("n1", "n2"), NOW_S + 60))
    decision = Deciding()(stuck)
    assert decision.stuck.keys() == {ARRAY}
    assert decision.actions == ()
