"""The tables of the history file, and how a file of an older version gets what came since."""

from __future__ import annotations

import sqlite3

from bftrainer_slurm.controller.database import Database

# What each version of the file has brought; a new file gets all of it.
_UPGRADES = (
    """
CREATE TABLE stays (
    array INTEGER NOT NULL, task INTEGER NOT NULL, node TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL, how TEXT
);
CREATE INDEX stays_by_array ON stays (array);
CREATE UNIQUE INDEX one_stay_at_a_time ON stays (array, task) WHERE end_s IS NULL;
CREATE TABLE plans (
    time_s REAL NOT NULL, pool INTEGER NOT NULL, used INTEGER NOT NULL,
    objective REAL NOT NULL, status TEXT NOT NULL, solve_s REAL NOT NULL
);
CREATE TABLE progress (
    array INTEGER NOT NULL, time_s REAL NOT NULL, samples REAL NOT NULL, measures TEXT NOT NULL
);
CREATE INDEX progress_by_array ON progress (array, time_s);
CREATE TABLE given_up (array INTEGER PRIMARY KEY, time_s REAL NOT NULL, why TEXT NOT NULL);
""",
    """
CREATE TABLE holes (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_hole_at_a_time ON holes (node) WHERE end_s IS NULL;
""",
    """
CREATE TABLE looks (
    user TEXT NOT NULL, name TEXT NOT NULL, array INTEGER NOT NULL, unit TEXT NOT NULL,
    nodes INTEGER NOT NULL, time_s REAL NOT NULL, rate REAL NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX looks_by_name ON looks (user, name, array, unit, nodes);
CREATE INDEX looks_by_array ON looks (array);
CREATE TABLE rescales (
    user TEXT NOT NULL, name TEXT NOT NULL, runtime TEXT NOT NULL, grew INTEGER NOT NULL,
    time_s REAL NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX rescales_by_name ON rescales (user, name, runtime, grew);
CREATE TABLE reforms (
    array INTEGER PRIMARY KEY, time_s REAL NOT NULL, runtime TEXT NOT NULL,
    generation INTEGER NOT NULL, nodes INTEGER NOT NULL
);
""",
    """
CREATE TABLE looked (one INTEGER PRIMARY KEY CHECK (one = 1), time_s REAL NOT NULL);
""",
)
_VERSION = len(_UPGRADES)


def upgrade(database: Database) -> None:
    """Bring a file up to date.

    Raises:
        sqlite3.Error: it was written by a later version, or cannot be changed.
    """
    version = database.version
    if version > _VERSION:
        raise sqlite3.DatabaseError(f"written by another version ({version})")
    if version < _VERSION:
        database.upgrade("".join(_UPGRADES[version:]), _VERSION)
