"""Another replay of the paper's model, which shares no code with the product: dictionaries,
sets, and a dynamic programme in place of the controller's loop and CBC.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.planner.exact import best_counts

Row = tuple[float, str, bool]  # time, node, whether a hole begins


@dataclass(slots=True)
class _Trainer:
    left: float
    nodes: set[str] = field(default_factory=set)
    paused_until_s: float = -1.0

    def pause(self, now_s: float, cost_s: float) -> None:
        self.paused_until_s = max(self.paused_until_s, now_s + cost_s)


@dataclass(frozen=True, slots=True)
class Kind:
    """Trainers that are alike: samples/s on 0, 1, 2, ... nodes, pauses in seconds, samples."""

    rate: NDArray[np.float64]
    up_s: float
    down_s: float
    total: float


def samples(
    rows: Sequence[Row], end_s: float, kind: Kind, at_once: int, forward_s: float | None
) -> float:
    """Return what endless such trainers reach; equal shares where there is no forward time."""
    pool: set[str] = set()
    trainers: list[_Trainer] = []
    reached, row, now_s = 0.0, 0, rows[0][0]
    while now_s < end_s:
        while row < len(rows) and rows[row][0] <= now_s:
            (pool.add if rows[row][2] else pool.discard)(rows[row][1])
            row += 1
        for one in trainers:
            if not one.nodes <= pool:
                one.nodes &= pool
                one.pause(now_s, kind.down_s)
        trainers = [one for one in trainers if one.left > 1e-3 * kind.rate[-1]]
        trainers += [_Trainer(kind.total) for _ in range(at_once - len(trainers))]
        _move(trainers, pool, kind, now_s, forward_s)
        ends_s = [
            max(now_s, one.paused_until_s) + max(0.0, one.left) / kind.rate[len(one.nodes)]
            for one in trainers
            if one.nodes
        ]
        next_s = min(end_s, rows[row][0] if row < len(rows) else end_s, *ends_s, end_s)
        next_s = max(next_s, now_s + 1e-6)
        for one in trainers:
            trained_s = max(0.0, next_s - max(now_s, one.paused_until_s))
            one.left -= trained_s * kind.rate[len(one.nodes)]
            reached += trained_s * kind.rate[len(one.nodes)]
        now_s = next_s
    return reached


def _move(
    trainers: list[_Trainer], pool: set[str], kind: Kind, now_s: float, forward_s: float | None
) -> None:
    """Give each trainer as many nodes as the plan wants, any ones."""
    if forward_s is None:
        base, more = divmod(len(pool), len(trainers))
        wanted = [min(len(kind.rate) - 1, base + (at < more)) for at in range(len(trainers))]
    else:
        worths = [_worths(kind, len(one.nodes), forward_s, len(pool)) for one in trainers]
        wanted = best_counts(worths, len(pool))
    for one, count in zip(trainers, wanted, strict=True):
        if count < len(one.nodes):
            one.nodes = set(sorted(one.nodes, key=_lot)[-count:] if count else ())
            one.pause(now_s, kind.down_s)
    free = sorted(pool.difference(*(one.nodes for one in trainers)), key=_lot)
    for one, count in zip(trainers, wanted, strict=True):
        if count > len(one.nodes):
            if one.nodes:
                one.pause(now_s, kind.up_s)
            one.nodes.update(free.pop() for _ in range(count - len(one.nodes)))


def _worths(kind: Kind, now: int, forward_s: float, pool: int) -> dict[int, float]:
    """Return what each number of nodes is worth: the paper's equation 16."""
    counts = range(min(len(kind.rate), pool + 1))
    cost_s = [kind.up_s * (count > now) + kind.down_s * (count < now) for count in counts]
    return {n: forward_s * kind.rate[n] - kind.rate[now] * cost_s[n] for n in counts}


def _lot(node: str) -> int:
    return zlib.crc32(node.encode())
