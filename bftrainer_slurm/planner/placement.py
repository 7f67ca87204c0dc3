"""From counts to nodes without migration: shrinking keeps a subset, growing makes a superset."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.planner.problem import Problem


def place(problem: Problem, counts: Sequence[int]) -> dict[str, frozenset[str]]:
    """Return the nodes of each contender, by key; the same counts always give the same nodes."""
    kept = [
        sorted(contender.current)[:count]
        for contender, count in zip(problem.contenders, counts, strict=True)
    ]
    taken = {node for nodes in kept for node in nodes}
    held = {node for contender in problem.contenders for node in contender.current}
    # Nodes that are idle already come first: what others have yet to leave starts later.
    spare = iter(sorted(problem.pool - taken, key=lambda node: (node in held, node)))
    return {
        contender.key: frozenset(nodes) | {next(spare) for _ in range(count - len(nodes))}
        for contender, count, nodes in zip(problem.contenders, counts, kept, strict=True)
    }
