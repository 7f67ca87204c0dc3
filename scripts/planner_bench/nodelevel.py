"""The node-level formulation of the paper (arXiv 2106.12091) in python-mip, to compare with.

There is a binary for each pair of trainer and node. It differs from the authors' published code
where that is wrong, crashes or is slow: big-M is 2N + 1, as with N + 1 a trainer cannot change by
more than half of the nodes; binaries choose a curve's piece instead of an SOS2 set, on which
python-mip 2.0's CBC crashes; and a variable holds each trainer's number of nodes: twice as fast.

As a program it is a planner's child like ``planner.child``, but with this formulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import mip

from bftrainer_slurm.planner import child, optimum
from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.packing import Found
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem

GAP = 1e-6  # relative


@dataclass(frozen=True, slots=True)
class Answer:
    """The nodes of each trainer, in the trainers' order, and if that is proven to be best."""

    nodes: tuple[frozenset[str], ...]
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Answer | None:
    """Find who gets which node, at the maximal objective; None: nothing was found in this time.

    CBC may crash the process.
    """
    model = new_model(mip.MAXIMIZE)
    model.max_mip_gap = GAP
    pool = sorted(problem.pool)
    most = max((max(one.curve.values) for one in problem.trainers), default=0.0)
    unit = problem.forward_time_s * most / SCALE or 1.0
    rows = [[model.add_var(var_type=mip.BINARY) for _ in pool] for _ in problem.trainers]
    for column in zip(*rows, strict=True):
        model += mip.xsum(column) <= 1
    model.objective = mip.xsum(
        _add_trainer(model, trainer, row, pool, problem.forward_time_s) * (1 / unit)
        for trainer, row in zip(problem.trainers, rows, strict=True)
    )
    status = model.optimize(max_seconds=time_limit_s)
    if model.num_solutions == 0:
        return None
    nodes = tuple(
        frozenset(name for name, has in zip(pool, row, strict=True) if has.x > 0.5) for row in rows
    )
    return Answer(nodes, status is mip.OptimizationStatus.OPTIMAL)


def _add_trainer(
    model: mip.Model, trainer: PlannedTrainer, row: list[mip.Var], pool: list[str], forward_s: float
) -> mip.LinExpr:
    """Add one trainer's constraints; return its part of the objective."""
    now = len(trainer.current)
    big = 2 * len(pool) + 1  # a change of the count plus the changed nodes is never larger
    count = model.add_var(ub=len(pool))
    model += count == mip.xsum(row)
    binary = partial(model.add_var, var_type=mip.BINARY)

    # It has no node at all, or a number within its bounds.
    stops = binary()
    model += count >= min(trainer.min_nodes, len(pool) + 1) - big * stops
    model += count <= big * (1 - stops)
    model += count <= trainer.max_nodes
    if trainer.sizes:
        chosen = [binary() for _ in trainer.sizes]
        model += mip.xsum(chosen) == 1 - stops
        pairs = zip(trainer.sizes, chosen, strict=True)
        model += mip.xsum(size * one for size, one in pairs) == count

    # As many nodes change (has XOR had) as the count does: all are added, or all are removed.
    changes = [binary() for _ in pool]
    for has, change, name in zip(row, changes, pool, strict=True):
        had = int(name in trainer.current)
        model += change <= has + had
        model += change >= has - had
        model += change >= had - has
        model += change <= 2 - has - had
    removes = binary()
    model += count - now >= mip.xsum(changes) - big * removes
    model += count - now <= big * (1 - removes) - mip.xsum(changes)

    # A point of the curve is a weighted sum of its corners; only two neighbours may be above 0.
    corners = sorted({0, *(size for size in trainer.curve.nodes if size < len(pool)), len(pool)})
    weights = [model.add_var(ub=1.0) for _ in corners]
    pieces = [binary() for _ in pairwise(corners)]
    model += mip.xsum(weights) == 1
    model += mip.xsum(size * weight for size, weight in zip(corners, weights, strict=True)) == count
    if pieces:
        model += mip.xsum(pieces) == 1
        for index, weight in enumerate(weights):
            model += weight <= mip.xsum(pieces[max(0, index - 1) : index + 1])
    throughput = mip.xsum(
        trainer.curve.at(size) * weight for size, weight in zip(corners, weights, strict=True)
    )

    # A rescale costs what the current nodes would bring in that time, and loses what they have.
    grows, shrinks = binary(), binary()
    model += count <= now + (big - now) * grows
    model += count >= (now + 1) * grows
    model += count <= (now - 1) + (big - now + 1) * (1 - shrinks)
    model += count >= now * (1 - shrinks)
    pause_s = trainer.rescale_up_s * grows + trainer.rescale_down_s * shrinks
    pause_s += trainer.loss_s * (grows + shrinks)
    return forward_s * throughput - trainer.curve.at(now) * pause_s


def _incumbents(problem: Problem, time_limit_s: float) -> Iterator[Found]:
    answer = solve(problem, time_limit_s)
    if answer is not None:
        yield Found([(len(nodes),) for nodes in answer.nodes], answer.optimal)


if __name__ == "__main__":
    optimum.incumbents = _incumbents
    child.main()
