"""The oracles: optima by dynamic programming and by trying all, exact, independent of CBC."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from bftrainer_slurm.planner.problem import Problem, Share


def best_counts(worths: Sequence[Mapping[int, float]], pool: int) -> list[int]:
    """Return the counts that are worth most together; ``worths`` has them for each trainer.

    After each trainer, ``best[n]`` is the most that the trainers so far can bring on n nodes.
    """
    best, chosen = np.zeros(pool + 1), []
    for worth in worths:
        options = np.full((len(worth), pool + 1), -np.inf)
        for row, (size, one) in enumerate(worth.items()):
            options[row, size:] = best[: pool + 1 - size] + one
        chosen.append(np.array([*worth])[options.argmax(axis=0)])
        best = options.max(axis=0)
    counts, left = [], pool
    for choice in reversed(chosen):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return counts[::-1]


def exact_counts(problem: Problem) -> list[Share]:
    """Return shares of the greatest objective where all nodes are alike."""
    sizes = range(len(problem.pool) + 1)
    worths = [
        {size: problem.worth(one, size) for size in sizes if one.allows(size)}
        for one in problem.trainers
    ]
    return [(count,) for count in best_counts(worths, len(problem.pool))]


def best_packed(problem: Problem) -> float:
    """The greatest objective where nodes differ, by trying all sets of a few for each trainer."""
    classes = problem.all_classes()
    at = {node: number for number, part in enumerate(classes) for node in part.nodes}
    nodes = sorted(problem.pool)
    start = tuple(problem.free.get(node, classes[at[node]].gpus or 1) for node in nodes)
    sets = [
        frozenset(chosen)
        for count in range(len(nodes) + 1)
        for chosen in itertools.combinations(range(len(nodes)), count)
    ]
    best = {start: 0.0}
    for one in problem.trainers:
        current = frozenset(map(nodes.index, one.current))
        options = []
        for chosen in sets:
            parts = [classes[at[nodes[number]]] for number in chosen]
            moves = not (chosen <= current or chosen >= current)
            mixed = len({part.hardware for part in parts}) > 1
            barred = any(part.name in one.barred or (one.gpus and not part.gpus) for part in parts)
            if moves or mixed or barred or not one.allows(len(chosen)):
                continue
            units = {
                number: (one.gpus or part.gpus) if part.gpus else 1
                for number, part in zip(chosen, parts, strict=True)
            }
            options.append((units, problem.worth(one, len(chosen))))
        after: dict[tuple[int, ...], float] = {}
        for left, worth in best.items():
            for units, gain in options:
                rest = tuple(has - units.get(number, 0) for number, has in enumerate(left))
                if min(rest) >= 0:
                    after[rest] = max(after.get(rest, -np.inf), worth + gain)
        best = after
    return max(best.values())
