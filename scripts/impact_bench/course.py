"""The stream on one cluster: submitted, waited for, and what Slurm says of its jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.slurm.nodelists import expand
from scripts.demonstration.stream import OrdinaryJob, Submitted, submit_stream
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until

_LOOK_EVERY_S = 5.0
_PATIENCE_S = 1200.0  # after the last submission; then jobs count as failed
_IDLE_S = 120.0

_FIELDS = re.compile(r"(\w+)=(\S*)")


class StoppedError(Exception):
    """Whoever wanted this to run does not any more."""


@dataclass(frozen=True)
class Account:
    """What Slurm says of a job."""

    state: str
    restarts: int
    nodes: tuple[str, ...] = ()  # that it had, or has


@dataclass(frozen=True)
class Start:
    """How an ordinary job fared; Unix seconds. Times are None where it never came so far."""

    job: OrdinaryJob
    number: int  # Slurm's job id
    submit_s: float  # just before its sbatch
    start_s: float | None  # its own first line
    end_s: float | None  # its own last line
    account: Account

    @property
    def delay_s(self) -> float | None:
        """Seconds from its submission to its first line."""
        return None if self.start_s is None else self.start_s - self.submit_s

    @property
    def failed(self) -> bool:
        """Whether it did not run to its end, once and well."""
        ended = self.end_s is not None and self.account.state == "COMPLETED"
        return not ended or self.account.restarts > 0


def run_jobs(
    lab: Lab,
    stream: Sequence[OrdinaryJob],
    folder: Path,
    begin_s: float,
    stopped: Callable[[], bool],
) -> list[Start]:
    """Submit a stream, wait until Slurm has no job of it any more, and ask what became of them.

    Its time begins at ``begin_s``, in Unix seconds.

    Raises:
        StoppedError: ``stopped`` said so.
    """
    looked_s = 0.0

    def is_over(now_s: float, submitted: Sequence[Submitted]) -> bool:
        nonlocal looked_s
        if stopped():
            raise StoppedError
        if len(submitted) < len(stream):
            return False
        if all(one.end_s is not None for one in submitted):
            return True
        if now_s - looked_s < _LOOK_EVERY_S:
            return now_s > stream[-1].at_s + _PATIENCE_S
        looked_s = now_s
        return not _queue(lab)

    submitted = submit_stream(stream, folder, lab.run, is_over, begin_s)
    with suppress(TimeoutError):  # the last job's end is to reach slurmctld
        wait_until(lambda: not _queue(lab), _IDLE_S)
    accounts = read_accounts(lab.run("scontrol", "--oneliner", "show", "job").stdout.splitlines())
    unknown = Account("UNKNOWN", 0)
    return [
        Start(
            one.job,
            one.number,
            one.submit_s,
            one.start_s,
            one.end_s,
            accounts.get(one.number, unknown),
        )
        for one in submitted
    ]


def read_accounts(lines: Iterable[str]) -> dict[int, Account]:
    """Read what ``scontrol --oneliner show job`` prints, by job id."""
    accounts = {}
    for line in lines:
        # The first of a name counts: the user's own words come behind Slurm's.
        fields: dict[str, str] = {}
        for name, value in _FIELDS.findall(line):
            fields.setdefault(name, value)
        if "JobId" in fields:
            accounts[int(fields["JobId"])] = Account(
                fields["JobState"],
                int(fields["Restarts"]),
                expand(fields.get("NodeList")),
            )
    return accounts


def _queue(lab: Lab) -> list[str]:
    asked = ("squeue", "-h", "-p", "main", "-t", "PD,R,CF,CG", "-o", "%i")
    return lab.run(*asked).stdout.split()
