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
from bftrainer_slurm.planner.core import Seat
from bftrainer_slurm.planner.options import Option

# CBC's tolerances are absolute: the model counts losses in units in which the most is this.
_SCALE = 1000.0


@dataclass(frozen=True, slots=True)
class _Choice:
    """An option in the model: how many take it, and the nodes above its least of each class."""

    option: Option
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
        shares.update(zip(seat.bidder.members, _shares(chosen), strict=True))
    return Answer(shares, status is mip.OptimizationStatus.OPTIMAL)


def _add_seat(
    model: mip.Model, seat: Seat, used: list[mip.LinExpr], losses: mip.LinExpr, unit: float
) -> list[_Choice]:
    """Add one bidder: its members are shared out among its options."""
    members = len(seat.bidder.members)
    choices = [_add_option(model, seat, option, used, losses, unit) for option in seat.options]
    model += mip.xsum(choice.takers for choice in choices) == members
    return choices


def _add_option(
    model: mip.Model,
    seat: Seat,
    option: Option,
    used: list[mip.LinExpr],
    losses: mip.LinExpr,
    unit: float,
) -> _Choice:
    members, low = len(seat.bidder.members), sum(option.low)
    takers = model.add_var(var_type=mip.INTEGER, ub=members)
    gains = [option.slope - cost for cost in seat.costs]  # of a node more, by class
    at_low = option.start + option.slope * (low - option.least)
    paid = sum(count * cost for count, cost in zip(option.low, seat.costs, strict=True))
    losses.add_var(takers, (seat.best - at_low + paid) / unit)
    extras = {}
    for place, (least, most) in enumerate(zip(option.low, option.high, strict=True)):
        if least:
            used[place].add_var(takers, least)
        if most > least:
            extra = model.add_var(ub=(most - least) * members)
            model += extra <= (most - least) * takers
            used[place].add_var(extra)
            losses.add_var(extra, -gains[place] / unit)
            extras[place] = extra
    if low < option.least:
        model += mip.xsum(extras.values()) >= (option.least - low) * takers
    if sum(option.high) > option.most:
        model += mip.xsum(extras.values()) <= (option.most - low) * takers
    return _Choice(option, takers, extras)


def _shares(choices: Sequence[_Choice]) -> list[Share]:
    """What each member takes: an option's extra nodes, class by class, are dealt out in turn.

    So no two members who take the same option differ by more than one node, in all and of a class.
    """
    shares = []
    for choice in choices:
        takers = round(choice.takers.x)
        dealt = [list(choice.option.low) for _ in range(takers)]
        units = [place for place, extra in choice.extras.items() for _ in range(round(extra.x))]
        for turn, place in enumerate(units):
            dealt[turn % takers][place] += 1
        shares += [tuple(share) for share in dealt]
    return shares
