"""``make bench-scale``: what a turn of the controller costs on a large cluster.

The controller's loop, its planner and its history are real. Slurm and the elements are simulated in
memory (``replay.slurm``), and their time does not count, nor does the planner's process. No keeper
is told, and nobody reports progress.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.controller.loop import Controller, Dependencies
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.model import BackfillPass, Configuration, Node, NodeState, Trainer, WaitingJob
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.slurm import PARTITION, RUNNING, InMemorySlurm
from bftrainer_slurm.slurm.gateway import Gateway
from bftrainer_slurm.spec import TrainerRecord
from scripts.benchkit.command import Findings, bench_command, findings, number, progress
from scripts.benchkit.machine import this_machine
from scripts.benchkit.text import table

_MOST = 64  # nodes of a trainer
_MOST_OF_JOB = 9  # nodes of an ordinary job
_PASS_S = 30.0  # Slurm's default


@dataclass(frozen=True, slots=True)
class Phase:
    """The turns of a phase: milliseconds of the loop's thread in each, without Slurm's."""

    name: str
    cpu_ms: list[float]
    elements: int  # that run at its end


class Cluster(InMemorySlurm):
    """A cluster half full of ordinary jobs, with three trainers and ten waiting jobs a hundred."""

    def __init__(self, nodes: int, dice: random.Random) -> None:
        names = [f"n{number:05}" for number in range(nodes)]
        super().__init__(1e9, names, ordinary=set(dice.sample(names, nodes // 2)))
        self.configured, self.dice = Configuration(backfill_s=_PASS_S), dice
        self.cpu_s = 0.0  # that its answers have taken
        self._nodes = tuple(Node(one, NodeState.IDLE, frozenset({PARTITION})) for one in names)
        for array in range(1, 3 * nodes // 100 + 1):
            record = TrainerRecord(dice.choice((1, 2, 4)), _MOST, id=f"{array:08x}")
            about = f"train{array}", f"user{array % 10}", PARTITION, record, self.now_s, ()
            self.submit(Trainer(array, *about))
        for job in range(nodes // 10):
            first, count = dice.randrange(nodes - _MOST), dice.randint(1, _MOST_OF_JOB)
            start_s, on = self.now_s + dice.uniform(6, 24) * 3600, tuple(names[first:][:count])
            self.waiting[job] = WaitingJob(10**7 + job, PARTITION, count, start_s, on)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes; the queue says which ones are busy."""
        return self._nodes

    def free(self, nodes: int) -> None:
        """End ordinary jobs."""
        self.ordinary.difference_update(self.dice.sample(sorted(self.ordinary), nodes))

    def take(self, nodes: int) -> None:
        """Ordinary jobs take nodes from elements."""
        taken = set(self.dice.sample(sorted(self.used()), nodes))
        self.ordinary |= taken
        self.reclaim(taken, RUNNING)

    def change(self) -> None:
        """An ordinary job ends or begins; the mean number of nodes stays."""
        self.dice.choice((self.free, self.take))(self.dice.randint(1, _MOST_OF_JOB))


class _Metered:
    """The controller's gateway: a cluster whose time is counted."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)

        def ask(*words: Any, **more: Any) -> Any:
            began_s = time.thread_time()
            answer = found(*words, **more)
            self._cluster.cpu_s += time.thread_time() - began_s
            return answer

        return ask if callable(found) else found


@bench_command()
@number("--nodes", 10_000, 100, 50_000, "Of the cluster; half of them are for trainers.")
@number("--turns", 50, 5, 1000, "In each phase.")
def main(nodes: int, turns: int) -> Findings:
    """Measure what a turn of the controller costs on a large cluster in memory.

    \b
    Example:
      scripts/run bench-scale --nodes 1000
    """
    cluster = Cluster(nodes, random.Random(0))
    phases = measure(cluster, turns)
    measured = (
        f"{nodes:,} nodes, {len(cluster.trainers)} trainers of at most {_MOST}, "
        f"{len(cluster.waiting):,} waiting jobs, {turns} turns a phase"
    )
    return findings(this_machine(), measured, rendered(phases), measured=measured, phases=phases)


def measure(cluster: Cluster, turns: int) -> list[Phase]:
    """Let the controller turn in each phase."""
    history, planner, many = History(":memory:"), Planner(), len(cluster.node_names) // 20
    deps = Dependencies(
        gateway=cast(Gateway, _Metered(cluster)),
        planner=planner,
        history=history,
        groups=Groups(),
        clock=lambda: cluster.now_s,
        mine=lambda trainer: True,
        most_actions=math.inf,
    )
    for one in cluster.trainers.values():
        _teach(Measurements(history), one, cluster.dice)
    controller, tell = Controller(deps, Settings(partition=PARTITION)), progress()
    nothing, phases = cluster.schedule, list[Phase]()  # schedule comes before each turn anyway

    def turn(every_s: float, change: Callable[[], None]) -> float:
        cluster.now_s += every_s
        cluster.passed = BackfillPass(cluster.now_s // _PASS_S * _PASS_S, active=False)
        change()
        cluster.schedule()
        began_s = time.thread_time() - cluster.cpu_s
        controller.turn()
        return 1e3 * (time.thread_time() - cluster.cpu_s - began_s)

    with planner:
        for name, every_s, first, each in (
            ("start", 1.0, nothing, nothing),
            ("at rest", 15.0, nothing, nothing),
            ("one change a second", 1.0, nothing, cluster.change),
            ("nodes freed at once", 1.0, lambda: cluster.free(many), nothing),
            ("elements reclaimed at once", 1.0, lambda: cluster.take(2 * many), nothing),
        ):
            tell(name)
            first()
            cpu_ms = [turn(every_s, each) for _ in range(turns)]
            phases.append(Phase(name, cpu_ms, len(cluster.elements(RUNNING))))
    history.close()
    return phases


def rendered(phases: list[Phase]) -> str:
    """Return the figures as a table."""
    rows = (
        (one.name, *(f"{of(one.cpu_ms):.0f}" for of in (median, max)), f"{one.elements:,}")
        for one in phases
    )
    return table([("processor ms a turn", "median", "max", "elements"), *rows])


def _teach(measurements: Measurements, trainer: Trainer, dice: random.Random) -> None:
    """Note the earlier throughput of a trainer of this name, for 1, 2, 4, ... nodes."""
    job, rate, scales = Job(trainer.user, trainer.name), dice.uniform(50, 500), dice.uniform(0.7, 1)
    for nodes in (1 << power for power in range(_MOST.bit_length())):
        found = Throughput(trainer.array, "samples", nodes, nodes + 1.0, rate * nodes**scales, 60)
        measurements.set_curve(job, [found])
