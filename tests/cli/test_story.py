"""Several logs as one story: by time, with nodes."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.cli.story import Log, merge, time_of

NOW_S = datetime(2026, 11, 23, 20, 40).timestamp()
LOST = "ON n1 CANCELLED AT 2026-11-23T20:30:11 DUE TO PREEMPTION ***"
# What an element has written that was reclaimed on n1, and runs on n3 now (Slurm 22.05.8).
MOVED = f"""\
start n1
W1123 20:30:07.327000 34 torch/distributed/elastic/agent/server/api.py:753] hello
seen=1152 world=2
slurmstepd-n1: error: *** STEP 37000002.0 {LOST}
slurmstepd-n1: error: *** JOB 37000002 {LOST}
Traceback (most recent call last):
srun: error: n1: task 0: Exited with exit code 1
start n3
2026-11-23T20:35:00 on n3
seen=4711 world=1
""".splitlines()


def told(*logs: Log) -> list[tuple[str, str]]:
    return [(line.node, line.text) for line in merge(logs)]


def log(*lines: str, node: str = "n1", changed_s: float = NOW_S) -> Log:
    return Log(lines, 0, node, None, changed_s)


def test_lines_come_by_time_whichever_file_they_are_in() -> None:
    first = log("2026-11-23 20:30:00,100 a", "2026-11-23 20:30:02,000 c")
    second = log("2026-11-23T20:30:01 b", node="n2")
    assert [text[-1] for _, text in told(first, second)] == ["a", "b", "c"]


def test_a_line_without_a_time_stays_behind_the_one_before_it() -> None:
    first = log("2026-11-23 20:30:00 a", "  detail", "2026-11-23 20:30:02 c")
    second = log("2026-11-23 20:30:01 b", node="n2")
    assert [text.split()[-1] for _, text in told(first, second)] == ["a", "detail", "b", "c"]


def test_the_node_is_that_on_which_the_line_was_written() -> None:
    nodes = [node for node, _ in told(log(*MOVED, node="n3"))]
    assert nodes == ["n1"] * 7 + ["n3"] * 3


def test_a_step_that_failed_names_its_node_where_no_element_was_taken_off() -> None:
    failed = (
        *("begins", "srun: error: n1: task 0: Exited with exit code 2"),
        *("slurmstepd-n1: error: execve(): torchrun: No such file or directory", "begins again"),
    )
    assert [node for node, _ in told(log(*failed, node="n5"))] == ["n1", "n1", "n1", "n5"]


def test_the_first_lines_of_a_file_without_a_time_have_that_of_the_next() -> None:
    early = log("2026-11-23T20:30:00 first", node="n2")
    assert told(log(*MOVED), early)[0] == ("n2", "2026-11-23T20:30:00 first")


def test_a_time_that_cannot_be_does_not_hold_up_what_follows() -> None:
    first = log("2999-01-01 00:00:00 liar", "2026-11-23 20:30:00 a")
    second = log("2026-11-23 20:30:01 b", node="n2")
    assert [text.split()[-1] for _, text in told(first, second)] == ["liar", "a", "b"]


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("2026-11-23T20:30:11 x", "20:30:11"),
        ("[2026-11-23 20:30:11,250] x", "20:30:11.250000"),
        ("W1123 20:30:11.250000 34 torch/x.py:1] x", "20:30:11.250000"),
        ("[W1123 20:30:11.250000000 socket.cpp:207] x", "20:30:11.250000"),
        (MOVED[4], "20:30:11"),
        ("seen=2026-11-23", None),
        ("W1399 20:30:11.250000 34 x", None),
        ("2026-02-31 20:30:11 x", None),
        ("", None),
    ],
)
def test_times_are_read_as_slurm_torch_and_logging_write_them(text: str, clock: str | None) -> None:
    expected = clock and datetime.fromisoformat(f"2026-11-23T{clock}").timestamp()
    assert time_of(text, NOW_S) == expected


def test_a_time_without_a_year_is_the_last_one_of_its_day() -> None:
    january_s = datetime(2027, 1, 1, 0, 5).timestamp()
    said = time_of("W1231 23:59:00.000000 34 x", january_s)
    assert said == datetime(2026, 12, 31, 23, 59).timestamp()


def test_a_zone_counts() -> None:
    utc = datetime.fromisoformat("2026-11-23T20:30:11+00:00").timestamp()
    assert time_of("2026-11-23T20:30:11Z x", NOW_S) == utc


@given(st.lists(st.lists(st.text() | st.sampled_from(MOVED), max_size=12), max_size=4))
def test_no_line_is_lost_and_each_file_keeps_its_order(files: list[list[str]]) -> None:
    logs = [Log(lines, task, "n1", None, NOW_S) for task, lines in enumerate(files)]
    found = list(merge(logs))
    for task, lines in enumerate(files):
        assert [line.text for line in found if line.task == task] == lines
    assert all(one.time_s <= other.time_s for one, other in pairwise(found))
