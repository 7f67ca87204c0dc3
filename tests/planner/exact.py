"""The oracles: optima by dynamic programming and by trying all, exact, independent of CBC."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bftrainer_slurm.planner.problem import Problem, Share, value


def exact_counts(problem: Problem) -> list[int]:
    """Return counts of the greatest objective; where spares count, by trying who has no node."""
    every = (_exact_counts(problem, barred) for barred in _who_has_none(problem))
    return max(every, key=lambda counts: value(problem, counts))


def _exact_counts(problem: Problem, barred: set[str]) -> list[int]:
    """Return the best counts without regard to spares, with no node for who is barred.

    After each trainer, ``best[n]`` is the most that the trainers so far can bring on n nodes.
    """
    pool = len(problem.pool)
    best = np.zeros(pool + 1)
    chosen = []
    for contender in problem.contenders:
        most = 0 if contender.key in barred else min(contender.max_nodes, pool)
        sizes = [0, *range(contender.min_nodes, most + 1)]
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


def exact_shares(problem: Problem) -> list[Share]:
    """Return shares of the greatest objective, by trying all of them: for a few nodes only."""
    every = (_exact_shares(problem, barred) for barred in _who_has_none(problem))
    return max(every, key=lambda shares: value(problem, shares))


def _exact_shares(problem: Problem, barred: set[str]) -> list[Share]:
    sizes = problem.sizes()
    every = list(itertools.product(*(range(size + 1) for size in sizes)))
    options = [
        [
            (share, problem.worth(contender, share))
            for share in every
            if problem.allows(contender, share) and not (contender.key in barred and any(share))
        ]
        for contender in problem.contenders
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


def _who_has_none(problem: Problem) -> Iterator[set[str]]:
    """All that can be said of who has no node; nothing where that counts for nobody."""
    keys = [one.key for one in problem.contenders] if problem.spares else []
    for chosen in itertools.product(*([(), (key,)] for key in keys)):
        yield set(itertools.chain(*chosen))
