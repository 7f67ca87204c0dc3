"""The count model: an integer for each segment, solved by CBC through python-mip.

Runs in the child process only (``child``), because CBC is native code. It uses no SOS sets and no
callbacks, which crash python-mip 2.0.0. An integer says how many of a group's members take a
segment. Given those, the nodes of each class are a flow, whose corners are whole numbers, so
nothing else is an integer. (With parts of nodes it is no flow: elements of several sizes share
rows. Then the elements of each row are integers too.)

What is minimized is the loss: what a plan is worth less than the bound. That is what each segment
brings less than its group's best choice, and the price of what nobody takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mip
import numpy as np
from mip.cbc import cbc_set_parameter

from bftrainer_slurm.planner.cbc import SCALE, new_model
from bftrainer_slurm.planner.lagrangian import Bound, Reals, Relaxation
from bftrainer_slurm.planner.problem import Share

_LEAST_S = 0.05
_NO_PRICE = 1e-9  # of the greatest price


@dataclass(frozen=True, slots=True)
class Answer:
    """Each trainer's share by its place, None if none was found; no plan loses less than this."""

    shares: dict[int, Share] | None
    least_loss: float


@dataclass(frozen=True, slots=True)
class _Column:
    """A segment: how many members take it, with so many elements beyond its ``low``, by row.

    A number is of each taker, a variable of all together.
    """

    low: list[int]
    takers: mip.Var
    beyond: dict[int, mip.Var | int]


class CountModel:
    """The segments that lose no more than ``most_loss``: no better plan has another one."""

    def __init__(self, relaxation: Relaxation, bound: Bound, most_loss: float) -> None:
        self._relaxation, self._prices = relaxation, bound.prices
        self._unit = most_loss / SCALE
        self._model = new_model(mip.MINIMIZE)
        self._is_flow = bool((relaxation.uses == np.eye(len(relaxation.rows))).all())
        self._paid = relaxation.prices_of(bound.prices)
        self._used = [mip.LinExpr() for _ in relaxation.rows]
        self._losses = mip.LinExpr()
        self._columns = [
            self._add_group(group, segments, float(bound.choices.net[group]))
            for group, segments in relaxation.kept(bound, most_loss).items()
        ]
        supply, prices = relaxation.supply.tolist(), bound.prices.tolist()
        self._rows = []
        for used, amount, price in zip(self._used, supply, prices, strict=True):
            unused = self._model.add_var(ub=amount)
            self._losses.add_var(unused, price / self._unit)
            self._rows.append(self._model.add_constr(used + unused == amount))
        self._model.objective = self._losses

    def prices(self) -> Reals:
        """Return the prices of the least bound: those of the model's linear relaxation."""
        self._model.optimize(relax=True)
        prices = self._prices - np.array([row.pi for row in self._rows]) * self._unit
        prices[prices <= _NO_PRICE * prices.max()] = 0.0
        return prices

    def solve(self, gap: float, limit_s: float) -> Answer:
        """Find the plan of the least loss, to within ``gap``."""
        model = self._model
        model.max_mip_gap, model.max_mip_gap_abs = 0.0, gap / self._unit
        # There is little to gain before branching: the bound is tight, and a good plan is known.
        model.cuts = model.preprocess = model.pump_passes = model.clique = 0
        cbc_set_parameter(model.solver, "heuristicsOnOff", "off")
        model.cutoff = 1.01 * SCALE - self._losses.const
        status = model.optimize(max_seconds=max(_LEAST_S, limit_s))
        if model.num_solutions == 0:
            none_is_better = status is mip.OptimizationStatus.INFEASIBLE
            return Answer(None, SCALE * self._unit if none_is_better else 0.0)
        return Answer(dict(self._shares()), max(0.0, model.objective_bound) * self._unit)

    def _add_group(self, group: int, segments: list[int], best: float) -> tuple[int, list[_Column]]:
        """Add trainers that are alike: they are divided among their segments."""
        members = len(self._relaxation.groups[group].members)
        columns = [self._add_segment(one, members, best) for one in segments]
        self._model += mip.xsum(one.takers for one in columns) == members
        return group, columns

    def _add_segment(self, at: int, members: int, best: float) -> _Column:
        one = self._relaxation.segments
        low, room = one.low[at], one.room[at]
        least, most, slope = float(one.least[at]), float(one.most[at]), float(one.slope[at])
        takers = self._model.add_var(var_type=mip.INTEGER, ub=members)
        loss = best - float(one.start[at]) + slope * least + float(low @ self._paid)
        for row in np.flatnonzero(low).tolist():
            self._use(row, takers, float(low[row]))
        beyond: dict[int, mip.Var | int] = {}
        rows = np.flatnonzero(room).tolist() if most > 0 else []
        if least == most and len(rows) == 1:
            beyond[rows[0]] = int(least)
            loss += least * (float(self._paid[rows[0]]) - slope)
            self._use(rows[0], takers, least)
        elif rows:
            beyond |= {row: self._add_beyond(row, float(room[row]), members) for row in rows}
            total = mip.xsum(beyond.values())
            self._model += total <= most * takers
            if least > 0:
                self._model += total >= least * takers
            for row, count in beyond.items():
                self._losses.add_var(count, (float(self._paid[row]) - slope) / self._unit)
                if len(rows) > 1 and room[row] < most:
                    self._model += count <= float(room[row]) * takers
        self._losses.add_var(takers, loss / self._unit)
        return _Column(low.astype(int).tolist(), takers, beyond)

    def _add_beyond(self, row: int, room: float, members: int) -> mip.Var:
        kind = mip.CONTINUOUS if self._is_flow else mip.INTEGER
        count = self._model.add_var(ub=room * members, var_type=kind)
        self._use(row, count, 1.0)
        return count

    def _use(self, row: int, count: mip.Var, times: float) -> None:
        uses = self._relaxation.uses[row]
        for other in np.flatnonzero(uses).tolist():
            self._used[other].add_var(count, times * float(uses[other]))

    def _shares(self) -> Iterator[tuple[int, Share]]:
        """Yield each member's share: a segment's extra elements are dealt out in turn, row by row.

        So members with the same segment differ by at most one element, in all and of each row.
        """
        for group, columns in self._columns:
            members = iter(self._relaxation.groups[group].members)
            for column in columns:
                takers = round(column.takers.x)
                dealt = [list(column.low) for _ in range(takers)]
                elements = [
                    row
                    for row, count in column.beyond.items()
                    for _ in range(takers * count if isinstance(count, int) else round(count.x))
                ]
                for turn, row in enumerate(elements):
                    dealt[turn % takers][row] += 1
                for share in dealt:
                    yield next(members), tuple(share)
