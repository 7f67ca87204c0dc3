"""What users are shown of the past: all trainers, their last hour, one trainer's story.

Of others' trainers nobody is shown more than squeue and sacct show; docs/json.md has the keys.
"""

from __future__ import annotations

import json
import pwd
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.state.goodput import goodput, served
from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.controller.state.past import Met, Past, PastTrainers, Stay, Sum, opened
from bftrainer_slurm.keeper.protocol import Asked, whole

SCHEMA = 1
ALL, STRIPS = "all", "strips"  # what may be asked for, beside the id of one trainer
STRIP_S, STRIP_PARTS = 3600.0, 60
_COURSE_PARTS = 240
_MOST_CHANGES = 200
_AT_ONCE_S = 2.0  # nodes that come or go so soon after each other are one change


def answer(path: Path, asked: Asked, status: bytes) -> bytes:
    """Return what a keeper answers to who asks, as JSON. ``status`` is the one published last."""
    now_s = time.time()
    private = _private(status)
    try:
        found = told(path, asked.what, asked.since_s, now_s, _reader(asked), private=private)
    except HistoryError as error:
        found = {"schema": SCHEMA, "error": str(error)}
    return json.dumps(found, separators=(",", ":")).encode()


def _reader(asked: Asked) -> str | None:
    """Return the name of who asks; empty: nobody knows."""
    if asked.user is None:
        return None
    try:
        return pwd.getpwuid(asked.user).pw_name
    except (KeyError, OverflowError):
        return ""


def _private(status: bytes) -> bool:
    """Whether users see their own jobs only: as the controller says, and where it says nothing."""
    try:
        return bool(json.loads(status)["jobs_private"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return True


def told(
    path: Path, what: str, since_s: float, now_s: float, reader: str | None, *, private: bool
) -> dict[str, Any]:
    """Return what the history at ``path`` holds of ``what``: an array id, ALL or STRIPS.

    ``reader`` is a user, or None for who may see everything. ``private``: who else has jobs is
    nobody's business. A trainer that is not known, or not for this reader, is null.

    Raises:
        HistoryError: the history cannot be read.
        ValueError: there is no such thing to ask for.
    """
    array = None if what in (ALL, STRIPS) else whole(what)
    head = {"schema": SCHEMA, "time_s": now_s, "since_s": since_s}
    with opened(path) as past:
        if what == STRIPS:
            return head | {"since_s": now_s - STRIP_S} | _strips(past, now_s, reader, private)
        if array is None:
            sums = past.sums(since_s, now_s)
            known = [_summary(*one, reader) for one in sums if _sees(one[0], reader, private)]
            return head | {"trainers": known}
        found = past.of(array, since_s)
    if found is None or not _sees(found.met, reader, private):
        return head | {"trainer": None}
    return head | {"trainer": _story(found, since_s, now_s, reader)}


def _sees(met: Met, reader: str | None, private: bool) -> bool:
    return _owns(met, reader) or not private


def _owns(met: Met, reader: str | None) -> bool:
    return reader is None or met.user == reader


def _strips(past: PastTrainers, now_s: float, reader: str | None, private: bool) -> dict[str, Any]:
    """Return the mean number of nodes of each trainer in each minute of the last hour."""
    since_s = now_s - STRIP_S
    mine = {one.array for one, _ in past.sums(since_s, now_s) if _sees(one, reader, private)}
    part_s = STRIP_S / STRIP_PARTS
    strips = {
        str(array): course(stays, since_s, part_s, STRIP_PARTS, now_s)
        for array, stays in sorted(past.stays(since_s).items())
        if array in mine
    }
    return {"part_s": part_s, "strips": strips}


def _summary(met: Met, total: Sum, reader: str | None) -> dict[str, Any]:
    return _who(met, reader) | asdict(total)


def _who(met: Met, reader: str | None) -> dict[str, Any]:
    """Return who a trainer is; the last words of its script are for its owner."""
    over = met.over and met.over.partition("\n")[0]
    known = {
        "array": met.array,
        "name": met.name,
        "user": met.user,
        "submit_s": met.submit_s,
        "min_nodes": met.min_nodes,
        "max_nodes": met.max_nodes,
    }
    return known | ({"over": over} if _owns(met, reader) else {"hidden": True})


def _story(past: Past, since_s: float, now_s: float, reader: str | None) -> dict[str, Any]:
    stays = past.stays
    since_s = max(since_s, min((one.start_s for one in stays), default=now_s))
    running = any(one.end_s is None for one in stays)
    until_s = now_s if running else max((one.end_s or 0.0 for one in stays), default=now_s)
    part_s = max(1.0, (until_s - since_s) / _COURSE_PARTS)
    parts = max(1, min(_COURSE_PARTS, round((until_s - since_s) / part_s)))
    changes = _changes(stays)
    shown = _who(past.met, reader) | {
        "from_s": since_s,
        "until_s": until_s,
        "total": _total(stays, since_s, until_s),
        "course": {"part_s": part_s, "nodes": course(stays, since_s, part_s, parts, until_s)},
        "changes": changes[-_MOST_CHANGES:],
        "earlier_changes": max(0, len(changes) - _MOST_CHANGES),
    }
    if not _owns(past.met, reader):
        return shown
    had = served((one.start_s, one.end_s) for one in stays)
    whole = since_s <= min((one.start_s for one in stays), default=since_s)
    spent = goodput(past.work, had, past.met.submit_s, ended=not running, now_s=now_s)
    return shown | {
        "samples": [{"time_s": time_s, "samples": samples} for time_s, samples in past.samples],
        "rescales": [asdict(one) for one in past.pauses],
        "goodput": spent if whole else None,  # it is known of a whole life only
    }


def _total(stays: Sequence[Stay], since_s: float, until_s: float) -> dict[str, float]:
    """Return what became of the nodes that a trainer had."""
    return {
        "grew": sum(one.start_s >= since_s for one in stays),
        **{how: sum(one.how == how for one in stays) for how in ("shrank", "reclaimed", "ended")},
        "node_s": sum(
            max(0.0, (until_s if one.end_s is None else one.end_s) - max(one.start_s, since_s))
            for one in stays
        ),
    }


def course(
    stays: Sequence[Stay], since_s: float, part_s: float, parts: int, now_s: float
) -> list[float]:
    """Return the mean number of nodes in each of ``parts`` of time from ``since_s`` on."""
    node_s = [0.0] * (parts + 1)  # in the part where a stay begins or ends
    whole = [0] * (parts + 2)  # more or fewer nodes from this part on, all of it
    for stay in stays:
        begin = max(0.0, stay.start_s - since_s) / part_s
        end = ((now_s if stay.end_s is None else stay.end_s) - since_s) / part_s
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


def _changes(stays: Sequence[Stay]) -> list[dict[str, Any]]:
    """Return when nodes came and went, oldest first, and how many there were then."""
    events = [(one.start_s, "gained", one.node) for one in stays]
    events += [
        (one.end_s, "reclaimed" if one.how == "reclaimed" else "lost", one.node)
        for one in stays
        if one.end_s is not None
    ]
    changes: list[dict[str, Any]] = []
    nodes = 0
    for time_s, way, node in sorted(events):
        nodes += 1 if way == "gained" else -1
        if not changes or time_s - changes[-1]["time_s"] > _AT_ONCE_S:
            changes.append({"time_s": time_s, "gained": [], "lost": [], "reclaimed": []})
        changes[-1][way].append(node)
        changes[-1]["nodes"] = nodes
    return changes
