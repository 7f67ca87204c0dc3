"""The private cluster with plugin, controller, keeper and trainers, for faults and the run."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.chaos_suite.observe import (
    Element,
    Process,
    Snapshot,
    Trainer,
    element_processes,
    read_elements,
)
from scripts.chaos_suite.ordinary import Stream
from scripts.chaos_suite.service import Clock, Service
from scripts.chaos_suite.trainers import MAX_NODES, Job, lay_out_scripts
from scripts.chaos_suite.training import forget_apart, in_order
from scripts.labcluster import cluster as labs
from scripts.labcluster.lab import ADMIN, Tell
from scripts.labcluster.processes import end, send
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

# A job that was started just before slurmctld was killed, and not saved, is started once more.
_SLURMS_OWN = "Duplicate jobid"
_ANSWER_S = 30.0
_STATE_MB = 8  # of the controller's disk
_QUEUE = ("squeue", "-h", "-r", "-t", "all", "-o", "%F|%K|%T|%r|%N|%P")
_CONF = ("SlurmdTimeout=10", "SlurmctldTimeout=10", "MessageTimeout=5", "InactiveLimit=0")

# Quicker than on a real cluster, so that a fault's aftermath is short.
_SETTINGS = {
    "queue_interval_s": 2,
    "nodes_interval_s": 4,
    "reservations_interval_s": 20,
    "start_timeout_s": 30,
    "min_hole_s": 5,
    "forward_time_s": 30,
}


@dataclass
class World:
    """Everything that a fault may touch. ``service`` is the site's controller."""

    site: Site
    service: Service
    clock: Clock
    chance: random.Random
    trainers: dict[str, Job] = field(default_factory=dict)
    guests: set[int] = field(default_factory=set)  # trainers that only a fault knows
    over: set[int] = field(default_factory=set)
    stream: Stream | None = None
    drained_by_slurm: int = 0  # nodes that an admin had to resume, for no fault of ours
    well_since_s: float = 0.0  # since when no fault is under way
    apart: set[str] = field(default_factory=set)  # nodes cut off since all was well

    @property
    def lab(self) -> labs.Cluster:
        """The cluster's daemons and nodes."""
        return self.site.lab.cluster

    @property
    def folder(self) -> Path:
        """The cluster's folder."""
        return self.lab.folder

    @property
    def nodes(self) -> list[str]:
        """The nodes' names; one that a fault has added is none of them."""
        return [f"n{number}" for number in range(1, self.lab.nodes + 1)]

    def run(
        self, *command: str, timeout_s: float = 30.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as one of the cluster's users; it may fail, but takes no longer."""
        return self.site.run(*command, check=False, timeout_s=timeout_s, **options)

    def tick(self, quiet: bool = False) -> None:
        """Do what goes on all the time: the service is tended, jobs are submitted unless quiet."""
        self.service.tend()
        if self.stream is not None and not quiet:
            self.stream.tick()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.tick()
            time.sleep(0.2)

    # What there is to hit.

    def elements(self) -> tuple[Element, ...]:
        """Return the elements that Slurm knows; none while it does not answer."""
        try:
            done = self.run(*_QUEUE, user=ADMIN, timeout_s=15.0)
        except subprocess.TimeoutExpired:
            return ()
        return read_elements(done.stdout) if done.returncode == 0 else ()

    def running(self) -> list[Element]:
        """Return the running elements of trainers that train, in a fixed order."""
        return self._mine("RUNNING")

    def waiting(self) -> list[Element]:
        """Return their elements that wait."""
        return self._mine("PENDING")

    def _mine(self, state: str) -> list[Element]:
        arrays = {job.array for job in self.trainers.values()}
        found = [one for one in self.elements() if one.state == state and one.array in arrays]
        return sorted(found, key=lambda one: (one.node, one.array, one.task))

    def processes_of(self, element: Element) -> list[Process]:
        """Return the processes of an element."""
        return [
            one
            for one in element_processes(f"{self.folder}/slurm.conf")
            if (one.array, one.task, one.node) == (element.array, element.task, element.node)
        ]

    def forgive(self) -> None:
        """All is one again: that a node trained on while nobody reached it did no harm."""
        for job in self.trainers.values():
            forget_apart(job.training.generations.values(), self.apart)
        self.apart.clear()

    # Observation.

    def look(self) -> Snapshot:
        """Return what is so now."""
        for job in self.trainers.values():
            job.training.read()
        processes = element_processes(f"{self.folder}/slurm.conf")
        elements, nodes, problems = self._ask_slurm()
        return Snapshot(
            time.monotonic(),
            elements,
            nodes,
            self.service.status(),
            processes,
            tuple(
                Trainer(job.array, job.name, MAX_NODES, in_order(job.training.generations))
                for job in self.trainers.values()
            ),
            frozenset(self.over),
            problems,
            frozenset(self.apart),
        )

    def _ask_slurm(self) -> tuple[tuple[Element, ...] | None, dict[str, str], tuple[str, ...]]:
        try:
            queue = self.run(*_QUEUE, user=ADMIN, timeout_s=15.0)
            jobs = self.run("squeue", "-h", "-t", "all", "-p", "main", "-o", "%A %T", timeout_s=15)
            sinfo = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t %E", timeout_s=15)
        except subprocess.TimeoutExpired:
            return None, {}, ()
        if queue.returncode or jobs.returncode or sinfo.returncode:
            return None, {}, ()
        problems: list[str] = []
        if self.stream is not None:
            states = dict(line.split() for line in jobs.stdout.splitlines())
            self.stream.check({int(job): state for job, state in states.items()})
            problems = self.stream.failed + self.stream.overdue(self.well_since_s)
        reasons = [line.split(maxsplit=2) for line in sinfo.stdout.splitlines()]
        nodes = {node: state for node, state, _ in reasons}
        for node, state, reason in reasons:
            if state.startswith("dr") and reason == _SLURMS_OWN:
                self.drained_by_slurm += 1
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", user=ADMIN)
        return read_elements(queue.stdout), nodes, tuple(problems)

    # Slurm's daemons, and its nodes.

    def cut(self, node: str) -> None:
        """Cut a node off from all others."""
        self.apart.add(node)
        labs.node(self.lab, node, "cut")

    def mend(self, node: str) -> None:
        """Undo that. What ran there alone goes on until Slurm has told the node."""
        labs.node(self.lab, node, "mend")

    def start_slurmctld(self, clean: bool = False) -> None:
        """Start slurmctld, with its saved state or without it."""
        self.lab.start_slurmctld(*(["-c"] if clean else []))

    def end_daemon(self, name: str, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
        """End one of Slurm's daemons by a signal; return what starts it again."""
        daemon = self.lab.daemons[name]
        starts: dict[str, Callable[[], None]] = {"slurmctld": self.start_slurmctld}
        if name == "munged":
            command = Path(f"/proc/{daemon.pid}/cmdline").read_text().split("\0")[:-1]
            starts[name] = lambda: self.lab.start_daemon(name, *command)
        send(daemon, number)
        end([daemon])
        if name == "munged":
            (self.folder / "munge" / "socket").unlink(missing_ok=True)
        return starts.get(name, lambda: self.lab.start_slurmd(name))

    def wait_for_slurmctld(self) -> None:
        """Wait until slurmctld answers, but not for ever."""
        with suppress(TimeoutError):
            answers = lambda: self.run("scontrol", "ping").returncode == 0  # noqa: E731
            wait_until(answers, _ANSWER_S, pause=self.wait)


@contextmanager
def started_world(nodes: int, seed: int, tell: Tell) -> Iterator[World]:
    """Start all of it, and end all of it whatever happens; needs root."""
    with prepared_site(nodes, conf=_CONF, networks=True, tell=tell) as prepared:
        lay_out_scripts(prepared)
        clock = Clock(prepared.lab.dir)
        plain = prepared.controller
        service = Service(plain.lab, plain.program, plain.user, plain.arguments, clock.environment)
        site = replace(prepared, controller=service)
        with _small_disk(service.state), site.controlled(_SETTINGS):
            yield World(site, service, clock, random.Random(seed))


@contextmanager
def _small_disk(state: Path) -> Iterator[None]:
    """Give the controller's state a disk of its own, which can be full without harm to others."""
    state.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={_STATE_MB}m,mode=755,uid=slurm,gid=slurm")
    subprocess.run([*mount, "bftrainer-chaos", state], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", state], check=False)
