"""The core of a problem as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``): CBC is native code. No SOS sets: python-mip 2.0.0
crashes on them. Each option has an integer, how many of the bidder's members take it; given those,
the nodes of each class are a flow, whose corners are whole numbers. So nothing else is an integer,
and the linear relaxation is as tight as the bound by prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mip

from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.core import Cut, Seat

# CBC's tolerances are absolute: the model counts losses in units in which the most is this.
_SCALE = 1000.0


@dataclass(frozen=True, slots=True)
class _Choice:
    """An option in the model: how many take it, and the nodes above its least of each class."""

    cut: Cut
    takers: mip.Var
    extras: dict[int, mip.Var]


@dataclass(frozen=True, slots=True)
class Answer:
    """What CBC found: each contender's share, by its place (None: nothing), proven or not."""

    shares: dict[int, Share] | None
    optimal: bool


def solve_core(
    seats: Sequence[Seat],
    sizes: Share,
    prices: tuple[float, ...],
    most_loss: float,
    gap: float,
    limit_s: float,
) -> Answer:
    """Find the plan of the least loss, at most ``most_loss``, to within ``gap``."""
    unit = most_loss / _SCALE
    model = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 1
    model.max_mip_gap = 0.0
    model.max_mip_gap_abs = gap / unit
    # There is little to gain before branching: the bound is tight, and a good plan is known.
    model.cuts = model.preprocess = model.pump_passes = model.clique = 0
    model.cutoff = 1.01 * _SCALE
    used = [mip.LinExpr() for _ in sizes]
    losses = mip.LinExpr()
    choices = [_add_seat(model, seat, used, losses, unit) for seat in seats]
    for count, size, price in zip(used, sizes, prices, strict=True):
        unused = model.add_var(ub=size)
        losses.add_var(unused, price / unit)
        model += count + unused == size
    model.objective = losses
    status = model.optimize(max_seconds=max(0.05, limit_s))
    if model.num_solutions == 0:
        return Answer(None, status is mip.OptimizationStatus.INFEASIBLE)
    shares: dict[int, Share] = {}
    for seat, chosen in zip(seats, choices, strict=True):
        shares.update(zip(seat.members, _shares(chosen), strict=True))
    return Answer(shares, status is mip.OptimizationStatus.OPTIMAL)


def _add_seat(
    model: mip.Model, seat: Seat, used: list[mip.LinExpr], losses: mip.LinExpr, unit: float
) -> list[_Choice]:
    """Add contenders who are alike: they are shared out among their options."""
    members = len(seat.members)
    choices = [_add_cut(model, cut, members, used, losses, unit) for cut in seat.cuts]
    model += mip.xsum(choice.takers for choice in choices) == members
    return choices


def _add_cut(
    model: mip.Model,
    cut: Cut,
    members: int,
    used: list[mip.LinExpr],
    losses: mip.LinExpr,
    unit: float,
) -> _Choice:
    takers = model.add_var(var_type=mip.INTEGER, ub=members)
    losses.add_var(takers, cut.loss / unit)
    extras = {}
    for place, (low, high) in enumerate(zip(cut.low, cut.high, strict=True)):
        if low:
            used[place].add_var(takers, low)
        if high > low:
            extra = model.add_var(ub=(high - low) * members)
            model += extra <= (high - low) * takers
            used[place].add_var(extra)
            losses.add_var(extra, cut.losses[place] / unit)
            extras[place] = extra
    low, high = sum(cut.low), sum(cut.high)
    if low < cut.least:
        model += mip.xsum(extras.values()) >= (cut.least - low) * takers
    if high > cut.most:
        model += mip.xsum(extras.values()) <= (cut.most - low) * takers
    return _Choice(cut, takers, extras)


def _shares(choices: Sequence[_Choice]) -> list[Share]:
    """What each member takes: an option's extra nodes, class by class, are dealt out in turn.

    So no two members who take the same option differ by more than one node, in all and of a class.
    """
    shares = []
    for choice in choices:
        takers = round(choice.takers.x)
        dealt = [list(choice.cut.low) for _ in range(takers)]
        units = [place for place, extra in choice.extras.items() for _ in range(round(extra.x))]
        for turn, place in enumerate(units):
            dealt[turn % takers][place] += 1
        shares += [tuple(share) for share in dealt]
    return shares
