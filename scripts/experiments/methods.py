"""The ways to plan that are compared: the replay's policies, and the steps between two of them."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, replace

from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem


@dataclass(frozen=True, slots=True)
class Method:
    """A policy of the replay, and what is taken away from the problems that it is asked."""

    policy: str
    expected_ends: bool = True  # else a node is as good as any other
    spares: bool = True  # else no trainer is kept without nodes for the next holes


METHODS = {
    "equal-share": Method("equal-share"),
    "paper": Method("paper"),
    "pauses": Method("milp", expected_ends=False, spares=False),
    "survival": Method("milp", spares=False),
    "milp": Method("milp"),
    "oracle": Method("oracle"),
}


class Asked:
    """Asks a planner the problems that a method leaves, and counts plans by their status."""

    def __init__(self, planner: PlanMaker, method: Method) -> None:
        self._planner = planner
        self._method = method
        self.statuses: Counter[str] = Counter()

    def plan(self, problem: Problem) -> Plan:
        """Return the planner's plan for the plainer problem."""
        plan = self._planner.plan(_plainer(problem, self._method))
        self.statuses[plan.status] += 1
        return plan


def _plainer(problem: Problem, method: Method) -> Problem:
    if not method.expected_ends:
        # Left to chance: order by name would be knowledge, as replay.policies.PaperModel says.
        chance = {node: float(zlib.crc32(node.encode())) for node in problem.pool}
        problem = replace(problem, life_s=chance)
    if not method.spares:
        problem = replace(problem, spares=())
    return problem
