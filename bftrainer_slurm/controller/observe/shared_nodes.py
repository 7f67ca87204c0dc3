"""What nodes that jobs share have to give: GPUs that no ordinary job has. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bftrainer_slurm.model import (
    Configuration,
    ElementState,
    Node,
    Resources,
    Trainer,
    WaitingJob,
)

_THERE = (ElementState.RUNNING, ElementState.SUSPENDED, ElementState.ENDING)
_PARTS_OF_GPUS = {"mps", "shard"}
_MIG = re.compile(r"\dg\.\d+gb")


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that jobs share: it has ``gpus``, and ordinary jobs have none of ``free`` of them.

    ``cpus`` and ``memory_mb`` are what no job has, ours included; ``free_cpus`` is what no ordinary
    job has.
    """

    gpus: int
    free: int
    cpus: int
    memory_mb: float
    free_cpus: int = 0


def shared_nodes(nodes: Iterable[Node], ours: Iterable[Trainer]) -> Mapping[str, SharedNode]:
    """Return the nodes whose GPUs can be given out one by one, by name.

    ``ours`` are the trainers as they were when the nodes were read: what their elements have is not
    in use by ordinary jobs.
    """
    own, cpus, alone = Counter[str](), Counter[str](), set[str]()
    for trainer in ours:
        for one in trainer.elements:
            if one.node and one.state in _THERE:
                own[one.node] += one.gpus
                cpus[one.node] += one.cpus
                if not one.gpus:
                    alone.add(one.node)
    found = {}
    for node in nodes:
        has = node.resources
        if has is None or not divided(has):
            continue
        mine = has.gpus if node.name in alone else own[node.name]
        used = node.used or Resources(has.memory_mb, has.cpus, has.gres)
        others = max(0, used.gpus - mine)
        found[node.name] = SharedNode(
            has.gpus,
            max(0, has.gpus - others),
            max(0, has.cpus - used.cpus),
            max(0.0, has.memory_mb - used.memory_mb),
            max(0, has.cpus - max(0, used.cpus - cpus[node.name])),
        )
    return found


def divided(has: Resources) -> bool:
    """Whether the GPUs of a node are all alike, and are given out whole.

    MIG, MPS and shards are left alone: NCCL does not work across them.
    """
    names = {name for name, count in has.gres if count}
    types = {name.partition(":")[2] for name in names if name.startswith("gpu:")} - {""}
    return (
        has.gpus > 0
        and not names & _PARTS_OF_GPUS
        and len(types) <= 1
        and not any(map(_MIG.search, types))
    )


def cpus_of(node: Node) -> int:
    """How many processors a node has; 1 if that is not known."""
    return max(1, node.resources.cpus) if node.resources is not None else 1


def needs_of(job: WaitingJob, configuration: Configuration) -> int:
    """How many processors of each node a job needs that takes parts of nodes."""
    return max(1, job.cpus, job.gpus * configuration.cpus_per_gpu)
