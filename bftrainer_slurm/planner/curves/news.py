"""The fit of a trainer, made again only when its measurements say something new.

A new fit makes a new plan, so noise must not make a new fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bftrainer_slurm.planner.curves.fit import Fit, fit
from bftrainer_slurm.planner.curves.measurement import Measurement

FIRST_S = 30.0  # how long a trainer must have trained on a number of nodes to be believed
_WORTH_A_FIT = 1.5  # a size is fitted again when its time has grown by this factor,
_MOVED = 0.10  # or when its median has moved so far (relative): another phase, other nodes


@dataclass(frozen=True, slots=True)
class _Size:
    """A fit's data for one number of nodes: measured seconds, and log of samples/s."""

    seconds: float
    log_rate: float


class LatestFit:
    """The latest fit of one trainer."""

    def __init__(self) -> None:
        self._made: tuple[Fit, dict[int, _Size]] | None = None  # and what it was made from

    def update(self, measurements: Iterable[Measurement]) -> Fit:
        """Return the fit of the measurements: the last one, unless there is news."""
        by_size: dict[int, list[Measurement]] = {}
        for one in measurements:
            by_size.setdefault(one.nodes, []).append(one)
        sizes = {
            nodes: size
            for nodes, looks in by_size.items()
            if (size := _size(looks)).seconds >= FIRST_S
        }
        if self._made is None or _is_news(sizes, self._made[1]):
            self._made = fit([one for nodes in sizes for one in by_size[nodes]]), sizes
        return self._made[0]


def _size(looks: Sequence[Measurement]) -> _Size:
    middle = median(one.samples_per_s for one in looks)
    return _Size(sum(one.seconds for one in looks), math.log(middle))


def _is_news(sizes: dict[int, _Size], used: dict[int, _Size]) -> bool:
    return sizes.keys() != used.keys() or any(
        size.seconds >= _WORTH_A_FIT * used[nodes].seconds
        or abs(size.log_rate - used[nodes].log_rate) > _MOVED
        for nodes, size in sizes.items()
    )
