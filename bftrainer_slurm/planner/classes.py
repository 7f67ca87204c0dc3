"""Classes of nodes: hardware, switch and expected end; what a trainer's share of each is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bftrainer_slurm.planner.contender import Contender, Costs


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that are alike; ``life_s`` is how long their holes are expected to last."""

    name: str
    nodes: frozenset[str]
    hardware: str = ""
    switch: str = ""
    life_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.life_s >= 0:
            raise ValueError(f"class {self.name}: life_s must be 0 s or more")


Classes: TypeAlias = Sequence[NodeClass]
Share: TypeAlias = tuple[int, ...]  # how many nodes of each class


def share_of(nodes: frozenset[str], classes: Classes) -> Share:
    """How many of these nodes are of each class."""
    return tuple(len(nodes & one.nodes) for one in classes)


def factor_on(contender: Contender, kinds: Iterable[str]) -> float:
    """The throughput factor on this hardware: that of the slowest, 0 where it cannot run."""
    if not contender.hardware:
        return 1.0
    return min((contender.hardware.get(kind, 0.0) for kind in kinds), default=1.0)


def allows(contender: Contender, now: Share, share: Share, classes: Classes) -> bool:
    """Whether it can have this share in place of what it has now.

    Its nodes are all of one kind that it can use, of no class that it is barred from, and none of
    them migrates.
    """
    used = [one for one, count in zip(classes, share, strict=True) if count]
    kinds = {one.hardware for one in used}
    if min(share) < 0 or not contender.allows(sum(share)) or len(kinds) > 1:
        return False
    if any(one.name in contender.barred for one in used):
        return False
    if contender.hardware and not contender.hardware.keys() >= kinds:
        return False
    pairs = list(zip(now, share, strict=True))
    if sum(share) > sum(now):
        return all(had <= has for had, has in pairs)
    return share == now or (sum(share) < sum(now) and all(had >= has for had, has in pairs))


def rate(contender: Contender, share: Share, classes: Classes) -> float:
    """What this share brings a second."""
    used = [one for one, count in zip(classes, share, strict=True) if count]
    factor = factor_on(contender, {one.hardware for one in used})
    if len({one.switch for one in used}) > 1:
        factor *= contender.spread
    return factor * contender.curve.at(sum(share))


def charges(contender: Contender, classes: Classes, forward_s: float) -> tuple[float, ...]:
    """What each node of a class is expected to lose because its hole ends, by class.

    The life L of a hole is exponential. A node brings nothing once it has gone, which is for
    T - L (1 - exp(-T / L)) of the forward time T; and with probability 1 - exp(-T / L) the trainer
    shrinks. Both count with what one of max(current, minimum) nodes brings on that hardware.
    """
    nodes = max(len(contender.current), contender.min_nodes)
    share = contender.curve.at(nodes) / nodes
    found = []
    for one in classes:
        lost_s = _lost_s(one.life_s, forward_s, contender.rescale_down_s)
        found.append(lost_s * share * factor_on(contender, [one.hardware]))
    return tuple(found)


def worth(
    contender: Contender,
    now: Share,
    share: Share,
    classes: Classes,
    forward_s: float,
    costs: Costs,
) -> float:
    """What this share brings over the forward time, rescaling and expected ends paid."""
    terms = contender.terms(sum(share), rate(contender, now, classes), forward_s, costs)
    ends = charges(contender, classes, forward_s)
    lost = sum(count * charge for count, charge in zip(share, ends, strict=True))
    return terms.seconds * rate(contender, share, classes) - terms.cost - lost


def _lost_s(life_s: float, forward_s: float, rescale_s: float) -> float:
    if math.isinf(life_s):
        return 0.0
    ends = -math.expm1(-forward_s / life_s) if life_s > 0 else 1.0
    return forward_s - life_s * ends + ends * rescale_s
