"""What nodes that jobs share have to give: GPUs or cores that no ordinary job has. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bftrainer_slurm.model import (
    CORE,
    GPU,
    MIG,
    Configuration,
    ElementState,
    Node,
    Part,
    Resources,
    Trainer,
    WaitingJob,
)

_THERE = (ElementState.RUNNING, ElementState.SUSPENDED, ElementState.ENDING)
_PARTS_OF_GPUS = {"mps", "shard"}


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that jobs share: of its ``units``, GPUs or cores, ordinary jobs leave ``free`` ones.

    ``cpus`` and ``memory_mb`` are what no job has, ours included; ``free_cpus`` and
    ``free_memory_mb`` are what no ordinary job has, infinite if it is not known what ours have.
    """

    units: int
    free: int
    cpus: int
    memory_mb: float
    free_cpus: int = 0
    unit: str = GPU
    free_memory_mb: float = math.inf

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return self.units if self.unit == GPU else 0

    @property
    def free_gpus(self) -> int:
        """How many GPUs no ordinary job has."""
        return self.free if self.unit == GPU else 0


def shared_nodes(nodes: Iterable[Node], ours: Iterable[Trainer]) -> Mapping[str, SharedNode]:
    """Return the nodes whose GPUs, or cores if there are none, can be given out one by one.

    ``ours`` are the trainers as they were when the nodes were read: what their elements have is not
    in use by ordinary jobs.
    """
    own, cpus, alone = Counter[str](), Counter[str](), set[str]()
    memory_mb = dict[str, float]()
    for trainer in ours:
        for one in trainer.elements:
            if one.node and one.state in _THERE:
                own[one.node] += one.gpus
                cpus[one.node] += one.cpus
                has_mb = math.inf if one.memory_mb is None else one.memory_mb
                memory_mb[one.node] = memory_mb.get(one.node, 0.0) + has_mb
                if not one.units:
                    alone.add(one.node)
    found = {}
    for node in nodes:
        has = node.resources
        if has is None or not (unit := divided(has)):
            continue
        mine = has.gpus if node.name in alone else own[node.name]
        used = node.used or Resources(has.memory_mb, has.cpus, has.gres)
        others = max(0, used.gpus - mine)
        free_cpus = max(0, has.cpus - max(0, used.cpus - cpus[node.name]))
        mine_mb = memory_mb.get(node.name, 0.0)
        free_mb = max(0.0, has.memory_mb - max(0.0, used.memory_mb - mine_mb))
        found[node.name] = SharedNode(
            has.gpus or has.cpus,
            max(0, has.gpus - others) if has.gpus else free_cpus,
            max(0, has.cpus - used.cpus),
            max(0.0, has.memory_mb - used.memory_mb),
            free_cpus,
            unit,
            math.inf if math.isinf(mine_mb) else free_mb,
        )
    return found


def divided(has: Resources) -> str | None:
    """Into what a node is divided: its GPUs if they are alike and given out whole, or its cores.

    MIG, MPS and shards are left alone: NCCL does not work across them.
    """
    names = {name for name, count in has.gres if count}
    types = {name.partition(":")[2] for name in names if name.startswith("gpu:")} - {""}
    if names & _PARTS_OF_GPUS or len(types) > 1 or any(map(MIG.search, types)):
        return None
    return GPU if has.gpus else CORE if has.cpus else None


def cpus_of(node: Node) -> int:
    """How many processors a node has; 1 if that is not known."""
    return max(1, node.resources.cpus) if node.resources is not None else 1


def needs_of(job: WaitingJob, configuration: Configuration) -> Part:
    """What a job that takes parts of nodes needs of each."""
    cpus = max(1, job.cpus, job.gpus * configuration.cpus_per_gpu)
    return Part(job.gpus, cpus, max(job.memory_mb, cpus * job.cpu_memory_mb))
