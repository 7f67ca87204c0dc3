"""The count model as a mixed-integer linear program, solved by CBC through python-mip.

Runs in the child process only (``child``): CBC is native code. No SOS sets: python-mip 2.0.0
crashes on them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import mip

from bftrainer_slurm.planner.pieces import pieces_of
from bftrainer_slurm.planner.problem import Contender, Problem

GAP = 1e-7  # relative; the recorded optima are met to 1e-6
# CBC's tolerances are absolute: in curves of 1e-6 or 1e12 samples/s it "proves" wrong optima.
# So the model counts in units in which the most that one trainer can bring is this.
_SCALE = 1000.0


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
    if not model.num_cols:
        return Answer([0 for _ in counts], True)
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
) -> tuple[mip.LinExpr, mip.LinExpr]:
    """Add one trainer; return its count and what it brings more than with no node."""
    count, worth, chosen = mip.LinExpr(), mip.LinExpr(), mip.LinExpr()
    nothing = problem.worth(contender, 0)
    for piece in pieces_of(problem, contender):
        is_on = model.add_var(var_type=mip.BINARY)
        chosen.add_var(is_on)
        count.add_var(is_on, piece.least)
        worth.add_var(is_on, (piece.start - nothing) / unit)
        if piece.most > piece.least:
            extent = model.add_var(ub=piece.most - piece.least)
            model += extent <= (piece.most - piece.least) * is_on
            count.add_var(extent)
            worth.add_var(extent, piece.slope / unit)
    if len(chosen):
        model += chosen <= 1
    return count, worth
