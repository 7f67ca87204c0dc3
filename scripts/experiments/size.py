"""How much of the experiments is done: all of it, or a little, to see that it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from scripts.experiments.runs import Run
from scripts.experiments.tables import Table

TRAINERS = {"hpo-1000": "HPO", "imagenet-1001": "ImageNet"}
FAST = 0.011  # 18 s and 12 s become 0.2 s and 0.13 s: what the elastic runtime aims at


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it all to do: the part of the trace, and which values of what is varied."""

    part: Run
    trainers: tuple[str, ...] = tuple(TRAINERS)
    forward_times_s: tuple[float, ...] = (10, 60, 120, 300, 600)
    at_once: tuple[int, ...] = (5, 10, 20, 35)
    scales: tuple[float, ...] = (0, FAST, 0.1, 0.5, 1, 2, 3)
    fast_at_once: tuple[int, ...] = (10, 20, 35)  # with rescale costs of FAST
    other_parts: bool = True  # of the trace: the whole machine, and DESIGN.md's


FULL = Size(Run("hpo-1000"))
QUICK = Size(
    Run("hpo-1000", nodes=256, hours=6.0),
    trainers=("hpo-1000",),
    forward_times_s=(120,),
    at_once=(5, 10),
    scales=(FAST, 1),
    fast_at_once=(5, 10),
    other_parts=False,
)


def each(size: Size, table: Callable[[str, str, Run], Table]) -> tuple[Table, ...]:
    """Return a table for each set of trainers."""
    return tuple(
        table(name, TRAINERS[name], replace(size.part, trainers=name)) for name in size.trainers
    )
