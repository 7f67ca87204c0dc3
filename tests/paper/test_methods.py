"""A step past the paper is the planner itself, asked less."""

from __future__ import annotations

from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.replay.policies import PaperModel
from experiments.paper.replays import Asked
from tests.planner.problems import planned, problem

ENDS = {"n0": 10.0, "n1": 20.0, "n2": 30.0}


class Listener:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    def plan(self, problem: Problem) -> Plan:
        self.asked.append(problem)
        return Plan({}, 0.0, 0.0, "optimal")


def asked(method: str) -> Problem:
    one = problem(3, planned(), life_s=ENDS)
    listener = Listener()
    Asked(listener, method).plan(one)
    return listener.asked[0]


def test_the_planner_itself_is_told_the_expected_ends() -> None:
    assert asked("milp").life_s == ENDS


def test_pauses_alone_leave_the_choice_of_nodes_to_chance_as_the_papers_model_does() -> None:
    listener = Listener()
    PaperModel(listener).plan(problem(3, planned(), life_s=ENDS))
    assert asked("pauses").life_s == listener.asked[0].life_s != ENDS


def test_plans_are_counted_by_status() -> None:
    planner = Asked(Listener(), "milp")
    planner.plan(problem(1))
    planner.plan(problem(2))
    assert planner.statuses == {"optimal": 2}
