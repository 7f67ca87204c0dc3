"""The controller's disk and clock: full, damaged, of an older version; set ahead and back."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from functools import partial
from pathlib import Path

from tests.chaos.faults.fault import Course, Fault
from tests.chaos.service import set_clock
from tests.chaos.world import World

_FIRST_TABLES = ("stays", "plans", "progress", "given_up")
_GIVEN_UP = (
    "CREATE TABLE given_up (array INTEGER PRIMARY KEY, time_s REAL NOT NULL, why TEXT NOT NULL)"
)


def _full_disk(restart: bool, world: World) -> Course:
    """Fill the disk of the controller's state; with ``restart`` both services start there."""
    filler = world.service.state / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=512"], stderr=subprocess.DEVNULL)
    if restart:
        world.service.kill()
        world.service.keeper.kill()
    seconds = world.chance.uniform(10, 25)
    killed = ", controller and keeper killed" if restart else ""
    yield f"full for {seconds:.0f} s{killed}", seconds
    filler.unlink()


def _damage(world: World) -> Course:
    """Write nonsense into the history file, cut it off, or make it no database at all."""
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
    yield how, 0.0


def _make_old(world: World) -> Course:
    """Give the controller a history file as the first version wrote it."""
    world.service.stop()
    make_first_version(world.service.state / "history.sqlite")
    world.service.start()
    yield "of version 1", 0.0


def make_first_version(history: Path) -> None:
    """Remove from a history file all that later versions have added."""
    with contextlib.closing(sqlite3.connect(history)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table not in _FIRST_TABLES:
                database.execute(f"DROP TABLE {table}")
        database.execute(_GIVEN_UP)
        database.execute("PRAGMA user_version=1")
        database.commit()


def _step_clock(world: World) -> Course:
    seconds = world.chance.choice((-86400, -3600, -120, 120, 3600, 86400))
    set_clock(world.folder, seconds)
    yield f"{seconds:+,} s, and back", world.chance.uniform(10, 20)
    set_clock(world.folder, 0)


FAULTS: dict[str, Fault] = {
    "disk-full": partial(_full_disk, False),
    "disk-full-restart": partial(_full_disk, True),
    "history-damaged": _damage,
    "history-old": _make_old,
    "clock-steps": _step_clock,
}
