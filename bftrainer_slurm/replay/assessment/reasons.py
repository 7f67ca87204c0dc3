"""Why nodes are idle: what waited in the queue at that time, as far as a log of jobs tells.

The log is cut into cells of time. A cell's idle node time gets the reason that the queue gives in
the middle of the cell, for each partition separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import Columns, idle_seconds
from bftrainer_slurm.replay.logs.jobs import Job
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trace import HOUR_S

_CELLS = 5000  # at most
_SHORTEST_S = 60.0
_LITTLE_MORE = 1.01  # memory: what jobs had shows what nodes have


class Reason(Enum):
    """Why nodes were idle, in words for a report.

    A later reason of the queue is that of a job that was nearer to a start. The last two are not
    idle time, because no trainer could have had these nodes either.
    """

    EMPTY = "nothing waited for them"
    LARGER = "every job that waited needs more nodes than were idle"
    GPUS = "a job waited that needs more GPUs per node than idle nodes have"
    MEMORY = "a job waited that needs more memory per node than idle ones have, as far as jobs show"
    TIME = "a job waited whose time limit would have delayed a larger job ahead of it"
    OTHER = "a job waited although there were nodes: licences, limits on users, features"
    RESERVED = "no job, but reserved: not counted as idle"
    DOWN = "no job, but down or drained: not counted as idle"


_REASONS = tuple(Reason)
_NUMBER = {one: number for number, one in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Share:
    """Idle node-hours of some nodes or times, by reason."""

    what: str
    node_hours: dict[str, float]  # by the reason's name in small letters


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why nodes were idle: in all, by their partitions, their type, and by weekday.

    ``by_type`` is empty where types are not known.
    """

    total: Share
    by_partition: tuple[Share, ...]
    by_type: tuple[Share, ...]
    by_weekday: tuple[Share, ...]  # Monday first

    @property
    def seen(self) -> tuple[Reason, ...]:
        """The reasons that occur, in order; the first one if none does."""
        hours = self.total.node_hours
        return tuple(one for one in Reason if hours[one.name.lower()] > 0) or (Reason.EMPTY,)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes that are alike: their partitions, their type, and what each has."""

    partitions: frozenset[str]
    type: str
    gpus: float
    memory_mb: float


def reasons_of(log: Log, zone: tzinfo, weekdays: tuple[str, ...]) -> Reasons | None:
    """Return why nodes were idle; None if the log does not say which jobs waited when."""
    if log.jobs is None or not log.jobs.says_who_waited():
        return None
    span_s = log.to_s - log.from_s
    count = max(1, min(_CELLS, int(span_s / _SHORTEST_S)))
    columns = Columns(log.from_s, span_s / count, count)
    kinds, row = _kinds(log)
    idle_s = idle_seconds(log.holes, columns, row, len(kinds))
    reason = _of_queue(kinds, idle_s / columns.width_s, log, columns)
    of_cell = np.stack([np.where(reason == number, idle_s, 0.0) for number in range(len(Reason))])
    for why, holes in log.unusable.items():
        of_cell[_NUMBER[Reason[why.upper()]]] = idle_seconds(holes, columns, row, len(kinds))
    middles_s = columns.from_s + columns.width_s * (np.arange(count) + 0.5)
    day = np.array([datetime.fromtimestamp(at_s, zone).weekday() for at_s in middles_s])
    return Reasons(
        _share("all", of_cell.sum(axis=(1, 2))),
        _by([", ".join(sorted(one.partitions)) or "all" for one in kinds], of_cell),
        _by([one.type for one in kinds], of_cell) if log.types else (),
        tuple(
            _share(name, of_cell[:, :, day == number].sum(axis=(1, 2)))
            for number, name in enumerate(weekdays)
            if (day == number).any()
        ),
    )


def _kinds(log: Log) -> tuple[list[_Kind], NDArray[np.int64]]:
    """Return the kinds of nodes, and which one each node is of."""
    types = log.types or ("",) * len(log.kinds)
    pairs = list(zip(log.kinds, types, strict=True))
    distinct = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    row = np.array([distinct[pair] for pair in pairs])
    # If the log does not tell what nodes have, assume that they lack nothing.
    gpus, memory_mb = np.full((2, len(distinct)), np.inf if log.hardware is None else 0.0)
    if log.hardware is not None:
        np.maximum.at(gpus, row, log.hardware.gpus)
        np.maximum.at(memory_mb, row, log.hardware.memory_mb)
    has = zip(distinct, gpus.tolist(), memory_mb.tolist(), strict=True)
    return [_Kind(*pair, count, most) for pair, count, most in has], row


def _of_queue(
    kinds: Sequence[_Kind], idle: NDArray[np.float64], log: Log, columns: Columns
) -> NDArray[np.int64]:
    """Return the number of the reason for each kind of node and cell, [kinds, cells].

    ``idle`` [kinds, cells] are nodes. A reason of one of its partitions is one of the node's.
    """
    assert log.jobs is not None
    found = np.zeros(idle.shape, np.int64)
    waiting: dict[str, list[tuple[slice, Job]]] = defaultdict(list)
    for cells, job in log.jobs.waiting(columns.from_s, columns.width_s, columns.count):
        for partition in job.partition.split(","):
            waiting[partition].append((cells, job))
    middle_s = columns.from_s + columns.width_s * (np.arange(columns.count) + 0.5)
    for partition in frozenset[str]().union(*(one.partitions for one in kinds)):
        member = np.array([partition in one.partitions for one in kinds])
        of_partition = _of_partition(waiting[partition], _idle_with(kinds, member, idle), middle_s)
        found[member] = np.maximum(found[member], of_partition)
    return found


IdleWith = Callable[[float, float], NDArray[np.float64]]


def _idle_with(
    kinds: Sequence[_Kind], member: NDArray[np.bool_], idle: NDArray[np.float64]
) -> IdleWith:
    """Return a function: how many nodes with so many GPUs and so much memory were idle."""
    gpus = np.array([one.gpus for one in kinds])
    memory_mb = np.array([one.memory_mb for one in kinds]) * _LITTLE_MORE

    @lru_cache(maxsize=1024)
    def nodes(least_gpus: float, least_mb: float) -> NDArray[np.float64]:
        # Half a node more: the mean over a cell may be just below what a job needs.
        has = member & (gpus >= least_gpus) & (memory_mb >= least_mb)
        return np.asarray(idle[has].sum(axis=0) + 0.5)

    return nodes


def _of_partition(
    waiting: Sequence[tuple[slice, Job]], idle: IdleWith, middle_s: NDArray[np.floating]
) -> NDArray[np.int64]:
    """Return the number of the reason for each cell: that of the job nearest to a start."""
    found = np.zeros(len(middle_s), np.int64)
    first_rank, first_start_s = np.full((2, len(middle_s)), -np.inf)  # of larger jobs that wait
    for cells, job in waiting:
        larger = (job.nodes > idle(0, 0)[cells]) & (_rank(job) > first_rank[cells])
        first_rank[cells][larger] = _rank(job)
        first_start_s[cells][larger] = job.start_s
    for cells, job in waiting:
        gpus, memory_mb = job.gpus / job.nodes, job.memory_mb / job.nodes
        ahead = first_rank[cells] > _rank(job)
        late = ahead & (middle_s[cells] + job.limit_s > first_start_s[cells])
        its = np.select(
            [
                job.nodes > idle(0, 0)[cells],
                job.nodes > idle(gpus, 0)[cells],
                job.nodes > idle(gpus, memory_mb)[cells],
                late & np.isfinite(job.limit_s),
            ],
            [_NUMBER[one] for one in (Reason.LARGER, Reason.GPUS, Reason.MEMORY, Reason.TIME)],
            _NUMBER[Reason.OTHER],
        )
        np.maximum(found[cells], its, out=found[cells])
    return found


def _rank(job: Job) -> float:
    """Return the order of the queue: the log's priority, or else the longest wait first."""
    return job.priority or -job.eligible_s


def _by(labels: Sequence[str], of_cell: NDArray[np.float64]) -> tuple[Share, ...]:
    """Return the shares of the kinds of each label; ``of_cell`` is [reasons, kinds, cells]."""
    rows = np.array(labels)
    return tuple(
        _share(label, of_cell[:, rows == label].sum(axis=(1, 2))) for label in dict.fromkeys(labels)
    )


def _share(what: str, idle_s: NDArray[np.float64]) -> Share:
    hours = (idle_s / HOUR_S).tolist()
    return Share(what, {one.name.lower(): hour for one, hour in zip(_REASONS, hours, strict=True)})
