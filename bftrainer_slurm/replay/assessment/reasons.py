"""Why nodes are idle: whether a job waited for them, as far as a log of jobs tells.

The log is cut into cells of time. A cell's idle node time gets the reason that the queue gives in
the middle of the cell, for each partition separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import Columns, idle_seconds
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trace import HOUR_S

_CELLS = 5000  # at most
_SHORTEST_S = 60.0


class Reason(Enum):
    """Why nodes were idle, in words for a report.

    The last is not idle time, because no trainer could have had these nodes either.
    """

    EMPTY = "nothing waited for them"
    WAITED = "a job of their partition waited, and did not start there"
    DOWN = "no job, but down, drained or reserved: not counted as idle"


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


def reasons_of(log: Log, zone: tzinfo, weekdays: tuple[str, ...]) -> Reasons | None:
    """Return why nodes were idle; None if the log does not say which jobs waited when."""
    if log.jobs is None or not log.jobs.says_who_waited():
        return None
    span_s = log.to_s - log.from_s
    count = max(1, min(_CELLS, int(span_s / _SHORTEST_S)))
    columns = Columns(log.from_s, span_s / count, count)
    types = log.types or ("",) * len(log.kinds)
    pairs = list(zip(log.kinds, types, strict=True))
    alike = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    row = np.array([alike[pair] for pair in pairs])
    idle_s = idle_seconds(log.holes, columns, row, len(alike))
    waited = _waited([partitions for partitions, _ in alike], log.jobs, columns)
    down_s = 0 * idle_s
    if log.unusable is not None:
        down_s = idle_seconds(log.unusable, columns, row, len(alike))
    of_cell = np.stack([np.where(waited, 0.0, idle_s), np.where(waited, idle_s, 0.0), down_s])
    middles_s = columns.from_s + columns.width_s * (np.arange(count) + 0.5)
    day = np.array([datetime.fromtimestamp(at_s, zone).weekday() for at_s in middles_s])
    return Reasons(
        _share("all", of_cell),
        _by([", ".join(sorted(partitions)) or "all" for partitions, _ in alike], of_cell),
        _by([type_ for _, type_ in alike], of_cell) if log.types else (),
        tuple(
            _share(name, of_cell[:, :, day == number])
            for number, name in enumerate(weekdays)
            if (day == number).any()
        ),
    )


def _waited(kinds: Sequence[frozenset[str]], jobs: JobTable, columns: Columns) -> NDArray[np.bool_]:
    """Return when a job waited for each kind of node, by its partitions: [kinds, cells]."""
    by_partition = defaultdict[str, NDArray[np.bool_]](lambda: np.zeros(columns.count, bool))
    for cells, partitions in jobs.waiting(columns.from_s, columns.width_s, columns.count):
        for partition in partitions.split(","):
            by_partition[partition][cells] = True
    found = np.zeros((len(kinds), columns.count), bool)
    for number, partitions_of in enumerate(kinds):
        for partition in partitions_of:
            found[number] |= by_partition[partition]
    return found


def _by(labels: Sequence[str], of_cell: NDArray[np.float64]) -> tuple[Share, ...]:
    """Return the shares of the kinds of each label; ``of_cell`` is [reasons, kinds, cells]."""
    rows = np.array(labels)
    return tuple(_share(label, of_cell[:, rows == label]) for label in dict.fromkeys(labels))


def _share(what: str, idle_s: NDArray[np.float64]) -> Share:
    hours = (idle_s.sum(axis=(1, 2)) / HOUR_S).tolist()
    return Share(what, {one.name.lower(): hour for one, hour in zip(Reason, hours, strict=True)})
