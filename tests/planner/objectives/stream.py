"""A small contended cluster: plan after plan, a minute apart, with the real planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bftrainer_slurm.planner.objectives import Facts, curves_of, find
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem
from bftrainer_slurm.planner.solver import Planner

STEP_S = 60.0


def counts_of_plans(
    planner: Planner, objective: str, trainers: Sequence[Facts], pool: int, plans: int
) -> list[list[int]]:
    """Return the trainers' nodes after each plan; they start with none."""
    now, held, result = list(trainers), [frozenset[str]()] * len(trainers), []
    for _ in range(plans):
        curves = curves_of(find(objective), now)
        asking = tuple(
            PlannedTrainer(str(key), one.min_nodes, one.max_nodes, nodes, curve, 18.0, 12.0)
            for key, (one, nodes, curve) in enumerate(zip(now, held, curves, strict=True))
        )
        nodes = frozenset(f"n{number}" for number in range(pool))
        plan = planner.plan(Problem(nodes, 120.0, asking))
        held = [plan.assignment[one.key] for one in asking]
        now = [
            replace(one, nodes=len(has), waited_s=0.0 if has else one.waited_s + STEP_S)
            for one, has in zip(now, held, strict=True)
        ]
        result.append([len(has) for has in held])
    return result
