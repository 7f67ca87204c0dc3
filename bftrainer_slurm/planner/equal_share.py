"""The baseline that the paper compares with: every trainer gets the same number of nodes."""

from __future__ import annotations

from bftrainer_slurm.planner.problem import Problem, Share


def equal_shares(problem: Problem) -> list[Share]:
    """Hand nodes out in turn, in the order of the trainers; throughput plays no part.

    A trainer whose minimum no longer fits gets none. All nodes are alike.
    """
    free = len(problem.pool)
    counts = []
    for trainer in problem.trainers:
        counts.append(trainer.min_nodes if trainer.min_nodes <= free else 0)
        free -= counts[-1]
    while free > 0:
        hungry = [
            index
            for index, trainer in enumerate(problem.trainers)
            if 0 < counts[index] < trainer.max_nodes
        ]
        if not hungry:
            break
        for index in hungry[:free]:
            counts[index] += 1
        free -= min(free, len(hungry))
    return [(count,) for count in counts]
