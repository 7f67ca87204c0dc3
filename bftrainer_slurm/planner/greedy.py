"""A plan without a solver: everyone's best at prices of nodes, as far as nodes last.

A Lagrangian heuristic: the solver's first incumbent, and the plan where there is no solver.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bftrainer_slurm.planner.lagrangian import Reals, Relaxation
from bftrainer_slurm.planner.problem import Problem, Share, feasible, value
from bftrainer_slurm.planner.segments import Group, groups_of

_ROUNDING = 1e-9  # relative, of what one more node brings
_A_LITTLE_MORE = 1 + 1e-6  # so that of two sizes that are as good everyone takes the smaller


def heuristic_shares(problem: Problem, groups: list[Group], prices: Reals) -> list[Share]:
    """Return a feasible plan that is no worse than to change nothing."""
    singles = [replace(one, members=(member,)) for one in groups for member in one.members]
    relaxation = Relaxation(singles, problem.sizes())
    shares = _with_rest(relaxation, *_by_price(relaxation, prices * _A_LITTLE_MORE))
    found = {one.members[0]: share for one, share in zip(singles, shares.tolist(), strict=True)}
    plan = [tuple(map(int, found[index])) for index in range(len(singles))]
    now = [problem.now(one) for one in problem.contenders]
    if feasible(problem, now) and value(problem, now) >= value(problem, plan):
        return now
    return plan


def greedy_shares(problem: Problem) -> list[Share]:
    """Return such a plan at one price for all classes, at which about all nodes are taken."""
    if not problem.contenders:
        return []
    groups = groups_of(problem)
    relaxation = Relaxation(groups, problem.sizes())
    return heuristic_shares(problem, groups, relaxation.common_price())


def _by_price(relaxation: Relaxation, prices: Reals) -> tuple[Reals, Reals]:
    """Who has most left after paying is first to choose: what each gets, and what that is worth."""
    left = relaxation.sizes.copy()
    shares = np.zeros((len(relaxation.groups), len(left)))
    worth = np.zeros(len(shares))
    waiting = np.ones(len(shares), bool)
    while waiting.any():
        choices = relaxation.choose(prices, np.broadcast_to(left, shares.shape))
        for one in (-choices.net).argsort(kind="stable"):
            if waiting[one] and (choices.shares[one] <= left).all():
                shares[one], worth[one] = choices.shares[one], choices.worth[one]
                left -= shares[one]
                waiting[one] = False
    return shares, worth


def _with_rest(relaxation: Relaxation, shares: Reals, worth: Reals) -> Reals:
    """Give the rest to whoever gains most by each node, as long as somebody gains."""
    left = relaxation.sizes - shares.sum(axis=0)
    free = np.zeros(len(left))
    while left.any():
        choices = relaxation.choose(free, shares + left)
        gains = choices.worth - worth
        gains[gains <= _ROUNDING * np.abs(worth)] = 0.0
        rates = gains / (choices.shares - shares).sum(axis=1).clip(1.0)
        one = int(rates.argmax())
        if rates[one] <= 0:
            break
        left = left + shares[one] - choices.shares[one]
        shares[one], worth[one] = choices.shares[one], choices.worth[one]
    return shares
