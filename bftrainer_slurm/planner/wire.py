"""A problem as JSON between the planner and its child process: counts in place of node names."""

from __future__ import annotations

import itertools
from typing import Any

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem


def to_wire(problem: Problem) -> dict[str, Any]:
    """Return the problem as the child reads it."""
    return {
        "forward_time_s": problem.forward_time_s,
        "costs": problem.costs.value,
        "sizes": problem.sizes(),
        "hardware": [one.hardware for one in problem.classes],
        "trainers": [
            {
                "min_nodes": trainer.min_nodes,
                "max_nodes": trainer.max_nodes,
                "current": problem.now(trainer),
                "curve_nodes": trainer.curve.nodes,
                "curve_values": trainer.curve.values,
                "rescale_up_s": trainer.rescale_up_s,
                "rescale_down_s": trainer.rescale_down_s,
                "paused_s": trainer.paused_s,
                "start_cost": trainer.start_cost,
                "barred": [
                    str(index)
                    for index, one in enumerate(problem.classes)
                    if one.name in trainer.barred
                ],
            }
            for trainer in problem.trainers
        ],
    }


def from_wire(document: dict[str, Any]) -> Problem:
    """Return a problem with made-up node names and the same counts."""
    parts = [
        [f"node-{part}-{number}" for number in range(size)]
        for part, size in enumerate(document["sizes"])
    ]
    names = [iter(part) for part in parts]
    trainers = tuple(
        PlannedTrainer(
            key=str(index),
            current=frozenset(
                itertools.chain.from_iterable(map(itertools.islice, names, one.pop("current")))
            ),
            curve=ThroughputCurve(tuple(one.pop("curve_nodes")), tuple(one.pop("curve_values"))),
            barred=frozenset(one.pop("barred")),
            **one,
        )
        for index, one in enumerate(document["trainers"])
    )
    classes = tuple(
        NodeClass(str(index), frozenset(part), hardware)
        for index, (hardware, part) in enumerate(zip(document["hardware"], parts, strict=False))
    )
    return Problem(
        pool=frozenset(itertools.chain.from_iterable(parts)),
        forward_time_s=document["forward_time_s"],
        trainers=trainers,
        costs=Costs(document["costs"]),
        classes=classes,
    )
