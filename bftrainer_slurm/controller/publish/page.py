"""The page: its files, and the answers in JSON to its script's requests (docs/web.md).

One answer is made at a time, with no more than a share of a processor, because the controller has
other work. All caches are bounded.
"""

from __future__ import annotations

import gzip
import hashlib
import ipaddress
import json
import re
import socket
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.publish import past
from bftrainer_slurm.controller.publish.access import Viewer, viewer
from bftrainer_slurm.controller.publish.occupancy import Window, nodes_over_time
from bftrainer_slurm.controller.publish.remarks import remarks
from bftrainer_slurm.controller.publish.sentences import down, reasons
from bftrainer_slurm.controller.publish.stories import counted_changes
from bftrainer_slurm.controller.publish.web_server import Answer, Request
from bftrainer_slurm.controller.state.database import reading
from bftrainer_slurm.model import PRIVATE

SCHEMA = 1
Status: TypeAlias = Callable[[], tuple[Mapping[str, Any] | None, float]]  # and its age in seconds

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_JSON = "application/json"
_SMALL = 512  # bytes, not worth compressing
_KEPT = 32  # answers
_REST = 3.0  # times as long as an answer took: so long no other one is made
_MOST_WAIT_S = 10.0  # for one's turn
_DEADLINE_S = 3.0  # of the history, for one answer
_WEEK_S = 7 * 86_400.0
_MOST_DAYS = 92
_MOST_ROWS, _MOST_COLUMNS = 512, 512
_MOST_NODES = 1_000_000
_MOST_TRAINERS = 500  # in the list
_LAST_DAYS_S = 3600.0  # after this time a past day of the harvest does not change


class AskedWrongError(ValueError):
    """A request that cannot be answered; the message says why. ``status`` is HTTP's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Page:
    """A site: the page itself at ``/``, and below ``/api/1/`` what it shows.

    ``status`` returns what was published last; the server's threads call it. ``host`` is the name
    under which the admin serves the page.
    """

    def __init__(
        self,
        history: Path,
        status: Status,
        secret: str,
        host: str = "",
        clock: Callable[[], float] = time.time,
        rest: float = _REST,
    ) -> None:
        self._history, self._status, self._secret = history, status, secret
        self._clock, self._rest = clock, rest
        self._hosts = {"", "localhost", host.lower(), socket.gethostname().lower()}
        self._files = _files()
        self._turn = threading.Lock()
        self._free_s = 0.0  # monotonic: when the next answer may be made
        self._made: OrderedDict[tuple[Any, ...], tuple[float, Answer]] = OrderedDict()
        self._days: OrderedDict[str, tuple[dict[str, float], float]] = OrderedDict()
        self._questions: Mapping[str, tuple[float, _Question]] = {
            "now": (2.0, self._now),
            "nodes": (10.0, self._nodes),
            "delays": (30.0, self._delays),
            "harvest": (60.0, self._harvest),
            "trainer": (5.0, self._trainer),
        }

    def __call__(self, request: Request) -> Answer:
        """Answer a request."""
        if not self._meant(request.headers.get("host", "")):
            return _said(421, "use an address, localhost or this host's name")
        if not request.path.startswith("/api/"):
            return self._file(request)
        try:
            return self._answer(request)
        except AskedWrongError as error:
            return _said(error.status, str(error))
        except sqlite3.Error as error:
            return _said(503, f"the history cannot be read now: {error}")

    def _meant(self, host: str) -> bool:
        """Whether the request names this host, not a stranger's name that points here."""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._hosts
        return True

    def _file(self, request: Request) -> Answer:
        name = request.path.removeprefix("/") or "index.html"
        found = self._files.get(name)
        if found is None:
            return _said(404, "there is no such file")
        if request.headers.get("if-none-match") == found.headers["ETag"]:
            return Answer(304, found.kind, b"", found.headers)
        return found

    def _answer(self, request: Request) -> Answer:
        version, _, name = request.path.removeprefix("/api/").partition("/")
        if version != str(SCHEMA) or name not in self._questions:
            known = ", ".join(self._questions)
            raise AskedWrongError(f"ask /api/{SCHEMA}/ for one of: {known}", 404)
        keep_s, question = self._questions[name]
        status, age_s = self._status()
        if status is None:
            raise AskedWrongError("the controller has just started", 503)
        private = frozenset(status.get("private", PRIVATE))
        who = viewer(request.headers.get("authorization", ""), self._secret, private)
        asked = _Asked(request.query, {**status, "down": down(status, age_s)}, self._clock(), who)
        key = (name, who, *asked.key)
        answer = self._kept(key, keep_s)
        if answer is not None:
            return answer
        with self._patiently():
            return self._kept(key, keep_s) or self._keep(key, self._make(question, asked))

    def _kept(self, key: tuple[Any, ...], keep_s: float) -> Answer | None:
        made_s, answer = self._made.get(key, (float("-inf"), None))
        return answer if time.monotonic() - made_s < keep_s else None

    def _keep(self, key: tuple[Any, ...], answer: Answer) -> Answer:
        self._made[key] = time.monotonic(), answer
        self._made.move_to_end(key)
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return answer

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Wait for a turn, but not for long."""
        if not self._turn.acquire(timeout=_MOST_WAIT_S):
            raise AskedWrongError("too many requests now", 503)
        try:
            yield
        finally:
            self._turn.release()

    def _make(self, question: _Question, asked: _Asked) -> Answer:
        """Make an answer when this thread may use the processor again."""
        wait_s = self._free_s - time.monotonic()
        if wait_s > _MOST_WAIT_S:
            raise AskedWrongError("too many requests now", 503)
        time.sleep(max(0.0, wait_s))
        began_s = time.thread_time()
        try:
            return _json(200, {"schema": SCHEMA, "time_s": asked.now_s, **question(asked)})
        finally:
            took_s = time.thread_time() - began_s
            self._free_s = time.monotonic() + self._rest * took_s

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
            "trouble": [
                one
                for one in (about.get("error"), about.get("history"), *(about.get("slurm") or ()))
                if one
            ],
            "pool": status["pool"]
            and {"nodes": status["pool"]["nodes"], "used": status["pool"]["used"], "free": free},
            "left_alone": dict(status.get("left_alone") or {}),
            "plan": status["plan"],
            "preempted": status["preempted"],
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
        return reading(self._history, _DEADLINE_S)

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
            for date, begin_s, end_s in past.days(from_s, to_s):
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
            if one is None and (owner is None or not asked.who.named(owner[0])):
                raise AskedWrongError(f"no trainer {array}", 404)
            told = {"changes": counted_changes(history, array)}
        if one is None and owner is not None:
            return {"array": array, "user": owner[0], "name": owner[1], "status": None, **told}
        assert one is not None
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
    plan = one.get("plan") or {}
    return {
        **{name: one.get(name) for name in kept},
        "nodes": len(one["nodes"]),
        "starting": len(one["starting"]),
        "node_s": one.get("node_s"),
        "samples_per_s": one.get("samples_per_s"),
        "planned": plan.get("nodes"),
        "limit": plan.get("limit"),
        "notes": {level: levels.count(level) for level in ("trouble", "advice")},
    }


def _files() -> dict[str, Answer]:
    """Read the page's files; all of them are served from memory."""
    found = {}
    for file in files("bftrainer_slurm.controller.publish").joinpath("assets").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            tag = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:20]}"'}
            found[file.name] = _packed(Answer(200, kind, body, _HEADERS | tag))
    return found


def _said(status: int, text: str) -> Answer:
    return _json(status, {"error": text})


def _json(status: int, document: Mapping[str, Any]) -> Answer:
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    headers = _HEADERS | {"Cache-Control": "no-store"}
    return _packed(Answer(status, _JSON, body, headers))


def _packed(answer: Answer) -> Answer:
    """Compress an answer: every browser takes it."""
    if len(answer.body) < _SMALL:
        return answer
    body = gzip.compress(answer.body, 5, mtime=0)
    headers = {**answer.headers, "Content-Encoding": "gzip"}
    return Answer(answer.status, answer.kind, body, headers)
