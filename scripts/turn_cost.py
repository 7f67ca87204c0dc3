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
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, cast

import click

from bftrainer_slurm.controller.act.groups import Groups
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
from scripts.benchkit.text import columns

_MOST = 64  # nodes of a trainer
_A_JOB = 5  # nodes that an ordinary job has
_PASS_S = 30.0  # Slurm's default
_AT_ONCE = 10  # one in so many nodes is freed, or reclaimed, at once


@dataclass(frozen=True, slots=True)
class Phase:
    """The turns of a phase: milliseconds of the loop's thread in each, without Slurm's."""

    name: str
    cpu_ms: list[float]
    elements: int  # that run at its end


class Cluster(InMemorySlurm):
    """A cluster half full of ordinary jobs; ``cpu_s`` is what its answers have taken."""

    def __init__(self, nodes: int, elements: int, trainers: int, dice: random.Random) -> None:
        names = [f"n{number:05}" for number in range(nodes)]
        super().__init__(1e9, names, ordinary=set(dice.sample(names, nodes - elements)))
        self.configured = Configuration(backfill_s=_PASS_S)
        self.cpu_s = 0.0
        self._nodes = tuple(Node(one, NodeState.IDLE, frozenset({PARTITION})) for one in names)
        for array in range(1, trainers + 1):
            record = TrainerRecord(dice.choice((1, 2, 4)), _MOST, id=f"{array:08x}")
            about = f"train{array}", f"user{array % 10}", PARTITION, record, self.now_s, ()
            self.submit(Trainer(array, *about))
        for job in range(nodes // 10):
            first, count = dice.randrange(nodes - _MOST), dice.randint(1, 2 * _A_JOB - 1)
            start_s, on = self.now_s + dice.uniform(6, 24) * 3600, tuple(names[first:][:count])
            self.waiting[job] = WaitingJob(10**7 + job, PARTITION, count, start_s, on)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes; the queue says which ones are busy."""
        return self._nodes

    def last_pass(self) -> BackfillPass:
        """Return the last pass of backfill, which has ended."""
        return BackfillPass(self.now_s // _PASS_S * _PASS_S, active=False)

    def rearrange(self) -> None:
        """All waiting ordinary jobs have another priority and a later forecast now."""
        for job, one in self.waiting.items():
            later_s = (one.expected_start_s or 0.0) + 60
            self.waiting[job] = replace(one, priority=one.priority + 1, expected_start_s=later_s)

    def free(self, nodes: int, dice: random.Random) -> None:
        """End ordinary jobs."""
        self.ordinary.difference_update(dice.sample(sorted(self.ordinary), nodes))

    def take(self, nodes: int, dice: random.Random) -> None:
        """Ordinary jobs take nodes from elements."""
        taken = set(dice.sample(sorted(self.used()), nodes))
        self.ordinary |= taken
        self.reclaim(taken, RUNNING)


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
@number("--nodes", 10_000, 100, 50_000, "Of the cluster.")
@number("--elements", 5_000, 50, 50_000, "How many nodes ordinary jobs leave to trainers.")
@number("--trainers", 300, 2, 1000, f"Each may have {_MOST} nodes, and its throughput is known.")
@number("--turns", 50, 5, 1000, "In each phase.")
def main(nodes: int, elements: int, trainers: int, turns: int) -> Findings:
    """Measure what a turn of the controller costs on a large cluster in memory.

    \b
    Example:
      scripts/run bench-scale --nodes 1000 --trainers 30 --elements 500
    """
    if elements > min(nodes * 9 // 10, trainers * _MOST):
        raise click.UsageError(
            f"--elements {elements} do not fit: take at most nine tenths of --nodes, and {_MOST} "
            "for each of --trainers"
        )
    dice = random.Random(0)
    phases = measure(Cluster(nodes, elements, trainers, dice), turns, dice)
    measured = (
        f"{nodes:,} nodes, {trainers} trainers of at most {_MOST}, {elements:,} elements, "
        f"{nodes // 10:,} waiting jobs, {turns} turns a phase; without the time of Slurm, which is "
        "in memory, and of the planner's process"
    )
    return findings(this_machine(), measured, rendered(phases), measured=measured, phases=phases)


def measure(cluster: Cluster, turns: int, dice: random.Random) -> list[Phase]:
    """Let the controller turn in each phase; ``dice`` choose what happens."""
    settings, history = Settings(partition=PARTITION), History(":memory:")
    many = len(cluster.node_names) // _AT_ONCE
    planner = Planner()
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
        _teach(Measurements(history), one, dice)
    controller, tell, phases = Controller(deps, settings), progress(), list[Phase]()
    nothing = cluster.schedule  # it happens before each turn anyway
    with planner:
        for name, every_s, first, each in (
            ("start", 1.0, nothing, nothing),
            ("at rest", 15.0, nothing, nothing),
            ("ordinary jobs change", 5.0, nothing, cluster.rearrange),
            ("one change a second", 1.0, nothing, lambda: _change(cluster, dice)),
            ("nodes freed at once", 1.0, lambda: cluster.free(many // 2, dice), nothing),
            ("elements reclaimed at once", 1.0, lambda: cluster.take(many, dice), nothing),
        ):
            tell(name)
            first()
            cpu_ms = [_turn(controller, cluster, every_s, each) for _ in range(turns)]
            phases.append(Phase(name, cpu_ms, len(cluster.elements(RUNNING))))
    history.close()
    return phases


def rendered(phases: list[Phase]) -> str:
    """Return the figures as a table."""
    return columns(
        phases,
        [
            ("processor ms a turn", lambda one: one.name),
            ("median", lambda one: f"{median(one.cpu_ms):.0f}"),
            ("max", lambda one: f"{max(one.cpu_ms):.0f}"),
            ("elements", lambda one: f"{one.elements:,}"),
        ],
    )


def _turn(
    controller: Controller, cluster: Cluster, every_s: float, change: Callable[[], None]
) -> float:
    """Let time pass; return the milliseconds that the next turn takes."""
    cluster.now_s += every_s
    change()
    cluster.schedule()
    began_s = time.thread_time() - cluster.cpu_s
    controller.turn()
    return 1e3 * (time.thread_time() - cluster.cpu_s - began_s)


def _change(cluster: Cluster, dice: random.Random) -> None:
    """An ordinary job ends or begins; the mean number of nodes stays."""
    dice.choice((cluster.free, cluster.take))(dice.randint(1, 2 * _A_JOB - 1), dice)


def _teach(measurements: Measurements, trainer: Trainer, dice: random.Random) -> None:
    """Note the earlier throughput of a trainer of this name, for 1, 2, 4, ... nodes."""
    job, rate, scales = Job(trainer.user, trainer.name), dice.uniform(50, 500), dice.uniform(0.7, 1)
    for nodes in (1 << power for power in range(_MOST.bit_length())):
        found = Throughput(trainer.array, "samples", nodes, nodes + 1.0, rate * nodes**scales, 60)
        measurements.add_throughput(job, found)
