"""A problem as JSON between the planner and its child process: counts in place of node names."""

from __future__ import annotations

from typing import Any

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Contender, Costs, Problem


def to_wire(problem: Problem) -> dict[str, Any]:
    """Return the problem as the child reads it."""
    return {
        "pool": len(problem.pool),
        "forward_time_s": problem.forward_time_s,
        "costs": problem.costs.value,
        "contenders": [
            {
                "min_nodes": contender.min_nodes,
                "max_nodes": contender.max_nodes,
                "current": len(contender.current),
                "curve_nodes": contender.curve.nodes,
                "curve_values": contender.curve.values,
                "rescale_up_s": contender.rescale_up_s,
                "rescale_down_s": contender.rescale_down_s,
                "paused_s": contender.paused_s,
                "start_premium": contender.start_premium,
            }
            for contender in problem.contenders
        ],
    }


def from_wire(document: dict[str, Any]) -> Problem:
    """Return a problem with made-up node names and the same counts."""
    names = iter(f"node-{number}" for number in range(document["pool"]))
    contenders = tuple(
        Contender(
            key=str(index),
            min_nodes=one["min_nodes"],
            max_nodes=one["max_nodes"],
            current=frozenset(next(names) for _ in range(one["current"])),
            curve=ThroughputCurve(tuple(one["curve_nodes"]), tuple(one["curve_values"])),
            rescale_up_s=one["rescale_up_s"],
            rescale_down_s=one["rescale_down_s"],
            paused_s=one["paused_s"],
            start_premium=one["start_premium"],
        )
        for index, one in enumerate(document["contenders"])
    )
    held = frozenset(node for contender in contenders for node in contender.current)
    pool = held | frozenset(names)
    return Problem(pool, document["forward_time_s"], contenders, Costs(document["costs"]))
