"""The core of a problem as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``): CBC is native code. No SOS sets: python-mip 2.0.0
crashes on them. Each hill has an integer, how many of the bidder's members take it; given those,
the nodes of each class are a flow, whose corners are whole numbers. So nothing else is an integer,
and the linear relaxation is as tight as the bound by prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import mip
from mip.cbc import cbc_set_parameter

from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.core import Answer, Seat
from bftrainer_slurm.planner.hills import Hill, Stretch
from bftrainer_slurm.planner.spares import NO_SPARES, Spares

# CBC's tolerances are absolute: the model counts losses in units in which the most is this.
_SCALE = 1000.0


@dataclass(frozen=True, slots=True)
class _Choice:
    """A hill in the model: how many take it, and what they have beyond its least of each class."""

    hill: Hill
    takers: mip.Var
    extras: dict[int, mip.LinExpr]


@dataclass(frozen=True, slots=True)
class Supply:
    """The nodes by class: how many, of which kind, and what one costs at the bound."""

    sizes: Share
    kinds: tuple[str, ...]
    prices: tuple[float, ...]


def solve_core(
    seats: Sequence[Seat],
    supply: Supply,
    most_loss: float,
    gap: float,
    limit_s: float,
    spares: Spares = NO_SPARES,
) -> Answer:
    """Find the plan of the least loss, at most ``most_loss``, to within ``gap``."""
    unit = most_loss / _SCALE
    model = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 0  # with one of its own, CBC now and then waits for it for ever
    model.max_mip_gap = 0.0
    model.max_mip_gap_abs = gap / unit
    # There is little to gain before branching: the bound is tight, and a good plan is known.
    model.cuts = model.preprocess = model.pump_passes = model.clique = 0
    cbc_set_parameter(model.solver, "heuristicsOnOff", "off")
    model.cutoff = 1.01 * _SCALE
    used = [mip.LinExpr() for _ in supply.sizes]
    losses = mip.LinExpr()
    choices = [_add_seat(model, seat, used, losses, unit) for seat in seats]
    _add_tallies(model, supply.kinds, [choice for chosen in choices for choice in chosen])
    for count, size, price in zip(used, supply.sizes, supply.prices, strict=True):
        unused = model.add_var(ub=size)
        losses.add_var(unused, price / unit)
        model += count + unused == size
    if spares.worths:
        standing_in = [
            choice
            for seat, chosen in zip(seats, choices, strict=True)
            for choice in chosen
            if seat.stands_in
        ]
        _add_spares(model, spares, standing_in, losses, unit)
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
    """Add contenders who are alike: they are shared out among their hills."""
    members = len(seat.members)
    choices = [_add_hill(model, hill, members, losses, unit) for hill in seat.hills]
    model += mip.xsum(choice.takers for choice in choices) == members
    for choice in choices:
        for place, count in enumerate(choice.hill.low):
            used[place].add_var(choice.takers, count)
        for place, extra in choice.extras.items():
            used[place].add_expr(extra)
    return choices


def _add_hill(
    model: mip.Model, hill: Hill, members: int, losses: mip.LinExpr, unit: float
) -> _Choice:
    takers = model.add_var(var_type=mip.INTEGER, ub=members)
    losses.add_var(takers, hill.loss / unit)
    beyond = hill.least - sum(hill.low)
    extra = mip.LinExpr()
    if beyond:
        extra.add_var(takers, beyond)
    for step in hill.steps:
        extra.add_var(_add_stretch(model, step, takers, members, losses, unit))
    if len(hill.rooms) == 1:
        return _Choice(hill, takers, {hill.rooms[0].place: extra})
    extras = {
        room.place: 1 * _add_stretch(model, room, takers, members, losses, unit)
        for room in hill.rooms
    }
    if extras:
        model += mip.xsum(extras.values()) == extra
    return _Choice(hill, takers, extras)


def _add_stretch(
    model: mip.Model,
    stretch: Stretch,
    takers: mip.Var,
    members: int,
    losses: mip.LinExpr,
    unit: float,
) -> mip.Var:
    nodes = model.add_var(ub=stretch.nodes * members)
    model += nodes <= stretch.nodes * takers
    losses.add_var(nodes, stretch.loss / unit)
    return nodes


def _add_spares(
    model: mip.Model, spares: Spares, choices: Sequence[_Choice], losses: mip.LinExpr, unit: float
) -> None:
    """What spares bring less than the most they can: each gives its rebate back, has its worth.

    None is worth more than the one before, so that the first ones count first by themselves.
    """
    without = mip.xsum(choice.takers for choice in choices if choice.hill.most == 0)
    losses.add_const(spares.excess / unit)
    losses.add_expr(without, spares.rebate / unit)
    counted = [model.add_var(ub=1.0) for _ in spares.worths]
    for one, worth in zip(counted, spares.worths, strict=True):
        losses.add_var(one, -worth / unit)
    model += mip.xsum(counted) <= without


def _add_tallies(model: mip.Model, kinds: Sequence[str], choices: Sequence[_Choice]) -> None:
    """How many take about this size, or stay as they are, is a whole number: in all, and by kind.

    That adds nothing to the model but something to branch on: with many trainers who are nearly
    alike, that one of them takes another size changes little, that one more does changes much.
    (300 trainers, 10,000 nodes: 0.1 s in place of more than 3 s.)
    """
    tallies: dict[object, list[mip.Var]] = defaultdict(list)
    for choice in choices:
        size, places = choice.hill.most.bit_length(), choice.hill.places
        kind = sorted({kinds[place] for place in places})
        stays = "changes" if choice.hill.rooms else "stays"
        sums = (size,), (size, *kind), (size, places), (stays,), (stays, *kind)
        for tally in dict.fromkeys(sums):  # in the same order in each process, as CBC's choices are
            tallies[tally].append(choice.takers)
    for takers in tallies.values():
        if len(takers) > 1:
            tally = model.add_var(var_type=mip.INTEGER)
            model += mip.xsum(takers) == tally


def _shares(choices: Sequence[_Choice]) -> list[Share]:
    """What each member takes: a hill's extra nodes, class by class, are dealt out in turn.

    So no two members who take the same hill differ by more than one node, in all and of a class.
    """
    shares = []
    for choice in choices:
        takers = round(choice.takers.x)
        dealt = [list(choice.hill.low) for _ in range(takers)]
        units = [place for place, extra in choice.extras.items() for _ in range(round(extra.x))]
        for turn, place in enumerate(units):
            dealt[turn % takers][place] += 1
        shares += [tuple(share) for share in dealt]
    return shares
