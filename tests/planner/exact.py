"""The oracles: optima by dynamic programming and by trying all, exact, independent of CBC."""

from __future__ import annotations

import itertools

import numpy as np

from bftrainer_slurm.planner.problem import Problem, Share


def exact_counts(problem: Problem) -> list[Share]:
    """Return shares of the greatest objective where all nodes are alike.

    After each trainer, ``best[n]`` is the most that the trainers so far can bring on n nodes.
    """
    pool = len(problem.pool)
    best = np.zeros(pool + 1)
    chosen = []
    for trainer in problem.trainers:
        sizes = [size for size in range(pool + 1) if trainer.allows(size)]
        options = np.full((len(sizes), pool + 1), -np.inf)
        for row, size in enumerate(sizes):
            options[row, size:] = best[: pool + 1 - size] + problem.worth(trainer, size)
        chosen.append(np.array(sizes)[options.argmax(axis=0)])
        best = options.max(axis=0)
    shares, left = [], pool
    for choice in reversed(chosen):
        shares.append((int(choice[left]),))
        left -= shares[-1][0]
    return shares[::-1]


def exact_shares(problem: Problem) -> list[Share]:
    """Return shares of the greatest objective, by trying all of them: for a few nodes only."""
    sizes = [len(one.nodes) for one in problem.all_classes()]
    every = list(itertools.product(*(range(size + 1) for size in sizes)))
    options = [
        [
            (share, problem.worth(trainer, sum(share)))
            for share in every
            if problem.allows(trainer, share)
        ]
        for trainer in problem.trainers
    ]
    best: dict[Share, tuple[float, list[Share]]] = {(0,) * len(sizes): (0.0, [])}
    for shares in options:
        after: dict[Share, tuple[float, list[Share]]] = {}
        for used, (worth, chosen) in best.items():
            for share, gain in shares:
                total = tuple(map(sum, zip(used, share, strict=True)))
                if any(count > size for count, size in zip(total, sizes, strict=True)):
                    continue
                if total not in after or worth + gain > after[total][0]:
                    after[total] = (worth + gain, [*chosen, share])
        best = after
    return max(best.values(), key=lambda one: one[0])[1]


def best_packed(problem: Problem) -> float:
    """The greatest objective on divided nodes, by trying all sets of nodes for each trainer."""
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
