"""What Slurm prints of jobs is read as it is meant."""

from __future__ import annotations

from scripts.impact_bench.course import Account, read_accounts

DONE = "7                   COMPLETED           0                   n[1-2]              "
WAITING = "8                   PENDING             0                                       "


def test_a_job_has_its_state_and_its_nodes() -> None:
    assert read_accounts([DONE]) == {7: Account("COMPLETED", 0, ("n1", "n2"))}


def test_a_job_that_waits_has_no_nodes() -> None:
    assert read_accounts([WAITING]) == {8: Account("PENDING", 0)}
