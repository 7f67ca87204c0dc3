"""The parts of a delay are those between the lines that Slurm 22.05 wrote."""

from __future__ import annotations

from datetime import datetime

import pytest

from scripts.impact_bench.breakdown import (
    BACKFILL,
    MAIN,
    RECLAIMING,
    direct,
    read_log,
    read_looks,
    reclaiming,
)
from scripts.impact_bench.report import parts_table
from tests.impact_bench.starts import start

BEGIN_S = datetime(2026, 11, 21, 17, 59, 29).timestamp()


def log(*lines: tuple[float, str]) -> list[str]:
    """Return the lines of a log; times are seconds from ``BEGIN_S``."""
    return [
        f"[{datetime.fromtimestamp(BEGIN_S + at_s).isoformat(timespec='milliseconds')}] {text}"
        for at_s, text in lines
    ]


CONTROLS = log(
    (0.020, "_slurm_rpc_submit_batch_job: JobId=13 InitPrio=4294901747 usec=1027"),
    (0.200, "preempted JobId=5_1(8) has been requeued to reclaim resources for JobId=13"),
    (0.201, "preempted JobId=5_0(5) has been requeued to reclaim resources for JobId=13"),
    (0.320, "debug2: _slurm_rpc_epilog_complete: JobId=5_1(8) Node=n2 "),
    (0.500, "debug2: _slurm_rpc_epilog_complete: JobId=5_0(5) Node=n1 "),
    (0.501, "sched: Allocate JobId=13 NodeList=n[1-2] #CPUs=4 Partition=main"),
    (1.020, "_slurm_rpc_submit_batch_job: JobId=14 InitPrio=4294901746 usec=1027"),
    (1.220, "sched/backfill: _start_job: Started JobId=14 in main on n3"),
)
# An earlier life of the same element on this node says nothing of the one that was preempted.
NODE = log(
    (-9.00, "[5.0] done with job"),
    (0.220, "[5.0] Sent signal 15 to StepId=5.0"),
    (0.230, "[5.batch] Sent signal 15 to StepId=5.batch"),
    (0.231, "[5.batch] task 0 (28628) exited. Killed by signal 15."),
    (0.300, "[5.0] task 0 (28796) exited. Killed by signal 15."),
    (0.330, "[5.0] done with job"),
    (0.350, "[5.batch] done with job"),
    (0.490, "debug:  completed epilog for jobid 5"),
)
TOOK = start(submit_s=BEGIN_S, delay_s=0.550, number=13)
FOUND = start(submit_s=BEGIN_S + 1, delay_s=0.250, number=14)


def test_a_job_that_takes_nodes_waits_for_the_element_that_is_gone_last() -> None:
    [way] = reclaiming(read_log(CONTROLS), {"n1": read_log(NODE)}, [TOOK, FOUND])
    assert way.number == 13
    expected = [0.020, 0.181, 0.019, 0.080, 0.050, 0.140, 0.010, 0.001, 0.049]
    assert way.parts_s == pytest.approx(expected, abs=1e-5)


def test_a_job_for_which_no_element_had_to_go_has_three_parts() -> None:
    [way] = direct(read_log(CONTROLS), [TOOK, FOUND])
    assert way.number == 14
    assert way.parts_s == pytest.approx([0.020, 0.200, 0.030], abs=1e-5)


def test_jobs_that_backfill_started_are_known() -> None:
    found = read_log(CONTROLS)
    assert [job for kind, job in found if kind == "backfilled"] == [14]


def test_a_job_of_whose_element_the_log_has_too_little_is_left_out() -> None:
    assert reclaiming(read_log(CONTROLS), {"n1": read_log([])}, [TOOK]) == []
    assert reclaiming(read_log(CONTROLS), {}, [TOOK]) == []


def test_a_table_says_of_how_many_jobs_it_speaks() -> None:
    ways = reclaiming(read_log(CONTROLS), {"n1": read_log(NODE)}, [TOOK])
    lines = parts_table("with trainers", RECLAIMING, ways).splitlines()
    assert lines[0] == "with trainers: 1 jobs"
    assert lines[-1].split() == ["in", "all", "0.550", "0.550"]
    assert parts_table("with trainers", RECLAIMING, []) == "with trainers: 0 jobs"


def test_looks_are_those_of_one_scheduler() -> None:
    lines = log(
        (0.100, "debug:  sched/backfill: _attempt_backfill: beginning"),
        (0.250, "debug:  sched: Running job scheduler for default depth."),
        (1.252, "debug:  sched: Running job scheduler for full queue."),
    )
    assert read_looks(lines, MAIN) == pytest.approx([BEGIN_S + 0.250, BEGIN_S + 1.252])
    assert read_looks(lines, BACKFILL) == pytest.approx([BEGIN_S + 0.100])
