"""The breakdown of a run: whose delay is made of what, without trainers and with them."""

from __future__ import annotations

from itertools import chain

from scripts.impact_bench.bench import Measured
from scripts.impact_bench.breakdown import (
    DIRECT,
    RECLAIMING,
    direct,
    read_controls,
    read_node,
    reclaiming,
    rendered,
)


def causes(measured: Measured) -> str:
    """Read the logs that the run has left; return the tables as text."""
    with (measured.logs / "slurmctld.log").open(errors="replace") as lines:
        controls = read_controls(lines)
    nodes = {}
    for log in measured.logs.glob("n*.log"):
        with log.open(errors="replace") as lines:
            nodes[log.stem] = read_node(lines)
    off, on = (list(chain.from_iterable(side.chunks)) for side in (measured.off, measured.on))
    took = reclaiming(controls, nodes, on)
    parts = (
        rendered("without trainers", DIRECT, direct(controls, off)),
        rendered("with trainers, no element had to go", DIRECT, direct(controls, on)),
        rendered("with trainers, elements had to go", RECLAIMING, took),
    )
    return "\n\n".join("\n".join(lines) for lines in parts)
