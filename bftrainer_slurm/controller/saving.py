"""What it is worth to keep trainers without nodes for the next holes. Pure.

A trainer that has nodes pauses when it grows. Where a start costs less, one that has none takes new
nodes for less; and as long as there is one, another that is to grow can hand its nodes to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bftrainer_slurm.planner.problem import Contender

# How much of a growth to the usual size the first spare trainer saves in a forward time, the second
# and the third. Chosen on nodes 1,025 to 3,072 and 4,097 to 4,734 of Summit's week, not on those of
# docs/paper.md; half and twice as much does nearly as well.
_SAVED = (0.5, 0.15, 0.05)


# Who stands in for others brings, at its most nodes, at least so much of what the best one does.
_AS_GOOD = 0.7


def with_stand_ins(contenders: Sequence[Contender]) -> tuple[Contender, ...]:
    """Return the contenders; those that would use many nodes too badly stand in for nobody."""
    most = [one.curve.at(one.max_nodes) for one in contenders]
    least = _AS_GOOD * max(most, default=0.0)
    return tuple(
        replace(one, stands_in=worth >= least) for one, worth in zip(contenders, most, strict=True)
    )


def spares_of(
    contenders: Sequence[Contender], starts_s: Sequence[float], grown_pool: float
) -> tuple[float, ...]:
    """Return what the first, the second, ... trainer without nodes is worth (``Problem.spares``).

    ``starts_s`` is what each one's start costs, in seconds; ``grown_pool`` how many nodes there
    usually are when others have just come. One trainer is never held back from all the others.
    """
    if len(contenders) < 2:
        return ()
    usual = math.ceil(grown_pool / len(contenders))
    saved = [
        max(0.0, one.rescale_up_s - start_s) * one.curve.at(_within(usual, one))
        for one, start_s in zip(contenders, starts_s, strict=True)
    ]
    mean = sum(saved) / len(saved)
    return tuple(share * mean for share in _SAVED[: len(contenders) - 1]) if mean else ()


def _within(size: int, contender: Contender) -> int:
    return min(max(size, contender.min_nodes), contender.max_nodes)
