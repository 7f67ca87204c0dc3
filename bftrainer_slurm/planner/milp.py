"""The count model as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``): CBC is native code. No SOS sets: python-mip 2.0.0
crashes on them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import mip

from bftrainer_slurm.planner.problem import Contender, Problem

GAP = 1e-7  # relative; the recorded optima are met to 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """What CBC found: counts in the order of the contenders (None: nothing), proven or not."""

    counts: list[int] | None
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Answer:
    """Maximise the objective over the counts."""
    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 1
    model.max_mip_gap = GAP
    model.max_mip_gap_abs = 1e-9
    counts, gains = [], []
    for contender in problem.contenders:
        count, gain = _add_contender(model, contender, problem)
        counts.append(count)
        gains.append(gain)
    model += mip.xsum(counts) <= len(problem.pool)
    model.objective = mip.xsum(gains)
    status = model.optimize(max_seconds=time_limit_s)
    if model.num_solutions == 0:
        return Answer(None, False)
    return Answer([round(count.x) for count in counts], status is mip.OptimizationStatus.OPTIMAL)


def _add_contender(
    model: mip.Model, contender: Contender, problem: Problem
) -> tuple[mip.Var, mip.LinExpr]:
    """Add one trainer; return its count and its part of the objective."""
    most = min(contender.max_nodes, len(problem.pool))
    active = model.add_var(var_type=mip.BINARY)
    count = model.add_var(var_type=mip.INTEGER, ub=max(0, most))
    if most < contender.min_nodes:
        model += active == 0
        model += count == 0
        return count, mip.xsum([])
    model += count >= contender.min_nodes * active
    model += count <= most * active
    points = _points(contender, most)
    worth = _concave(model, points, active, count)
    if worth is None:
        worth = _pieces(model, points, active, count)
    return count, problem.forward_time_s * worth - _rescaling(model, contender, count, most)


def _points(contender: Contender, most: int) -> list[tuple[int, float]]:
    """The curve's corners between the least and the most nodes the trainer can have."""
    inner = [n for n in contender.curve.nodes if contender.min_nodes < n < most]
    sizes = sorted({contender.min_nodes, *inner, most})
    return [(size, contender.curve.at(size)) for size in sizes]


def _slopes(points: list[tuple[int, float]]) -> list[float]:
    return [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in itertools.pairwise(points)]


def _concave(
    model: mip.Model, points: list[tuple[int, float]], active: mip.Var, count: mip.Var
) -> mip.Var | None:
    """The curve as the lines above it, where it is concave (None where it is not)."""
    slopes = _slopes(points)
    if any(later > earlier for earlier, later in itertools.pairwise(slopes)):
        return None
    worth = model.add_var(lb=0.0)
    if not slopes:
        model += worth <= points[0][1] * active
    for slope, (size, height) in zip(slopes, points, strict=False):
        model += worth <= slope * count + (height - slope * size) * active
    return worth


def _pieces(
    model: mip.Model, points: list[tuple[int, float]], active: mip.Var, count: mip.Var
) -> mip.LinExpr:
    """The curve as pieces that are filled one after the other, with a binary between two."""
    lengths = [x1 - x0 for (x0, _), (x1, _) in itertools.pairwise(points)]
    parts = [model.add_var(ub=length) for length in lengths]
    opens = active
    for part, length in zip(parts, lengths, strict=True):
        model += part <= length * opens
        full = model.add_var(var_type=mip.BINARY)
        model += part >= length * full
        opens = full
    least, start = points[0]
    model += count == least * active + mip.xsum(parts)
    filled = zip(_slopes(points), parts, strict=True)
    return start * active + mip.xsum(slope * part for slope, part in filled)


def _rescaling(
    model: mip.Model, contender: Contender, count: mip.Var, most: int
) -> mip.LinExpr | float:
    """What growing or shrinking costs; a trainer without nodes starts free of cost."""
    now = len(contender.current)
    rate = contender.curve.at(now)
    if now == 0 or rate == 0:
        return 0.0
    grows, shrinks = model.add_var(var_type=mip.BINARY), model.add_var(var_type=mip.BINARY)
    model += count - now <= max(0, most - now) * grows
    model += now - count <= now * shrinks
    return rate * (contender.rescale_up_s * grows + contender.rescale_down_s * shrinks)
