"""The plan on divided nodes by a binary for each trainer and node: exact, for small problems.

The rows of the supply (``supply.Row``) bound what fits, but elements do not move and a trainer
has one on a node at most. Where no packing of the best counts was found, this decides. Runs in the
child process only (``child``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import mip

from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.packing import Nodes
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem
from bftrainer_slurm.planner.segments import Segment

MOST_PAIRS = 3_000  # of trainers and nodes
FEW_PAIRS = 1_500  # this is faster than counts that find no room


def pairs(problem: Problem) -> int:
    """How many binaries it takes."""
    return len(problem.trainers) * len(problem.pool)


def solve(
    problem: Problem, pieces: Sequence[Sequence[Segment]], gap: float, limit_s: float
) -> tuple[list[Nodes] | None, bool]:
    """Return each trainer's nodes in the best plan found within the time; is it within ``gap``?

    Each trainer may have the sizes of its ``pieces``.
    """
    model = new_model(mip.MAXIMIZE)
    worths = [one.worth(size) for its in pieces for one in its for size in (one.least, one.most)]
    unit = max(map(abs, worths), default=0.0) / SCALE or 1.0
    model.max_mip_gap, model.max_mip_gap_abs = 0.0, gap / unit
    model.pump_passes = 0  # the feasibility pump takes most of the time, and finds little
    used: dict[str, mip.LinExpr] = defaultdict(mip.LinExpr)
    objective = mip.LinExpr()
    chosen = [
        _add(model, problem, one, its, used, objective, unit)
        for one, its in zip(problem.trainers, pieces, strict=True)
    ]
    for node, taken in used.items():
        model += taken <= problem.units_on(node)
    model.objective = objective
    status = model.optimize(max_seconds=max(0.05, limit_s))
    if model.num_solutions == 0:
        return None, False
    nodes = [frozenset(node for node, x in one.items() if x.x > 0.5) for one in chosen]
    return nodes, status is mip.OptimizationStatus.OPTIMAL


def _add(
    model: mip.Model,
    problem: Problem,
    trainer: PlannedTrainer,
    pieces: Sequence[Segment],
    used: dict[str, mip.LinExpr],
    objective: mip.LinExpr,
    unit: float,
) -> dict[str, mip.Var]:
    """Add a trainer: one number of nodes, of one kind, and none of its nodes moves.

    New nodes and those that it keeps are counted apart: halves of growing and of stopping would
    make up a trainer that grows on its own nodes otherwise, and the bound would be far too high.
    """
    now = len(trainer.current)
    takes = [model.add_var(var_type=mip.BINARY) for _ in pieces]
    options = list(zip(pieces, takes, strict=True))
    grows = mip.xsum(take for piece, take in options if piece.least > now)
    keeps = mip.xsum(take for piece, take in options if piece.least >= now)
    own, new = mip.LinExpr(), mip.LinExpr()
    for piece, take in options:
        objective.add_var(take, piece.start / unit)
        own.add_var(take, min(now, piece.least))
        new.add_var(take, max(0, piece.least - now))
        if (room := piece.most - piece.least) > 0:
            more = model.add_var(ub=room)
            model += more <= room * take
            objective.add_var(more, piece.slope / unit)
            (new if piece.least > now else own).add_var(more)
    model += mip.xsum(takes) == 1
    hardware = dict.fromkeys(part.hardware for part in problem.all_classes())
    kinds = {kind: model.add_var(var_type=mip.BINARY) for kind in hardware}
    model += mip.xsum(kinds.values()) == 1
    may_grow = any(piece.most > now for piece in pieces)
    on: dict[str, mip.Var] = {}
    for node in sorted(problem.pool if may_grow else trainer.current):
        part = problem.class_of[node]
        units = part.units_of(trainer.gpus)
        if not problem.may_use(trainer, part) or problem.units_on(node) < units:
            if node in trainer.current:
                model += keeps == 0
            continue
        on[node] = here = model.add_var(var_type=mip.BINARY)
        used[node].add_var(here, units)
        if len(kinds) > 1:
            model += here <= kinds[part.hardware]
        model += here >= keeps if node in trainer.current else here <= grows
    model += mip.xsum(here for node, here in on.items() if node in trainer.current) == own
    model += mip.xsum(here for node, here in on.items() if node not in trainer.current) == new
    return on
