"""The controller's disk and clock: full, damaged, of an older version; set ahead and back."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from functools import partial
from pathlib import Path

from bftrainer_slurm.controller.state.schema import FIRST, UPGRADES
from tests.chaos.faults.fault import Course, Fault
from tests.chaos.service import set_clock
from tests.chaos.world import World


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
    yield f"of version {FIRST}", 0.0


def make_first_version(history: Path) -> None:
    """Make a history file as the first version had it; what it alone had is empty."""
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as first,
        contextlib.closing(sqlite3.connect(history)) as database,
    ):
        first.executescript(UPGRADES[0])
        for table, then in _columns(first).items():
            now = _NAMED_NOW.get(table, table)
            known = _columns(database).get(now, [])
            read = ", ".join(one if one in known else "''" for one in then)
            places = ", ".join("?" * len(then))
            rows = database.execute(f"SELECT {read} FROM {now}").fetchall() if known else ()
            first.executemany(f"INSERT INTO {table} ({', '.join(then)}) VALUES ({places})", rows)
        first.execute(f"PRAGMA user_version={FIRST}")
        first.commit()
        first.backup(database)


_NAMED_NOW = {"stays": "allocations"}


def _columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of each table."""
    query = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
    found: dict[str, list[str]] = {}
    for table, column in database.execute(f"{query} WHERE m.type = 'table'"):
        found.setdefault(table, []).append(column)
    return found


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
