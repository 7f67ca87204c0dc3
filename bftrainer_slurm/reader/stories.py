"""What users see of the history: all trainers, one trainer's records.

About other users' trainers a user sees no more than squeue and sacct show.
docs/internals/json.md has the keys.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.observe.reports import Loss, Work
from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.controller.state.schema import VERSION, reading
from bftrainer_slurm.controller.state.statistics import (
    TOTALS,
    TOTALS_OF_ONE,
    goodput,
    totals_of_one,
)
from bftrainer_slurm.keeper.protocol import whole
from bftrainer_slurm.reader.access import Viewer

SCHEMA = 1
ALL = "all"  # valid for ``what``, like the id of a trainer
_COURSE_PARTS = 240
_MOST_CHANGES = 200
_MOST_ALLOCATIONS = 2_000  # of one trainer, if they are only counted
_AT_ONCE_S = 2.0  # nodes that come or go so soon after each other are one change
_DEADLINE_S = 15.0  # for all queries of one answer; the keeper waits no longer
# Not the last output of its script, which is below the first line of why it is over.
_MET = (
    "array, name, user, submit_s, min_nodes, max_nodes, "
    "substr(over, 1, instr(over || char(10), char(10)) - 1) AS over"
)
_OF_ALL = f"""
SELECT {_MET}, grew, shrank, reclaimed, node_s, gpu_s, first_s, last_s
FROM ({TOTALS} GROUP BY array HAVING last_s IS NULL OR last_s > :since)
JOIN trainers USING (array)
ORDER BY submit_s DESC, array DESC LIMIT 2000
"""
_SHOWN_TOTALS = ("grew", "shrank", "reclaimed", "ended", "node_s", "gpu_s")


@dataclass(frozen=True, slots=True)
class Allocation:
    """The time of an element on a node, or on ``gpus`` of it.

    ``end_s`` is None if the element is still there.
    """

    node: str
    start_s: float
    end_s: float | None
    how: str | None
    gpus: int = 0


def read_history(
    path: Path, what: str, since_s: float, now_s: float, reader: str | None, *, private: bool
) -> dict[str, Any]:
    """Return what the history at ``path`` has on ``what``: an array id, or ALL.

    ``reader`` is a user, or None for a reader who may see everything. With ``private`` users see
    only their own trainers. A trainer is null if it is unknown, or the reader may not see it.

    Raises:
        HistoryError: the history cannot be read.
        ValueError: ``what`` is none of these.
    """
    array = None if what == ALL else whole(what)
    head = {"schema": SCHEMA, "time_s": now_s, "since_s": since_s}
    who = Viewer(reader or None, reader is None, frozenset({"jobs"} if private else ()))
    with open_history(path, _DEADLINE_S) as history:
        history.row_factory = sqlite3.Row
        if array is None:
            return head | {"trainers": who.visible_trainers(_all_trainers(history, since_s, now_s))}
        found = _one_trainer(history, array, since_s, now_s, who)
    return head | {"trainer": found and who.visible(found)}


@contextmanager
def open_history(path: Path, deadline_s: float = _DEADLINE_S) -> Iterator[sqlite3.Connection]:
    """Open a history file for reading; all queries together may take ``deadline_s``.

    Raises:
        HistoryError: the file is missing, cannot be read, or is of another version.
    """
    try:
        with reading(path, deadline_s) as history:
            ((version,),) = history.execute("PRAGMA user_version").fetchall()
            if version != VERSION:
                raise HistoryError(f"history {path}: written by another version ({version})")
            yield history
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise HistoryError(f"history {path}: {error}") from error


def _all_trainers(
    history: sqlite3.Connection, since_s: float, now_s: float
) -> list[dict[str, Any]]:
    """Return the trainers that had nodes from ``since_s`` on, with their totals, newest first."""
    return [dict(row) for row in history.execute(_OF_ALL, {"since": since_s, "now": now_s})]


def allocations_of(
    history: sqlite3.Connection, array: int, since_s: float = 0.0, most: int = -1
) -> list[Allocation]:
    """Return a trainer's allocations that ended after ``since_s``: the last ``most`` to end."""
    rows = history.execute(
        "SELECT node, start_s, end_s, how, gpus FROM allocations WHERE array = ? AND "
        "(end_s IS NULL OR end_s > ?) ORDER BY coalesce(end_s, 9e99) DESC LIMIT ?",
        (array, since_s, most),
    )
    return [Allocation(*row) for row in rows]


def _one_trainer(
    history: sqlite3.Connection, array: int, since_s: float, now_s: float, who: Viewer
) -> dict[str, Any] | None:
    """Return all records of one trainer from ``since_s`` on, None if there are none."""
    query = f"SELECT {_MET} FROM trainers WHERE array = ?"
    met = next(map(dict, history.execute(query, (array,))), None)
    if met is None or not who.may_see_trainers(met["user"]):
        return None
    spans, ours = allocations_of(history, array, since_s), (array, since_s)
    totals = totals_of_one(history.execute(TOTALS_OF_ONE, {"array": array, "now": now_s}))
    since_s = max(since_s, min((one.start_s for one in spans), default=now_s))
    until_s = max(since_s, now_s if totals.last_s is None else totals.last_s)
    part_s = max(1.0, (until_s - since_s) / _COURSE_PARTS)
    parts = max(1, min(_COURSE_PARTS, round((until_s - since_s) / part_s)))
    changes = [_change_document(*one) for one in _changes(spans)]
    samples = (
        "SELECT time_s, samples FROM progress WHERE array = ? AND time_s > ? "
        "ORDER BY time_s DESC LIMIT 2000"
    )
    pauses = "SELECT time_s, nodes, seconds FROM pauses WHERE array = ? AND time_s > ?"
    worked = "SELECT document FROM documents WHERE array = ? AND kind = 'Work'"
    work = next((_work(text) for (text,) in history.execute(worked, (array,))), None)
    return met | {
        "from_s": since_s,
        "until_s": until_s,
        "total": {name: getattr(totals, name) for name in _SHOWN_TOTALS},
        "course": {"part_s": part_s, "nodes": mean_nodes(spans, since_s, part_s, parts, until_s)},
        "changes": changes[-_MOST_CHANGES:],
        "earlier_changes": max(0, len(changes) - _MOST_CHANGES),
        "samples": [dict(row) for row in history.execute(samples, ours)][::-1],
        "rescales": [dict(row) for row in history.execute(f"{pauses} ORDER BY time_s", ours)],
        "goodput": goodput(work, totals, met["submit_s"], ended=True, now_s=now_s),
    }


def _work(text: str) -> Work:
    # Without msgspec: a user's `history` has none of the extras.
    sums = json.loads(text)
    return Work(**{**sums, "loss": Loss(**sums["loss"])})


def mean_nodes(
    spans: Sequence[Allocation], since_s: float, part_s: float, parts: int, now_s: float
) -> list[float]:
    """Return the mean number of nodes in each of ``parts`` of time from ``since_s`` on."""
    # Without numpy: a user's `history` has none of the extras.
    node_s = [0.0] * (parts + 1)  # in the parts in which an allocation begins or ends
    whole = [0] * (parts + 2)  # change of the number of nodes that are held for a whole part
    for one in spans:
        begin = max(0.0, one.start_s - since_s) / part_s
        end = ((now_s if one.end_s is None else one.end_s) - since_s) / part_s
        begin, end = min(begin, parts), min(end, parts)
        first, last = int(begin), int(end)
        if end <= begin:
            continue
        if first == last:
            node_s[first] += end - begin
            continue
        node_s[first] += first + 1 - begin
        node_s[last] += end - last
        whole[first + 1] += 1
        whole[last] -= 1
    steady = list(accumulate(whole))
    return [round(node_s[part] + steady[part], 3) for part in range(parts)]


_Change = tuple[float, int, list[str], list[tuple[str, str]]]


def _changes(spans: Sequence[Allocation], since_s: float = 0.0) -> list[_Change]:
    """Return the changes of a trainer's nodes, oldest first.

    Each has its time, the number of nodes after it, the nodes that came, and those that went with
    how they ended.
    """
    events = [(max(one.start_s, since_s), "", one.node) for one in spans]
    events += [(one.end_s, one.how or "ended", one.node) for one in spans if one.end_s is not None]
    changes: list[_Change] = []
    nodes = 0
    for time_s, how, node in sorted(events):
        nodes += -1 if how else 1
        if not changes or time_s - changes[-1][0] > _AT_ONCE_S:
            changes.append((time_s, nodes, [], []))
        first_s, _, came, went = changes[-1]
        changes[-1] = (first_s, nodes, came, went)
        if how:
            went.append((how, node))
        else:
            came.append(node)
    return changes


def _change_document(
    time_s: float, nodes: int, came: list[str], went: list[tuple[str, str]]
) -> dict[str, Any]:
    taken = [node for how, node in went if how == "reclaimed"]
    lost = [node for how, node in went if how != "reclaimed"]
    return {"time_s": time_s, "gained": came, "lost": lost, "reclaimed": taken, "nodes": nodes}


def change_counts(history: sqlite3.Connection, array: int) -> list[dict[str, Any]]:
    """Return each change of a trainer's nodes as numbers: nodes then, gained, lost by each way."""
    spans = allocations_of(history, array, most=_MOST_ALLOCATIONS)
    since_s = spans[-1].end_s or 0.0 if len(spans) == _MOST_ALLOCATIONS else 0.0
    return [
        {"time_s": time_s, "nodes": nodes, "gained": len(came), **Counter(how for how, _ in went)}
        for time_s, nodes, came, went in _changes(spans, since_s)
    ]
