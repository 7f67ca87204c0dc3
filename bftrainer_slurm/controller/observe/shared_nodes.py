"""Computes what jobs leave of each node: GPUs, processors, memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bftrainer_slurm.model import (
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
_NOTHING = Part(0, 0)


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that jobs share. A unit is a GPU; a node without GPUs is one unit."""

    gpus: int
    free: Part  # what no ordinary job has; infinite memory: our elements' use is unknown
    left: Part  # what no job has, neither ordinary ones nor ours


def shared_nodes(nodes: Iterable[Node], ours: Iterable[Trainer]) -> Mapping[str, SharedNode]:
    """Return the nodes that jobs can share: any GPUs they have can be allocated one by one.

    ``ours`` are the trainers at the time when the nodes were read. What their elements have counts
    as free of ordinary jobs.
    """
    own, alone = dict[str, Part](), set[str]()
    for trainer in ours:
        for one in trainer.elements:
            if one.node and one.state in _THERE:
                has_mb = math.inf if one.memory_mb is None else one.memory_mb
                part = Part(one.gpus, one.cpus, has_mb)
                own[one.node] = own.get(one.node, _NOTHING).plus(part)
                if not one.gpus:
                    alone.add(one.node)
    found = {}
    for node in nodes:
        has = node.resources
        if has is None or not is_divisible(has):
            continue
        mine = own.get(node.name, _NOTHING)
        if node.name in alone:
            mine = mine._replace(gpus=has.gpus)
        every, used = _all_of(has), _all_of(node.used or has)
        room, free = every.beyond(used), every.beyond(used.beyond(mine))
        if math.isinf(mine.memory_mb):
            free = free._replace(memory_mb=math.inf)
        found[node.name] = SharedNode(has.gpus, free, room)
    return found


def _all_of(has: Resources) -> Part:
    return Part(has.gpus, has.cpus, has.memory_mb)


def is_divisible(has: Resources) -> bool:
    """Whether a node has something to divide, and its GPUs are of one type and allocated whole.

    NCCL does not work across MIG, MPS or shards.
    """
    names = {name for name, count in has.gres if count}
    types = {name.partition(":")[2] for name in names if name.startswith("gpu:")} - {""}
    if names & _PARTS_OF_GPUS or len(types) > 1 or any(map(MIG.search, types)):
        return False
    return has.gpus > 0 or has.cpus > 0


def cpus_of(node: Node) -> int:
    """Return how many processors a node has; 1 if that is not known."""
    return max(1, node.resources.cpus) if node.resources is not None else 1


def needs_of(job: WaitingJob, configuration: Configuration) -> Part:
    """Return what a job that takes parts of nodes needs on each node."""
    default = configuration.default_per_gpu(job.partition)
    each = job.cpus_per_gpu or default.cpus
    asked = job.default_cpus or each != default.cpus  # Slurm's default does not come on top
    part = Part(job.gpus, max(1, job.cpus, job.gpus * each * asked))
    return part._replace(memory_mb=job.memory.of(part, default.memory_mb))
