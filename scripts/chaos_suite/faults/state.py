"""The controller's disk and clock: full, damaged, of an older version; set ahead and back."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from pathlib import Path

from scripts.chaos_suite.faults.fault import Fault, Injected
from scripts.chaos_suite.world import World

_BLOCK = b"\0" * 65536
_FIRST_TABLES = ("stays", "plans", "progress", "given_up")
_GIVEN_UP = (
    "CREATE TABLE given_up (array INTEGER PRIMARY KEY, time_s REAL NOT NULL, why TEXT NOT NULL)"
)


def _fill_disk(world: World) -> Injected:
    filler = world.service.state / "filler"
    _write_until_full(world)
    seconds = world.chance.uniform(10, 25)
    return Injected(f"full for {seconds:.0f} s", seconds, filler.unlink)


def _restart_on_full_disk(world: World) -> Injected:
    filler = world.service.state / "filler"
    _write_until_full(world)
    world.service.kill()
    world.service.keeper.kill()
    seconds = world.chance.uniform(10, 25)
    detail = f"full for {seconds:.0f} s, controller and keeper killed"
    return Injected(detail, seconds, filler.unlink)


def _write_until_full(world: World) -> None:
    with (world.service.state / "filler").open("wb", buffering=0) as file:
        for size in (len(_BLOCK), 512):
            try:
                while True:
                    file.write(_BLOCK[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _damage(world: World) -> Injected:
    """Write nonsense into the history, cut it, or let it be no database at all."""
    world.service.kill(hold=True)
    path = world.service.state / "history.sqlite"
    how = world.chance.choice(("pages", "header", "half"))
    size = path.stat().st_size
    with path.open("r+b") as file:
        if how == "half":
            file.truncate(size // 2)
        else:
            begin = 0 if how == "header" else min(4096, size // 2)
            file.seek(begin)
            file.write(world.chance.randbytes(max(512, size - begin)))
    if world.chance.random() < 0.5:
        for beside in world.service.state.glob("history.sqlite-*"):
            beside.unlink()
    world.service.start()
    return Injected(how)


def _make_old(world: World) -> Injected:
    """Give it a history as the first version wrote it."""
    world.service.stop()
    make_first_version(world.service.state / "history.sqlite")
    world.service.start()
    return Injected("of version 1")


def make_first_version(history: Path) -> None:
    """Take from a history file all that later versions have brought."""
    with contextlib.closing(sqlite3.connect(history)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table not in _FIRST_TABLES:
                database.execute(f"DROP TABLE {table}")
        database.execute(_GIVEN_UP)
        database.execute("PRAGMA user_version=1")
        database.commit()


def _step_clock(world: World) -> Injected:
    seconds = world.chance.choice((-86400, -3600, -120, 120, 3600, 86400))
    world.clock.step(seconds)
    detail = f"{seconds:+,} s, and back"
    return Injected(detail, world.chance.uniform(10, 20), lambda: world.clock.step(0))


FAULTS = (
    Fault("disk-full", "the disk of the controller's state is full", _fill_disk),
    Fault("disk-full-restart", "the same, and controller and keeper start", _restart_on_full_disk),
    Fault("history-damaged", "the history file is damaged", _damage),
    Fault("history-old", "the history file is of an older version", _make_old),
    Fault("clock-steps", "the clock is set, and set back", _step_clock),
)
