"""A log's lines, node lists and jobs; and which of its time nearly all jobs are in the log."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs.edges import trusted
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.lines import LONGEST_LINE, read_lines
from bftrainer_slurm.replay.logs.nodes import MOST_NODES, NodeNumbers, expand
from tests.controller.worlds import cases


@cases(
    "content, lines",
    keep_their_numbers_over_empty_ones=(b"a\n\n  \nb", [(1, "a"), (4, "b")]),
    are_unzipped_by_the_files_first_bytes=(gzip.compress(b"a\nb\n"), [(1, "a"), (2, "b")]),
    that_are_no_text_do_no_harm=(b"\xff\x00\n", [(1, "\ufffd\0")]),
    without_end_come_in_pieces=(
        b"x" * (2 * LONGEST_LINE) + b"\nb\n",
        [*[(1, "x" * LONGEST_LINE)] * 2, (2, "b")],
    ),
)
def test_lines(tmp_path: Path, content: bytes, lines: list[tuple[int, str]]) -> None:
    (tmp_path / "log").write_bytes(content)
    assert list(read_lines(tmp_path / "log")) == lines


def test_progress_adds_up_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc\n" * 1_000_000)
    told: list[int] = []
    for _ in read_lines(tmp_path / "log", told.append):
        pass
    assert sum(told) == 4_000_000
    assert len(told) > 2


RUNS = Job(
    1, 7, 100.0, math.inf, 3, "n[1-3]", 50.0, backfilled=True, partition="gpu", limit_s=600.0
)
jobs = st.lists(st.builds(RUNS._replace, key=st.integers(0, 3), end_s=st.floats(100, 999)))


@given(jobs)
def test_a_table_has_the_jobs_that_it_is_made_of(rows: list[Job]) -> None:
    assert list(JobTable.of(rows)) == rows
    assert list(JobTable.joined([JobTable.of([one]) for one in rows])) == rows
    left = [one.key for one in JobTable.of(rows).once()]
    assert sorted(left) == sorted({one.key for one in rows})


def test_what_the_log_shows_twice_counts_once_and_the_end_of_what_still_ran_in_a_part() -> None:
    again, ended = RUNS._replace(line=9), RUNS._replace(line=9, end_s=200.0)
    for shown, counts in (([RUNS, again], RUNS), ([RUNS, ended], ended), ([ended, RUNS], ended)):
        assert list(JobTable.of(shown).once()) == [counts]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("a1,b[1-2]-ib", ["a1", "b1-ib", "b2-ib"]),
        ("r[1-2]c[1-2]", ["r1c1", "r1c2", "r2c1", "r2c2"]),
    ],
)
def test_node_lists_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


BOMBS = [
    "n[0-999999999]",
    "n[0-9999][0-9999][0-9999]",
    "n[1-" + "9" * 4000 + "]",
    ",".join(f"n[0-9999]x{k}" for k in range(50)),
    "n[" + ",".join(["1-999999"] * 300) + "]",
]
NO_LISTS = ["n[1-", "n[3-1]", "n[]", "@all", "n1&n2", "n 1", "", "n\x1b[1m"]


@pytest.mark.parametrize("text", [*BOMBS, *NO_LISTS], ids=lambda text: repr(text[:20]))
def test_a_bomb_is_refused_before_it_expands_and_so_is_what_is_no_list(text: str) -> None:
    why = "not a node list|not a range" if text in NO_LISTS else "more than|not a range"
    with pytest.raises(ValueError, match=why):
        expand(text)


def test_a_log_cannot_name_more_and_more_nodes() -> None:
    numbers = NodeNumbers()
    numbers.of(f"n[1-{MOST_NODES}]")
    numbers.of("n[1-5]")
    with pytest.raises(ValueError, match="names more than"):
        numbers.of("m1")


# A log is trusted where nearly all jobs of the time are in it.

# All run 100 s: 99 % of what ran when the first one ended has gone 90 s later.
STREAM = [(10.0 * k, 10.0 * k + 100.0) for k in range(1000)]
DONE = [(start, end) for start, end in STREAM if end <= 9000.0]


@cases(
    "runs, submitted_s, from_s, to_s",
    from_when_its_first_jobs_have_gone_to_its_last_submission=(
        *(STREAM, 9000.0, pytest.approx(190, abs=10), 9000.0),
    ),
    to_its_last_start_without_submissions=(
        *(STREAM, -math.inf, pytest.approx(190, abs=10), 9990.0),
    ),
    to_before_its_end_if_it_has_only_ended_jobs=(
        *(DONE, 9005.0, pytest.approx(190, abs=10), pytest.approx(8910, abs=10)),
    ),
    cutting_off_a_quarter_at_most=([(0.0, 10.0), (0.0, 1e6), (50.0, 60.0)], 110.0, 10 + 25, 110.0),
)
def test_a_log_is_trusted(
    runs: list[tuple[float, float]], submitted_s: float, from_s: float, to_s: float
) -> None:
    table = JobTable.of(Job(0, key, *run, 1, "") for key, run in enumerate(runs))
    assert trusted(table, submitted_s) == (from_s, to_s)


def test_a_log_that_ends_with_its_first_job_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="no job came after its first one had ended"):
        trusted(JobTable.of([Job(0, 0, 0.0, 10.0, 1, "")]), -math.inf)
