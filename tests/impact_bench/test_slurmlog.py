"""The jobs and the looks are those of the lines that Slurm 22.05 wrote."""

from __future__ import annotations

from datetime import datetime

import pytest

from scripts.impact_bench.slurmlog import BACKFILL, MAIN, read_log, read_looks

BEGIN_S = datetime(2026, 11, 21, 17, 59, 29).timestamp()


def log(*lines: tuple[float, str]) -> list[str]:
    """Return the lines of a log; times are seconds from ``BEGIN_S``."""
    return [
        f"[{datetime.fromtimestamp(BEGIN_S + at_s).isoformat(timespec='milliseconds')}] {text}"
        for at_s, text in lines
    ]


def test_a_job_is_known_with_the_elements_that_went_for_it_and_their_nodes() -> None:
    found = read_log(
        log(
            (0.020, "_slurm_rpc_submit_batch_job: JobId=13 InitPrio=4294901747 usec=1027"),
            (0.200, "preempted JobId=5_1(8) has been requeued to reclaim resources for JobId=13"),
            (0.201, "preempted JobId=5_0(5) has been requeued to reclaim resources for JobId=13"),
            (0.320, "debug2: _slurm_rpc_epilog_complete: JobId=5_1(8) Node=n2 "),
            (0.501, "sched: Allocate JobId=13 NodeList=n[1-2] #CPUs=4 Partition=main"),
        )
    )
    assert [other for _, other in found["preempted", 13]] == ["8", "5"]
    assert found["known", 8] == [(pytest.approx(BEGIN_S + 0.320), "n2")]
    assert found["allocated", 13] == [(pytest.approx(BEGIN_S + 0.501), "")]


def test_jobs_that_backfill_started_are_known() -> None:
    found = read_log(
        log(
            (0.501, "sched: Allocate JobId=13 NodeList=n[1-2] #CPUs=4 Partition=main"),
            (1.220, "sched/backfill: _start_job: Started JobId=14 in main on n3"),
        )
    )
    assert [job for kind, job in found if kind == "allocated"] == [13, 14]
    assert [job for kind, job in found if kind == "backfilled"] == [14]


def test_looks_are_those_of_one_scheduler() -> None:
    lines = log(
        (0.100, "debug:  sched/backfill: _attempt_backfill: beginning"),
        (0.250, "debug:  sched: Running job scheduler for default depth."),
        (1.252, "debug:  sched: Running job scheduler for full queue."),
    )
    assert read_looks(lines, MAIN) == pytest.approx([BEGIN_S + 0.250, BEGIN_S + 1.252])
    assert read_looks(lines, BACKFILL) == pytest.approx([BEGIN_S + 0.100])
