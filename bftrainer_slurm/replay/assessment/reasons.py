"""Why nodes are idle: what waited in the queue meanwhile, as far as a log of jobs tells.

The log is cut into cells of time; a cell's idle node time has the reason that the queue gives in
the middle of it, for each partition by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.assessment.coverage import Columns, idle_seconds
from bftrainer_slurm.replay.logs.log import Log

_CELLS = 5000  # at most
_SHORTEST_S = 60.0
_HOUR_S = 3600.0


class Reason(Enum):
    """Why nodes were idle, in words for a report."""

    EMPTY = "nothing waited for them"
    LARGER = "every job that waited needs more nodes than were idle"
    OTHER = "a job waited that needs no more nodes: time limit, memory, licences, limits on users"


_REASONS = tuple(Reason)


@dataclass(frozen=True, slots=True)
class Share:
    """Idle node-hours of some nodes or times, by reason."""

    what: str
    node_hours: dict[str, float]  # by the reason's name in small letters


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why nodes were idle: in all, by the partitions that nodes are in, and by weekday."""

    total: Share
    by_partition: tuple[Share, ...]
    by_weekday: tuple[Share, ...]  # Monday first


def reasons_of(log: Log, zone: tzinfo, weekdays: tuple[str, ...]) -> Reasons | None:
    """Return why nodes were idle; None where the log does not say who waited when."""
    if log.jobs is None or not log.jobs.says_who_waited():
        return None
    span_s = log.to_s - log.from_s
    count = max(1, min(_CELLS, int(span_s / _SHORTEST_S)))
    columns = Columns(log.from_s, span_s / count, count)
    kinds = list(dict.fromkeys(log.kinds))
    row = np.array([kinds.index(kind) for kind in log.kinds])
    idle_s = idle_seconds(log.holes, columns, row, len(kinds))
    partitions = sorted(frozenset().union(*kinds))
    least = log.jobs.least_waiting(partitions, columns.from_s, columns.width_s, count)
    reason = _reasons(kinds, partitions, idle_s / columns.width_s, least)
    of_cell = np.stack([np.where(reason == number, idle_s, 0.0) for number in range(len(Reason))])
    middles_s = columns.from_s + columns.width_s * (np.arange(count) + 0.5)
    day = np.array([datetime.fromtimestamp(at_s, zone).weekday() for at_s in middles_s])
    return Reasons(
        _share("all", of_cell.sum(axis=(1, 2))),
        tuple(
            _share(", ".join(sorted(kind)) or "all", of_cell[:, number].sum(axis=1))
            for number, kind in enumerate(kinds)
        ),
        tuple(
            _share(name, of_cell[:, :, day == number].sum(axis=(1, 2)))
            for number, name in enumerate(weekdays)
        ),
    )


def _reasons(
    kinds: list[frozenset[str]],
    partitions: list[str],
    idle: NDArray[np.float64],
    least: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the number of the reason for each kind of node and cell, [kinds, cells].

    ``idle`` [kinds, cells] are nodes; ``least`` [partitions, cells] is what the smallest job that
    waits needs, infinite where none does. A reason of one of its partitions is one of the node's.
    """
    found = np.zeros(idle.shape, np.int64)
    for place, partition in enumerate(partitions):
        member = np.array([partition in kind for kind in kinds])
        # Half a node more: the mean over a cell may be just below what a job needs.
        fits = least[place] <= idle[member].sum(axis=0) + 0.5
        of_partition = np.where(np.isinf(least[place]), 0, np.where(fits, 2, 1))
        found[member] = np.maximum(found[member], of_partition)
    return found


def _share(what: str, idle_s: NDArray[np.float64]) -> Share:
    hours = (idle_s / _HOUR_S).tolist()
    return Share(what, {one.name.lower(): hour for one, hour in zip(_REASONS, hours, strict=True)})
