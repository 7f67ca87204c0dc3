"""What a host reads of what another one has left: rows that make no sense are not taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.leadership import rows_of, take_over, valid_rows
from bftrainer_slurm.controller.observe.reports import Reform
from bftrainer_slurm.controller.state.failing_sizes import TriedSizes
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.stopwatch import Throughput
from tests.controller.worlds import cases, element

NOW_S = 1e9
JOB = Job("alice", "digits")
TRAINER, LOOK = [7, "id", 5.0, None, 1], ["alice", "digits", 7, "samples", 2, 5.0, 50.0, 20.0]
REFORM = [7, 5.0, 3, 2]
ASKED = [7, 3, 5.0, "n1", 4.0]
TRIED = [7, 5.0, '{"trained": [2], "nodes": [], "failed": {}}']
GOOD: dict[str, list[list[Any]]] = {
    "trainers": [TRAINER],
    "looks": [LOOK],
    "reforms": [REFORM],
    "asked": [ASKED],
    "tried": [TRIED],
}
NO_NUMBERS: list[Any] = [None, "5", True, [], float("nan"), float("inf"), 0, -1.0, 1e300, 10**400]


def test_what_a_history_holds_is_read_again_as_it_was(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite", lambda: 5.0)
    history.meet(7, "id", 5.0)
    history.meet(8, "", 6.0)
    history.end(8, "finished")
    Measurements(history).add_throughput(JOB, Throughput(7, "samples", 2, 5.0, 50.0, 20.0))
    Measurements(history).set_reform(7, Reform(5.0, 3, 2))
    history.ask([element(3, "running n1", array=7, start_s=4.0)], 5.0)
    Measurements(history).set_tried(7, TriedSizes((2,)))
    left = json.loads(json.dumps(rows_of(tmp_path / "history.sqlite")))
    trainers = [[7, "id", 5.0, None, 0], [8, "", 6.0, "finished", 0]]
    assert left == GOOD | {"trainers": trainers}
    assert valid_rows(left) == {table: [*map(tuple, rows)] for table, rows in left.items()}


def bad(table: str, column: int, *values: Any) -> list[tuple[str, list[Any]]]:
    """Rows of a table that have a wrong value in a column."""
    row = GOOD[table][0]
    return [(table, [*row[:column], value, *row[column + 1 :]]) for value in values]


BAD = [
    *(("looks", row) for row in ([], LOOK[:-1], [*LOOK, 1], {}, "alice", None)),
    *bad("trainers", 0, None, "7", -1, 7.0, True, 10**30),
    *bad("trainers", 1, None, 7),
    *bad("trainers", 2, *NO_NUMBERS),
    *bad("trainers", 3, 7, [], False),
    *bad("trainers", 4, None, 2, "1", True),
    *bad("looks", 0, None, 7),
    *bad("looks", 3, "epochs", None, 7),
    *bad("looks", 4, 0, -1, 2.0, 10**9, None),
    *(one for column in (5, 6, 7) for one in bad("looks", column, *NO_NUMBERS)),
    *bad("reforms", 2, 0, 1.5, None, 10**30),
    *bad("asked", 1, None, "3", -1, 3.0),
    *bad("asked", 3, None, 7),
    *bad("asked", 4, *NO_NUMBERS),
    *bad("tried", 2, None, 7),
]


@pytest.mark.parametrize(("table", "row"), BAD)
def test_a_row_that_makes_no_sense_is_left_out(table: str, row: list[Any]) -> None:
    told = GOOD | {table: [row, *GOOD[table], row]}
    assert valid_rows(told) == valid_rows(GOOD)


def test_of_a_controller_of_another_version_what_both_know_is_taken() -> None:
    told = {table: rows for table, rows in GOOD.items() if table != "asked"} | {"later": [[1]]}
    assert valid_rows(told) == {**valid_rows(GOOD), "asked": []}


def test_of_very_many_rows_the_newest_are_taken() -> None:
    looks = [[*LOOK[:5], float(number), *LOOK[6:]] for number in range(1, 100_000)]
    taken = valid_rows(GOOD | {"looks": looks})["looks"]
    assert len(taken) < 50_000
    assert taken[-1][5] == 99_999


def test_of_the_measurements_of_a_trainer_the_last_is_left(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    for array, time_s in ((7, 5.0), (8, 6.0), (7, 9.0), (7, 7.0)):
        Measurements(history).add_throughput(
            JOB, Throughput(array, "samples", 2, time_s, 50.0, 20.0)
        )
    left = rows_of(tmp_path / "history.sqlite")["looks"]
    assert [(row[2], row[5]) for row in left] == [(8, 6.0), (7, 9.0)]


def test_as_many_rows_as_another_host_can_leave_are_all_taken_over() -> None:
    many = range(1, 12_001)
    left = {
        "trainers": [[array, "id", 5.0, "given up", 1] for array in many],
        "looks": [[*LOOK[:2], array, *LOOK[3:]] for array in many],
        "reforms": [[array, *REFORM[1:]] for array in many],
        "asked": [[array, *ASKED[1:]] for array in many],
    }
    history = History(":memory:")
    taken = valid_rows(left)
    take_over(history, taken)
    for table, rows in taken.items():
        assert history.read(f"SELECT count(*) FROM {table}") == [(len(rows),)]


def test_trainers_that_were_met_lately_are_not_pushed_out_by_higher_numbers(tmp_path: Path) -> None:
    """A slurmctld that has lost its state begins again with its first number."""
    history = History(tmp_path / "history.sqlite")
    old = (put("trainers", array, "id", 5.0, None, 0) for array in range(100, 15_000))
    history.write(*old)
    history.meet(7, "id", 6.0)
    history.end(7, "given up")
    left = rows_of(tmp_path / "history.sqlite")["trainers"]
    assert len(left) < 14_900
    assert (7, "id", 6.0, "given up", 0) in left


def test_what_is_measured_here_since_counts_more_than_what_is_taken_over() -> None:
    history = History(":memory:", lambda: NOW_S)
    Measurements(history).add_throughput(JOB, Throughput(7, "samples", 2, 6.0, 50.0, 20.0))
    take_over(history, valid_rows(GOOD))
    take_over(history, valid_rows(GOOD | {"looks": [[*LOOK[:2], 8, *LOOK[3:]]]}))
    rows = history.read("SELECT array, time_s FROM looks ORDER BY rowid")
    assert rows == [(7, 6.0), (8, 5.0)]


WHO_WAS_LATER = cases(
    "own_s, told_s, theirs",
    the_other_host=(5.0, 6.0, True),
    this_host=(6.0, 5.0, False),
    what_lies_in_the_future_is_in_nobodys_way=(2e9, 6.0, True),
    the_other_hosts_clock_is_ahead=(5.0, NOW_S + 5, True),
)


@WHO_WAS_LATER
def test_of_two_generations_the_later_counts(own_s: float, told_s: float, theirs: bool) -> None:
    history = History(":memory:", lambda: NOW_S)
    Measurements(history).set_reform(7, Reform(own_s, 1, 2))
    take_over(history, valid_rows({"reforms": [[7, told_s, 2, 2]]}))
    reform = Measurements(history).reform(7)
    assert reform is not None and reform.generation == (2 if theirs else 1)


@WHO_WAS_LATER
def test_of_two_trainers_of_one_number_the_one_met_later_counts(
    own_s: float, told_s: float, theirs: bool
) -> None:
    history = History(":memory:", lambda: NOW_S)
    history.meet(7, "own", own_s)
    take_over(history, valid_rows({"trainers": [[7, "theirs", told_s, "given up", 1]]}))
    assert history.knows_another(7, "own") is theirs
    assert history.meet(7, "theirs" if theirs else "own", NOW_S) == ("given up" if theirs else None)


def test_a_text_that_cannot_be_written_costs_only_itself() -> None:
    history = History(":memory:")
    take_over(history, valid_rows(GOOD | {"trainers": [[8, "\ud800", 5.0, None, 1], TRAINER]}))
    assert history.trouble is None
    assert Measurements(history).has_trained(7) and history.has_begun(7)
