"""The plan on divided nodes by a binary for each trainer and node: exact, for small problems.

The rows of the supply (``supply.Row``) bound what fits, but elements do not move and a trainer
has one on a node at most. Where no packing of the best counts was found, this decides. Runs in the
child process only (``child``).
"""

from __future__ import annotations

from collections import defaultdict

import mip

from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.packing import Nodes
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem

MOST_PAIRS = 3_000  # of trainers and nodes


def pairs(problem: Problem) -> int:
    """How many binaries it takes."""
    return len(problem.trainers) * len(problem.pool)


def solve(problem: Problem, gap: float, limit_s: float) -> tuple[list[Nodes] | None, bool]:
    """Return each trainer's nodes in the best plan found within the time; is it within ``gap``?"""
    model = new_model(mip.MAXIMIZE)
    worths = [worth for one in problem.trainers for worth in _worths(problem, one).values()]
    unit = max(map(abs, worths), default=0.0) / SCALE or 1.0
    model.max_mip_gap, model.max_mip_gap_abs = 0.0, gap / unit
    has = {node: at for at, part in enumerate(problem.all_classes()) for node in sorted(part.nodes)}
    used: dict[str, mip.LinExpr] = defaultdict(mip.LinExpr)
    objective = mip.LinExpr()
    chosen = [_add(model, problem, one, has, used, objective, unit) for one in problem.trainers]
    for node, taken in used.items():
        model += taken <= problem.units_on(node, problem.all_classes()[has[node]])
    model.objective = objective
    status = model.optimize(max_seconds=max(0.05, limit_s))
    if model.num_solutions == 0:
        return None, False
    nodes = [frozenset(node for node, x in one.items() if x.x > 0.5) for one in chosen]
    return nodes, status is mip.OptimizationStatus.OPTIMAL


def _worths(problem: Problem, trainer: PlannedTrainer) -> dict[int, float]:
    """What each number of nodes is worth that it may have, 0 among them."""
    most = min(trainer.max_nodes, len(problem.pool))
    sizes = (size for size in range(trainer.min_nodes, most + 1) if trainer.allows(size))
    return {size: problem.worth(trainer, size) for size in (0, *sizes)}


def _add(
    model: mip.Model,
    problem: Problem,
    trainer: PlannedTrainer,
    has: dict[str, int],
    used: dict[str, mip.LinExpr],
    objective: mip.LinExpr,
    unit: float,
) -> dict[str, mip.Var]:
    """Add a trainer: one number of nodes, of one kind, and none of its nodes moves."""
    classes, now = problem.all_classes(), len(trainer.current)
    worths = _worths(problem, trainer)
    takes = {size: model.add_var(var_type=mip.BINARY) for size in worths}
    for size, worth in worths.items():
        objective.add_var(takes[size], worth / unit)
    model += mip.xsum(takes.values()) == 1
    keeps = mip.xsum(take for size, take in takes.items() if size >= now)
    grows = mip.xsum(take for size, take in takes.items() if size > now)
    kinds = {part.hardware: model.add_var(var_type=mip.BINARY) for part in classes}
    model += mip.xsum(kinds.values()) == 1
    on: dict[str, mip.Var] = {}
    for node, at in has.items():
        units = classes[at].units_of(trainer.gpus)
        if not problem.may_use(trainer, classes[at]) or problem.units_on(node, classes[at]) < units:
            if node in trainer.current:
                model += keeps == 0
            continue
        on[node] = here = model.add_var(var_type=mip.BINARY)
        used[node].add_var(here, units)
        model += here <= kinds[classes[at].hardware]
        model += here >= keeps if node in trainer.current else here <= grows
    model += mip.xsum(on.values()) == mip.xsum(size * take for size, take in takes.items())
    return on
