"""Reads Slurm: the queue each time, the rest when it is due. ``schedule`` says when to read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from bftrainer_slurm.controller.observe.shared_nodes import (
    SharedNode,
    cpus_of,
    needs_of,
    shared_nodes,
)
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementState,
    Node,
    NodeState,
    Part,
    Queue,
    Reservation,
    Resources,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError

logger = logging.getLogger(__name__)


def misfits(settings: Configuration, partition: str) -> Iterator[str]:
    """Yield what is wrong with the settings of the trainers' partition, and how to fix it."""
    if not settings.told:
        yield (
            "Slurm does not tell its configuration ('scontrol show config', 'scontrol show "
            "partition'), so no element starts; the controller's log says why"
        )
    if not settings.preempts:
        yield (
            f"ordinary jobs cannot preempt jobs in {partition}, so no element starts: give it "
            "PreemptMode=REQUEUE, with PreemptType=preempt/partition_prio, or use another one"
        )
    if settings.exempt_s:
        yield (
            f"ordinary jobs could not preempt an element for {settings.exempt_s:.0f} s, so none "
            f"starts: set PreemptExemptTime=0, or give {partition} a QOS that does"
        )
    if settings.cancels:
        yield (
            f"PreemptMode=CANCEL for {partition} or its QOS: set it to REQUEUE; a preempted "
            "element is lost if the controller is down for longer than MinJobAge"
        )
    if settings.behind:
        yield (
            f"jobs in {', '.join(settings.behind)} wait behind trainers: give each of these "
            f"partitions a PriorityTier above that of {partition} (0 is the lowest, and right for "
            "trainers)"
        )
    if settings.grace_s:
        yield (
            f"{partition} has GraceTime={settings.grace_s}: set it to 0; an element that ends "
            "within it counts as failed"
        )


_BARE = (
    "it is held as a trainer's array is, but its comment has no trainer's record; if sbatch said "
    "that it is a trainer, the site's job_submit plugin replaces comments, and it stays held for "
    "ever: ask your admin to let the record stand, and submit again"
)
_ELSEWHERE = (
    "it was submitted as a trainer, but it is in partition {0}, not {1}, so it stays held for "
    "ever; if you did not move it, the site's job_submit plugin did: ask your admin to leave "
    "trainers in {1}, and submit again"
)
_CONFIGURATION_S = 3600.0  # admins change it now and then
_CONFIGURATION_AGAIN_S = 60.0  # if Slurm did not answer
_THERE = (ElementState.RUNNING, ElementState.SUSPENDED, ElementState.ENDING)
_ALL, _UNDIVIDED = Part(1, 1), Part(1, 1, math.inf)  # of a node where no jobs share any


class NodeTable(tuple[Node, ...]):
    """The nodes of the cluster; each fact is computed once, because there may be 10,000 of them."""

    @cached_property
    def by_weight(self) -> tuple[Node, ...]:
        """The nodes in the order in which Slurm allocates them."""
        return tuple(sorted(self, key=lambda node: node.weight))

    @cached_property
    def rank(self) -> Mapping[str, int]:
        """The place of each node in that order."""
        return {node.name: place for place, node in enumerate(self.by_weight)}

    @cached_property
    def by_resources(self) -> Collection[tuple[Resources, list[str]]]:
        """The nodes with known resources, grouped by equal resources; there are few groups.

        A gateway gives equal nodes the same object, and comparing identities is quicker.
        """
        groups: dict[int, tuple[Resources, list[str]]] = {}
        for node in self:
            if node.resources is not None:
                groups.setdefault(id(node.resources), (node.resources, []))[1].append(node.name)
        return groups.values()

    @cached_property
    def by_partition(self) -> Mapping[str, frozenset[str]]:
        """The nodes of each partition of the cluster; empty partitions are left out."""
        named: dict[str, list[str]] = {}
        for node in self:
            for partition in node.partitions:
                named.setdefault(partition, []).append(node.name)
        return {partition: frozenset(names) for partition, names in named.items()}

    @cached_property
    def in_service(self) -> frozenset[str]:
        """The nodes of all partitions that are in use, or could be."""
        usable = tuple(state for state in NodeState if state.in_service)
        return frozenset(node.name for node in self if node.state in usable)

    @cached_property
    def powered_down(self) -> frozenset[str]:
        """The nodes that Slurm has switched off."""
        return frozenset(node.name for node in self if node.state is NodeState.POWERED_DOWN)

    @cached_property
    def draining(self) -> frozenset[str]:
        """The nodes that an admin waits for, until they are not busy any more."""
        return frozenset(node.name for node in self if node.state is NodeState.DRAINING)


@dataclass(frozen=True)
class Snapshot:
    """What Slurm says. ``nodes``, ``reservations`` and ``last_pass`` may be older than ``queue``.

    ``unexplained`` are nodes that were busy although no job was visible on them: Slurm hides other
    users' jobs (PrivateData). ``shared`` are the nodes that jobs may share; it is empty unless the
    site lets trainers share nodes. Facts about the trainers' partition are cached, because there
    may be 10,000 nodes.
    """

    time_s: float
    nodes: NodeTable = field(default_factory=NodeTable)
    queue: Queue = field(default_factory=lambda: Queue((), (), frozenset()))
    reservations: tuple[Reservation, ...] = ()
    configuration: Configuration = field(default_factory=Configuration)
    configured_s: float = float("-inf")
    unexplained: frozenset[str] = frozenset()
    last_pass: BackfillPass | None = None
    shared: Mapping[str, SharedNode] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    @property
    def partition(self) -> str:
        """The trainers' partition."""
        return self.settings.partition

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about Slurm's settings that do not suit trainers."""
        found = tuple(misfits(self.configuration, self.partition))
        return (*found, self._deep_queue) if self._deep_queue else found

    @property
    def stopped_pass(self) -> BackfillPass | None:
        """The last backfill pass, if it did not come to all jobs."""
        last, most = self.last_pass, self.configuration.backfill_depth
        asks = last is not None and self.queue.asking and last.stopped_early(most)
        return last if asks else None

    @property
    def _deep_queue(self) -> str:
        last = self.stopped_pass
        if last is None:
            return ""
        return (
            f"Slurm's last backfill pass stopped after {last.tried} tries with {last.left} jobs "
            "left; trainers' elements come last, so they start only where the main scheduler "
            "comes to them: 'bftrainer doctor' names the line of slurm.conf to write"
        )

    @property
    def tries_all(self) -> bool:
        """Whether a pass tries every job, also the last ones, which elements are."""
        return self.stopped_pass is None and not self.configuration.backfill_of_user

    @cached_property
    def room(self) -> Mapping[str, Part]:
        """What ordinary jobs leave of each node, also of those that Slurm has switched off.

        A node that is not shared is one unit, and none of it is left beside an ordinary job.
        """
        whole = self.in_holes | self.powered_down
        if not self.shared:
            return dict.fromkeys(whole, _UNDIVIDED)
        undivided = (node for node in self.nodes if node.name in whole)
        room = {node.name: _UNDIVIDED._replace(cpus=cpus_of(node)) for node in undivided}
        counts = self.configuration.counts_memory
        for name in self.shared.keys() & (self.in_service | self.powered_down):
            free = self.shared[name].free
            room[name] = free if counts else free._replace(memory_mb=math.inf)
        return room

    @cached_property
    def free_units(self) -> Mapping[str, int]:
        """How many units of each node in service no ordinary job has."""
        divided = ((name, one) for name, one in self.shared.items() if one.gpus)
        return dict.fromkeys(self.in_holes, 1) | {
            name: one.free.gpus for name, one in divided if name in self.in_service
        }

    def units(self, node: str) -> int:
        """Return how many units a node has: its GPUs if jobs share it, else one."""
        one = self.shared.get(node)
        return one.gpus or 1 if one is not None else 1

    def takes(self, job: WaitingJob, node: str) -> Part:
        """Return what a job takes of a node: a part of it, or all that ordinary jobs leave."""
        if job.takes_parts and node in self.shared:
            return needs_of(job, self.configuration)
        return self.room[node]._replace(memory_mb=0.0) if self.shared else _ALL

    def fits(self, job: WaitingJob, node: str, room: Part) -> bool:
        """Whether a job can start on a node of which this is left."""
        alone = node not in self.shared or node in self.in_holes or node in self.powered_down
        return (job.takes_parts or alone) and self.takes(job, node).within(room)

    @property
    def all_nodes(self) -> frozenset[str]:
        """All nodes of the partition, whatever their state."""
        return self.nodes.by_partition.get(self.partition, frozenset())

    @cached_property
    def in_service(self) -> frozenset[str]:
        """The nodes of the partition that trainers could use, now or once they are not busy."""
        return (self.nodes.in_service & self.all_nodes) - self.powered_down

    @cached_property
    def powered_down(self) -> frozenset[str]:
        """The nodes of the partition that Slurm has switched off, and wakes for ordinary jobs."""
        return frozenset() if self.settings.wake_nodes else self.nodes.powered_down & self.all_nodes

    @cached_property
    def in_holes(self) -> frozenset[str]:
        """The nodes of the partition in service on which no ordinary job runs."""
        return self.in_service - self.queue.ordinary_nodes - self.unexplained

    @cached_property
    def reserved(self) -> Mapping[str, Reservation]:
        """For each node, the reservation that starts first among those that have not ended."""
        last_first = sorted(self.reservations, key=lambda one: one.start_s, reverse=True)
        there = (one for one in last_first if one.end_s > self.time_s)
        return {node: one for one in there for node in one.nodes}

    @cached_property
    def wanted_s(self) -> Mapping[str, float]:
        """When the first waiting job is expected to start on each node (Unix seconds)."""
        wanted_s: dict[str, float] = {}
        for job in self.queue.waiting:
            if job.expected_start_s is not None:
                for node in job.expected_nodes:
                    wanted_s[node] = min(wanted_s.get(node, math.inf), job.expected_start_s)
        return wanted_s

    @cached_property
    def judged(self) -> bool:
        """Whether Slurm has given an expected start for every waiting job."""
        return all(job.expected_start_s is not None for job in self.queue.waiting)


def read(
    gateway: Gateway,
    last: Snapshot,
    now_s: float,
    due: Set[str],
    mine: Callable[[Trainer], bool],
) -> Snapshot:
    """Read the queue, and what is ``due``: "nodes", "reservations", "pass".

    The rest is copied from ``last``. Trainers that are not ``mine`` count as ordinary jobs.

    Raises:
        GatewayError: Slurm did not answer, or its answer makes no sense.
    """
    if last.settings.share:  # every job that starts or ends changes what is free on a node
        due = due | {"nodes"}
    queue, nodes, unexplained = _queue_and_nodes(gateway, last, due)
    queue = replace(
        queue, malformed={**queue.malformed, **_changed_at_submission(queue, last, mine)}
    )
    ours = tuple(trainer for trainer in queue.trainers if mine(trainer))
    others = _nodes_of(trainer for trainer in queue.trainers if not mine(trainer))
    ordinary = queue.ordinary_nodes | others if others else queue.ordinary_nodes
    snapshot = replace(
        last,
        time_s=now_s,
        nodes=nodes,
        queue=replace(queue, trainers=ours, ordinary_nodes=ordinary),
        unexplained=unexplained,
    )
    if last.settings.share:
        there = (node for node in nodes if last.partition in node.partitions)
        snapshot = replace(snapshot, shared=shared_nodes(there, ours))
        snapshot = replace(snapshot, queue=_of_single_nodes(snapshot))
    if "pass" in due and queue.asking:
        snapshot = replace(snapshot, last_pass=gateway.last_pass())
    if "reservations" in due:
        snapshot = replace(snapshot, reservations=gateway.reservations())
    if not 0 <= now_s - last.configured_s < _CONFIGURATION_S:
        snapshot = _configured(snapshot, gateway)
    if any(one.state is ElementState.PREEMPTED for trainer in ours for one in trainer.elements):
        # Its QOS may set PreemptMode=CANCEL too, or an admin has changed the setting since.
        snapshot = replace(snapshot, configuration=replace(snapshot.configuration, cancels=True))
    for misfit in snapshot.misfits:
        if misfit not in last.misfits and not (last._deep_queue and misfit == snapshot._deep_queue):
            logger.warning("%s", misfit)
    malformed = queue.malformed
    for array in malformed.keys() - last.queue.malformed.keys():
        logger.warning("job %d is not a valid trainer, ignored: %s", array, malformed[array])
    return snapshot


def _changed_at_submission(
    queue: Queue, last: Snapshot, mine: Callable[[Trainer], bool]
) -> dict[int, str]:
    """Return the arrays that left sbatch as our trainers, and came to Slurm as something else.

    A job_submit plugin of the site changes comments or partitions after ours. An array that has
    lost both cannot be told from others.
    """
    ours = {trainer.array for trainer in queue.trainers if trainer.partition == last.partition}
    elsewhere = {
        trainer.array: _ELSEWHERE.format(trainer.partition, last.partition)
        for trainer in queue.trainers
        if trainer.array not in ours
        and mine(replace(trainer, partition=last.partition))
        and all(one.state is ElementState.HELD for one in trainer.elements)
    }
    bare = {array: _BARE for array, partition in queue.bare.items() if partition == last.partition}
    return elsewhere | bare


def _of_single_nodes(snapshot: Snapshot) -> Queue:
    """Treat jobs that ask for more than one node has (``--gpus``) as jobs for whole nodes."""
    queue, shared = snapshot.queue, snapshot.shared
    gpus = max((one.gpus for one in shared.values()), default=0)
    cpus = max((cpus_of(node) for node in snapshot.nodes if node.name in shared), default=0)
    waiting = (
        replace(job, gpus=0, cpus=0) if job.gpus > gpus or job.cpus > cpus else job
        for job in queue.waiting
    )
    return replace(queue, waiting=tuple(waiting))


def _queue_and_nodes(
    gateway: Gateway, last: Snapshot, due: Set[str]
) -> tuple[Queue, NodeTable, frozenset[str]]:
    """Read the queue, and the nodes if they are due; also return the ``unexplained`` nodes."""
    queue, unexplained, nodes = gateway.queue(), last.unexplained, last.nodes
    if "nodes" in due or queue.ordinary_nodes & last.powered_down:  # woken: soon of use to us
        told = gateway.nodes()
        nodes = last.nodes if told == last.nodes else NodeTable(told)
        busy = frozenset(node.name for node in nodes if node.state is NodeState.BUSY)
        unexplained = busy - _in_use(queue)
        if unexplained - last.unexplained:  # a job may have started there since; read it
            queue = gateway.queue()
    return queue, nodes, unexplained - _in_use(queue)


def _configured(snapshot: Snapshot, gateway: Gateway) -> Snapshot:
    """Read Slurm's configuration; keep the last one if Slurm does not answer.

    Without any it is asked at each look, and no element starts: it might not be preempted.
    """
    partition = snapshot.partition
    try:
        configuration = gateway.configuration(partition)
    except GatewayError as error:
        logger.warning("cannot read Slurm's configuration: %s", error)
        if snapshot.configured_s == -math.inf:
            return replace(snapshot, configuration=Configuration(told=False))
        again_s = snapshot.time_s - _CONFIGURATION_S + _CONFIGURATION_AGAIN_S
        return replace(snapshot, configured_s=again_s)
    return replace(snapshot, configuration=configuration, configured_s=snapshot.time_s)


def _in_use(queue: Queue) -> frozenset[str]:
    """Return the nodes on which the queue shows a job or an element."""
    return queue.ordinary_nodes | _nodes_of(queue.trainers)


def _nodes_of(trainers: Iterable[Trainer]) -> frozenset[str]:
    return frozenset(
        element.node
        for trainer in trainers
        for element in trainer.elements
        if element.node and element.state in _THERE
    )
