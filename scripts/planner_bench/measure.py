"""Measures the times of both models on the same problems, and of the count model alone.

A time is from the problem to the checked plan, with the child process and the model's building.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, median_high

from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.planner.solver import Planner
from scripts.planner_bench import nodelevel
from scripts.planner_bench.instances import after_event, made, recorded

_TOLERANCE = 1e-4  # relative, of objectives: the gap of the count model
_OVERTIME = 1.25  # times the limit the child is ended, as CBC looks at its clock only now and then


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both models on the problems of one size; ``agree``: no objective contradicts another.

    ``statuses`` of node-level runs: ``optimal`` (proven), ``limit``, or the reason of a failure.
    """

    size: str
    node_level_s: list[float]  # of runs that did not fail; one that was cut off took the limit
    count_s: list[float]
    statuses: Counter[str]
    agree: bool

    @property
    def ratio(self) -> float | None:
        """How many times faster the count model is, by medians; None: all runs failed."""
        if not self.node_level_s:
            return None
        return median(self.node_level_s) / median(self.count_s)

    @property
    def bound(self) -> str:
        """``>=`` where the limit cut the slower one off in the median, and in half the runs."""
        cut = self.statuses["limit"] and median_high(self.node_level_s) == max(self.node_level_s)
        return ">=" if cut else ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem for the count model alone: a maker from a seed, and the targets if any."""

    name: str
    make: Callable[[int], Problem]
    fresh_p95_s: float | None = None
    stream_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Plans of the count model for one kind of problem; ``mode`` is ``fresh`` or ``stream``."""

    kind: str
    mode: str
    seconds: list[float]
    statuses: Counter[str]
    target_p95_s: float | None = None


def fresh(kind: Kind, repeats: int, planner: Planner) -> Series:
    """Plan a new problem each time."""
    plans = [planner.plan(kind.make(seed)) for seed in range(repeats)]
    return _series(kind, "fresh", plans, kind.fresh_p95_s)


def stream(kind: Kind, repeats: int, planner: Planner) -> Series:
    """Plan from event to event, each time from the plan before, as a controller does."""
    problem, dice, serial = kind.make(0), random.Random(kind.name), itertools.count()
    plan, plans = planner.plan(problem), list[Plan]()  # the first plan is no answer to an event
    for _ in range(repeats):
        problem = after_event(problem, plan, dice, serial)
        plan = planner.plan(problem)
        plans.append(plan)
    return _series(kind, "stream", plans, kind.stream_p95_s)


def _series(kind: Kind, mode: str, plans: Sequence[Plan], target_p95_s: float | None) -> Series:
    statuses = Counter(plan.status for plan in plans)
    return Series(kind.name, mode, [plan.solve_s for plan in plans], statuses, target_p95_s)


def node_level_planner(limit_s: float) -> Planner:
    """Start a planner that solves the node-level model within this limit."""
    command = (sys.executable, "-P", nodelevel.__file__)
    return Planner(time_limit_s=_OVERTIME * limit_s, command=command)


def compare(
    size: tuple[int, int], instances: int, limit_s: float, planner: Planner, node_level: Planner
) -> Comparison:
    """Solve some problems of one size with both models, the recorded problems first.

    A size is the number of trainers and of nodes.
    """
    problems = recorded(*size)[:instances]
    problems += [made(*size, seed) for seed in range(instances - len(problems))]
    times_s, count_s, statuses, agree = list[float](), list[float](), Counter[str](), True
    for problem in problems:
        node_level.warm_up()  # so that no time includes a new child after one was ended
        count, other = planner.plan(problem), node_level.plan(problem)
        count_s.append(count.solve_s)
        status = other.reason if other.status == "greedy" else other.status
        if other.solve_s >= limit_s or status == "feasible":
            status = "limit"  # its time was over: it must not be better
            times_s.append(limit_s)
            agree &= other.objective <= count.objective * (1 + _TOLERANCE)
        elif status == "optimal":
            times_s.append(other.solve_s)
            same = math.isclose(other.objective, count.objective, rel_tol=_TOLERANCE)
            agree &= same and count.status == "optimal"
        statuses[status] += 1
    return Comparison(f"{size[0]}x{size[1]}", times_s, count_s, statuses, agree)
