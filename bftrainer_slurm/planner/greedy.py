"""Plans without a solver: the fallback, which is never worse than changing nothing."""

from __future__ import annotations

import heapq

from bftrainer_slurm.planner.problem import Contender, Problem, value

_Step = tuple[float, int]  # (gain per node, size after it)


def greedy_counts(problem: Problem) -> list[int]:
    """Start from what is, and give free nodes to whoever gains most by each, while anyone does."""
    contenders = problem.contenders
    counts = [_standing(contender) for contender in contenders]
    free = len(problem.pool) - sum(counts)
    climbs = [
        _climb(problem, contender, count, free)
        for contender, count in zip(contenders, counts, strict=True)
    ]
    queue = [(-climb[-1][0], index) for index, climb in enumerate(climbs) if climb]
    heapq.heapify(queue)
    while queue and free:
        _, index = heapq.heappop(queue)
        _, size = climbs[index][-1]
        if size - counts[index] <= free:
            free -= size - counts[index]
            counts[index] = size
            climbs[index].pop()
        else:  # others were faster: what is the best of what is left?
            climbs[index] = _climb(problem, contenders[index], counts[index], free)
        if climbs[index]:
            heapq.heappush(queue, (-climbs[index][-1][0], index))
    standing = [_standing(contender) for contender in contenders]
    if problem.spares and value(problem, counts) < value(problem, standing):
        return standing  # its starts cost more spares than they bring
    return counts


def _standing(contender: Contender) -> int:
    """What it has, as far as its bounds allow."""
    now = len(contender.current)
    return 0 if now < contender.min_nodes else min(now, contender.max_nodes)


def _climb(problem: Problem, contender: Contender, count: int, free: int) -> list[_Step]:
    """The steps up from ``count`` by falling gain per node, the first one last in the list.

    They lead along the upper hull of what each size is worth; on a curve that is linear between
    its points, only those points, the least and the most can be on it.
    """
    most = min(contender.max_nodes, count + free)
    sizes = {contender.min_nodes, most, *contender.curve.nodes}
    hull = [(count, problem.worth(contender, count))]
    steps: list[_Step] = []
    for size in sorted(size for size in sizes if count < size <= most and contender.allows(size)):
        worth = problem.worth(contender, size)
        while steps and _slope(hull[-1], (size, worth)) >= steps[-1][0]:
            hull.pop()
            steps.pop()
        steps.append((_slope(hull[-1], (size, worth)), size))
        hull.append((size, worth))
    return [step for step in reversed(steps) if step[0] > 0]


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
