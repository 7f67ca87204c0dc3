"""Runs Slurm's commands for the gateway; here the simulated slurmctld answers them.

It counts the requests, and measures the simulation's own processor time, which is taken off the
daemon's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bftrainer_slurm.slurm.arrays import format_tasks, parse_tasks
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.scale_bench.slurmctld import PARTITION, Slurmctld

LOOK, GROW = "bftrainer-look", "bftrainer-grow"
_MANY_TASKS = 1_000_000
# The defaults under rl_enable: so many RPCs of a user at once, and then so many per second.
_RL_BUCKET, _RL_PER_S = 30.0, 2.0


@dataclass(slots=True)
class Requests:
    """The requests so far: when each RPC came, what was read, and the simulation's own time.

    ``limited`` are the RPCs that slurmctld would turn away under rl_enable.
    """

    clock: Callable[[], float]
    rpcs_s: list[float] = field(default_factory=list)  # Unix seconds
    moves_s: list[float] = field(default_factory=list)  # of those that start or end elements
    read_bytes: int = 0
    largest: str = ""  # of all answers
    limited: int = 0
    cpu_s: float = 0.0
    _tokens: float = _RL_BUCKET
    _counted_s: float = 0.0

    def count(self, rpcs: int, moves: bool) -> None:
        """Count the RPCs of one command."""
        now_s = self.clock()
        earned = (now_s - self._counted_s) * _RL_PER_S
        self._tokens = min(_RL_BUCKET, self._tokens + earned) - rpcs
        self._counted_s = now_s
        if self._tokens < 0:
            self.limited += rpcs
            self._tokens += rpcs
        self.rpcs_s += rpcs * [now_s]
        self.moves_s += rpcs * [now_s] if moves else []

    def read(self, text: str) -> str:
        """Count what an answer holds; return it."""
        self.read_bytes += len(text)
        self.largest = max(self.largest, text, key=len)
        return text

    @contextmanager
    def simulating(self) -> Iterator[None]:
        """Measure the simulation's own processor time, in the thread that asks."""
        begin_s = time.thread_time()
        try:
            yield
        finally:
            self.cpu_s += time.thread_time() - begin_s


@dataclass(frozen=True, kw_only=True)
class SimulatedRunner(SlurmRunner):
    """Answers as the programs that a LookGateway runs; it raises an error for an unknown one.

    It runs in its caller's process, so the cost of starting a program is not in it.
    """

    slurmctld: Slurmctld
    requests: Requests
    rl_enable: bool = False

    def read(self, *command: str, accepted_status: int = 0) -> str:
        """See SlurmRunner."""
        with self.requests.simulating():
            rpcs, text = self._answer(command)
            self.requests.count(rpcs, moves=False)
            return self.requests.read(text)

    def change(self, *command: str, stdin: str = "") -> str:
        """See SlurmRunner."""
        with self.requests.simulating(), self.slurmctld.lock:
            self.requests.count(1, moves="update" not in command)  # which sets limits
            array, refused = self._carried_out(command, stdin)
            if refused:
                named = f"{array}_[{format_tasks(refused)}]: Job is no longer pending execution"
                raise RefusedError(f"{command[0]}: {named}", [])
            return ""

    def _answer(self, command: Sequence[str]) -> tuple[int, str]:
        """Return how many RPCs a command sends, and what it prints."""
        match command:
            case (program, "jobs", since) if program == LOOK:
                return 1, self.slurmctld.jobs_text(int(since))
            case (program, "nodes", since) if program == LOOK:
                return 2, self.slurmctld.nodes_text(int(since))  # and the partitions
            case ("scontrol", *_, "show", "reservation"):
                return 1, "No reservations in the system\n"
            case ("scontrol", "show", "config"):
                return 1, (
                    "MaxJobCount = 100000\n"
                    "SchedulerType = sched/backfill\n"
                    "PreemptType = preempt/partition_prio\n"
                    f"SchedulerParameters = bf_interval={self.slurmctld.bf_interval_s}\n"
                    f"SlurmctldParameters = {'rl_enable' if self.rl_enable else '(null)'}\n"
                )
            case ("scontrol", *_, "show", "partition"):
                words = "MaxTime=UNLIMITED PriorityTier=0 PreemptMode=REQUEUE"
                return 1, f"PartitionName={PARTITION} {words}\n"
            case ("sdiag",):
                return 1, f"\tLast cycle when: then ({self.slurmctld.last_backfill_s})\n"
        raise ValueError(f"not simulated: {command}")

    def _carried_out(self, command: Sequence[str], given: str) -> tuple[int, list[int]]:
        """Carry out a command; return its array, and the tasks for which it failed."""
        slurmctld = self.slurmctld
        match command:
            case (program, elements, *minutes) if program == GROW:
                array, tasks = _read(elements)
                asked = int(minutes[0]) if minutes else None
                return array, slurmctld.let_go(array, tasks, given, asked)
            case ("scontrol", "requeuehold", "Incomplete", elements):
                array, tasks = _read(elements)
                return array, slurmctld.requeue_hold(array, tasks)
            case ("scontrol", "uhold", elements):
                array, tasks = _read(elements)
                return array, slurmctld.hold(array, tasks)
            case ("scontrol", "update", elements, end) if end.startswith("EndTime=uts"):
                array, tasks = _read(elements.removeprefix("JobId="))
                return array, slurmctld.limit(array, tasks, int(end.removeprefix("EndTime=uts")))
        raise ValueError(f"not simulated: {command}")


def _read(elements: str) -> tuple[int, tuple[int, ...]]:
    array, _, tasks = elements.partition("_")
    return int(array), parse_tasks(tasks.strip("[]"), below=_MANY_TASKS)
