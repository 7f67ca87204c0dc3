"""Plans without a solver: the fallback, which is never worse than changing nothing."""

from __future__ import annotations

from bftrainer_slurm.planner.problem import Contender, Problem


def greedy_counts(problem: Problem) -> list[int]:
    """Start from what is, and give free nodes to whoever gains most by each, while anyone does."""
    counts = [_standing(contender) for contender in problem.contenders]
    free = len(problem.pool) - sum(counts)
    while True:
        best = max(
            (
                (gain / (size - counts[index]), index, size)
                for index, contender in enumerate(problem.contenders)
                for size in _larger_sizes(contender, counts[index], free)
                if (gain := _gain(problem, contender, counts[index], size)) > 0
            ),
            default=None,
        )
        if best is None:
            return counts
        _, index, size = best
        free -= size - counts[index]
        counts[index] = size


def _standing(contender: Contender) -> int:
    """What it has, as far as its bounds allow."""
    now = len(contender.current)
    return 0 if now < contender.min_nodes else min(now, contender.max_nodes)


def _larger_sizes(contender: Contender, count: int, free: int) -> set[int]:
    most = min(contender.max_nodes, count + free)
    sizes = {contender.min_nodes, count + 1, most, *contender.curve.nodes}
    return {size for size in sizes if count < size <= most and contender.allows(size)}


def _gain(problem: Problem, contender: Contender, count: int, size: int) -> float:
    forward_s = problem.forward_time_s
    return contender.worth(size, forward_s) - contender.worth(count, forward_s)
