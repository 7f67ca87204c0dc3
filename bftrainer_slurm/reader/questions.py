"""The answers, in JSON, to the questions of the page's script (docs/internals/web-api.md).

One answer is made at a time. All caches are bounded.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.state.statistics import LATE_S
from bftrainer_slurm.model import PRIVATE
from bftrainer_slurm.reader import past
from bftrainer_slurm.reader.access import Viewer, authenticate
from bftrainer_slurm.reader.facts import Facts, RequestError
from bftrainer_slurm.reader.occupancy import Window, nodes_over_time
from bftrainer_slurm.reader.remarks import remarks
from bftrainer_slurm.reader.sentences import (
    down,
    in_parts,
    reasons,
    size_of,
    standing,
    troubles,
)
from bftrainer_slurm.reader.stories import change_counts, open_history

SCHEMA = 1

_MOST_CACHED = 32  # answers
_MOST_WAIT_S = 10.0  # for the answer to another request
_DEADLINE_S = 3.0  # for all that one answer reads in the history
_WEEK_S = 7 * 86_400.0
_MOST_DAYS = 92
_MOST_ROWS, _MOST_COLUMNS = 512, 512
_MOST_NODES = 1_000_000
_MOST_TRAINERS = 500  # in the list
_LAST_DAYS_S = 3600.0  # after this time a past day of the harvest does not change


class Questions:
    """Answers the requests below ``/api/1/``; ``secret`` is the key that shows everything.

    Answers stay in ``made`` for some seconds. Under the lock ``turn`` new ones are made in turn.
    """

    def __init__(
        self, history: Path, facts: Facts, secret: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._history, self._facts, self._secret, self._clock = history, facts, secret, clock
        self.turn = threading.Lock()
        self.made: OrderedDict[tuple[Any, ...], tuple[float, bytes]] = OrderedDict()
        self._days: OrderedDict[str, past.Day] = OrderedDict()
        self._questions: Mapping[str, tuple[float, _Question]] = {
            "now": (2.0, self._now),
            "nodes": (10.0, self._nodes),
            "delays": (30.0, self._delays),
            "harvest": (60.0, self._harvest),
            "trainer": (5.0, self._trainer),
        }

    def answer(self, version: str, name: str, query: str, authorization: str) -> bytes:
        """Return an answer as JSON.

        Raises:
            RequestError: there is no answer.
            HistoryError: the history cannot be read.
        """
        if version != str(SCHEMA) or name not in self._questions:
            known = ", ".join(self._questions)
            raise RequestError(f"ask /api/{SCHEMA}/ for one of: {known}; or reload the page", 404)
        keep_s, question = self._questions[name]
        now = self._facts.latest()
        who = authenticate(
            authorization, self._secret, frozenset(now.status.get("private", PRIVATE))
        )
        status = {**now.status, "down": down(now.status, now.age_s)}
        request = _Request(query, status, self._clock(), who)
        key = (name, who, *request.key)
        if (answer := self._cached(key, keep_s)) is not None:
            return answer
        if not self.turn.acquire(timeout=_MOST_WAIT_S):
            raise RequestError("too many requests now", 503)
        try:
            return self._cached(key, keep_s) or self._cache(key, question(request), request.now_s)
        finally:
            self.turn.release()

    def _cached(self, key: tuple[Any, ...], keep_s: float) -> bytes | None:
        made_s, answer = self.made.get(key, (float("-inf"), None))
        return answer if time.monotonic() - made_s < keep_s else None

    def _cache(self, key: tuple[Any, ...], found: dict[str, Any], now_s: float) -> bytes:
        document = {"schema": SCHEMA, "time_s": now_s, **found}
        answer = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        self.made[key] = time.monotonic(), answer
        self.made.move_to_end(key)
        if len(self.made) > _MOST_CACHED:
            self.made.popitem(last=False)
        return answer

    def _now(self, request: _Request) -> dict[str, Any]:
        status, who = request.status, request.who
        trainers = sorted(
            who.visible_trainers(status["trainers"]),
            key=lambda one: (-len(one["nodes"]), one["array"]),
        )
        pool = status["pool"]
        free = len(pool["free"]) if pool else 0
        about = status["controller"]
        return {
            "version": __version__,
            "controller": {name: about.get(name) for name in ("mode", "partition", "since_s")},
            "down": status["down"],
            "trouble": troubles(status),
            "pool": pool and {**pool, "free": free},
            "left_alone": dict(status.get("left_alone") or {}),
            "plan": status["plan"],
            "nodes": status.get("nodes"),
            "preempted": status["preempted"] and {**status["preempted"], "late_s": LATE_S},
            "jobs_left_alone": len(status["malformed"]),
            "viewer": {
                "user": who.user,
                "everything": who.everything,
                "private": sorted(who.private),
            },
            "count": len(status["trainers"]),
            "trainers": [_list_entry(one, free) for one in trainers[:_MOST_TRAINERS]],
            "left_out": max(0, len(trainers) - _MOST_TRAINERS),
        }

    def _open_history(self) -> AbstractContextManager[sqlite3.Connection]:
        return open_history(self._history, _DEADLINE_S)

    def _nodes(self, request: _Request) -> dict[str, Any]:
        from_s, to_s = request.span(6 * 3600.0, _WEEK_S)
        columns = request.number("columns", 240, 1, _MOST_COLUMNS)
        rows = request.number("rows", 200, 1, _MOST_ROWS)
        first = request.number("first", 0, 0, _MOST_NODES)
        last = request.number("last", _MOST_NODES, first + 1, _MOST_NODES)
        window = Window(from_s, to_s, columns, rows, first, last)
        if not request.who.may_see_nodes:
            window = Window(from_s, to_s, columns, rows=1)
        with self._open_history() as history:
            return nodes_over_time(history, window, request.now_s, request.who.may_see_trainers)

    def _delays(self, request: _Request) -> dict[str, Any]:
        from_s, to_s = request.span(_WEEK_S, _MOST_DAYS * 86_400.0)
        with self._open_history() as history:
            return past.delays(history, from_s, to_s)

    def _harvest(self, request: _Request) -> dict[str, Any]:
        from_s, to_s = request.span(2 * _WEEK_S, _MOST_DAYS * 86_400.0)
        found = {}
        with self._open_history() as history:
            for date, begin_s, end_s in past.watched_days(history, from_s, to_s):
                day = self._days.get(date)
                if day is None:
                    day = past.day_of_harvest(history, begin_s, end_s, request.now_s)
                if request.now_s > end_s + _LAST_DAYS_S:
                    self._days[date] = day
                found[date] = day
        while len(self._days) > _MOST_DAYS:
            self._days.popitem(last=False)
        return past.harvest(found, request.who.may_see_usage)

    def _trainer(self, request: _Request) -> dict[str, Any]:
        array = request.number("array", None, 1, 2**63 - 1)
        known = (one for one in request.status["trainers"] if one["array"] == array)
        one = next(iter(request.who.visible_trainers(known)), None)
        with self._open_history() as history:
            owner = past.owner_of(history, array)
            changes = {"changes": change_counts(history, array)}
        if one is None:
            if owner is None or not request.who.may_see_trainers(owner[0]):
                raise RequestError(f"no trainer {array}", 404)
            return {"array": array, "user": owner[0], "name": owner[1], "status": None, **changes}
        free = len(request.status["pool"]["free"]) if request.status["pool"] else 0
        return {
            **{name: one[name] for name in ("array", "user", "name")},
            "status": {key: value for key, value in one.items() if key != "page"},
            "standing": standing(one),
            "notes": [asdict(remark) for remark in remarks(one, free)],
            "reasons": reasons(one, request.status),
            **changes,
        }


class _Request:
    """A request: its values, the viewer ``who`` sent it, and the present status.

    Raises:
        RequestError: a value is out of bounds, or not a number.
    """

    def __init__(self, query: str, status: Mapping[str, Any], now_s: float, who: Viewer) -> None:
        self.status, self.now_s, self.who = status, now_s, who
        try:
            self._values = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=16))
        except ValueError as error:
            raise RequestError("too many values") from error
        self.key = tuple(sorted(self._values.items()))

    def number(self, name: str, default: int | None, least: int, most: int) -> int:
        """Return a whole number within bounds."""
        if default is not None and name not in self._values:
            return default
        said = self._values.get(name, "")
        if re.fullmatch("[0-9]{1,19}", said) is None:
            raise RequestError(f"{name} must be a whole number")
        value = int(said)
        if not least <= value <= most:
            raise RequestError(f"{name} must be {least} to {most}")
        return value

    def span(self, default_s: float, most_s: float) -> tuple[float, float]:
        """Return begin and end of the requested time (Unix seconds); by default it ends now."""
        now_s = int(self.now_s)
        to_s = self.number("to", now_s, 1, 2**40)
        from_s = self.number("from", max(0, to_s - int(default_s)), 0, 2**40)
        if not 0 < to_s - from_s <= most_s:
            raise RequestError(f"from must be before to, by no more than {most_s:.0f} s")
        return float(from_s), float(to_s)


_Question: TypeAlias = Callable[[_Request], dict[str, Any]]


def _list_entry(one: Mapping[str, Any], free: int) -> dict[str, Any]:
    """Return a trainer's line in the list."""
    kept = ("array", "name", "user", "state", "min_nodes", "max_nodes", "submit_s", "reclaimed")
    levels = [remark.level for remark in remarks(one, free)]
    plan, spent = one.get("plan") or {}, one.get("goodput") or {}
    trained_s, all_s = spent.get("trained_s"), spent.get("with_nodes_s")
    return {
        **{name: one.get(name) for name in kept},
        "nodes": len(one["nodes"]),
        "starting": len(one["starting"]),
        "part": size_of(one, len(one["nodes"])) if in_parts(one) else None,
        "node_s": one.get("node_s"),
        "samples_per_s": one.get("samples_per_s"),
        "goodput": trained_s / all_s if trained_s is not None and all_s else None,
        "planned": plan.get("nodes"),
        "limit": plan.get("limit"),
        "notes": {level: levels.count(level) for level in ("trouble", "advice")},
    }
