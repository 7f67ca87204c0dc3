"""Takes the times: both models on the same problems, and the count model alone.

A count model's time runs from the problem to the checked plan, its child process included; the
node-level model's from the problem to its answer, the same way, building the model included.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bftrainer_slurm.planner.problem import Plan, Problem, feasible, value
from bftrainer_slurm.planner.solver import Planner
from scripts.planner_bench.apart import NodeLevel, Run
from scripts.planner_bench.instances import after_event, made, recorded

_TOLERANCE = 1e-6  # relative, of objectives


@dataclass(frozen=True, slots=True)
class Size:
    """How many trainers share how many nodes."""

    trainers: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.trainers}x{self.nodes:,}"


@dataclass(frozen=True, slots=True)
class Pair:
    """One problem, solved by both."""

    node_level: Run
    count: Plan
    agree: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both models on the problems of one size."""

    size: Size
    pairs: tuple[Pair, ...]

    @property
    def ended(self) -> list[Run]:
        """The node-level runs that did not crash."""
        return [pair.node_level for pair in self.pairs if pair.node_level.status != "crashed"]

    @property
    def count_seconds(self) -> list[float]:
        """What each plan of the count model took."""
        return [pair.count.solve_s for pair in self.pairs]

    @property
    def agree(self) -> bool:
        """Whether no objective contradicts another."""
        return all(pair.agree for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem for the count model alone: a maker from a seed, and the target if any."""

    name: str
    make: Callable[[int], Problem]
    target_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Plans of the count model for one kind; ``mode`` is ``fresh`` or ``stream``."""

    kind: Kind
    mode: str
    seconds: tuple[float, ...]
    statuses: Counter[str]


def compare(
    size: Size, instances: int, limit_s: float, planner: Planner, node_level: NodeLevel
) -> Comparison:
    """Solve that many problems of this size, the recorded ones first, by one and by the other."""
    problems = recorded(size.trainers, size.nodes)[:instances]
    missing = range(instances - len(problems))
    problems += [made(size.trainers, size.nodes, seed) for seed in missing]
    return Comparison(size, tuple(_pair(one, limit_s, planner, node_level) for one in problems))


def fresh(kind: Kind, repeats: int, planner: Planner) -> Series:
    """Plan a new problem each time."""
    return _series(kind, "fresh", [planner.plan(kind.make(seed)) for seed in range(repeats)])


def stream(kind: Kind, repeats: int, planner: Planner) -> Series:
    """Plan from event to event, each time from the plan before, as a controller does."""
    events = follow(kind.make(0), planner, random.Random(kind.name))
    next(events)  # the first plan is no answer to an event
    return _series(kind, "stream", list(itertools.islice(events, repeats)))


def follow(problem: Problem, planner: Planner, dice: random.Random) -> Iterator[Plan]:
    """Plan, let nodes come and go, plan again, without end."""
    serial = itertools.count()
    while True:
        plan = planner.plan(problem)
        yield plan
        problem = after_event(problem, plan, dice, serial)


def agree(problem: Problem, run: Run, plan: Plan) -> bool:
    """Whether what the node-level model found fits with the count model's plan.

    The same optimum where both have proven theirs; no better than the plan where its time was over.
    """
    if run.nodes is None:
        return True
    shares = [(len(nodes),) for nodes in run.nodes]
    if not feasible(problem, shares):
        return False
    reached = value(problem, shares)
    if run.status == "optimal" and plan.status == "optimal":
        return math.isclose(reached, plan.objective, rel_tol=_TOLERANCE)
    return run.status == "limit" and reached <= plan.objective * (1 + _TOLERANCE)


def _pair(problem: Problem, limit_s: float, planner: Planner, node_level: NodeLevel) -> Pair:
    plan, run = planner.plan(problem), node_level.solve(problem, limit_s)
    return Pair(run, plan, agree(problem, run, plan))


def _series(kind: Kind, mode: str, plans: list[Plan]) -> Series:
    seconds = tuple(plan.solve_s for plan in plans)
    return Series(kind, mode, seconds, Counter(plan.status for plan in plans))
