"""What all logs share: jobs, with a column for each field, and notes made while reading."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SHOWN_LINES = 5
_EXCERPT = 120
_EXACT = 2.0**53  # whole numbers up to here are
_LATEST_S = 4_102_444_800.0  # the year 2100: what is later is a broken field

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Objects = NDArray[np.object_]


class LogError(ValueError):
    """A log cannot be used; one line names the file, what is wrong, and the remedy."""


class Job(NamedTuple):
    """One stretch in which a job held nodes, or waited without ever starting; in Unix seconds.

    ``end_s`` is infinite while it runs, ``start_s`` if it never started: then it left the queue
    at ``end_s``. ``node_list`` is in Slurm's syntax, empty if the log has none. The same ``key``
    marks a stretch that the log shows twice; ``line`` is its line in the file. ``eligible_s`` is
    NaN if the log has no time of submission. ``backfilled`` says whether backfill started it, None
    if the log does not say. ``gpus`` are of all its nodes, 0 if it has none or the log does not
    say; ``limit_s`` is its time limit, infinite if it has none.
    """

    line: int
    key: int
    start_s: float
    end_s: float
    nodes: int
    node_list: str
    eligible_s: float = math.nan
    backfilled: bool | None = None
    priority: int = 0
    partition: str = ""
    gpus: int = 0
    limit_s: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class JobTable:
    """Jobs, a column for each field of ``Job``."""

    line: Integers
    key: Integers
    start_s: Reals
    end_s: Reals
    nodes: Integers
    node_list: Objects
    eligible_s: Reals
    backfilled: Objects
    priority: Integers
    partition: Objects
    gpus: Integers
    limit_s: Reals

    @staticmethod
    def of(jobs: Iterable[Job]) -> JobTable:
        """Return the table with these rows."""
        columns = list(zip(*jobs, strict=True)) or [()] * len(_TYPES)
        return JobTable(*map(np.array, columns, _TYPES))

    @staticmethod
    def made(**columns: NDArray[Any]) -> JobTable:
        """Return the table with these columns; all jobs have the defaults of the others."""
        count = len(next(iter(columns.values())))
        defaults = {"line": 0, "node_list": "", **Job._field_defaults}
        return JobTable(
            *(
                _as_type(columns[name], type_)
                if name in columns
                else np.full(count, defaults[name], type_)
                for name, type_ in zip(Job._fields, _TYPES, strict=True)
            )
        )

    @staticmethod
    def joined(tables: Iterable[JobTable]) -> JobTable:
        """Return the rows of all of these."""
        parts = [JobTable.of(()), *tables]
        return JobTable(*(np.concatenate(one) for one in zip(*map(_columns, parts), strict=True)))

    def __len__(self) -> int:
        return len(self.key)

    def __iter__(self) -> Iterator[Job]:
        return map(Job._make, zip(*(one.tolist() for one in _columns(self)), strict=True))

    def rows(self, which: NDArray[np.bool_] | Integers) -> JobTable:
        """Return the table with these rows only, by a mask or by their numbers."""
        return JobTable(*(column[which] for column in _columns(self)))

    def once(self) -> JobTable:
        """Return the table without what the log shows twice.

        If a job still ran when one part of the log was taken, the part with its end stays.
        """
        order = np.lexsort((self.end_s, self.key))
        _, first = np.unique(self.key[order], return_index=True)
        return self.rows(np.sort(order[first]))

    @property
    def started(self) -> NDArray[np.bool_]:
        """Which of the jobs ever held a node."""
        return np.isfinite(self.start_s)

    def says_who_waited(self) -> bool:
        """Whether any job has a time of submission."""
        return bool(np.isfinite(self.eligible_s).any())

    def waiting(self, from_s: float, width_s: float, count: int) -> list[tuple[slice, str]]:
        """Return where jobs of which partition wait, in the middle of so many cells of time."""
        gone_s = np.minimum(self.start_s, self.end_s)
        cells = (np.stack([self.eligible_s, gone_s]) - from_s) / width_s + 0.5
        first, last = np.clip(np.nan_to_num(cells), 0, count).astype(np.int64)
        these = (first < last) & np.isfinite(self.eligible_s)
        spans = map(slice, first[these].tolist(), last[these].tolist())
        return list(zip(spans, self.partition[these].tolist(), strict=True))

    def between(self, from_s: float, to_s: float) -> JobTable:
        """Return the jobs that wait, start or run then, in the order of the log."""
        first_s = np.fmin(self.eligible_s, self.start_s)
        return self.rows((first_s < to_s) & (self.end_s > from_s))


_TYPES: tuple[Any, ...] = (int, int, float, float, int, object, float, object, int, object,
                           int, float)  # fmt: skip


def _columns(table: JobTable) -> tuple[NDArray[Any], ...]:
    return tuple(getattr(table, name) for name in Job._fields)


def _as_type(values: NDArray[Any], type_: Any) -> NDArray[Any]:
    if type_ is int and values.dtype.kind == "f":
        values = np.clip(np.nan_to_num(values), -_EXACT, _EXACT)
    return values.astype(type_)


def keys_of(ids: Iterable[str], start_s: Reals) -> Integers:
    """Return the keys of jobs with these ids that start then."""
    return np.array([hash(pair) for pair in zip(ids, start_s.tolist(), strict=True)], np.int64)


def faults(jobs: JobTable) -> Objects:
    """Say why each job is impossible; empty if it is possible."""
    never = np.isinf(jobs.start_s) & (jobs.end_s < math.inf)
    no_time = "is not a time of this century or the last"
    cases = {
        f"its start {no_time}": ~(_within(jobs.start_s, 0, _LATEST_S) | never),
        "it ends before it starts": (jobs.end_s < jobs.start_s) & ~never,
        f"its end {no_time}": (jobs.end_s >= _LATEST_S) & np.isfinite(jobs.end_s),
        "its number of nodes is impossible": ~_within(jobs.nodes, 1, 1 << 24),
        "its GPUs or its time limit is impossible": ~(
            _within(jobs.gpus, 0, 1 << 24) & (jobs.limit_s >= 0)
        ),
    }
    return np.select(list(cases.values()), list(cases), "").astype(object)


def _within(values: Reals | Integers, least: float, below: float) -> NDArray[np.bool_]:
    return (values >= least) & (values < below)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was skipped, and why; ``text`` is raw: escape it before you show it."""

    number: int
    why: str
    text: str


@dataclass(slots=True)
class Notes:
    """A reader's notes: how many lines of which kind, and the first few that it could not read."""

    jobs: int = 0
    never_ran: int = 0
    steps: int = 0
    running: int = 0
    malformed: int = 0
    local_times: bool = False  # times without a zone, read in the one that the user names
    slices: str = ""  # a kind of slice of a GPU (MIG) that a job had, as it is counted as a GPU
    bad_lines: list[BadLine] = field(default_factory=list)
    last_submit_s: float = -math.inf

    @property
    def lines(self) -> int:
        """How many lines there were, whatever they held."""
        return self.jobs + self.never_ran + self.steps + self.malformed

    def skip(self, number: int, line: str, why: str) -> None:
        """Count a line that cannot be read, and keep it if it is one of the first."""
        self.malformed += 1
        self.bad_lines.append(BadLine(number, why[:_EXCERPT], line[:_EXCERPT]))
        self.bad_lines.sort(key=lambda one: one.number)
        del self.bad_lines[SHOWN_LINES:]
