"""What Slurm prints of jobs is read as it is meant."""

from __future__ import annotations

from scripts.impact_bench.course import Account, read_accounts

DONE = (
    "JobId=7 JobName=sbatch UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A Priority=1 "
    "JobState=COMPLETED Reason=None Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "SubmitTime=2026-11-21T17:57:32 EligibleTime=2026-11-21T17:57:32 "
    "StartTime=2026-11-21T17:57:33 EndTime=2026-11-21T17:58:20 NodeList=n[1-2] "
    "Comment=JobState=FAILED"
)
WAITING = "JobId=8 JobState=PENDING Restarts=0 SubmitTime=2026-11-21T17:57:32 StartTime=Unknown"


def test_a_job_has_its_state_and_its_nodes() -> None:
    assert read_accounts([DONE]) == {7: Account("COMPLETED", 0, ("n1", "n2"))}


def test_a_job_that_waits_has_no_nodes() -> None:
    assert read_accounts([WAITING]) == {8: Account("PENDING", 0)}


def test_what_is_no_job_is_passed_over() -> None:
    assert read_accounts(["", "No jobs in the system"]) == {}
