"""The core problem as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``), because CBC is native code. It uses no SOS sets and no
callbacks, which crash python-mip 2.0.0. Each concave segment has an integer: how many of the
group's members take it. Given those, the nodes of each class are a flow, whose corners are whole
numbers. So nothing else is an integer, and the relaxation is as tight as the Lagrangian bound.
(With parts of nodes it is no flow: elements of several sizes share rows. Then the nodes of each
class are integers too.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import mip
from mip.cbc import cbc_set_parameter

from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.core import ConcaveSegment, CoreGroup, Stretch
from bftrainer_slurm.planner.problem import Share


@dataclass(frozen=True, slots=True)
class Supply:
    """The rows: how much there is of each, and what one costs at the bound.

    ``kinds`` are of the rows. ``uses`` is what an element takes of which rows, by its own row.
    """

    amounts: tuple[float, ...]
    kinds: tuple[str, ...]
    prices: tuple[float, ...]
    uses: Sequence[Sequence[tuple[int, float]]]

    @property
    def is_flow(self) -> bool:
        """Whether each element takes one of one row."""
        return all(len(rows) <= 1 and all(taken == 1 for _, taken in rows) for rows in self.uses)


@dataclass(frozen=True, slots=True)
class Answer:
    """CBC's result for a core: each trainer's share by its place, proven the best or not.

    None means that no plan loses so little, or, if not proven, that none was found.
    """

    shares: dict[int, Share] | None
    optimal: bool


@dataclass(frozen=True, slots=True)
class _Choice:
    """A segment in the model: how many take it, and what they have beyond its ``low``, by row."""

    segment: ConcaveSegment
    takers: mip.Var
    extras: dict[int, mip.LinExpr]


@dataclass(slots=True)
class _Build:
    """A model in the making; losses are in its ``unit``."""

    model: mip.Model
    unit: float
    supply: Supply
    used: list[mip.LinExpr]
    losses: mip.LinExpr = field(default_factory=mip.LinExpr)

    def use(self, place: int, elements: mip.LinExpr) -> None:
        """Take so many elements of the row at this place."""
        for row, taken in self.supply.uses[place]:
            self.used[row].add_expr(elements, taken)

    def use_share(self, share: Share, takers: mip.Var | None, count: int = 1) -> None:
        """Take this share as often as ``takers`` says, or else ``count`` times."""
        for place, number in enumerate(share):
            for row, taken in self.supply.uses[place] if number else ():
                if takers is None:
                    self.used[row].add_const(count * number * taken)
                else:
                    self.used[row].add_var(takers, number * taken)


def solve_core(
    groups: Sequence[CoreGroup], supply: Supply, most_loss: float, gap: float, limit_s: float
) -> Answer:
    """Find the plan of the least loss, at most ``most_loss``, to within ``gap``."""
    build = _Build(_model(), most_loss / SCALE, supply, [mip.LinExpr() for _ in supply.amounts])
    build.model.max_mip_gap_abs = gap / build.unit
    shares = {member: low for group in groups for member, low in _settled(build, group)}
    groups = [group for group in groups if group.members[0] not in shares]
    chosen = [_add_group(build, group) for group in groups]
    _add_tallies(build.model, supply.kinds, [choice for choices in chosen for choice in choices])
    for count, size, price in zip(build.used, supply.amounts, supply.prices, strict=True):
        unused = build.model.add_var(ub=size)
        build.losses.add_var(unused, price / build.unit)
        build.model += count + unused == size
    build.model.objective = build.losses
    build.model.cutoff = 1.01 * SCALE - build.losses.const
    status = build.model.optimize(max_seconds=max(0.05, limit_s))
    if build.model.num_solutions == 0:
        return Answer(None, status is mip.OptimizationStatus.INFEASIBLE)
    for group, choices in zip(groups, chosen, strict=True):
        shares.update(zip(group.members, _shares(choices), strict=True))
    return Answer(shares, status is mip.OptimizationStatus.OPTIMAL)


def _model() -> mip.Model:
    model = new_model(mip.MINIMIZE)
    model.max_mip_gap = 0.0
    # There is little to gain before branching: the bound is tight, and a good plan is known.
    model.cuts = model.preprocess = model.pump_passes = model.clique = 0
    cbc_set_parameter(model.solver, "heuristicsOnOff", "off")
    return model


def _settled(build: _Build, group: CoreGroup) -> list[tuple[int, Share]]:
    """The nodes of trainers with one remaining share: a constant of the model, not a column."""
    only = group.segments[0]
    if len(group.segments) > 1 or only.steps or only.rooms:
        return []
    build.use_share(only.low, None, len(group.members))
    build.losses.add_const(len(group.members) * only.loss / build.unit)
    return [(member, only.low) for member in group.members]


def _add_group(build: _Build, group: CoreGroup) -> list[_Choice]:
    """Add trainers that are alike: they are divided among their segments."""
    members = len(group.members)
    choices = [_add_segment(build, segment, members) for segment in group.segments]
    build.model += mip.xsum(choice.takers for choice in choices) == members
    for choice in choices:
        build.use_share(choice.segment.low, choice.takers)
        for place, extra in choice.extras.items():
            build.use(place, extra)
    return choices


def _add_segment(build: _Build, segment: ConcaveSegment, members: int) -> _Choice:
    takers = build.model.add_var(var_type=mip.INTEGER, ub=members)
    build.losses.add_var(takers, segment.loss / build.unit)
    beyond = segment.least - sum(segment.low)
    extra = mip.LinExpr()
    if beyond:
        extra.add_var(takers, beyond)
    for step in segment.steps:
        extra.add_var(_add_stretch(build, step, takers, members))
    if len(segment.rooms) == 1:
        return _Choice(segment, takers, {segment.rooms[0].place: extra})
    extras = {room.place: 1 * _add_stretch(build, room, takers, members) for room in segment.rooms}
    if extras:
        build.model += mip.xsum(extras.values()) == extra
    return _Choice(segment, takers, extras)


def _add_stretch(build: _Build, stretch: Stretch, takers: mip.Var, members: int) -> mip.Var:
    kind = mip.CONTINUOUS if build.supply.is_flow else mip.INTEGER
    nodes = build.model.add_var(ub=stretch.nodes * members, var_type=kind)
    build.model += nodes <= stretch.nodes * takers
    build.losses.add_var(nodes, stretch.loss / build.unit)
    return nodes


def _add_tallies(model: mip.Model, kinds: Sequence[str], choices: Sequence[_Choice]) -> None:
    """Make the number of trainers that take about this size an integer: in all, and by kind.

    This adds nothing to the model but a variable to branch on. With many nearly equal trainers, it
    changes little which of them takes another size, but much how many do.
    (300 trainers, 10,000 nodes: 0.1 s in place of more than 3 s.)
    """
    tallies: dict[object, list[mip.Var]] = defaultdict(list)
    for choice in choices:
        segment = choice.segment
        size, places = segment.most.bit_length(), segment.places
        kind = sorted({kinds[place] for place in places})
        stays = "changes" if choice.segment.rooms else "stays"
        sums = (size,), (size, *kind), (size, places), (stays,), (stays, *kind)
        for tally in dict.fromkeys(sums):  # in the same order in each process, as CBC's choices are
            tallies[tally].append(choice.takers)
    for takers in tallies.values():
        if len(takers) > 1:
            tally = model.add_var(var_type=mip.INTEGER)
            model += mip.xsum(takers) == tally


def _shares(choices: Sequence[_Choice]) -> list[Share]:
    """Each member's share: a segment's extra nodes are dealt out in turn, class by class.

    So members with the same segment differ by at most one node, in all and of each class.
    """
    shares = []
    for choice in choices:
        takers = round(choice.takers.x)
        dealt = [list(choice.segment.low) for _ in range(takers)]
        units = [place for place, extra in choice.extras.items() for _ in range(round(extra.x))]
        for turn, place in enumerate(units):
            dealt[turn % takers][place] += 1
        shares += [tuple(share) for share in dealt]
    return shares
