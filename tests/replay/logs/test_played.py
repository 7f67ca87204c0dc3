"""Which holes a job of the log ends, and which scheduler has started it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs.log import LogOptions, read_log
from bftrainer_slurm.replay.logs.played import Play, play_of
from bftrainer_slurm.replay.playback import PlayedJob

HEADER = "JobID|Partition|Priority|NNodes|Submit|Start|End|Flags|NodeList"
FIRST = "1|p|1|3|900|900|1200||n[1-3]"


def play(folder: Path, *rows: str, header: str = HEADER) -> Play | None:
    path = folder / "log"
    path.write_text("\n".join([header, *rows]))
    log = read_log(path, LogOptions(from_s=1000.0, to_s=3000.0))
    return play_of(log, log.holes, log.from_s, log.to_s)


def jobs(folder: Path, *rows: str) -> list[PlayedJob]:
    found = play(folder, FIRST, *rows)
    assert found is not None
    return list(found.jobs)


def test_a_job_ends_the_holes_of_its_nodes(tmp_path: Path) -> None:
    one, other = jobs(tmp_path, "2|p|9|2|1300|1500|1900||n[1-2]", "3|p|8|1|1300|1500|1900||n3")
    assert (one.takes, other.takes) == ((0, 1), (2,))
    assert (one.eligible_s, one.start_s, one.gone_s, one.priority) == (1300, 1500, 1500, 9)


def test_on_nodes_that_another_job_just_left_there_was_no_hole(tmp_path: Path) -> None:
    (one,) = jobs(tmp_path, "2|p|1|3|1000|1200|1900||n[1-3]")
    assert (one.takes, one.nodes) == ((), 3)


def test_a_node_that_is_shared_is_taken_by_the_first(tmp_path: Path) -> None:
    rows = "2|p|1|1|1300|1500|1900||n1", "3|p|1|1|1300|1600|1900||n1"
    assert [one.takes for one in jobs(tmp_path, *rows)] == [(0,), ()]


@pytest.mark.parametrize(
    ("row", "backfilled"),
    [
        ("2|p|1|1|1498|1500|1900||n1", False),  # as it came
        ("2|p|1|1|1300|1500|1900||n1", True),
        ("2|p|1|2|1100|1200|1900||n[1-2]", False),  # on nodes that were just left
        ("2|p|1|1|1300|1500|1900|SchedMain|n1", False),
        ("2|p|1|1|1498|1500|1900|SchedBackfill|n1", True),
    ],
)
def test_which_scheduler_started_a_job(tmp_path: Path, row: str, backfilled: bool) -> None:
    (one,) = jobs(tmp_path, row)
    assert one.backfilled is backfilled


def test_a_job_that_is_cancelled_has_waited(tmp_path: Path) -> None:
    (one,) = jobs(tmp_path, "2|p|1|7|1100|Unknown|1400||None assigned")
    assert (one.eligible_s, one.start_s, one.gone_s, one.nodes) == (1100, math.inf, 1400, 7)


def test_who_has_waited_longest_comes_first_without_priorities(tmp_path: Path) -> None:
    rows = "2|p||1|1400|1500|1900||n1", "3|p||1|1300|1500|1900||n2"
    found = play(tmp_path, "1|p||3|900|900|1200||n[1-3]", *rows)
    assert found is not None
    older, newer = sorted(found.jobs, key=lambda one: one.eligible_s)
    assert older.priority > newer.priority


def test_nothing_is_played_without_times_of_submission(tmp_path: Path) -> None:
    header = "JobID|NNodes|Start|End|NodeList"
    assert play(tmp_path, "1|2|900|1200|n[1-2]", "2|1|1500|1900|n1", header=header) is None


def test_nodes_without_names_are_taken_as_many_as_a_job_has(tmp_path: Path) -> None:
    swf = ("1 900 0 300 3", "2 1300 200 400 2", "3 1300 200 400 1")
    found = play(tmp_path, *(row + " -1" * 13 for row in swf), header="; MaxNodes: 3")
    assert found is not None
    assert sorted(len(one.takes) for one in found.jobs) == [1, 2]
