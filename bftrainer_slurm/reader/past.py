"""What the page shows of past days: delays of ordinary jobs, and the harvest. Answers are bounded.

``may_see`` says which users' names are shown.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.controller.state.schema import GPUS, NODE_SHARE, reading
from bftrainer_slurm.controller.state.statistics import LATE_S, Delay, summary
from bftrainer_slurm.words import counted

_SHOWN_DELAYS = 1_000
_MOST_USERS = 20
_DAY_S = 86_400.0

MaySee: TypeAlias = Callable[[str], bool]  # whether a user's trainers may be shown by name


def delays(history: sqlite3.Connection, from_s: float, to_s: float) -> dict[str, Any]:
    """Return the delays of ordinary jobs by trainers: one by one, and for each day."""
    these = "FROM preemptions WHERE time_s >= ? AND time_s < ?"
    started = "SELECT coalesce(sum(jobs), 0) FROM ordinary WHERE time_s >= ? AND time_s < ?"
    by_day = []
    for date, *day in watched_days(history, from_s, to_s):
        span = max(day[0], from_s), min(day[1], to_s)
        ((jobs,),) = history.execute(started, span)
        rows = history.execute(f"SELECT time_s, elements, delay_s {these}", span)
        by_day.append({"date": date, "started": jobs, **summary(Delay(*row) for row in rows)})
    ((count,),) = history.execute(f"SELECT count(*) {these}", (from_s, to_s))
    longest = f"SELECT time_s, elements, delay_s {these} ORDER BY delay_s DESC LIMIT ?"
    shown = sorted(history.execute(longest, (from_s, to_s, _SHOWN_DELAYS)))
    return {
        "from_s": from_s,
        "to_s": to_s,
        "late_s": LATE_S,
        "jobs": [[round(time_s, 1), elements, round(s, 2)] for time_s, elements, s in shown],
        "left_out": count - len(shown),
        "days": by_day,
    }


Day: TypeAlias = tuple[dict[str, float], float, float]


def day_of_harvest(history: sqlite3.Connection, begin_s: float, end_s: float, now_s: float) -> Day:
    """Return each user's node-hours in a day, all node-hours in holes, and trainers' GPU-hours.

    A part of a node counts as its share of the node; GPUs count on nodes that jobs share.
    """
    hours = "max(0, min(coalesce(end_s, :now), :end) - max(start_s, :begin)) / 3600"
    during = "(end_s > :begin OR end_s IS NULL) AND start_s < :end"
    values = {"now": now_s, "begin": begin_s, "end": end_s}
    users = history.execute(
        f"SELECT coalesce(user, ''), total({hours} * {NODE_SHARE}), total({hours} * {GPUS}) "
        f"FROM allocations LEFT JOIN trainers USING (array) WHERE {during} GROUP BY 1",
        values,
    ).fetchall()
    ((holes,),) = history.execute(f"SELECT total({hours}) FROM holes WHERE {during}", values)
    return {user: nodes for user, nodes, _ in users}, holes, sum(gpus for *_, gpus in users)


def harvest(found: dict[str, Day], may_see: MaySee) -> dict[str, Any]:
    """Return the harvest of each day; users with few node-hours share one sum."""
    total: dict[str, float] = defaultdict(float)
    for users, *_ in found.values():
        for user, hours in users.items():
            total[user] += hours
    top = sorted((user for user in total if user and may_see(user)), key=lambda user: -total[user])
    top = top[:_MOST_USERS]
    return {
        "users": top,
        "days": [
            {
                "date": date,
                "holes_h": round(holes, 3),
                "used_h": round(sum(users.values()), 3),
                "gpus_h": round(gpus, 3),
                "users_h": [round(users.get(user, 0.0), 3) for user in top],
            }
            for date, (users, holes, gpus) in found.items()
        ],
    }


def owner_of(history: sqlite3.Connection, array: int) -> tuple[str, str] | None:
    """Return user and name of a trainer, None if the history has no such trainer."""
    rows = history.execute("SELECT user, name FROM trainers WHERE array = ?", (array,)).fetchall()
    return next(iter(rows), None)


def watched_days(
    history: sqlite3.Connection, from_s: float, to_s: float
) -> Iterator[tuple[str, float, float]]:
    """Yield the days in which a controller observed the cluster; nothing is known of other days."""
    looked = "SELECT 1 FROM watches WHERE end_s > ? AND start_s < ? LIMIT 1"
    for date, *day in days(from_s, to_s):
        if history.execute(looked, day).fetchall():
            yield date, day[0], day[1]


def days(from_s: float, to_s: float) -> Iterator[tuple[str, float, float]]:
    """Yield date, begin and end of each day (local time) that overlaps this time."""
    begin_s = _midnight(from_s)
    while begin_s < to_s:
        end_s = _midnight(begin_s + 1.5 * _DAY_S)  # a day may have 23 hours, or 25
        yield time.strftime("%Y-%m-%d", time.localtime(begin_s)), begin_s, end_s
        begin_s = end_s


def _midnight(time_s: float) -> float:
    now = time.localtime(time_s)
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))


_LARGEST_PROBLEM = 64 * 2**20
_READ_S = 15.0


def past_problem(path: Path, back: int) -> bytes:
    """Return the problem, as JSON, that the controller planned ``back`` plans ago; 1 is the last.

    Raises:
        HistoryError: in one line.
    """
    query = "SELECT document FROM problems ORDER BY rowid DESC LIMIT 1 OFFSET ?"
    try:
        with reading(path, _READ_S) as database:
            rows = database.execute(query, (back - 1,)).fetchall()
        if not rows:
            raise HistoryError(f"{path}: it has fewer than {counted(back, 'problem')}")
        return zlib.decompressobj().decompress(rows[0][0], _LARGEST_PROBLEM)
    except (sqlite3.Error, zlib.error, TypeError) as error:
        raise HistoryError(f"{path}: {error}") from error
