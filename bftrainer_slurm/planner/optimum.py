"""The best plan: a bound by prices, a core that cannot lack a better plan, CBC for what is open.

Runs in the child process only (``child``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer_slurm.planner.bound import bound_by_price, counts_by_price
from bftrainer_slurm.planner.core import core_of
from bftrainer_slurm.planner.improve import improve
from bftrainer_slurm.planner.milp import solve_core
from bftrainer_slurm.planner.options import bidders_of
from bftrainer_slurm.planner.problem import Count, Problem, value

GAP = 1e-7  # relative; the recorded optima are met to 1e-6


@dataclass(frozen=True, slots=True)
class Found:
    """Counts in the order of the contenders (None: nothing was found), proven the best or not."""

    counts: list[Count] | None
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Found:
    """Maximise the objective over the counts."""
    deadline_s = time.monotonic() + time_limit_s
    bidders, nodes = bidders_of(problem), len(problem.pool)
    bound = bound_by_price(bidders, nodes)
    counts = counts_by_price(bidders, nodes)
    gap = GAP * abs(bound.value)
    most_loss = bound.value - _value(problem, counts)
    if most_loss > gap:
        core = core_of(bidders, bound, most_loss)
        counts = improve(core, counts, nodes, bound.prices[0])
        most_loss = bound.value - _value(problem, counts)
    if most_loss <= gap:
        return Found(_in_order(counts), True)
    core = core_of(bidders, bound, most_loss)
    left_s = deadline_s - time.monotonic()
    answer = solve_core(core, problem.sizes(), bound.prices, most_loss, gap, left_s)
    if answer.shares is not None:
        found = {index: share[0] for index, share in answer.shares.items()}
        counts = max(counts, found, key=lambda one: _value(problem, one))
    return Found(_in_order(counts), answer.optimal)


def _value(problem: Problem, counts: Mapping[int, int]) -> float:
    return value(problem, _in_order(counts))


def _in_order(counts: Mapping[int, int]) -> list[Count]:
    return [counts[index] for index in range(len(counts))]
