"""The optimum to within a gap, incumbent by incumbent: bound, heuristic, fixing, CBC on the rest.

With parts of nodes where one row alone is scarce, a knapsack takes the place of the last three.

Runs in the child process only (``child``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bftrainer_slurm.planner import bins
from bftrainer_slurm.planner.counts import CountModel
from bftrainer_slurm.planner.greedy import one_by_one, shares_at, with_rest
from bftrainer_slurm.planner.held_and_idle import divided, few_are_idle, undivided
from bftrainer_slurm.planner.knapsack import exact_counts
from bftrainer_slurm.planner.lagrangian import Bound, Relaxation
from bftrainer_slurm.planner.packing import Found, on_nodes, packed
from bftrainer_slurm.planner.problem import Problem, Share, value, worths
from bftrainer_slurm.planner.segments import Segment, groups_of

GAP = 1e-4  # of the objective
_OF_A_STAKE = 0.01  # how much the gap may cost the trainer with the smallest stake
_ROUNDING = 1e-12  # of the objective: smaller differences cannot be told apart


def incumbents(problem: Problem, time_limit_s: float) -> Iterator[Found]:
    """Yield plans, each better than the one before or proven; the last one is the best found."""
    deadline_s = time.monotonic() + time_limit_s
    if problem.in_parts:
        yield from _packed(problem, deadline_s)
    elif len(problem.classes) > 1 and few_are_idle(problem):
        halves = divided(problem)
        for found in _incumbents(halves, *_relaxed(halves), deadline_s):
            yield Found([undivided(share) for share in found.shares], found.optimal)
    else:
        for found in _incumbents(problem, *_relaxed(problem), deadline_s):
            yield Found(found.shares, found.optimal)


def _relaxed(problem: Problem) -> tuple[Relaxation, Bound]:
    relaxation = Relaxation(groups_of(problem), problem)
    return relaxation, relaxation.common_price()


def _packed(problem: Problem, deadline_s: float) -> Iterator[Found]:
    """The same on divided nodes: counts, and then the nodes for them.

    No plan is worth more than the bound of the counts. In small problems it is seldom reached.
    """
    best: Found | None = None
    bound, few = -math.inf, bins.pairs(problem) <= bins.FEW_PAIRS
    relaxation, common = _relaxed(problem)
    for found in _incumbents(problem, relaxation, common, deadline_s):
        tried = packed(problem, found.shares)
        if found.bound is not None:
            bound = found.bound
        if best is None or value(problem, tried.shares) > value(problem, best.shares):
            best = tried
            yield best
        if few:
            break
    assert best is not None
    reached = value(problem, best.shares)
    gap = GAP * max(abs(bound), abs(reached))
    proven = bound <= reached + gap
    left_s = deadline_s - time.monotonic()
    if not proven and left_s > 0 and bins.pairs(problem) <= bins.MOST_PAIRS:
        pieces = pieces_of(relaxation, common, common.worth - reached + gap)
        nodes, proven = bins.solve(problem, pieces, GAP * abs(reached), left_s)
        if nodes is not None:
            tried = on_nodes(problem, nodes)
            # Of several that are worth as much the last one counts: a packing takes what lasts.
            every = packed(problem, tried.shares), tried, best
            best = max(every, key=lambda one: value(problem, one.shares))
    yield replace(best, optimal=proven, bound=None if proven else bound)


def pieces_of(relaxation: Relaxation, bound: Bound, most_loss: float) -> list[list[Segment]]:
    """Return the segments of each trainer that lose no more than this."""
    found: dict[int, list[Segment]] = {}
    for at, places in relaxation.kept(bound, most_loss).items():
        group, first = relaxation.groups[at], int(relaxation.first[at])
        pieces = [group.segments[place - first] for place in places]
        found |= dict.fromkeys(group.members, pieces)
    return [found[member] for member in sorted(found)]


def _incumbents(
    problem: Problem, relaxation: Relaxation, bound: Bound, deadline_s: float
) -> Iterator[Found]:
    singles = one_by_one(problem, relaxation)
    shares = shares_at(problem, singles, bound.prices)
    loss, gap = _loss(problem, relaxation, bound, shares), _gap(relaxation, bound)
    yield Found(shares, loss <= gap, bound=bound.worth)
    if loss > gap and bound.worth - bound.least > gap / 10:
        other = relaxation.bound_at(CountModel(relaxation, bound, loss).prices())
        if other.worth < bound.worth:
            bound, tried = other, shares_at(problem, singles, other.prices)
            shares = max(shares, tried, key=lambda one: value(problem, one))
            loss = _loss(problem, relaxation, bound, shares)
            yield Found(shares, loss <= gap, bound=bound.worth)
    if loss <= gap:
        return
    if problem.in_parts and (exact := exact_counts(problem, relaxation, bound, loss)) is not None:
        yield Found(exact, True, bound=value(problem, exact))
        return
    answer = CountModel(relaxation, bound, loss).solve(gap, deadline_s - time.monotonic())
    if answer.shares is not None:
        found = [answer.shares[index] for index in range(len(shares))]
        found = with_rest(problem, singles, found)  # CBC cannot see very small values
        better = _loss(problem, relaxation, bound, found)
        if better < loss:
            shares, loss = found, better
    proven = loss <= answer.least_loss + gap * (1 + 1e-6)
    yield Found(shares, proven, bound=bound.worth - answer.least_loss)


def _loss(problem: Problem, relaxation: Relaxation, bound: Bound, shares: list[Share]) -> float:
    """A plan's distance from the bound, trainer by trainer: huge ones must not hide small ones."""
    taken, worth = np.array(shares, np.float64), np.array(worths(problem, shares))
    best = np.empty_like(worth)
    for group, net in zip(relaxation.groups, bound.choices.net.tolist(), strict=True):
        best[list(group.members)] = net
    lost = np.maximum(0.0, best - (worth - taken @ relaxation.prices_of(bound.prices)))
    unused = relaxation.left(taken) * bound.prices
    return math.fsum([*lost.tolist(), *unused.tolist()])


def _gap(relaxation: Relaxation, bound: Bound) -> float:
    """By how much a plan may miss the optimum, and still count as one."""
    stakes = [group.stake for group in relaxation.groups]
    total = max(abs(bound.worth), *stakes)
    least = min((stake for stake in stakes if stake > _ROUNDING * total), default=0.0)
    return max(min(GAP * total, _OF_A_STAKE * least), _ROUNDING * total)
