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
from bftrainer_slurm.reader.access import Viewer, viewer
from bftrainer_slurm.reader.facts import AskedWrongError, Facts
from bftrainer_slurm.reader.occupancy import Window, nodes_over_time
from bftrainer_slurm.reader.remarks import remarks
from bftrainer_slurm.reader.sentences import down, reasons, troubles
from bftrainer_slurm.reader.stories import counted_changes, opened

SCHEMA = 1

_KEPT = 32  # answers
_MOST_WAIT_S = 10.0  # for one's turn
_DEADLINE_S = 3.0  # of the history, for one answer
_WEEK_S = 7 * 86_400.0
_MOST_DAYS = 92
_MOST_ROWS, _MOST_COLUMNS = 512, 512
_MOST_NODES = 1_000_000
_MOST_TRAINERS = 500  # in the list
_LAST_DAYS_S = 3600.0  # after this time a past day of the harvest does not change


class Questions:
    """What may be asked below ``/api/1/``; ``secret`` is the key that shows everything.

    Answers that were ``made`` are kept for a moment; new ones are made one at a time, by ``turn``.
    """

    def __init__(
        self, history: Path, facts: Facts, secret: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._history, self._facts, self._secret, self._clock = history, facts, secret, clock
        self.turn = threading.Lock()
        self.made: OrderedDict[tuple[Any, ...], tuple[float, bytes]] = OrderedDict()
        self._days: OrderedDict[str, tuple[dict[str, float], float]] = OrderedDict()
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
            AskedWrongError: there is none.
            HistoryError: the history cannot be read.
        """
        if version != str(SCHEMA) or name not in self._questions:
            known = ", ".join(self._questions)
            raise AskedWrongError(
                f"ask /api/{SCHEMA}/ for one of: {known}; or reload the page", 404
            )
        keep_s, question = self._questions[name]
        now = self._facts.now()
        who = viewer(authorization, self._secret, frozenset(now.status.get("private", PRIVATE)))
        status = {**now.status, "down": down(now.status, now.age_s)}
        asked = _Asked(query, status, self._clock(), who)
        key = (name, who, *asked.key)
        if (answer := self._kept(key, keep_s)) is not None:
            return answer
        if not self.turn.acquire(timeout=_MOST_WAIT_S):
            raise AskedWrongError("too many requests now", 503)
        try:
            return self._kept(key, keep_s) or self._keep(key, question(asked), asked.now_s)
        finally:
            self.turn.release()

    def _kept(self, key: tuple[Any, ...], keep_s: float) -> bytes | None:
        made_s, answer = self.made.get(key, (float("-inf"), None))
        return answer if time.monotonic() - made_s < keep_s else None

    def _keep(self, key: tuple[Any, ...], found: dict[str, Any], now_s: float) -> bytes:
        document = {"schema": SCHEMA, "time_s": now_s, **found}
        answer = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        self.made[key] = time.monotonic(), answer
        self.made.move_to_end(key)
        if len(self.made) > _KEPT:
            self.made.popitem(last=False)
        return answer

    def _now(self, asked: _Asked) -> dict[str, Any]:
        status, who = asked.status, asked.who
        trainers = sorted(
            who.trainers(status["trainers"]), key=lambda one: (-len(one["nodes"]), one["array"])
        )
        free = len(status["pool"]["free"]) if status["pool"] else 0
        about = status["controller"]
        return {
            "version": __version__,
            "controller": {name: about.get(name) for name in ("mode", "partition", "since_s")},
            "down": status["down"],
            "trouble": troubles(status),
            "pool": status["pool"]
            and {"nodes": status["pool"]["nodes"], "used": status["pool"]["used"], "free": free},
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
            "trainers": [_listed(one, free) for one in trainers[:_MOST_TRAINERS]],
            "left_out": max(0, len(trainers) - _MOST_TRAINERS),
        }

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return opened(self._history, _DEADLINE_S)

    def _nodes(self, asked: _Asked) -> dict[str, Any]:
        from_s, to_s = asked.span(6 * 3600.0, _WEEK_S)
        columns = asked.number("columns", 240, 1, _MOST_COLUMNS)
        rows = asked.number("rows", 200, 1, _MOST_ROWS)
        first = asked.number("first", 0, 0, _MOST_NODES)
        last = asked.number("last", _MOST_NODES, first + 1, _MOST_NODES)
        window = Window(from_s, to_s, columns, rows, first, last)
        if not asked.who.tells_nodes_apart:
            window = Window(from_s, to_s, columns, rows=1)
        with self._reading() as history:
            return nodes_over_time(history, window, asked.now_s, asked.who.named)

    def _delays(self, asked: _Asked) -> dict[str, Any]:
        from_s, to_s = asked.span(_WEEK_S, _MOST_DAYS * 86_400.0)
        with self._reading() as history:
            return past.delays(history, from_s, to_s)

    def _harvest(self, asked: _Asked) -> dict[str, Any]:
        from_s, to_s = asked.span(2 * _WEEK_S, _MOST_DAYS * 86_400.0)
        found = {}
        with self._reading() as history:
            for date, begin_s, end_s in past.seen_days(history, from_s, to_s):
                day = self._days.get(date)
                if day is None:
                    day = past.day_of_harvest(history, begin_s, end_s, asked.now_s)
                if asked.now_s > end_s + _LAST_DAYS_S:
                    self._days[date] = day
                found[date] = day
        while len(self._days) > _MOST_DAYS:
            self._days.popitem(last=False)
        return past.harvest(found, asked.who.counted)

    def _trainer(self, asked: _Asked) -> dict[str, Any]:
        array = asked.number("array", None, 1, 2**63 - 1)
        known = (one for one in asked.status["trainers"] if one["array"] == array)
        one = next(iter(asked.who.trainers(known)), None)
        with self._reading() as history:
            owner = past.owner_of(history, array)
            told = {"changes": counted_changes(history, array)}
        if one is None:
            if owner is None or not asked.who.named(owner[0]):
                raise AskedWrongError(f"no trainer {array}", 404)
            return {"array": array, "user": owner[0], "name": owner[1], "status": None, **told}
        free = len(asked.status["pool"]["free"]) if asked.status["pool"] else 0
        return {
            **{name: one[name] for name in ("array", "user", "name")},
            "status": {key: value for key, value in one.items() if key != "page"},
            "notes": [asdict(remark) for remark in remarks(one, free)],
            "reasons": reasons(one, asked.status),
            **told,
        }


class _Asked:
    """A request with its values, its reader, and the present status.

    Raises:
        AskedWrongError: a value is out of bounds, or not a number.
    """

    def __init__(self, query: str, status: Mapping[str, Any], now_s: float, who: Viewer) -> None:
        self.status, self.now_s, self.who = status, now_s, who
        try:
            self._values = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=16))
        except ValueError as error:
            raise AskedWrongError("too many values") from error
        self.key = tuple(sorted(self._values.items()))

    def number(self, name: str, default: int | None, least: int, most: int) -> int:
        """Return a whole number within bounds."""
        if default is not None and name not in self._values:
            return default
        said = self._values.get(name, "")
        if re.fullmatch("[0-9]{1,19}", said) is None:
            raise AskedWrongError(f"{name} must be a whole number")
        value = int(said)
        if not least <= value <= most:
            raise AskedWrongError(f"{name} must be {least} to {most}")
        return value

    def span(self, default_s: float, most_s: float) -> tuple[float, float]:
        """Return from when to when (Unix seconds); by default up to now."""
        now_s = int(self.now_s)
        to_s = self.number("to", now_s, 1, 2**40)
        from_s = self.number("from", max(0, to_s - int(default_s)), 0, 2**40)
        if not 0 < to_s - from_s <= most_s:
            raise AskedWrongError(f"from must be before to, by no more than {most_s:.0f} s")
        return float(from_s), float(to_s)


_Question: TypeAlias = Callable[[_Asked], dict[str, Any]]


def _listed(one: Mapping[str, Any], free: int) -> dict[str, Any]:
    """Return a trainer's line in the list."""
    kept = ("array", "name", "user", "state", "min_nodes", "max_nodes", "submit_s", "reclaimed")
    levels = [remark.level for remark in remarks(one, free)]
    plan, spent = one.get("plan") or {}, one.get("goodput") or {}
    trained_s, all_s = spent.get("trained_s"), spent.get("with_nodes_s")
    return {
        **{name: one.get(name) for name in kept},
        "nodes": len(one["nodes"]),
        "starting": len(one["starting"]),
        "node_s": one.get("node_s"),
        "samples_per_s": one.get("samples_per_s"),
        "goodput": trained_s / all_s if trained_s is not None and all_s else None,
        "planned": plan.get("nodes"),
        "limit": plan.get("limit"),
        "notes": {level: levels.count(level) for level in ("trouble", "advice")},
    }
