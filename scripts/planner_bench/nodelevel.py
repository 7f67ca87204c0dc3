"""The node-level formulation of the paper (arXiv 2106.12091) in python-mip, to compare with.

A binary for each pair of trainer and node. It differs from the authors' published code in what is
wrong, crashes or is slow there: big-M is 2N + 1, since N + 1 forbids a trainer to change by more
than half of the nodes; binaries choose a curve's piece in place of an SOS2 set, on which
python-mip 2.0's CBC crashes; and a variable holds each trainer's number of nodes: twice as fast.

As a program it is a planner's child, as ``planner.child`` is, but with this formulation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import mip

from bftrainer_slurm.planner import child, optimum
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem

GAP = 1e-6  # relative
_SCALE = 1000.0  # CBC's tolerances are absolute: the most that one trainer can bring is this


@dataclass(frozen=True, slots=True)
class Answer:
    """The nodes of each trainer, in their order (None: nothing found), proven best or not."""

    nodes: tuple[frozenset[str], ...] | None
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Answer:
    """Maximise the objective over who gets which node; CBC may crash the process."""
    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 0
    model.max_mip_gap = GAP
    pool = sorted(problem.pool)
    most = max((max(one.curve.values) for one in problem.trainers), default=0.0)
    unit = problem.forward_time_s * most / _SCALE or 1.0
    rows = [[model.add_var(var_type=mip.BINARY) for _ in pool] for _ in problem.trainers]
    for column in zip(*rows, strict=True):
        model += mip.xsum(column) <= 1
    model.objective = mip.xsum(
        _add_trainer(model, trainer, row, pool, problem.forward_time_s) * (1 / unit)
        for trainer, row in zip(problem.trainers, rows, strict=True)
    )
    status = model.optimize(max_seconds=time_limit_s)
    if model.num_solutions == 0:
        return Answer(None, False)
    nodes = tuple(
        frozenset(name for name, has in zip(pool, row, strict=True) if has.x > 0.5) for row in rows
    )
    return Answer(nodes, status is mip.OptimizationStatus.OPTIMAL)


def _add_trainer(
    model: mip.Model, trainer: PlannedTrainer, row: list[mip.Var], pool: list[str], forward_s: float
) -> mip.LinExpr:
    """Add one trainer's constraints; return its part of the objective."""
    count = model.add_var(ub=len(pool))
    model += count == mip.xsum(row)
    _keep_size(model, trainer, count, len(pool))
    _forbid_migration(model, trainer, row, count, pool)
    gain = forward_s * _throughput(model, trainer, count, len(pool))
    return gain - _rescaling(model, trainer, count, len(pool))


def _big(nodes: int) -> int:
    """What no difference of two numbers of nodes, plus a number of changed nodes, exceeds."""
    return 2 * nodes + 1


def _keep_size(model: mip.Model, trainer: PlannedTrainer, count: mip.Var, nodes: int) -> None:
    """No node at all, or as many as its bounds say."""
    stops = model.add_var(var_type=mip.BINARY)
    model += count >= min(trainer.min_nodes, nodes + 1) - _big(nodes) * stops
    model += count <= _big(nodes) * (1 - stops)
    model += count <= trainer.max_nodes


def _forbid_migration(
    model: mip.Model, trainer: PlannedTrainer, row: list[mip.Var], count: mip.Var, pool: list[str]
) -> None:
    """As many nodes change (has XOR had) as the count does: all are added, or all are taken."""
    changes = [model.add_var(var_type=mip.BINARY) for _ in pool]
    for has, change, name in zip(row, changes, pool, strict=True):
        had = int(name in trainer.current)
        model += change <= has + had
        model += change >= has - had
        model += change >= had - has
        model += change <= 2 - has - had
    shrinks = model.add_var(var_type=mip.BINARY)
    step, changed = count - len(trainer.current), mip.xsum(changes)
    model += step >= changed - _big(len(pool)) * shrinks
    model += step <= _big(len(pool)) * (1 - shrinks) - changed


def _throughput(
    model: mip.Model, trainer: PlannedTrainer, count: mip.Var, nodes: int
) -> mip.LinExpr:
    """The objective curve as weights on its corners, of which two neighbours may be above 0."""
    corners = sorted({0, *(size for size in trainer.curve.nodes if size < nodes), nodes})
    weights = [model.add_var(ub=1.0) for _ in corners]
    pieces = [model.add_var(var_type=mip.BINARY) for _ in itertools.pairwise(corners)]
    model += mip.xsum(weights) == 1
    model += mip.xsum(size * weight for size, weight in zip(corners, weights, strict=True)) == count
    if pieces:
        model += mip.xsum(pieces) == 1
        for index, weight in enumerate(weights):
            model += weight <= mip.xsum(pieces[max(0, index - 1) : index + 1])
    return mip.xsum(
        trainer.curve.at(size) * weight for size, weight in zip(corners, weights, strict=True)
    )


def _rescaling(
    model: mip.Model, trainer: PlannedTrainer, count: mip.Var, nodes: int
) -> mip.LinExpr:
    """What growing or shrinking loses."""
    now, big = len(trainer.current), _big(nodes)
    grows, shrinks = model.add_var(var_type=mip.BINARY), model.add_var(var_type=mip.BINARY)
    model += count <= now + (big - now) * grows
    model += count >= (now + 1) * grows
    model += count <= (now - 1) + (big - now + 1) * (1 - shrinks)
    model += count >= now * (1 - shrinks)
    rate = trainer.curve.at(now)
    return rate * (trainer.rescale_up_s * grows + trainer.rescale_down_s * shrinks)


def _incumbents(problem: Problem, time_limit_s: float) -> Iterator[optimum.Found]:
    answer = solve(problem, time_limit_s)
    if answer.nodes is not None:
        yield optimum.Found([(len(nodes),) for nodes in answer.nodes], answer.optimal)


if __name__ == "__main__":
    optimum.incumbents = _incumbents
    child.main()
