"""The tables of the history file, as SQL: the changes of each version, and what is too old."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache

from bftrainer_slurm.controller.state.database import Database, Statement

_KEEP_S = 90 * 86400.0
# Either makes sure that a time is not that of a clock which was wrong for a moment, at boot say.
_SURE_S = 3600.0  # without a break
_SURE_IN_ALL_S = 86400.0
_SURE = """
SELECT max(end_s) FROM (
    SELECT start_s, end_s, sum(end_s - start_s) OVER (ORDER BY end_s DESC) AS in_all_s FROM watches
) WHERE end_s - start_s >= ? OR in_all_s >= ?
"""


def old(database: Database, now_s: float, living: Iterable[int]) -> list[Statement]:
    """Return what drops data older than 90 days, but those about ``living`` trainers (array ids).

    If the clock is wrong, it may be months ahead: only one by which controllers have looked for
    an hour without a break is believed, or for a day in all.
    """
    ((sure_s,),) = database.read(_SURE, _SURE_S, _SURE_IN_ALL_S) or ((None,),)
    if sure_s is None:
        return []
    old_s = min(now_s, sure_s) - _KEEP_S
    lives = f"array IN ({', '.join(map(str, living))})"
    return [
        (
            f"DELETE FROM {table} WHERE {column} < ?"
            + (f" AND NOT {lives}" if table in tables_with("array") else ""),
            (old_s,),
        )
        for column in ("end_s", "time_s")
        for table in tables_with(column)
    ]


UPGRADES = (
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
    # ``id`` tells a trainer from another one with the same array id; ``over`` says why it ended.
    """
CREATE TABLE trainers (
    array INTEGER PRIMARY KEY, id TEXT NOT NULL, time_s REAL NOT NULL, over TEXT
);
INSERT INTO trainers SELECT array, '', time_s, why FROM given_up;
DROP TABLE given_up;
DROP TABLE looked;
""",
    # ``document`` is JSON, compressed by zlib.
    """
CREATE TABLE problems (time_s REAL NOT NULL, document BLOB NOT NULL);
""",
    """
CREATE TABLE preemptions (time_s REAL NOT NULL, elements INTEGER NOT NULL, delay_s REAL NOT NULL);
""",
    # The sum of a trainer's reports, see ``goodput``.
    """
CREATE TABLE work (
    array INTEGER PRIMARY KEY, since_s REAL NOT NULL, time_s REAL NOT NULL,
    trained_s REAL NOT NULL, rescaling_s REAL NOT NULL, generation INTEGER
);
""",
    # Users and names of trainers, for the time when Slurm has forgotten them, and the cost of each
    # change of size.
    """
CREATE TABLE met (
    array INTEGER PRIMARY KEY, time_s REAL NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
    submit_s REAL NOT NULL, min_nodes INTEGER NOT NULL, max_nodes INTEGER NOT NULL
);
CREATE TABLE pauses (
    array INTEGER NOT NULL, time_s REAL NOT NULL, nodes INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX pauses_by_array ON pauses (array, time_s);
CREATE INDEX IF NOT EXISTS stays_by_end ON stays (end_s);
""",
    # Which nodes there are, when they were out of service, and from when to when a controller has
    # looked.
    """
CREATE TABLE nodes (node TEXT PRIMARY KEY);
CREATE TABLE outages (node TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL);
CREATE UNIQUE INDEX one_outage_at_a_time ON outages (node) WHERE end_s IS NULL;
CREATE TABLE watches (start_s REAL PRIMARY KEY, end_s REAL NOT NULL);
CREATE INDEX holes_by_end ON holes (end_s);
CREATE INDEX outages_by_end ON outages (end_s);
CREATE INDEX preemptions_by_time ON preemptions (time_s);
""",
    # Whether another host's controller has given a trainer a node: ``stays`` are this host's own.
    """
ALTER TABLE trainers ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
""",
    # Elements that were asked to leave the node of their stay, and may not have been ended yet.
    """
CREATE TABLE asked (array INTEGER, task INTEGER, PRIMARY KEY (array, task));
""",
    # When they were asked, and during which stay: since ``start_s``, by Slurm.
    """
DROP TABLE asked;
CREATE TABLE asked (
    array INTEGER, task INTEGER, time_s REAL NOT NULL, node TEXT NOT NULL, start_s REAL NOT NULL,
    PRIMARY KEY (array, task)
);
""",
    # What restarts have thrown away, and what the next one would, see ``goodput.Loss``.
    """
ALTER TABLE work ADD COLUMN again_s REAL NOT NULL DEFAULT 0;
ALTER TABLE work ADD COLUMN from_start INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work ADD COLUMN present_s REAL NOT NULL DEFAULT 0;
ALTER TABLE work ADD COLUMN unsaved_s REAL NOT NULL DEFAULT 0;
""",
    """
ALTER TABLE work ADD COLUMN other_ranks INTEGER NOT NULL DEFAULT 0;
""",
)


@cache
def tables_with(column: str) -> list[str]:
    """Return the tables that have this column."""
    query = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE c.name = ?"
    with closing(sqlite3.connect(":memory:")) as schema:
        schema.executescript("".join(UPGRADES))
        return [table for (table,) in schema.execute(f"{query} AND m.type = 'table'", (column,))]
