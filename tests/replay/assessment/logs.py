"""Logs for the tests of assessments."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import BadLine, Notes
from bftrainer_slurm.replay.logs.log import Log

MONDAY = 1_704_067_200.0  # 1 January 2024, 00:00 UTC
HOUR = 3600.0


def log(
    holes: Iterable[tuple[int, float, float]],
    hours: float,
    nodes: int = 10,
    notes: Notes | None = None,
    caveats: tuple[str, ...] = (),
) -> Log:
    """A log from Monday on; holes are node, begin and end in hours."""
    rows = sorted(holes)
    node, start, end = zip(*rows, strict=True) if rows else ((), (), ())
    return Log(
        kind="log",
        holes=HoleTable(
            tuple(f"n{k}" for k in range(nodes)),
            np.array(node, np.int32),
            MONDAY + HOUR * np.array(start, float),
            MONDAY + HOUR * np.array(end, float),
        ),
        nodes=nodes,
        from_s=MONDAY,
        to_s=MONDAY + HOUR * hours,
        notes=notes,
        caveats=caveats,
    )


def hostile_notes() -> Notes:
    """Notes whose lines would like to be HTML and terminal commands."""
    line = "<script>alert(1)</script>\x1b[2J$x^$"
    return Notes(jobs=3, malformed=1, bad_lines=[BadLine(7, "it has <b>2</b> columns", line)])
