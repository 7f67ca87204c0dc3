"""The best plan: a bound by prices, a core that cannot lack a better plan, and who solves that.

Where all nodes are alike, a dynamic programme, and CBC what is too large for it; else CBC.

Runs in the child process only (``child``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from bftrainer_slurm.planner.bound import Bound, bound_by_price, counts_by_price
from bftrainer_slurm.planner.core import Answer, core_of
from bftrainer_slurm.planner.lots import by_class, few_are_idle, in_lots
from bftrainer_slurm.planner.milp import Supply, solve_core
from bftrainer_slurm.planner.options import Bidder, bidders_of
from bftrainer_slurm.planner.prices import bound_by_prices
from bftrainer_slurm.planner.problem import Count, Problem, value
from bftrainer_slurm.planner.programme import best_counts
from bftrainer_slurm.planner.spares import best_rebate

GAP = 1e-7  # relative; the recorded optima are met to 1e-6
_PARTS = (1 / 8, 1 / 3, 1.0)  # of what the plan by price loses
_FIRST_LOSS, _WIDER = 200, 2.0  # of cores, where no plan is known: in gaps, and times

_Any = TypeVar("_Any")


@dataclass(frozen=True, slots=True)
class Found:
    """Counts in the order of the contenders (None: nothing in time), proven the best or not."""

    counts: list[Count] | None
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Found:
    """Maximise the objective over the counts."""
    solve_one = _solve_with_classes if problem.classes else _solve_without_classes
    return solve_one(problem, time.monotonic() + time_limit_s)


def _solve_without_classes(problem: Problem, deadline_s: float) -> Found:
    """Try a part of the core first: most often it has the best plan, and is done much sooner."""
    nodes = len(problem.pool)
    rebated = best_rebate(
        bidders_of(problem), problem.spares, lambda paid: bound_by_price(paid, nodes)
    )
    bidders, bound = rebated.bidders, rebated.bound
    counts = counts_by_price(bidders, nodes)
    gap = GAP * _scale(bound, bidders)
    least_loss = bound.value - _value(problem, counts)
    if least_loss <= gap:
        return Found(_in_order(counts), True)
    core = core_of(bidders, bound, least_loss)
    for part in _PARTS:
        answer = best_counts(core, nodes, bound.prices[0], part * least_loss)
        if answer.shares is not None or not answer.optimal:
            break
    counts = _better(problem, counts, answer)
    least_loss = bound.value - _value(problem, counts)
    # What spares lose comes on top of what the programme counts.
    is_open = not answer.optimal or bool(problem.spares and answer.shares)
    if is_open and least_loss > gap:
        core = core_of(bidders, bound, least_loss)
        left_s = deadline_s - time.monotonic()
        supply = _supply(problem, bound)
        answer = solve_core(core, supply, least_loss, gap, left_s, rebated.spares)
        counts = _better(problem, counts, answer)
    return Found(_in_order(counts), answer.optimal)


def _solve_with_classes(problem: Problem, deadline_s: float) -> Found:
    """Try small cores first: a plan that loses no more than its core allows is the best."""
    parted = few_are_idle(problem)
    lots = in_lots(problem) if parted else problem
    rebated = best_rebate(
        bidders_of(lots),
        lots.spares,
        lambda paid: bound_by_prices(paid, lots.sizes(), GAP / 10, deadline_s),
    )
    bidders, bound = rebated.bidders, rebated.bound
    gap = GAP * _scale(bound, bidders)
    best, least_loss = Found(None, False), math.inf
    most_loss = _FIRST_LOSS * gap
    while not best.optimal and time.monotonic() < deadline_s:
        core = core_of(bidders, bound, most_loss)
        left_s = deadline_s - time.monotonic()
        supply = _supply(lots, bound)
        answer = solve_core(core, supply, most_loss, gap, left_s, rebated.spares)
        if answer.shares is not None:
            shares = _in_order(answer.shares)
            loss = bound.value - value(lots, shares)
            if loss < least_loss:
                counts = [by_class(share) for share in shares] if parted else shares
                best, least_loss = Found([*counts], False), loss
        if answer.optimal and least_loss <= most_loss + gap:
            best = replace(best, optimal=True)
        most_loss = min(least_loss, _WIDER * most_loss)
    return best


def _better(problem: Problem, counts: dict[int, int], answer: Answer) -> dict[int, int]:
    """These counts, or those of the answer where they are worth more."""
    if answer.shares is None:
        return counts
    found = {index: share[0] for index, share in answer.shares.items()}
    return max(counts, found, key=lambda one: _value(problem, one))


def _supply(problem: Problem, bound: Bound) -> Supply:
    kinds = tuple(one.hardware for one in problem.classes) or ("",)
    return Supply(problem.sizes(), kinds, bound.prices)


def _scale(bound: Bound, bidders: list[Bidder]) -> float:
    """What gaps are relative to: the bound; where gains and losses cancel, one option's worth."""
    starts = (abs(option.start) for bidder in bidders for option in bidder.options)
    return max(abs(bound.value), max(starts, default=0.0)) or 1.0


def _value(problem: Problem, counts: Mapping[int, Count]) -> float:
    return value(problem, _in_order(counts))


def _in_order(counts: Mapping[int, _Any]) -> list[_Any]:
    return [counts[index] for index in range(len(counts))]
