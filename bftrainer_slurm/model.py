"""The nouns of BFTrainer: nodes, elements, trainers, what waits in the queue, throughput curves.

Frozen values with no behaviour except their own arithmetic. No I/O, and no formats of Slurm.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bftrainer_slurm.spec import TrainerRecord


class NodeState(Enum):
    """What a node can be used for now, according to Slurm."""

    IDLE = "idle"
    BUSY = "busy"  # allocated, mixed or completing
    DRAINING = "draining"  # busy, and an admin waits until it is not: to drain or reboot it
    POWERED_DOWN = "powered down"  # idle, and switched off by Slurm, or about to be; jobs wake it
    UNAVAILABLE = "unavailable"  # drained, down, reserved, rebooting, ...

    @property
    def in_service(self) -> bool:
        """Whether jobs can start there, now or later."""
        return self in (NodeState.IDLE, NodeState.BUSY, NodeState.POWERED_DOWN)


MIG = re.compile(r"\dg\.\d+gb")  # the type of a slice of a GPU: NCCL does not join slices


@dataclass(frozen=True, slots=True)
class Resources:
    """What a node has, or what a job asks of each node; ``gres`` counts by name and name:type.

    ``cpu_memory_mb`` is what a job that has its nodes for itself asks for with each processor. It
    then gets all of a node's processors, and so needs memory for all of them.
    """

    memory_mb: float = 0.0
    cpus: int = 0
    gres: frozenset[tuple[str, int]] = frozenset()
    cpu_memory_mb: float = 0.0

    def fit(self, node: Resources, counts_memory: bool = False) -> bool:
        """Whether a node with these resources, all of them idle, has enough.

        If Slurm ``counts_memory``, then for each processor too.
        """
        has, each_mb = dict(node.gres), self.cpu_memory_mb if counts_memory else 0.0
        return (
            self.cpus <= node.cpus
            and max(self.memory_mb, node.cpus * each_mb) <= node.memory_mb
            and all(count <= has.get(name, 0) for name, count in self.gres)
        )

    @property
    def gpus(self) -> int:
        """How many GPUs, of all types together."""
        return dict(self.gres).get("gpu", 0)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster. Slurm takes nodes of a low ``weight`` first.

    ``resources`` are None if they are not known. ``used`` is what jobs have of them, None if it was
    not asked for.
    """

    name: str
    state: NodeState
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    weight: int = 1
    resources: Resources | None = None
    used: Resources | None = None


class ElementState(Enum):
    """Where an element stands in its life."""

    HELD = "held"  # pending, waits for the controller
    WITHHELD = "withheld"  # pending, held by an operator: users cannot release it
    PENDING = "pending"  # released, Slurm starts it as soon as it can
    DELAYED = "delayed"  # pending with a begin time: just reclaimed or requeued, not held
    RUNNING = "running"
    SUSPENDED = "suspended"  # it has its node, and its processes stand still (scontrol suspend)
    ENDING = "ending"  # completing: its processes are being ended
    COMPLETED = "completed"  # ended by itself with exit code 0
    FAILED = "failed"  # ended otherwise: exit code, time limit
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"  # cancelled for another job, where the site does not requeue
    LOST = "lost"  # given up by Slurm, which does not requeue it

    @property
    def waits(self) -> bool:
        """Whether it has not begun yet."""
        return self in (
            ElementState.HELD,
            ElementState.WITHHELD,
            ElementState.PENDING,
            ElementState.DELAYED,
        )

    @property
    def over(self) -> bool:
        """Whether it neither waits nor runs."""
        return self in (
            ElementState.COMPLETED,
            ElementState.FAILED,
            ElementState.CANCELLED,
            ElementState.PREEMPTED,
            ElementState.LOST,
        )


class ElementId(NamedTuple):
    """Task ``task`` of the job array ``array``."""

    array: int
    task: int

    def __str__(self) -> str:
        return f"{self.array}_{self.task}"


_SOON_S = 2.0  # Slurm's times are whole seconds


@dataclass(frozen=True, slots=True)
class Element:
    """One node's worth of a trainer, or a part of one: one task of its job array.

    ``gpus`` is how many GPUs it asks for, or has, as a part of its node; 0: it has a whole node.
    ``cpus`` are its processors, ``memory_mb`` is what it has of its node's memory, None if that is
    not known.
    ``node`` is where it runs or ran last. For a waiting one it is the node that its owner asked
    for, which the next grow undoes. Times are Unix seconds.
    """

    id: ElementId
    state: ElementState
    node: str | None = None
    start_s: float | None = None
    limit_end_s: float | None = None  # when Slurm ends it because of its time limit
    reason: str = ""  # why it waits, or why it ended, in Slurm's word
    queued_s: float | None = None  # when it was submitted, or last preempted or requeued
    end_s: float | None = None  # when it ended
    exit_status: int | None = None  # of an ended one's script; None if Slurm tells none
    job_id: int | None = None  # of a running one: Slurm's own number for it
    gpus: int = 0
    cpus: int = 0
    memory_mb: float | None = None
    boots: bool = False  # it has its node, and Slurm wakes it, or runs its prolog

    @property
    def perhaps_unlaunched(self) -> bool:
        """Whether its script may never have run, which Slurm reports as a failure of the script.

        Up to 24.11 a node's slurmd refuses a job that starts there again in the second of its
        preemption (its credential is not newer), and slurmctld ends it with exit status 1 and the
        reason of a script that did so itself. Only the times are left to tell. On another node it
        starts in the same second too, and on 26.05 on the same one.
        """
        if self.state is not ElementState.FAILED or self.exit_status not in (None, 1):
            return False
        if self.queued_s is None or self.start_s is None or self.end_s is None:
            return True
        return self.start_s - self.queued_s <= _SOON_S and self.end_s - self.start_s <= _SOON_S


class Part(NamedTuple):
    """What is taken of a node, or left of it: GPUs, processors and memory.

    What is not known to be limited is infinite where it is left, and 0 where it is taken.
    """

    gpus: int
    cpus: int
    memory_mb: float = 0.0

    def plus(self, other: Part) -> Part:
        """Return both together."""
        return Part(
            self.gpus + other.gpus, self.cpus + other.cpus, self.memory_mb + other.memory_mb
        )

    def less(self, other: Part) -> Part:
        """Return what is left without the other one; below 0 if that has more."""
        return Part(
            self.gpus - other.gpus, self.cpus - other.cpus, self.memory_mb - other.memory_mb
        )

    def least(self, other: Part) -> Part:
        """Return the smaller amount of each."""
        gpus, cpus = min(self.gpus, other.gpus), min(self.cpus, other.cpus)
        return Part(gpus, cpus, min(self.memory_mb, other.memory_mb))

    def within(self, room: Part) -> bool:
        """Whether it fits into the room."""
        return (
            self.gpus <= room.gpus and self.cpus <= room.cpus and self.memory_mb <= room.memory_mb
        )

    def beyond(self, room: Part) -> Part:
        """Return what of it does not fit into the room."""
        return Part(
            max(0, self.gpus - max(0, room.gpus)),
            max(0, self.cpus - max(0, room.cpus)),
            max(0.0, self.memory_mb - max(0.0, room.memory_mb)),
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What a job asks of each node's memory (MB), and with each processor or GPU that it has there.

    ``default``: its user gave neither ``--mem`` nor ``--mem-per-cpu``, so that the first two are
    Slurm's defaults.
    """

    node_mb: float = 0.0
    cpu_mb: float = 0.0
    gpu_mb: float = 0.0
    default: bool = False

    def of(self, part: Part, default_mb: float) -> float:
        """Return what has to be free of a node for this part of it; 0: that is not known.

        ``default_mb`` is ``DefMemPerGPU``. Slurm starts no job where less than that is free with
        each of its GPUs, even if the job asks for less and then takes less
        (``gres_select_filter_remove_unusable``, all versions), except with ``--mem-per-gpu``.
        Beside it Slurm drops other defaults (``_verify_node_state`` in cons_tres).
        """
        with_gpus_mb = part.gpus * (self.gpu_mb or default_mb)
        if self.default and with_gpus_mb:
            return with_gpus_mb
        return max(self.node_mb, part.cpus * self.cpu_mb, with_gpus_mb)


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """What to ask for at a start: the limit in ``minutes``, and how few will do (``TimeMin``).

    If a larger job waits, backfill gives an element as much time as fits before that job, and
    before 26.05 only the ``least``.
    """

    minutes: int
    least: int


@dataclass(frozen=True, slots=True)
class Demands:
    """What a trainer asks of Slurm besides nodes, for all its elements, in Slurm's texts.

    ``partitions`` and ``nodes`` are the only ones whose, and which, nodes it wants; any if empty.
    ``gpus`` is how many GPUs each element takes of its node, as a part of it, and ``memory`` is
    what it asks for with them; 0: it has whole nodes. Its processors follow from its GPUs if the
    user left them to Slurm (``default_cpus``).
    ``begin_s`` is when held elements may begin (Unix seconds): after a requeue that is Slurm's own
    delay, and else what the user asked for. ``shares``: elements ask for parts of nodes, though the
    trainer has whole ones.
    """

    constraints: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()  # nodes that the user excluded; not those of a grow
    licenses: str = ""
    reservation: str = ""
    resources: Resources = Resources()
    dependency: str = ""
    begin_s: float = 0.0
    partitions: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    gpus: int = 0
    default_cpus: bool = False
    memory: Memory = Memory()
    qos: str = ""
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Trainer:
    """One elastic training job, as its user submitted it, with the elements Slurm still knows.

    If elements of one array are in several partitions, those of each partition are a trainer.
    ``anchor`` is the array's task that never trains (see ``TrainerRecord.anchor``), while it waits.
    ``submit_s`` is later once all elements were requeued. ``comment`` is the user's own, without
    the ``record``. ``overwritten``: its user has replaced the comment of all elements.
    """

    array: int
    name: str
    user: str
    partition: str
    record: TrainerRecord
    submit_s: float
    elements: tuple[Element, ...]
    demands: Demands = Demands()
    anchor: Element | None = None
    comment: str = ""
    overwritten: bool = False

    @property
    def element_gpus(self) -> dict[ElementId, int]:
        """How many GPUs each element takes of its node, see ``Element.gpus``."""
        return {one.id: one.gpus for one in self.elements}


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A pending ordinary job, with Slurm's own forecast if there is one.

    ``partition`` may name several. ``minutes`` is its time limit, None if unknown. ``count`` is how
    many tasks of an array wait in this one record. ``for_nodes``: it waits for nothing else.
    ``gpus`` and ``cpus`` are what it takes of each node where jobs share nodes; 0 of both: it may
    need whole nodes. ``memory`` is what it asks of the memory of each. ``tasks_said``: its user
    said how many tasks it has. ``default_cpus``: its user left the processors to Slurm.
    ``cpus_per_gpu`` is what its user asks for with each GPU, or Slurm's default; 0: unknown.
    """

    job_id: int
    partition: str
    nodes: int
    expected_start_s: float | None = None
    expected_nodes: tuple[str, ...] = ()
    priority: int = 1
    submit_s: float = 0.0
    minutes: int | None = None
    constraint: str = ""
    excluded: frozenset[str] = frozenset()
    count: int = 1
    for_nodes: bool = True
    gpus: int = 0
    cpus: int = 0
    tasks_said: bool = False
    default_cpus: bool = False
    cpus_per_gpu: int = 0
    memory: Memory = Memory()

    @property
    def takes_parts(self) -> bool:
        """Whether it leaves the rest of its nodes to other jobs."""
        return self.gpus > 0 or self.cpus > 0


@dataclass(frozen=True, slots=True)
class OrdinaryRun:
    """An ordinary job that runs or ends: its nodes, its start and submission (Unix seconds).

    ``array`` is its array's id; of a job that is none, its own. ``asks`` is what it has of each
    node where jobs share nodes, as a job would ask for it.
    """

    nodes: tuple[str, ...]
    start_s: float
    submit_s: float = 0.0
    job_id: int = 0
    array: int = 0
    asks: WaitingJob | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """The whole queue in one reading: our trainers, and what we need about the ordinary jobs.

    ``malformed`` says of jobs that claim to be trainers, and cannot be understood, what is wrong;
    they are left alone. ``behind`` says which trainers (by array) wait for which other jobs.
    ``ordinary_starts`` are ids and starts (Unix seconds) of the ordinary jobs that run, or ran
    lately; ``ordinary_ends`` are the nodes, in Slurm's text, and the ends of those that Slurm still
    knows. ``bare`` are arrays that were submitted as trainers are, but have no record, by id: the
    partition that they wait in.
    """

    trainers: tuple[Trainer, ...]
    waiting: tuple[WaitingJob, ...]
    ordinary_nodes: frozenset[str]  # nodes on which ordinary jobs run or end
    malformed: Mapping[int, str] = field(
        default_factory=dict
    )  # by the id of the array; below 0 if it cannot be read
    ordinary_runs: tuple[OrdinaryRun, ...] = ()
    ordinary_starts: frozenset[tuple[int, float]] = frozenset()
    ordinary_ends: tuple[tuple[str, float], ...] = ()
    behind: Mapping[int, str] = field(default_factory=dict)
    bare: Mapping[int, str] = field(default_factory=dict)

    @property
    def asking(self) -> tuple[WaitingJob, ...]:
        """The ordinary jobs that wait for nodes, and for nothing else."""
        return tuple(job for job in self.waiting if job.for_nodes)


PRIVATE = frozenset({"jobs", "nodes", "usage"})  # words of PrivateData that matter for what we show


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of slurm.conf that concern trainers; None if unknown.

    ``partition_minutes`` is the longest time limit of the trainers' partition, and ``backfill_s``
    the time from the end of a backfill pass to the next one (``bf_interval``). ``behind`` are
    partitions whose jobs do not come before trainers: their ``PriorityTier`` is too low.
    ``private`` are those of ``PRIVATE`` that users may not see of others. ``grace_s`` is the
    ``GraceTime`` of the trainers' partition: an element that ends within it has failed, for Slurm.
    ``preempts`` is false where ordinary jobs cannot take nodes back from that partition,
    ``cancels`` true where jobs that are preempted there are cancelled, and not requeued. Nothing is
    preempted in its first ``exempt_s`` seconds (``PreemptExemptTime``). ``counts_memory``: the jobs
    on a node get no more memory together than it has (``CR_Memory``). ``per_gpu`` is what jobs get
    with each GPU, by partition, unless they ask for more processors, or for memory
    (``JobDefaults``). ``suspend_s`` says after how many idle seconds Slurm switches a node of the
    trainers' partition off (``SuspendTime``), and ``busy_s`` when Slurm last saw it busy (Unix
    seconds); nodes that Slurm leaves on are in neither. A pass tries ``backfill_depth`` jobs at
    most (``bf_max_job_test``), and ``backfill_of_user`` of each user; 0: no limit. ``switch_of``
    names the switch or block of each node, where a topology plugin says so. ``told`` is false
    where Slurm has not said any of this.
    """

    partition_minutes: int | None = None
    backfill_s: float | None = None
    behind: tuple[str, ...] = ()
    private: frozenset[str] = frozenset()
    grace_s: int = 0
    preempts: bool = True
    cancels: bool = False
    exempt_s: float = 0.0
    counts_memory: bool = False
    per_gpu: Mapping[str, Part] = field(default_factory=dict)
    suspend_s: Mapping[str, float] = field(default_factory=dict)
    busy_s: Mapping[str, float] = field(default_factory=dict)
    backfill_depth: int = 500
    backfill_of_user: int = 0
    switch_of: Mapping[str, str] = field(default_factory=dict)
    told: bool = True

    def default_per_gpu(self, partitions: str) -> Part:
        """Return the most that a job gets by default with each GPU in any of these partitions.

        Where Slurm does not count memory, it does not look at that default either.
        """
        found = [self.per_gpu.get(one, Part(1, 0)) for one in partitions.split(",")]
        memory_mb = max(one.memory_mb for one in found) if self.counts_memory else 0.0
        return Part(1, max(one.cpus for one in found), memory_mb)


@dataclass(frozen=True, slots=True)
class BackfillPass:
    """The last pass of Slurm's backfill scheduler over its queue; ``began_s`` is a whole second."""

    began_s: float
    active: bool  # it still runs
    tried: int = 0  # jobs that the last whole pass has tried to place
    left: int = 0  # jobs of its queue that it has not come to

    def stopped_early(self, most: int) -> bool:
        """Whether it tried ``most`` jobs (``bf_max_job_test``), and left others, the last ones.

        Slurm also counts some that it does not try: with a limit of 50 it tried 49 (22.05.8).
        """
        return self.tried >= 0.9 * most and self.left > 0


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
