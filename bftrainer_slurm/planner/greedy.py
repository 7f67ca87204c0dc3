"""Plans without a solver: each trainer's best size at some prices, as far as there are nodes.

This Lagrangian heuristic is the solver's first incumbent, and the plan if there is no solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bftrainer_slurm.planner.lagrangian import Reals, Relaxation
from bftrainer_slurm.planner.problem import Problem, Share, feasible, value, worths
from bftrainer_slurm.planner.segments import groups_of
from bftrainer_slurm.planner.supply import ROUNDING

_ROUNDING = 1e-9  # relative, of a trainer's gain
_A_LITTLE_MORE = 1 + 1e-6  # so that trainers take the smaller of two sizes that are equally good


def greedy_shares(problem: Problem) -> list[Share]:
    """Return a plan at one price for all classes, at which nearly all nodes are taken."""
    if not problem.trainers:
        return []
    relaxation = Relaxation(groups_of(problem), problem)
    return shares_at(problem, one_by_one(problem, relaxation), relaxation.common_price().prices)


def one_by_one(problem: Problem, relaxation: Relaxation) -> Relaxation:
    """Return the relaxation with a group for each trainer, in their order."""
    singles = [replace(one, members=(at,)) for one in relaxation.groups for at in one.members]
    if len(singles) == len(relaxation.groups):
        return relaxation  # groups come in the order of their first members
    return Relaxation(sorted(singles, key=lambda one: one.members), problem)


def shares_at(problem: Problem, singles: Relaxation, prices: Reals) -> list[Share]:
    """Return a plan close to the trainers' choices at these prices, or to what they have now."""
    now = [problem.now(one) for one in problem.trainers]
    shares = with_rest(problem, singles, _first_come(singles, now, prices * _A_LITTLE_MORE))
    if not feasible(problem, now):
        return shares
    more = with_rest(problem, singles, now)
    return more if value(problem, more) >= value(problem, shares) else shares


def with_rest(problem: Problem, singles: Relaxation, shares: Sequence[Share]) -> list[Share]:
    """Give each idle node to the trainer that gains most from it, as long as one gains."""
    taken, worth = np.array(shares, np.float64), np.array(worths(problem, shares))
    left = singles.left(taken)
    free, per_unit = np.zeros(len(left)), singles.per_unit()
    wanted, more = np.full_like(taken, np.inf), np.zeros_like(taken)
    reached, rates = np.zeros_like(worth), np.zeros_like(worth)
    while left.any():
        there = taken + singles.elements_in(left)
        # If there is only less, what was the best choice stays it, as long as it is there.
        gone = np.array((wanted > there).any(axis=1))
        if gone.any():
            choices, had = singles.only(gone).choose(free, there[gone]), worth[gone]
            wanted[gone], reached[gone] = choices.shares, choices.worth
            more[gone] = its = singles.taken(choices.shares - taken[gone])
            gains = np.where(choices.worth - had > _ROUNDING * np.abs(had), choices.worth - had, 0)
            rates[gone] = gains / (its @ per_unit).clip(1.0)
        possible = rates * (more <= left + ROUNDING).all(axis=1)
        one = int(possible.argmax())
        if possible[one] <= 0:
            break
        left -= more[one]
        taken[one], worth[one] = wanted[one], reached[one]
        wanted[slice(None) if (more[one] < 0).any() else one] = np.inf
    return [tuple(share) for share in taken.astype(int).tolist()]


def _first_come(singles: Relaxation, now: Sequence[Share], prices: Reals) -> list[Share]:
    """Each trainer's choice from the remaining nodes; the one with most worth chooses first.

    No trainer may take nodes that others have and want to keep.
    """
    kept = np.minimum(np.array(now, np.float64), singles.choose(prices).shares)
    left = singles.left(kept)
    shares = np.zeros_like(kept)
    waiting = np.ones(len(kept), bool)
    fits = True
    while waiting.any():
        before = waiting.sum()
        choices = singles.choose(prices, kept + singles.elements_in(left) if fits else kept)
        more = singles.taken(choices.shares - kept)
        for one in (-choices.net).argsort(kind="stable"):
            if waiting[one] and (more[one] <= left.clip(0.0) + ROUNDING).all():
                shares[one] = choices.shares[one]
                left -= more[one]
                waiting[one] = False
        fits = waiting.sum() < before  # each row has room for some, but not all rows at once
    return [tuple(share) for share in shares.astype(int).tolist()]
