"""Takes the times: both models on the same problems, and the count model alone.

A time runs from the problem to the checked plan, the child process and building the model included.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.planner.solver import Planner
from scripts.planner_bench import nodelevel
from scripts.planner_bench.instances import after_event, made, recorded

_TOLERANCE = 1e-6  # relative, of objectives
_OVERTIME = 1.25  # of the limit, until the child is ended: CBC looks at its clock only now and then


@dataclass(frozen=True, slots=True)
class Size:
    """How many trainers share how many nodes."""

    trainers: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.trainers}x{self.nodes:,}"


@dataclass(frozen=True, slots=True)
class Run:
    """One plan: how long it took, and ``optimal`` (proven), ``limit``, or why it has failed."""

    seconds: float
    status: str

    @property
    def failed(self) -> bool:
        """Whether it ended in its time, and without an answer."""
        return self.status not in ("optimal", "limit")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both models on the problems of one size; ``agree``: no objective contradicts another."""

    size: Size
    node_level: list[Run]
    count_s: list[float]
    agree: bool

    @property
    def ended(self) -> list[Run]:
        """The node-level runs that did not fail."""
        return [run for run in self.node_level if not run.failed]


@dataclass(frozen=True, slots=True)
class Series:
    """Plans of the count model for one kind of problem; ``mode`` is ``fresh`` or ``stream``."""

    kind: str
    mode: str
    seconds: list[float]
    statuses: Counter[str]
    target_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem for the count model alone: a maker from a seed, and the target if any."""

    name: str
    make: Callable[[int], Problem]
    target_p95_s: float | None = None

    def fresh(self, repeats: int, planner: Planner) -> Series:
        """Plan a new problem each time."""
        return self._series("fresh", [planner.plan(self.make(seed)) for seed in range(repeats)])

    def stream(self, repeats: int, planner: Planner) -> Series:
        """Plan from event to event, each time from the plan before, as a controller does."""
        plans = _follow(self.make(0), planner, random.Random(self.name))
        # The first plan is no answer to an event.
        return self._series("stream", list(itertools.islice(plans, 1, repeats + 1)))

    def _series(self, mode: str, plans: list[Plan]) -> Series:
        statuses = Counter(plan.status for plan in plans)
        return Series(self.name, mode, [one.solve_s for one in plans], statuses, self.target_p95_s)


def node_level_planner(limit_s: float) -> Planner:
    """Start a planner that solves the node-level model, for so long at most."""
    command = (sys.executable, "-P", nodelevel.__file__)
    return Planner(time_limit_s=_OVERTIME * limit_s, command=command)


def compare(
    size: Size, instances: int, limit_s: float, planner: Planner, node_level: Planner
) -> Comparison:
    """Solve that many problems of this size, the recorded ones first, by one and by the other."""
    problems = recorded(size.trainers, size.nodes)[:instances]
    missing = range(instances - len(problems))
    problems += [made(size.trainers, size.nodes, seed) for seed in missing]
    runs, counts, all_agree = [], [], True
    for problem in problems:
        node_level.warm_up()  # a child that was ended is replaced in nobody's time
        count, other = planner.plan(problem), node_level.plan(problem)
        runs.append(run_of(other, limit_s))
        counts.append(count.solve_s)
        all_agree = all_agree and agree(runs[-1], other, count)
    return Comparison(size, runs, counts, all_agree)


def run_of(plan: Plan, limit_s: float) -> Run:
    """Return what a plan of the node-level model took; one that was cut off took the limit."""
    if plan.solve_s >= limit_s or plan.status == "feasible":
        return Run(limit_s, "limit")
    return Run(plan.solve_s, plan.reason if plan.status == "greedy" else plan.status)


def agree(run: Run, node_level: Plan, count: Plan) -> bool:
    """Whether the plan of the node-level model fits with the count model's.

    The same optimum where both have proven theirs; no better one where its time was over.
    """
    if run.failed:
        return True
    if run.status == "optimal" and count.status == "optimal":
        return math.isclose(node_level.objective, count.objective, rel_tol=_TOLERANCE)
    return run.status == "limit" and node_level.objective <= count.objective * (1 + _TOLERANCE)


def _follow(problem: Problem, planner: Planner, dice: random.Random) -> Iterator[Plan]:
    """Plan, let nodes come and go, plan again, without end."""
    serial = itertools.count()
    while True:
        plan = planner.plan(problem)
        yield plan
        problem = after_event(problem, plan, dice, serial)
