"""The count model as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``): CBC is native code. No SOS sets: python-mip 2.0.0
crashes on them.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import mip

from bftrainer_slurm.planner.problem import Contender, Problem

GAP = 1e-7  # relative; the recorded optima are met to 1e-6
# CBC's tolerances are absolute: in curves of 1e-6 or 1e12 samples/s it "proves" wrong optima.
# So the model counts in units in which the most that one trainer can bring is this.
_SCALE = 1000.0
_SAME_SLOPE = 1e-9  # relative; linear curves are concave, whatever the rounding of their points

_Points = list[tuple[int, float]]  # (nodes, what they bring over the forward time, in units)


@dataclass(frozen=True, slots=True)
class Answer:
    """What CBC found: counts in the order of the contenders (None: nothing), proven or not."""

    counts: list[int] | None
    optimal: bool


def solve(problem: Problem, time_limit_s: float) -> Answer:
    """Maximise the objective over the counts."""
    deadline_s = time.monotonic() + time_limit_s
    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 1
    model.max_mip_gap = GAP
    model.max_mip_gap_abs = 1e-9
    counts, worths = [], []
    unit = _unit(problem)
    for contender in problem.contenders:
        count, worth = _add_contender(model, contender, problem, unit)
        counts.append(count)
        worths.append(worth)
    model += mip.xsum(counts) <= len(problem.pool)
    model.objective = mip.xsum(worths)
    # A few dozen milliseconds even where writing the model took all of the time.
    status = model.optimize(max_seconds=max(0.05, deadline_s - time.monotonic()))
    if model.num_solutions == 0:
        return Answer(None, False)
    return Answer([round(count.x) for count in counts], status is mip.OptimizationStatus.OPTIMAL)


def _unit(problem: Problem) -> float:
    most = max((max(contender.curve.values) for contender in problem.contenders), default=0.0)
    return problem.forward_time_s * most / _SCALE or 1.0


def _add_contender(
    model: mip.Model, contender: Contender, problem: Problem, unit: float
) -> tuple[mip.Var, mip.LinExpr]:
    """Add one trainer; return its count and its part of the objective."""
    most = min(contender.max_nodes, len(problem.pool))
    if most < contender.min_nodes:
        return model.add_var(var_type=mip.INTEGER, ub=0), mip.xsum([])
    count = model.add_var(var_type=mip.INTEGER, ub=most)
    active = model.add_var(var_type=mip.BINARY)
    model += count >= contender.min_nodes * active
    model += count <= most * active
    points = _points(contender, most, problem.forward_time_s / unit)
    if _is_concave(points):
        worth = _lines(model, points, active, count)
    else:
        worth = _pieces(model, points, active, count)
    return count, worth - _rescaling(model, contender, count, most, unit)


def _points(contender: Contender, most: int, factor: float) -> _Points:
    """The curve's corners between the least and the most nodes the trainer can have."""
    inner = [n for n in contender.curve.nodes if contender.min_nodes < n < most]
    sizes = sorted({contender.min_nodes, *inner, most})
    return [(size, factor * contender.curve.at(size)) for size in sizes]


def _slopes(points: _Points) -> list[float]:
    return [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in itertools.pairwise(points)]


def _is_concave(points: _Points) -> bool:
    slopes = _slopes(points)
    slack = _SAME_SLOPE * max(map(abs, slopes), default=0.0)
    return all(later <= earlier + slack for earlier, later in itertools.pairwise(slopes))


def _lines(model: mip.Model, points: _Points, active: mip.Var, count: mip.Var) -> mip.LinExpr:
    """A concave curve: what lies under all of its pieces, made longer."""
    slopes = _slopes(points)
    if not slopes:
        return points[0][1] * active
    worth = model.add_var(lb=0.0)
    for slope, (size, height) in zip(slopes, points, strict=False):
        model += worth <= slope * count + (height - slope * size) * active
    return worth + 0.0


def _pieces(model: mip.Model, points: _Points, active: mip.Var, count: mip.Var) -> mip.LinExpr:
    """Any curve: pieces that are filled one after the other, with a binary between two."""
    lengths = [x1 - x0 for (x0, _), (x1, _) in itertools.pairwise(points)]
    parts = [model.add_var(ub=length) for length in lengths]
    opens = [active, *(model.add_var(var_type=mip.BINARY) for _ in parts[1:])]
    for part, length, is_open in zip(parts, lengths, opens, strict=True):
        model += part <= length * is_open
    for part, length, next_opens in zip(parts, lengths, opens[1:], strict=False):
        model += part >= length * next_opens
    least, start = points[0]
    model += count == least * active + mip.xsum(parts)
    filled = zip(_slopes(points), parts, strict=True)
    return start * active + mip.xsum(slope * part for slope, part in filled)


def _rescaling(
    model: mip.Model, contender: Contender, count: mip.Var, most: int, unit: float
) -> mip.LinExpr | float:
    """What growing or shrinking costs; a trainer without nodes starts free of cost."""
    now = len(contender.current)
    rate = contender.curve.at(now) / unit
    if now == 0 or rate == 0:
        return 0.0
    grows, shrinks = model.add_var(var_type=mip.BINARY), model.add_var(var_type=mip.BINARY)
    model += count - now <= max(0, most - now) * grows
    model += now - count <= now * shrinks
    return rate * (contender.rescale_up_s * grows + contender.rescale_down_s * shrinks)
