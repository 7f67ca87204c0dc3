"""What is so old that the history drops it, by a clock that can be believed."""

from __future__ import annotations

from collections.abc import Iterable

from bftrainer_slurm.controller.state.database import Database, Statement
from bftrainer_slurm.controller.state.schema import tables_with

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
