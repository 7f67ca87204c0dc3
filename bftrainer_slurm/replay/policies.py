"""Other planners, to compare the product's planner with."""

from __future__ import annotations

import bisect
import math
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Costs, Plan, PlanMaker, Problem, Share, value
from bftrainer_slurm.replay.trace import Trace


class EqualShare:
    """Gives every trainer the same number of nodes, any nodes: the paper's baseline."""

    def plan(self, problem: Problem) -> Plan:
        """Return the equal-share plan."""
        problem = any_node(problem)
        shares = equal_shares(problem)
        return Plan(place(problem, shares), value(problem, shares), 0.0, "equal share")


def equal_shares(problem: Problem) -> list[Share]:
    """Hand out nodes in turn, in the order of the trainers, whatever their throughput.

    A trainer whose minimum no longer fits gets none. All nodes are alike.
    """
    free = len(problem.pool)
    counts = []
    for trainer in problem.trainers:
        counts.append(trainer.min_nodes if trainer.min_nodes <= free else 0)
        free -= counts[-1]
    while free > 0:
        hungry = [
            index
            for index, trainer in enumerate(problem.trainers)
            if 0 < counts[index] < trainer.max_nodes
        ]
        if not hungry:
            break
        for index in hungry[:free]:
            counts[index] += 1
        free -= min(free, len(hungry))
    pairs = zip(problem.trainers, counts, strict=True)
    return [(trainer.most_within(count),) for trainer, count in pairs]


class PaperModel:
    """Plans by the paper's model: its rescale costs, and all nodes alike."""

    def __init__(self, planner: PlanMaker) -> None:
        self._planner = planner

    def plan(self, problem: Problem) -> Plan:
        """Return the planner's plan for the simpler problem."""
        return self._planner.plan(replace(any_node(problem), costs=Costs.PAPER))


def any_node(problem: Problem) -> Problem:
    """Return the problem with all nodes alike.

    The choice among them is random, as with the paper's solver. An order by name would add
    knowledge, because schedulers take nodes in an order of their own.
    """
    chance = {node: float(zlib.crc32(node.encode())) for node in problem.pool}
    return replace(problem, life_s=chance)


class Oracle:
    """Plans with the true end of every hole: an upper bound on the gain of better estimates."""

    def __init__(self, planner: PlanMaker, trace: Trace, clock: Callable[[], float]) -> None:
        self._planner = planner
        self._clock = clock
        self._ends: dict[str, list[float]] = defaultdict(list)
        for time_s, node, idle in zip(trace.time_s, trace.node, trace.idle, strict=True):
            if not idle:
                self._ends[trace.nodes[node]].append(float(time_s))

    def plan(self, problem: Problem) -> Plan:
        """Return the planner's plan with the true ends."""
        now_s = self._clock()
        life_s = {node: self._end(node, now_s) - now_s for node in problem.pool}
        return self._planner.plan(replace(problem, life_s=life_s))

    def _end(self, node: str, now_s: float) -> float:
        ends = self._ends[node]
        index = bisect.bisect_right(ends, now_s)
        return ends[index] if index < len(ends) else math.inf
