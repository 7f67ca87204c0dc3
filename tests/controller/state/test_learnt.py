"""What a host reads of what another one has left: rows that make no sense are not taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.observe.reports import Reform, Runtime
from bftrainer_slurm.controller.state.history import History, Stay
from bftrainer_slurm.controller.state.learnt import rows_of, sensible
from bftrainer_slurm.controller.state.lessons import Job, Look, Rescale
from bftrainer_slurm.model import ElementId

NOW_S = 1e9
JOB = Job("alice", "digits")
TRAINER, LOOK = [7, "id", 5.0, None, 1], ["alice", "digits", 7, "samples", 2, 5.0, 50.0, 20.0]
RESCALE, REFORM = ["alice", "digits", "in-process", 1, 5.0, 0.5], [7, 5.0, "in-process", 3, 2]
ASKED = [7, 3, 5.0, "n1", 4.0]
GOOD = {
    "trainers": [TRAINER],
    "looks": [LOOK],
    "rescales": [RESCALE],
    "reforms": [REFORM],
    "asked": [ASKED],
}
NO_NUMBERS = [None, "5", True, [], float("nan"), float("inf"), 0, -1.0, 1e300, 10**400]


def test_what_a_history_holds_is_read_again_as_it_was(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.meet(7, "id", 5.0)
    history.meet(8, "", 6.0)
    history.end(8, "finished")
    history.lessons.add_look(JOB, Look(7, "samples", 2, 5.0, 50.0, 20.0))
    history.lessons.add_rescale(JOB, Rescale(Runtime.WORKER, True, 5.0, 0.5))
    history.lessons.set_reform(7, Reform(5.0, Runtime.WORKER, 3, 2))
    history.ask([Stay(ElementId(7, 3), "n1", 4.0)], 5.0)
    left = json.loads(json.dumps(rows_of(tmp_path / "history.sqlite")))
    trainers = [[7, "id", 5.0, None, 0], [8, "", 6.0, "finished", 0]]
    assert left == GOOD | {"trainers": trainers}
    assert sensible(left, NOW_S) == {table: [*map(tuple, rows)] for table, rows in left.items()}


def bad(table: str, column: int, *values: Any) -> list[tuple[str, list[Any]]]:
    """Rows of a table that have a wrong value in a column."""
    (row,) = GOOD[table]
    return [(table, [*row[:column], value, *row[column + 1 :]]) for value in values]


BAD = [
    *(("looks", row) for row in ([], LOOK[:-1], [*LOOK, 1], {}, "alice", None)),
    *bad("trainers", 0, None, "7", -1, 7.0, True, 10**30),
    *bad("trainers", 1, None, 7),
    *bad("trainers", 2, *NO_NUMBERS, NOW_S + 1),
    *bad("trainers", 3, 7, [], False),
    *bad("trainers", 4, None, 2, "1", True),
    *bad("looks", 0, None, 7),
    *bad("looks", 3, "epochs", None, 7),
    *bad("looks", 4, 0, -1, 2.0, 10**9, None),
    *(one for column in (5, 6, 7) for one in bad("looks", column, *NO_NUMBERS)),
    *bad("looks", 5, NOW_S + 1),
    *bad("rescales", 2, "torchrun", None, 7),
    *bad("rescales", 3, 2, "1", True, None),
    *bad("rescales", 5, *NO_NUMBERS),
    *bad("reforms", 2, "torchrun", None),
    *bad("reforms", 3, 0, 1.5, None, 10**30),
    *bad("asked", 1, None, "3", -1, 3.0),
    *bad("asked", 3, None, 7),
    *bad("asked", 4, *NO_NUMBERS),
]


@pytest.mark.parametrize(("table", "row"), BAD)
def test_a_row_that_makes_no_sense_is_left_out(table: str, row: list[Any]) -> None:
    told = GOOD | {table: [row, *GOOD[table], row]}
    assert sensible(told, NOW_S) == sensible(GOOD, NOW_S)


def test_of_a_controller_of_another_version_what_both_know_is_taken() -> None:
    told = {table: rows for table, rows in GOOD.items() if table != "asked"} | {"later": [[1]]}
    assert sensible(told, NOW_S) == {**sensible(GOOD, NOW_S), "asked": []}


def test_of_very_many_rows_the_newest_are_taken() -> None:
    looks = [[*LOOK[:5], float(number), *LOOK[6:]] for number in range(1, 100_000)]
    taken = sensible(GOOD | {"looks": looks}, NOW_S)["looks"]
    assert len(taken) < 50_000
    assert taken[-1][5] == 99_999


def test_a_text_that_cannot_be_written_costs_only_itself() -> None:
    history = History(":memory:")
    history.learn(sensible(GOOD | {"trainers": [[8, "\ud800", 5.0, None, 1], TRAINER]}, NOW_S))
    assert history.trouble is None
    assert history.has_trained(7) and history.has_begun(7)
