"""All that the trainers can have, as straight options: any curve, costs, and classes of nodes.

Where an option is chosen, what is left to say is how many nodes of each class: a linear matter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass

from bftrainer_slurm.planner import classes as by_class
from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.contender import Contender
from bftrainer_slurm.planner.problem import Problem


@dataclass(frozen=True, slots=True)
class Option:
    """Sizes from ``least`` to ``most``: worth ``start`` at least, and ``slope`` a node more.

    Of each class there are ``low`` to ``high`` nodes in it.
    """

    least: int
    most: int
    start: float
    slope: float
    low: Share
    high: Share


@dataclass(frozen=True, slots=True)
class Bidder:
    """Contenders that are alike in all that counts, and what each of them can have.

    ``members`` are their places in the problem; ``charges`` is what a node loses by its class.
    The first option is to have none; who ``stands_in`` is a spare then.
    """

    members: tuple[int, ...]
    options: tuple[Option, ...]
    charges: tuple[float, ...]
    stands_in: bool


@dataclass(frozen=True, slots=True)
class _Region:
    """Classes that a trainer's nodes may be of together, and its throughput factor on them."""

    factor: float
    high: Share


def worth_of(option: Option, size: int) -> float:
    """What this many nodes of the option are worth; their charges come on top."""
    return option.start + option.slope * (size - option.least)


def bidders_of(problem: Problem) -> list[Bidder]:
    """Return everyone who wants nodes, those that are alike as one."""
    alike: dict[object, list[int]] = defaultdict(list)
    for index, contender in enumerate(problem.contenders):
        alike[_nature(problem, contender)].append(index)
    return [_bidder(problem, members) for members in alike.values()]


def _nature(problem: Problem, contender: Contender) -> object:
    return (
        contender.min_nodes,
        contender.max_nodes,
        problem.now(contender),
        contender.curve,
        contender.rescale_up_s,
        contender.rescale_down_s,
        contender.paused_s,
        contender.start_cost,
        contender.stands_in,
        tuple(sorted(contender.hardware.items())),
        contender.spread,
        contender.barred,
    )


def _bidder(problem: Problem, members: list[int]) -> Bidder:
    contender, sizes = problem.contenders[members[0]], problem.sizes()
    none = (0,) * len(sizes)
    offers = _Offers(problem, contender, problem.now(contender))
    if not problem.classes:
        nothing = problem.worth(contender, 0)
        options = [Option(0, 0, nothing, 0.0, none, none), *offers.on(_Region(1.0, sizes))]
        return Bidder(tuple(members), tuple(options), (0.0,), contender.stands_in)
    options = [Option(0, 0, problem.worth(contender, none), 0.0, none, none)]
    for region in _regions(problem, contender):
        options += offers.on(region)
    charges = by_class.charges(contender, problem.classes, problem.forward_time_s)
    return Bidder(tuple(members), tuple(options), charges, contender.stands_in)


def _regions(problem: Problem, contender: Contender) -> Iterator[_Region]:
    """Nodes are of one kind; on one switch they bring more than on several."""
    for kind in dict.fromkeys(one.hardware for one in problem.classes):
        if contender.hardware and kind not in contender.hardware:
            continue
        factor = by_class.factor_on(contender, [kind])
        there = {
            index: one.switch
            for index, one in enumerate(problem.classes)
            if one.hardware == kind and one.name not in contender.barred
        }
        places = sorted(set(there.values()))
        spread = contender.spread if len(places) > 1 else 1.0
        yield _Region(factor * spread, _sizes(problem, there.keys()))
        if spread < 1:
            for place in places:
                here = {index for index, switch in there.items() if switch == place}
                yield _Region(factor, _sizes(problem, here))


def _sizes(problem: Problem, indices: Set[int]) -> Share:
    return tuple(
        len(one.nodes) if index in indices else 0 for index, one in enumerate(problem.classes)
    )


@dataclass(frozen=True, slots=True)
class _Offers:
    """The options of one contender, who has ``now``."""

    problem: Problem
    contender: Contender
    now: Share

    def on(self, region: _Region) -> Iterator[Option]:
        """What it can have there. Nothing migrates: shrinking keeps a part, growing everything."""
        total, none = sum(self.now), (0,) * len(self.now)
        least, most = self.contender.min_nodes, min(self.contender.max_nodes, sum(region.high))
        kept = tuple(map(min, self.now, region.high))
        yield from self._straight(region, least, min(most, sum(kept), total - 1), none, kept)
        if kept != self.now:
            return  # it has nodes elsewhere
        if least <= total <= most:
            yield from self._straight(region, total, total, kept, kept)
        yield from self._straight(region, max(least, total + 1), most, kept, region.high)

    def _straight(
        self, region: _Region, least: int, most: int, low: Share, high: Share
    ) -> Iterator[Option]:
        """Cut at the curve's points."""
        inner = (size for size in self.contender.curve.nodes if least < size < most)
        corners = [(size, self._worth(region, size)) for size in (least, *inner, most)]
        if least == most:
            yield Option(least, most, corners[0][1], 0.0, low, high)
        elif least < most:
            for (x0, y0), (x1, y1) in itertools.pairwise(corners):
                yield Option(x0, x1, y0, (y1 - y0) / (x1 - x0), low, high)

    def _worth(self, region: _Region, count: int) -> float:
        problem = self.problem
        rate = self.contender.curve.at(sum(self.now))
        if problem.classes:
            rate = by_class.rate(self.contender, self.now, problem.classes)
        terms = self.contender.terms(count, rate, problem.forward_time_s, problem.costs)
        return terms.seconds * region.factor * self.contender.curve.at(count) - terms.cost
