"""The stream on one cluster: submits it, waits for it, and asks Slurm about its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.slurm.nodelists import expand
from scripts.demonstration.stream import OrdinaryJob, Submitted, submit_stream
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until

_LOOK_EVERY_S = 5.0
_PATIENCE_S = 1200.0  # after the last submission
_FORMAT = "JobID:20,State:20,RestartCnt:20,NodeList:1000"
_ACCOUNTS = ("squeue", "--noheader", "--partition=main", "--states=all", f"--Format={_FORMAT}")


@dataclass(frozen=True)
class Account:
    """What Slurm says about a job."""

    state: str
    restarts: int
    nodes: tuple[str, ...] = ()  # that it had, or has


@dataclass(frozen=True)
class Start:
    """What became of an ordinary job; Unix seconds. A time is None if the job never got there."""

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
    sleep: Callable[[float], object],
) -> list[Start]:
    """Submit a stream, wait until all of its jobs have ended, and ask what became of them.

    Its times count from ``begin_s``, in Unix seconds. If ``sleep`` raises, that ends it.
    """

    def over(now_s: float, submitted: Sequence[Submitted]) -> bool:
        sleep(0.0)
        return True

    submitted = submit_stream(stream, folder, lab.run, over, begin_s)
    with suppress(TimeoutError):  # what is left then has failed
        wait_until(lambda: not _queue(lab), _PATIENCE_S, pause=lambda _: sleep(_LOOK_EVERY_S))
    accounts = read_accounts(lab.run(*_ACCOUNTS).stdout.splitlines())
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
    """Read what squeue says about jobs, also those that have ended, by job id."""
    accounts = {}
    for line in lines:
        number, state, restarts, *nodes = line.split()
        accounts[int(number)] = Account(state, int(restarts), expand(nodes[0]) if nodes else ())
    return accounts


def _queue(lab: Lab) -> list[str]:
    asked = ("squeue", "-h", "-p", "main", "-t", "PD,R,CF,CG", "-o", "%i")
    return lab.run(*asked).stdout.split()
