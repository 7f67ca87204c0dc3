"""Which holes a job of the log ends, and which scheduler has started it."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.replay.logs.played import Play, play_of
from tests.replay.logs.conftest import Reads

HEADER = "JobID|Partition|Priority|NNodes|Submit|Start|End|Flags|NodeList"
FIRST = "1|p|1|3|900|900|1200||n[1-3]"


def play(reads: Reads, *rows: str, header: str = HEADER) -> Play | None:
    log = reads("\n".join([header, *rows]), to_s=3000.0)
    return play_of(log, log.holes, log.from_s, log.to_s)


def test_a_node_that_a_job_has_is_no_hole_for_another(reads: Reads) -> None:
    rows = "2|p|1|1|1300|1500|1900||n1", "3|p|1|1|1300|1600|1900||n1"
    assert [one.takes for one in play(reads, FIRST, *rows).jobs] == [(0,), ()]


JOB = {"eligible_s": 1300, "start_s": 1500, "gone_s": 1500, "nodes": 2, "priority": 9}
JUST_LEFT = {"backfilled": False, "takes": ()}
CANCELLED = {"eligible_s": 1100, "start_s": math.inf, "gone_s": 1400, "nodes": 7}


@pytest.mark.parametrize(
    ("row", "known"),
    [
        ("2|p|9|2|1300|1500|1900||n[1-2]", JOB | {"backfilled": True, "takes": (0, 1)}),
        ("2|p|1|7|1100|Unknown|1400||None assigned", CANCELLED),
        ("2|p|1|1|1498|1500|1900||n1", {"backfilled": False}),  # as it came
        ("2|p|1|2|1100|1200|1900||n[1-2]", JUST_LEFT),
        ("2|p|1|1|1300|1500|1900|SchedMain|n1", {"backfilled": False}),
        ("2|p|1|1|1498|1500|1900|SchedBackfill|n1", {"backfilled": True}),
    ],
)
def test_how_a_job_came_to_its_nodes_and_whose_holes_end(
    reads: Reads, row: str, known: dict[str, object]
) -> None:
    (one,) = play(reads, FIRST, row).jobs
    assert {name: getattr(one, name) for name in known} == known


def test_who_has_waited_longest_comes_first_without_priorities(reads: Reads) -> None:
    rows = "2|p||1|1400|1500|1900||n1", "3|p||1|1300|1500|1900||n2"
    found = play(reads, "1|p||3|900|900|1200||n[1-3]", *rows)
    older, newer = sorted(found.jobs, key=lambda one: one.eligible_s)
    assert older.priority > newer.priority


def test_nothing_is_played_without_times_of_submission(reads: Reads) -> None:
    header = "JobID|NNodes|Start|End|NodeList"
    assert play(reads, "1|2|900|1200|n[1-2]", "2|1|1500|1900|n1", header=header) is None


def test_nodes_without_names_are_taken_as_many_as_a_job_has(reads: Reads) -> None:
    swf = ("1 900 0 300 3", "2 1300 200 400 2", "3 1300 200 400 1")
    found = play(reads, *(row + " -1" * 13 for row in swf), header="; MaxNodes: 3")
    assert sorted(len(one.takes) for one in found.jobs) == [1, 2]
