"""What slurmctld says that the controller costs it."""

from __future__ import annotations

from scripts.slurmctld_load import Requests, requests_of

SDIAG = """\
Remote Procedure Call statistics by message type
\tREQUEST_JOB_INFO                        ( 2003) count:30     ave_time:100    total_time:3000
Remote Procedure Call statistics by user
\troot            (       0) count:12     ave_time:150    total_time:1800
\tslurm           (     110) count:42     ave_time:200    total_time:8400
\tslurm2          (     111) count:7      ave_time:200    total_time:1400
"""


def test_an_accounts_requests_and_their_time_are_read() -> None:
    assert requests_of("slurm", SDIAG) == Requests(42, 8.4)
    assert requests_of("lurm", SDIAG) == requests_of("alice", SDIAG) == Requests(0, 0.0)
