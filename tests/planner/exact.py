"""The oracle: the optimum by dynamic programming over nodes, exact and independent of CBC."""

from __future__ import annotations

import numpy as np

from bftrainer_slurm.planner.problem import Problem


def exact_counts(problem: Problem) -> list[int]:
    """Return counts of the greatest objective.

    After each trainer, ``best[n]`` is the most that the trainers so far can bring on n nodes.
    """
    pool = len(problem.pool)
    best = np.zeros(pool + 1)
    chosen = []
    for contender in problem.contenders:
        sizes = [0, *range(contender.min_nodes, min(contender.max_nodes, pool) + 1)]
        options = np.full((len(sizes), pool + 1), -np.inf)
        for row, size in enumerate(sizes):
            worth = problem.worth(contender, size)
            options[row, size:] = best[: pool + 1 - size] + worth
        chosen.append(np.array(sizes)[options.argmax(axis=0)])
        best = options.max(axis=0)
    counts, left = [], pool
    for choice in reversed(chosen):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return counts[::-1]
