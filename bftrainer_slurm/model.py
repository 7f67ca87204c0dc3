"""The nouns of BFTrainer: nodes, elements, trainers, what waits in the queue, throughput curves.

Frozen values without behaviour beyond their own arithmetic. No I/O, nothing of Slurm's formats.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from enum import Enum

from bftrainer_slurm.spec import TrainerRecord


class NodeState(Enum):
    """What a node can be used for now, as Slurm says."""

    IDLE = "idle"
    BUSY = "busy"  # allocated, mixed or completing
    DRAINING = "draining"  # busy, and an admin waits until it is not: to drain or reboot it
    UNAVAILABLE = "unavailable"  # drained, down, reserved, rebooting, powered down, ...

    @property
    def in_service(self) -> bool:
        """Whether jobs can start there, now or later."""
        return self in (NodeState.IDLE, NodeState.BUSY)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster."""

    name: str
    state: NodeState
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


class ElementState(Enum):
    """Where an element stands in its life."""

    HELD = "held"  # pending, waits for the controller
    WITHHELD = "withheld"  # pending, held by an operator: whom no user's wish can overrule
    PENDING = "pending"  # released, Slurm starts it as soon as it can
    DELAYED = "delayed"  # pending with a begin time: just reclaimed or requeued, not held
    RUNNING = "running"
    ENDING = "ending"  # completing: its processes are being ended
    COMPLETED = "completed"  # ended by itself with exit code 0
    FAILED = "failed"  # ended otherwise: exit code, time limit
    CANCELLED = "cancelled"
    LOST = "lost"  # given up by Slurm, which does not requeue it

    @property
    def over(self) -> bool:
        """Whether it waits for nothing, and nothing of it runs."""
        return self in (
            ElementState.COMPLETED,
            ElementState.FAILED,
            ElementState.CANCELLED,
            ElementState.LOST,
        )


@dataclass(frozen=True, slots=True, order=True)
class ElementId:
    """Task ``task`` of the job array ``array``."""

    array: int
    task: int

    def __str__(self) -> str:
        return f"{self.array}_{self.task}"


@dataclass(frozen=True, slots=True)
class Element:
    """One node's worth of a trainer: one task of its job array.

    ``node`` is where it runs or ran last, and for a waiting one where it may start; times are
    Unix seconds.
    """

    id: ElementId
    state: ElementState
    node: str | None = None
    start_s: float | None = None
    limit_end_s: float | None = None  # when Slurm ends it because of its time limit
    reason: str = ""  # why a waiting one waits, in Slurm's word


@dataclass(frozen=True, slots=True)
class Demands:
    """What a trainer asks of Slurm beside nodes: of all its elements together, in Slurm's texts."""

    constraints: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()  # nodes
    licenses: str = ""
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One elastic training job, as its user submitted it, with the elements Slurm still knows."""

    array: int
    name: str
    user: str
    partition: str
    record: TrainerRecord
    submit_s: float
    elements: tuple[Element, ...]
    demands: Demands = Demands()


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A pending ordinary job, with Slurm's own forecast where it has made one."""

    job_id: int
    partition: str
    nodes: int
    expected_start_s: float | None = None
    expected_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """The whole queue in one reading: our trainers, and what concerns us of the ordinary jobs.

    ``malformed`` counts trainers' elements whose comment could not be read; they are left alone.
    """

    trainers: tuple[Trainer, ...]
    waiting: tuple[WaitingJob, ...]
    ordinary_nodes: frozenset[str]  # nodes on which ordinary jobs run or end
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of nodes; times are Unix seconds."""

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThroughputCurve:
    """Samples/s over number of nodes, linear between its points, constant after the last.

    ``nodes`` ascends strictly and starts with 0; ``values[0]`` is what no node gives: 0.
    """

    nodes: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.nodes, self.nodes[1:], strict=False))
        if len(self.nodes) != len(self.values) or not self.nodes or self.nodes[0] != 0:
            raise ValueError("a curve needs one value for each node count, the first count 0")
        if not rising or self.values[0] != 0 or min(self.values) < 0:
            raise ValueError("a curve needs ascending node counts and no negative value")

    def at(self, nodes: int) -> float:
        """Samples/s on this many nodes."""
        right = bisect.bisect_left(self.nodes, nodes)
        if right == len(self.nodes):
            return self.values[-1]
        if self.nodes[right] == nodes:
            return self.values[right]
        left = right - 1
        share = (nodes - self.nodes[left]) / (self.nodes[right] - self.nodes[left])
        return self.values[left] + share * (self.values[right] - self.values[left])
