"""The best plan: a bound by prices, a core that cannot lack a better plan, CBC for what is open.

Runs in the child process only (``child``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer_slurm.planner.bound import Bound, bound_by_price, counts_by_price
from bftrainer_slurm.planner.core import core_of
from bftrainer_slurm.planner.greedy_by_class import greedy_shares
from bftrainer_slurm.planner.improve import improve
from bftrainer_slurm.planner.milp import Supply, solve_core
from bftrainer_slurm.planner.options import Bidder, bidders_of
from bftrainer_slurm.planner.prices import bound_by_prices
from bftrainer_slurm.planner.problem import Count, Problem, value
from bftrainer_slurm.planner.spares import best_rebate

GAP = 1e-7  # relative; the recorded optima are met to 1e-6
_FIRST_LOSS, _WIDER = 1e-5, 2.0  # of cores, where no good plan is known: relative to the bound


@dataclass(frozen=True, slots=True)
class Found:
    """Counts in the order of the contenders, proven the best or not."""

    counts: list[Count]
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Found:
    """Maximise the objective over the counts."""
    deadline_s = time.monotonic() + time_limit_s
    solve_one = _solve_with_classes if problem.classes else _solve_without_classes
    return solve_one(problem, bidders_of(problem), deadline_s)


def _solve_without_classes(problem: Problem, bidders: list[Bidder], deadline_s: float) -> Found:
    nodes = len(problem.pool)
    rebated = best_rebate(bidders, problem.spares, lambda paid: bound_by_price(paid, nodes))
    bidders, bound = rebated.bidders, rebated.bound
    counts = counts_by_price(bidders, nodes)
    gap = GAP * _scale(bound, bidders)
    most_loss = bound.value - _value(problem, counts)
    if most_loss > gap:
        core = core_of(bidders, bound, most_loss)
        better = improve(core, counts, nodes, bound.prices[0])
        counts = max(counts, better, key=lambda one: _value(problem, one))
        most_loss = bound.value - _value(problem, counts)
    if most_loss <= gap:
        return Found(_in_order(counts), True)
    core = core_of(bidders, bound, most_loss)
    left_s = deadline_s - time.monotonic()
    answer = solve_core(core, _supply(problem, bound), most_loss, gap, left_s, rebated.spares)
    if answer.shares is not None:
        found = {index: share[0] for index, share in answer.shares.items()}
        counts = max(counts, found, key=lambda one: _value(problem, one))
    return Found(_in_order(counts), answer.optimal)


def _solve_with_classes(problem: Problem, bidders: list[Bidder], deadline_s: float) -> Found:
    """Try small cores first: a plan that loses no more than its core allows is the best."""
    rebated = best_rebate(
        bidders,
        problem.spares,
        lambda paid: bound_by_prices(paid, problem.sizes(), GAP / 10, deadline_s),
    )
    bidders, bound = rebated.bidders, rebated.bound
    scale = _scale(bound, bidders)
    counts: list[Count] = list(greedy_shares(problem))
    least_loss = bound.value - value(problem, counts)
    most_loss = min(least_loss, _FIRST_LOSS * scale)
    while least_loss > GAP * scale and time.monotonic() < deadline_s:
        core = core_of(bidders, bound, most_loss)
        left_s = deadline_s - time.monotonic()
        answer = solve_core(
            core, _supply(problem, bound), most_loss, GAP * scale, left_s, rebated.spares
        )
        if answer.shares is not None:
            found = _in_order(answer.shares)
            loss = bound.value - value(problem, found)
            if loss < least_loss:
                counts, least_loss = found, loss
        if answer.optimal and least_loss <= most_loss + GAP * scale:
            return Found(counts, True)
        most_loss = min(least_loss, _WIDER * most_loss)
    return Found(counts, least_loss <= GAP * scale)


def _supply(problem: Problem, bound: Bound) -> Supply:
    kinds = tuple(one.hardware for one in problem.classes) or ("",)
    return Supply(problem.sizes(), kinds, bound.prices)


def _scale(bound: Bound, bidders: list[Bidder]) -> float:
    """What gaps are relative to: the bound; where gains and losses cancel, one option's worth."""
    starts = (abs(option.start) for bidder in bidders for option in bidder.options)
    return max(abs(bound.value), max(starts, default=0.0)) or 1.0


def _value(problem: Problem, counts: Mapping[int, Count]) -> float:
    return value(problem, _in_order(counts))


def _in_order(counts: Mapping[int, Count]) -> list[Count]:
    return [counts[index] for index in range(len(counts))]
