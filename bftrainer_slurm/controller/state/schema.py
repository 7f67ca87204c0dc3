"""The tables of the history file in SQL: the upgrades of each version, and deletion of old data."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache

from bftrainer_slurm.controller.state.database import Statement

_KEEP_S = 90 * 86400.0


def delete_old(now_s: float, living: Iterable[int]) -> list[Statement]:
    """Return statements that delete data older than 90 days, except about ``living`` trainers.

    Those are given by array id.
    """
    lives = f"array IN ({', '.join(map(str, living))})"
    return [
        (
            f"DELETE FROM {table} WHERE {column} < ?"
            + (f" AND NOT {lives}" if table in tables_with("array") else ""),
            (now_s - _KEEP_S,),
        )
        for column in ("end_s", "time_s")
        for table in tables_with(column)
    ]


FIRST = 14  # the version of the first script; no site has a file of an earlier one
UPGRADES = (
    """
-- Elements on nodes; holes; outages of nodes; from when to when a controller has looked.
CREATE TABLE stays (
    array INTEGER NOT NULL, task INTEGER NOT NULL, node TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL, how TEXT
);
CREATE INDEX stays_by_array ON stays (array);
CREATE INDEX stays_by_end ON stays (end_s);
CREATE UNIQUE INDEX one_stay_at_a_time ON stays (array, task) WHERE end_s IS NULL;
CREATE TABLE holes (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_hole_at_a_time ON holes (node) WHERE end_s IS NULL;
CREATE INDEX holes_by_end ON holes (end_s);
CREATE TABLE nodes (node TEXT PRIMARY KEY);
CREATE TABLE outages (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_outage_at_a_time ON outages (node) WHERE end_s IS NULL;
CREATE INDEX outages_by_end ON outages (end_s);
CREATE TABLE watches (start_s REAL PRIMARY KEY, end_s REAL NOT NULL);
CREATE TABLE preemptions (time_s REAL NOT NULL, elements INTEGER NOT NULL, delay_s REAL NOT NULL);
CREATE INDEX preemptions_by_time ON preemptions (time_s);

-- ``id`` tells a trainer from another one with the same array id; ``over`` says why it ended;
-- ``begun``: another host's controller has given it a node, as ``stays`` are this host's own.
CREATE TABLE trainers (
    array INTEGER PRIMARY KEY, id TEXT NOT NULL, time_s REAL NOT NULL, over TEXT,
    begun INTEGER NOT NULL DEFAULT 0
);
-- Users and names, for the time when Slurm has forgotten them.
CREATE TABLE met (
    array INTEGER PRIMARY KEY, time_s REAL NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
    submit_s REAL NOT NULL, min_nodes INTEGER NOT NULL, max_nodes INTEGER NOT NULL
);
-- Elements that were asked to leave at ``time_s``, in their stay since ``start_s``, by Slurm.
CREATE TABLE asked (
    array INTEGER, task INTEGER, time_s REAL NOT NULL, node TEXT NOT NULL, start_s REAL NOT NULL,
    PRIMARY KEY (array, task)
);

-- What trainers report; ``work`` is the sum, see ``goodput``; ``pauses``: of each change of size.
CREATE TABLE progress (
    array INTEGER NOT NULL, time_s REAL NOT NULL, samples REAL NOT NULL, measures TEXT NOT NULL
);
CREATE INDEX progress_by_array ON progress (array, time_s);
CREATE TABLE work (
    array INTEGER PRIMARY KEY, since_s REAL NOT NULL, time_s REAL NOT NULL,
    trained_s REAL NOT NULL, rescaling_s REAL NOT NULL, generation INTEGER,
    -- what restarts have thrown away, and what the next one would, see ``goodput.Loss``
    again_s REAL NOT NULL DEFAULT 0, from_start INTEGER NOT NULL DEFAULT 0,
    present_s REAL NOT NULL DEFAULT 0, unsaved_s REAL NOT NULL DEFAULT 0
);
CREATE TABLE pauses (
    array INTEGER NOT NULL, time_s REAL NOT NULL, nodes INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX pauses_by_array ON pauses (array, time_s);
CREATE TABLE reforms (
    array INTEGER PRIMARY KEY, time_s REAL NOT NULL, runtime TEXT NOT NULL,
    generation INTEGER NOT NULL, nodes INTEGER NOT NULL
);

-- What is measured, see ``measurements``.
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

-- The problems of the last plans: JSON, compressed by zlib.
CREATE TABLE problems (time_s REAL NOT NULL, document BLOB NOT NULL);
""",
    """
ALTER TABLE work ADD COLUMN other_ranks INTEGER NOT NULL DEFAULT 0;
""",
    # How many ordinary jobs have started, in parts of five minutes.
    """
CREATE TABLE ordinary (time_s REAL PRIMARY KEY, jobs INTEGER NOT NULL);
""",
    # Nobody ever read these.
    """
DROP TABLE IF EXISTS plans;
ALTER TABLE progress DROP COLUMN measures;
""",
    # The word of the field.
    """
ALTER TABLE stays RENAME TO allocations;
DROP INDEX stays_by_array;
CREATE INDEX allocations_by_array ON allocations (array);
DROP INDEX stays_by_end;
CREATE INDEX allocations_by_end ON allocations (end_s);
DROP INDEX one_stay_at_a_time;
CREATE UNIQUE INDEX one_allocation_at_a_time ON allocations (array, task) WHERE end_s IS NULL;
""",
    # On a node that jobs share: how many of its GPUs or cores, and of how many (``units``). Neither
    # GPUs nor cores: the whole node.
    """
ALTER TABLE allocations ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE allocations ADD COLUMN cores INTEGER NOT NULL DEFAULT 0;
ALTER TABLE allocations ADD COLUMN units INTEGER NOT NULL DEFAULT 0;
""",
)
VERSION = FIRST + len(UPGRADES) - 1


@cache
def tables_with(column: str) -> list[str]:
    """Return the tables that have this column."""
    query = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE c.name = ?"
    with closing(sqlite3.connect(":memory:")) as schema:
        schema.executescript("".join(UPGRADES))
        return [table for (table,) in schema.execute(f"{query} AND m.type = 'table'", (column,))]
