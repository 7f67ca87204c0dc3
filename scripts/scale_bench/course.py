"""What happens to the simulated cluster, phase by phase, and what is measured in each phase."""

from __future__ import annotations

import os
import pwd
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from bftrainer_slurm.controller.observe.reports import Reform, Runtime
from bftrainer_slurm.controller.state import measurements as measured
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.spec import TrainerRecord
from scripts.benchkit.command import progress
from scripts.benchkit.machine import memory_mb
from scripts.scale_bench.changes import Change
from scripts.scale_bench.requests import Requests
from scripts.scale_bench.slurmctld import Job, Slurmctld

MAX_NODES = 64  # of a trainer
_A_JOB = 5  # nodes of an ordinary job, in the mean
_SETTLES_S = 600.0
_SURELY_S = 3.0  # a look that begins so long after a change, and after a pass, sees all of it
_REARRANGED_S = 5.0
_LOOKS = 2  # at least, in each phase


# Seconds so far: of the daemon, and of its keeper and its planner.
Processor: TypeAlias = Callable[[], tuple[float, float]]


class StoppedError(Exception):
    """The daemon has ended before the course did."""


class NeverSettledError(Exception):
    """The controller does not come to rest in time."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is, how it is configured, and how long it changes once a second."""

    nodes: int = 10_000
    trainers: int = 300
    elements: int = 5_000  # that run before the first change
    minutes: float = 10.0
    seed: int = 0
    bf_interval_s: int = 30  # Slurm's default
    rl_enable: bool = False  # Slurm's default

    @property
    def ordinary(self) -> int:
        """How many ordinary jobs there are: half of them run, the others wait."""
        return self.nodes // _A_JOB

    @property
    def joins(self) -> int:
        """How many nodes become idle at once."""
        return self.elements // 10

    @property
    def reclaims(self) -> int:
        """How many elements are reclaimed at once."""
        return self.elements // 5

    @property
    def rest_s(self) -> float:
        """How long the phase without changes lasts, and the phase in which the queue changes."""
        return 6 * self.minutes


@dataclass(frozen=True, slots=True)
class Look:
    """A turn of the controller: its begin and length, what it read, whether it moved elements."""

    begin_s: float
    cpu_s: float  # without the simulation's
    wall_s: float
    read_bytes: int
    moved: bool


@dataclass(slots=True)
class Phase:
    """A part of the course. Points in time are Unix seconds."""

    name: str
    begin_s: float
    end_s: float = 0.0
    looks: list[Look] = field(default_factory=list)
    statuses_cpu_s: list[float] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    rpcs: int = 0
    moves_s: list[float] = field(default_factory=list)  # when RPCs moved elements
    limited: int = 0
    started_alone: int = 0  # elements that nobody held in time after a reclaim
    cpu_s: float = 0.0  # of the daemon in all
    children_cpu_s: float = 0.0  # of its keeper and its planner
    rss_mb: float = 0.0  # at the end
    elements: int = 0  # that run at the end

    @property
    def minutes(self) -> float:
        """How long it lasted."""
        return (self.end_s - self.begin_s) / 60

    @property
    def acting_s(self) -> float:
        """How long the controller acted: from its first to its last request."""
        return self.moves_s[-1] - self.moves_s[0] if self.moves_s else 0.0

    @property
    def reactions_s(self) -> list[float]:
        """The time from each change to its last action, for changes that were dealt with."""
        return [one.took_s for one in self.changes if one.took_s is not None]


class Course:
    """Runs all phases; ``phases`` are those that have begun."""

    def __init__(self, size: Size, slurmctld: Slurmctld, requests: Requests) -> None:
        self.phases: list[Phase] = []
        self.stop = threading.Event()
        self._size = size
        self._slurmctld = slurmctld
        self._requests = requests
        self._dice = random.Random(size.seed)
        self._tell = progress()

    def populate(self, measurements: measured.Measurements) -> None:
        """Fill the cluster before the controller starts; no element runs yet.

        Each trainer has run before, so that its throughput is known for all sizes, and its elements
        are known to join.
        """
        size, slurmctld, dice, begin_s = self._size, self._slurmctld, self._dice, time.time()
        users = sorted(user.pw_name for user in pwd.getpwall())
        for number in range(size.trainers):
            record = TrainerRecord(dice.choice((1, 2, 4)), MAX_NODES, id=f"{number:08x}")
            job = measured.Job(users[number % len(users)], f"train{number}")
            _teach(measurements, job, dice)
            array = slurmctld.submit_trainer(job.user, job.name, record)
            measurements.set_reform(array, Reform(begin_s, Runtime.C10D, 1, 1))
        nodes = dice.sample(sorted(slurmctld.idle), size.nodes - size.elements)
        running = size.ordinary // 2
        for number in range(running):
            own = nodes[number::running]
            slurmctld.start_ordinary(slurmctld.submit_ordinary(len(own)), own)
        for _ in range(size.ordinary - running):
            slurmctld.submit_ordinary(dice.randint(1, 2 * _A_JOB - 1))

    def run(self, processor: Processor) -> None:
        """Go through all phases, unless somebody stops it.

        Raises:
            StoppedError: it was stopped.
            NeverSettledError: the controller does not come to rest after a change.
        """
        size, slurmctld = self._size, self._slurmctld
        with self._phase("start", processor):
            self._settle()
        with self._phase("at rest", processor):
            self._repeat(size.rest_s, size.rest_s, lambda: None)
        with self._phase("ordinary jobs change", processor):
            self._repeat(size.rest_s, _REARRANGED_S, slurmctld.rearrange_queue)
        slurmctld.spread_limits()
        with self._phase("one change a second", processor):
            self._repeat(60 * size.minutes, 1.0, self._one_change)
        with self._phase("after it", processor):
            self._settle()
        with self._phase("nodes freed at once", processor):
            self._free_nodes()
            self._settle()
        # Slurm takes neighbouring nodes if it can, and few trainers have most of those.
        neighbours = sorted(self._taken_by_elements())[: size.reclaims]
        with self._phase("neighbours reclaimed at once", processor):
            job = self._take(neighbours)
            self._settle()
        with self._phase("and given back", processor):
            slurmctld.end_ordinary([job])
            self._settle()
        with self._phase("scattered ones reclaimed", processor):
            self._take(self._dice.sample(self._taken_by_elements(), size.reclaims))
            self._settle()

    def looked(self, look: Look) -> None:
        """Note a turn of the controller."""
        if self.phases:
            self.phases[-1].looks.append(look)

    def showed(self, cpu_s: float) -> None:
        """Note that the controller has made a status for users."""
        if self.phases:
            self.phases[-1].statuses_cpu_s.append(cpu_s)

    @contextmanager
    def _phase(self, name: str, processor: Processor) -> Iterator[None]:
        self._go_on()
        requests, (daemon_s, children_s) = self._requests, processor()
        rpcs, moves, limited = len(requests.rpcs_s), len(requests.moves_s), requests.limited
        alone = self._slurmctld.started_alone
        first = len(self._slurmctld.changes.all)
        self._tell(name)
        phase = Phase(name, time.time())
        self.phases.append(phase)
        yield
        self._go_on()
        phase.end_s = time.time()
        phase.rpcs = len(requests.rpcs_s) - rpcs
        phase.moves_s = requests.moves_s[moves:]
        phase.limited = requests.limited - limited
        phase.started_alone = self._slurmctld.started_alone - alone
        phase.changes = self._slurmctld.changes.all[first:]
        ended = processor()
        phase.cpu_s, phase.children_cpu_s = ended[0] - daemon_s, ended[1] - children_s
        phase.rss_mb = memory_mb(os.getpid())
        phase.elements = len(self._slurmctld.elements("RUNNING"))

    def _go_on(self) -> None:
        if self.stop.is_set():
            raise StoppedError("the controller was stopped before the end")

    def _settle(self) -> None:
        """Wait until a look finds nothing to do, and nothing is under way.

        The controller uses an idle node only after a whole pass of backfill has left it idle.
        """
        begin_s, phase = time.time(), self.phases[-1]
        surely_s = _SURELY_S + 2 * self._size.bf_interval_s
        while not self.stop.wait(0.1):
            since_s = max([phase.begin_s, *self._requests.moves_s[-1:]]) + surely_s
            last = phase.looks[-1] if phase.looks else None
            if last is not None and last.begin_s > since_s and not last.moved:
                with self._slurmctld.lock:
                    if not self._slurmctld.unsettled:
                        return
            if time.time() - begin_s > _SETTLES_S:
                raise NeverSettledError(f"{phase.name}: no rest within {_SETTLES_S:.0f} s")

    def _repeat(self, seconds: float, every_s: float, change: Callable[[], None]) -> None:
        """Call ``change`` every ``every_s`` for some time, and until the controller has looked."""
        begin_s = time.monotonic()
        for number in range(max(1, int(seconds / every_s))):
            if self.stop.wait(max(0.0, begin_s + number * every_s - time.monotonic())):
                return
            change()
        looks = self.phases[-1].looks
        while time.monotonic() < begin_s + seconds or len(looks) < _LOOKS:
            if self.stop.wait(0.1):
                return

    def _one_change(self) -> None:
        """End an ordinary job or begin another, so that their mean number of nodes stays."""
        size, slurmctld = self._size, self._slurmctld
        with slurmctld.lock:
            running = slurmctld.ordinary("RUNNING")
            most = size.nodes - size.elements
            excess = (sum(len(job.nodes) for job in running) - most) / most
            if self._dice.random() < 0.5 + 5 * excess:
                slurmctld.end_ordinary([self._dice.choice(running)])
            else:
                idle, taken = sorted(slurmctld.idle), self._taken_by_elements()
                self._dice.shuffle(taken)
                self._take((idle + taken)[: self._dice.randint(1, 2 * _A_JOB - 1)])

    def _take(self, nodes: list[int]) -> Job:
        """Start an ordinary job on these nodes."""
        job = self._slurmctld.submit_ordinary(len(nodes))
        self._slurmctld.start_ordinary(job, nodes)
        return job

    def _free_nodes(self) -> None:
        """End ordinary jobs until as many nodes are free as there should be."""
        ended, nodes = [], 0
        for job in self._slurmctld.ordinary("RUNNING"):
            if nodes < self._size.joins:
                ended.append(job)
                nodes += len(job.nodes)
        self._slurmctld.end_ordinary(ended)

    def _taken_by_elements(self) -> list[int]:
        return [job.nodes[0] for job in self._slurmctld.elements("RUNNING")]


def _teach(measurements: measured.Measurements, job: measured.Job, dice: random.Random) -> None:
    """Note the earlier throughput of a trainer of this name, for 1, 2, 4, ... nodes."""
    rate, scales = dice.uniform(50, 500), dice.uniform(0.7, 0.98)
    for nodes in (1 << power for power in range(MAX_NODES.bit_length())):
        measurements.add_throughput(
            job, Throughput(1, "samples", nodes, 1.0 + nodes, rate * nodes**scales, 60)
        )
