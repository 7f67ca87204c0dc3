"""The baseline that the paper compares with: every trainer gets the same number of nodes."""

from __future__ import annotations

from bftrainer_slurm.planner.problem import Problem, Share


def equal_shares(problem: Problem) -> list[Share]:
    """Hand nodes out in turn, in the order of the contenders; throughput plays no part.

    A trainer whose minimum no longer fits gets none. All nodes are alike.
    """
    free = len(problem.pool)
    counts = []
    for contender in problem.contenders:
        counts.append(contender.min_nodes if contender.min_nodes <= free else 0)
        free -= counts[-1]
    while free > 0:
        hungry = [
            index
            for index, contender in enumerate(problem.contenders)
            if 0 < counts[index] < contender.max_nodes
        ]
        if not hungry:
            break
        for index in hungry[:free]:
            counts[index] += 1
        free -= min(free, len(hungry))
    return [(count,) for count in counts]
