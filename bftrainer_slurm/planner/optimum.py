"""The optimum, incumbent by incumbent: bound, heuristic, reduced-cost fixing, and CBC on the core.

With parts of nodes where one row alone is scarce, a knapsack takes the place of the last three.

Runs in the child process only (``child``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bftrainer_slurm.planner import bins
from bftrainer_slurm.planner.core import core_of
from bftrainer_slurm.planner.dual import Dual, solve_dual
from bftrainer_slurm.planner.greedy import one_by_one, shares_at, with_rest
from bftrainer_slurm.planner.held_and_idle import divided, few_are_idle, undivided
from bftrainer_slurm.planner.knapsack import TooLargeError, best_counts, scarce_row
from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.milp import Supply, solve_core
from bftrainer_slurm.planner.packing import Nodes, pack_most, shares_of
from bftrainer_slurm.planner.problem import Problem, Share, value
from bftrainer_slurm.planner.segments import groups_of
from bftrainer_slurm.planner.supply import ROUNDING

GAP = 1e-7  # of the objective; the recorded optima are met to 1e-6
_OF_A_STAKE = 1e-4  # how much the gap may cost the trainer with the smallest stake
_ROUNDING = 1e-12  # of the objective: smaller differences cannot be told apart
_FIRST_LOSS, _WIDER = 2e-5, 2.0  # of cores: of the bound, and times
_FEW_GROUPS = 20  # their whole core is small, as that of parts of nodes
_FIRST_LIMIT_S = 1.0  # CBC's time for a core; it doubles, and each result is sent before


@dataclass(frozen=True, slots=True)
class Found:
    """An incumbent: shares in the order of the trainers, proven the best or not."""

    shares: list[Share]
    optimal: bool
    nodes: list[Nodes] | None = None  # of each trainer, where nodes are divided
    bound: float | None = None  # no plan is worth more, where that is known and nothing is proven


def incumbents(problem: Problem, time_limit_s: float) -> Iterator[Found]:
    """Yield plans, each better than the one before or proven; the last one is the best found."""
    deadline_s = time.monotonic() + time_limit_s
    if problem.in_parts:
        yield from _packed(problem, deadline_s)
    elif len(problem.classes) > 1 and few_are_idle(problem):
        for found in _incumbents(divided(problem), deadline_s):
            yield Found([undivided(share) for share in found.shares], found.optimal)
    else:
        yield from _incumbents(problem, deadline_s)


def _packed(problem: Problem, deadline_s: float) -> Iterator[Found]:
    """The same on divided nodes: counts, and then the nodes for them.

    The best counts are worth at least as much as any plan. So a packing of them is the best plan.
    """
    best: Found | None = None
    reached = bound = -math.inf
    for found in _incumbents(problem, deadline_s):
        if found.optimal:
            bound = value(problem, found.shares)
        nodes = pack_most(problem, found.shares)
        packed = Found(shares_of(problem, nodes), False, nodes)
        worth = value(problem, packed.shares)
        if best is None or worth > reached:
            best, reached = packed, worth
            yield best
    assert best is not None
    gap = GAP * max(abs(bound), abs(reached))
    proven = -math.inf < bound <= reached + gap
    left_s = deadline_s - time.monotonic()
    if not proven and left_s > 0 and bins.pairs(problem) <= bins.MOST_PAIRS:
        tried, proven = bins.solve(problem, gap, left_s)
        shares = [] if tried is None else shares_of(problem, tried)
        if shares and value(problem, shares) > reached:
            best = Found(shares, False, tried)
    bounded = not proven and math.isfinite(bound)
    yield replace(best, optimal=proven, bound=bound if bounded else None)


def _incumbents(problem: Problem, deadline_s: float) -> Iterator[Found]:
    groups = groups_of(problem)
    relaxation = Relaxation(groups, problem)
    dual = solve_dual(relaxation, GAP / 10, deadline_s)
    exact = _exact(problem, relaxation, dual) if problem.in_parts else None
    if exact is not None:
        yield Found(exact, True)
        return
    singles = one_by_one(problem, relaxation)
    shares = shares_at(problem, singles, dual.prices)
    loss, gap = _loss(problem, relaxation, dual, shares), _gap(relaxation, dual)
    proven = loss <= gap
    yield Found(shares, proven)
    if proven:
        return
    few = problem.in_parts or len(groups) <= _FEW_GROUPS
    most_loss, limit_s = loss if few else _first_core(dual, loss), _FIRST_LIMIT_S
    while not proven and (left_s := deadline_s - time.monotonic()) > 0:
        core = core_of(relaxation, dual, most_loss)
        supply = _supply(problem, relaxation, dual)
        answer = solve_core(core, supply, most_loss, gap, min(limit_s, left_s))
        if answer.shares is not None:
            found = [answer.shares[index] for index in range(len(shares))]
            found = with_rest(problem, singles, found)  # CBC cannot see very small values
            better = _loss(problem, relaxation, dual, found)
            if better < loss:
                shares, loss = found, better
                yield Found(shares, False)
        # All sizes outside a core lose too much, so a proof for the core holds for all plans.
        proven = loss <= gap or (answer.optimal and loss <= most_loss + gap)
        if answer.optimal:
            most_loss *= _WIDER
        else:
            limit_s *= 2
        most_loss = min(loss, most_loss)
    yield Found(shares, proven)


def _exact(problem: Problem, relaxation: Relaxation, dual: Dual) -> list[Share] | None:
    """Return the best counts if one row alone is scarce, and they are not too many; else None.

    What one trainer loses all lose together: if counts are found that lose no more than each
    trainer might in the search, there are none better.
    """
    row = scarce_row(relaxation, dual)
    if row is None:
        return None
    most_loss, loss = _WIDER**2 * _FIRST_LOSS * abs(dual.bound), math.inf  # rounds are cheap here
    while most_loss < abs(dual.bound):
        try:
            found = best_counts(relaxation, dual, row, most_loss)
        except TooLargeError:
            return None
        if found is not None:
            loss = _loss(problem, relaxation, dual, found)
            if loss <= most_loss:
                left = relaxation.left(np.array(found, np.float64))
                return found if (left >= -ROUNDING).all() else None
        most_loss = min(loss, _WIDER**3 * most_loss)
    return None


def _first_core(dual: Dual, loss: float) -> float:
    """How much the first core may lose: a small core most often contains the optimum."""
    return min(loss, _FIRST_LOSS * abs(dual.bound) or loss)


def _loss(problem: Problem, relaxation: Relaxation, dual: Dual, shares: list[Share]) -> float:
    """A plan's distance from the bound, trainer by trainer: huge ones must not hide small ones."""
    taken = np.array(shares, np.float64)
    pairs = zip(problem.trainers, shares, strict=True)
    worth = np.array([problem.worth_of(trainer, share) for trainer, share in pairs])
    best = np.empty_like(worth)
    for group, net in zip(relaxation.groups, dual.choices.net.tolist(), strict=True):
        best[list(group.members)] = net
    lost = np.maximum(0.0, best - (worth - taken @ relaxation.prices_of(dual.prices)))
    unused = relaxation.left(taken) * dual.prices
    return math.fsum([*lost.tolist(), *unused.tolist()])


def _gap(relaxation: Relaxation, dual: Dual) -> float:
    """By how much a plan may miss the optimum, and still count as one."""
    stakes = [group.stake for group in relaxation.groups]
    total = max(abs(dual.bound), *stakes)
    least = min((stake for stake in stakes if stake > _ROUNDING * total), default=0.0)
    return max(min(GAP * total, _OF_A_STAKE * least), _ROUNDING * total)


def _supply(problem: Problem, relaxation: Relaxation, dual: Dual) -> Supply:
    classes = problem.all_classes()
    kinds = tuple(classes[row.place].hardware for row in relaxation.rows)
    uses = [
        [(row, taken) for row, taken in enumerate(rows) if taken]
        for rows in relaxation.uses.tolist()
    ]
    amounts = tuple(row.amount for row in relaxation.rows)
    return Supply(amounts, kinds, tuple(map(float, dual.prices)), uses)
