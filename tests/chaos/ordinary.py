"""A light stream of ordinary jobs, and what became of each of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from bftrainer_slurm.slurm.nodelists import expand
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site
from tests.chaos.observe import Element

_GAP_S = 12.0  # between two, on average
_SHARED_GAP_S = 4.0
_MOST_NODES = 2
_RUNS_S = (2, 8)
_SHARED_RUNS_S = (4, 16)  # so that faults find them beside elements
# From when Slurm is well until all have started and ended. On shared nodes too: jobs ask for less,
# and where one has to wait for several elements on several nodes, Slurm preempts again
# KillWait + MessageTimeout (10 s here) later.
_PATIENCE_S = 90.0
_OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT")
_THERE = ("COMPLETING", "RUNNING")
_OWN = ("COMPLETED", "FAILED")  # by its exit status: 0 or another one

# Signals are noted where Slurm's, our guard's or anybody's might reach the job.
SCRIPT = """#!/bin/bash
#SBATCH --time=5 --output=/dev/null
for signal in HUP INT QUIT USR1 USR2 TERM CONT; do
  trap "echo got SIG$signal >> {name}.disturbed" $signal
done
[ -z "$SLURM_RESTART_COUNT" ] || echo started again >> {name}.disturbed
read uptime _ < /proc/uptime; echo $uptime > {name}.start
sleep {runs_s} || echo ended early >> {name}.disturbed
touch {name}.end
exit {status}
"""


@dataclass(slots=True)
class Ordinary:
    """A submitted job: when it was submitted, its exit status, the files it writes."""

    submit_s: float  # of CLOCK_MONOTONIC, as /proc/uptime
    status: int
    name: Path
    nodes: frozenset[str] = frozenset()  # where it was when it was last seen
    suspect: bool = False  # something was wrong with it at the last look

    @property
    def ended(self) -> bool:
        return self.name.with_suffix(".end").exists()

    def wait_s(self) -> float | None:
        """Return the seconds from its submission to its first line; None: it has not started."""
        path = self.name.with_suffix(".start")
        text = path.read_text() if path.exists() else ""
        return float(text) - self.submit_s if text else None

    def wrong(self, state: str) -> str:
        """Return what is wrong with it in this state; nothing: "" """
        disturbed = self.name.with_suffix(".disturbed")
        if disturbed.exists():
            return ", ".join(disturbed.read_text().splitlines())
        if state not in _OVER:
            return ""
        if not self.ended:
            return f"is {state}, and did not come to its end"
        own = _OWN[self.status > 0]
        return "" if state == own else f"is {state}, and should be {own}"


@dataclass
class Stream:
    """Submits a job every few seconds, as bob; with ``gpus`` of a node for parts of nodes."""

    site: Site
    chance: Random
    gpus: int = 0
    submitted: int = 0
    failed: list[str] = field(default_factory=list)
    beside: set[int] = field(default_factory=set)  # jobs that were on a node with an element
    waits_s: dict[int, float] = field(default_factory=dict)  # from submissions to first lines
    _open: dict[int, Ordinary] = field(default_factory=dict)
    _next_s: float = 0.0
    _tried: int = 0

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        gap_s, runs_s = (_SHARED_GAP_S, _SHARED_RUNS_S) if self.gpus else (_GAP_S, _RUNS_S)
        self._next_s = now_s + self.chance.expovariate(1 / gap_s)
        # A new name each time: Slurm may have taken a job though sbatch got no answer.
        self._tried += 1
        name, status = self.site.lab.home("bob") / f"job-{self._tried}", self._tried % 2
        length_s = round(self.chance.uniform(*runs_s), 1)
        script = SCRIPT.format(name=name, runs_s=length_s, status=status)
        words = (f"--nodes={self.chance.randint(1, _MOST_NODES)}", *self._asks())
        # Where Slurm is disturbed just now, sbatch says so.
        with suppress(LabError, subprocess.TimeoutExpired):
            job = self.site.lab.sbatch(*words, script=script, user="bob", timeout_s=10.0)
            self.submitted += 1
            self._open[job] = Ordinary(now_s, status, name)

    def _asks(self) -> tuple[str, ...]:
        """Return what the next job asks for of each node."""
        if not self.gpus:
            return ("--exclusive",)
        some = self.chance.randint(1, self.gpus)
        gpus = f"--gpus-per-node={some}"
        # A core or 500 MB less than so many GPUs have with them.
        others = (f"--cpus-per-task={2 * some - 1}", f"--mem={1000 * some - 500}")
        return (self.chance.choice((gpus, gpus, *others)),)

    def judge(
        self,
        jobs: Mapping[int, Element],
        with_elements: Set[str],
        struck: Set[str],
        silent: Set[str],
        since_s: float,
    ) -> tuple[list[str], list[str]]:
        """Return which jobs take too long, and what else is wrong with any; ``jobs`` are Slurm's.

        The time that a job may take is counted from ``since_s`` on. Those on nodes ``struck`` are
        not judged: these failed, with all on them. What Slurm cannot launch on ``silent`` ones,
        without their slurmd, it starts two minutes later.
        """
        late, wrong, now_s = list[str](), list[str](), time.monotonic()
        for number, one in list(self._open.items()):
            state = jobs[number].state if number in jobs else ""
            one.nodes = (number in jobs and frozenset(expand(jobs[number].node))) or one.nodes
            if (wait_s := one.wait_s()) is not None:
                self.waits_s[number] = wait_s
            if state == "RUNNING" and one.nodes & with_elements:
                self.beside.add(number)
            if one.nodes & struck or (wait_s is None and one.nodes & silent):
                del self._open[number]
                continue
            said = one.wrong(state)
            if said and not one.suspect:
                one.suspect = True  # Slurm may tell at the next look that its node has failed
                continue
            if said:
                wrong.append(f"ordinary job {number} {said}")
            # Of one that has ended slurmctld may have lost the news, and start it again.
            if said or state in _OVER or (one.ended and state not in _THERE):
                del self._open[number]
            elif not one.ended and now_s - max(one.submit_s, since_s) > _PATIENCE_S:
                taken_s = now_s - one.submit_s
                late.append(f"ordinary job {number} has not ended after {taken_s:.0f} s")
        self.failed += wrong
        return late, wrong

    def forget(self) -> None:
        """Forget all jobs: Slurm has lost them."""
        self._open.clear()

    def figures(self) -> dict[str, float]:
        """Return how many there were, and how long they waited."""
        found = {"submitted": self.submitted, "failed": len(self.failed)}
        found |= {"on nodes with elements": len(self.beside)}
        waits_s = self.waits_s.values() or [0.0]
        return found | {"median wait, s": median(waits_s), "longest": max(waits_s)}
