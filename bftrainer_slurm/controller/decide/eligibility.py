"""Decides which trainers can grow, and on which nodes. Pure.

This depends on what a trainer asks for, on Slurm's answers, and on what other jobs leave.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bftrainer_slurm.constraint import Constraint, ConstraintError, parse_constraint
from bftrainer_slurm.controller.decide.available import POWERED_DOWN, nodes_off
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.statistics import Totals
from bftrainer_slurm.controller.state.trainer_state import TrainerState, Wait
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Configuration,
    Demands,
    ElementState,
    Part,
    Resources,
    Trainer,
)
from bftrainer_slurm.slurm.gateway import JOB_SUBMIT, may_be_job_submit
from bftrainer_slurm.spec import TrainerRecord

_CANNOT_TRAIN = (
    *(ElementState.WITHHELD, ElementState.SUSPENDED),
    *(ElementState.CANCELLED, ElementState.LOST),
)

# Why trainers that ask for GPUs cannot have parts of a node.
_UNDIVIDED = (
    "it has no GPUs, or has MIG, MPS, shards or two types of them (whole nodes: --exclusive)"
)
_SHOWN = 60  # characters of a list of nodes
_NO_LICENCES = "a reclaim of its nodes would not free them"
_NO_RESERVATION = "can only run on idle nodes"
_BY_SITE = "the site's job_submit plugin did that, or scontrol update: ask your admin"


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Which trainers can grow, and where."""

    stuck: Mapping[int, str] = field(default_factory=dict)  # why some (by array) cannot grow now
    bars: tuple[Bar, ...] = ()  # nodes that the other trainers cannot have

    @property
    def barred(self) -> dict[int, frozenset[str]]:
        """The barred nodes of each trainer, by array."""
        out: dict[int, frozenset[str]] = {}
        for bar in self.bars:
            if bar.array is not None:
                out[bar.array] = out.get(bar.array, frozenset()) | bar.nodes
        return out


def eligibility(views: tuple[TrainerView, ...], snapshot: Snapshot) -> Eligibility:
    """Return what keeps each trainer from growing; a trainer's own nodes are never barred."""
    now_s = snapshot.time_s
    stuck: dict[int, str] = {}
    bars: list[Bar] = []
    unfit: dict[object, frozenset[str]] = {}
    everybodys = frozenset[str]().union(*(view.nodes for view in views))
    for view in views:
        demands, array, wait = view.trainer.demands, view.array, view.state.wait
        own = view.nodes
        why = (
            why_never(demands, snapshot.settings.qos)
            or too_few_left(view)
            or _why_too_small(view, snapshot)
            or _why_later(view, snapshot)
            or (None if wait is None or wait.until_s <= now_s else _why_not_now(wait))
        )
        if why is None:
            asks = asks_of(view.trainer, snapshot.configuration)
            asked = (
                *(demands.constraints, demands.excluded, asks),
                *(demands.partitions, demands.nodes),
            )
            if asked not in unfit:
                unfit[asked] = _unfit(demands, asks, snapshot)
            mine = [Bar("it lacks what the trainer asks for", unfit[asked] - own, array)]
            mine += _refused(view, own, now_s)
            why = _too_few(view, asks, snapshot, nodes_off(mine, array))
            mine += _beside_others(view.trainer, asks, own, snapshot)
            out = nodes_off(mine, array)
            if why is None and wait is not None and now_s < wait.displaces_s:
                others = Bar(_why_not_now(wait), everybodys - own, array, wait.displaces_s)
                mine.append(others)
                why = None if snapshot.in_holes - out - everybodys - own else others.why
            if why is None:
                bars += (one for one in mine if one.nodes)
        if why is not None:
            stuck[array] = why
    return Eligibility(stuck, tuple(bars))


def asks_of(trainer: Trainer, configuration: Configuration) -> Resources:
    """Return what an element takes of its node, with what Slurm adds to its part by default."""
    demands, asks = trainer.demands, trainer.demands.resources
    if not demands.gpus:
        return asks
    default = configuration.default_per_gpu(trainer.partition)
    cpus = max(asks.cpus, demands.gpus * default.cpus * demands.default_cpus)
    memory_mb = demands.memory.of(Part(demands.gpus, cpus), default.memory_mb)
    return Resources(memory_mb, cpus, asks.gres)


def out_of_node_hours(
    views: Iterable[TrainerView], totals: Callable[[int, float], Totals], now_s: float
) -> dict[int, TrainerState]:
    """Return new states of trainers that have used up their node-hours: they are over.

    ``totals`` returns what a trainer (by array) has had until now.
    """
    states: dict[int, TrainerState] = {}
    for view in views:
        hours = view.trainer.record.spec.node_hours
        if hours is None or view.over or view.abandoned:
            continue
        if totals(view.array, now_s).node_s >= hours * 3600:
            why = f"it has used its {hours:g} node-hours (node_hours={hours:g})"
            states[view.array] = replace(view.state, over=why)
    return states


def why_never(demands: Demands, qos: str = "") -> str | None:
    """Return why a trainer with these demands can never run; None if it can.

    ``qos`` is that of trainers, which Slurm preempts and the plugin serves; empty if there is none.
    sbatch --bftrainer lets nobody ask for any of this: it was added or taken away later.
    """
    if demands.licenses:
        return f"it asks for licences ({demands.licenses}), but {_NO_LICENCES}; {_BY_SITE}"
    if demands.reservation:
        return f"it asks for reservation {demands.reservation}, but {_NO_RESERVATION}; {_BY_SITE}"
    if qos and demands.qos not in ("", qos):
        return f"it is in QOS {demands.qos}, and trainers have to be in QOS {qos}; {_BY_SITE}"
    if demands.shares:
        return f"it has lost --exclusive, and would share nodes with ordinary jobs; {_BY_SITE}"
    try:
        _parsed(demands)
    except ConstraintError:
        asked = " and ".join(sorted(demands.constraints))[:_SHOWN]
        return f"it asks for --constraint={asked}, but its nodes come one by one; {_BY_SITE}"
    return None


def too_few_left(view: TrainerView) -> str | None:
    """Return a sentence if too few elements are left for the trainer's least size, else None.

    Failed elements count as left, because they are requeued. Others cannot use any nodes.
    """
    least, elements = view.trainer.record.min_nodes, view.trainer.elements
    left = sum(one.state not in _CANNOT_TRAIN for one in elements)
    if left >= least or view.over or view.abandoned:
        return None
    return (
        f"it needs {least} nodes at a time, but only {left} of its elements can train: an operator "
        "holds or suspends the others, or they were cancelled (then submit it again)"
    )


def _why_too_small(view: TrainerView, snapshot: Snapshot) -> str | None:
    """Return a sentence if fewer nodes match a trainer's request than it needs, else None."""
    if view.placed or not snapshot.all_nodes:
        return None
    record, every, usable = view.trainer.record, snapshot.all_nodes, snapshot.in_service
    if record.partitions or record.nodes:  # only for the few trainers that ask for them: it is slow
        every &= _asked(view.trainer.demands, snapshot)
        usable &= every
    count, there = len(every), len(usable)
    least = record.min_nodes
    if least <= there:
        return None
    for partition in record.partitions:
        if partition not in snapshot.nodes.by_partition:
            return f"it asks for partition {partition}, which does not exist or has no nodes"
    wants = f"it wants at least {least} nodes{_where(record)}, and"
    if least > count:
        return f"{wants} {snapshot.partition} has {count}"
    off = len(every & snapshot.powered_down)
    why = f" ({off} {POWERED_DOWN})" if off else ""
    return f"{wants} {there} of the {count} in {snapshot.partition} are in service{why}"


def _where(record: TrainerRecord) -> str:
    """Return the part of a sentence that names a trainer's partitions and nodes."""
    partitions = f" of partition {' or '.join(record.partitions)}" if record.partitions else ""
    return partitions + (f" among {record.nodes[:_SHOWN]}" if record.nodes else "")


def _why_later(view: TrainerView, snapshot: Snapshot) -> str | None:
    """Return what a trainer waits for besides nodes, because its user asked for that."""
    if (jobs := snapshot.queue.behind.get(view.array)) is not None:
        return f"it waits for another job ({jobs})"
    begin_s = view.trainer.demands.begin_s
    if begin_s <= snapshot.time_s or view.state.begun:
        return None
    begin = time.strftime("%F %T", time.localtime(begin_s))
    return f"it must not start before {begin} (its StartTime)"


def _refused(view: TrainerView, own: frozenset[str], now_s: float) -> list[Bar]:
    """Return a bar for nodes where a trainer's elements failed, or that Slurm refuses it."""
    refused = {node: end_s for node, end_s in view.state.refused.items() if end_s > now_s}
    if not refused:  # most trainers
        return []
    why = "Slurm refuses it, or the trainer's elements failed there"
    return [Bar(why, frozenset(refused) - own, view.array, max(refused.values()))]


def _beside_others(
    trainer: Trainer, asks: Resources, own: frozenset[str], snapshot: Snapshot
) -> Iterator[Bar]:
    """Yield bars for nodes that a trainer cannot have because other jobs use, or may use, parts.

    Parts of other trainers count as free: the plan may take them away.
    """
    shared, array = snapshot.shared, trainer.array
    if not trainer.demands.gpus:
        if taken := frozenset(shared) - snapshot.in_holes - own:
            yield Bar("other jobs have a part of it", taken, array)
        return
    parts = {node for node, one in shared.items() if one.gpus}
    yield Bar(_UNDIVIDED, snapshot.all_nodes - parts - own, array)
    full = frozenset(
        node
        for node in parts - own
        if not Part(0, asks.cpus, asks.memory_mb).within(shared[node].free)
    )
    yield Bar("other jobs leave it too few cores or too little memory", full, array)


def _why_not_now(wait: Wait) -> str:
    return f"Slurm starts no more of its elements now: {wait.reason}"


def refusal_sentence(words: str) -> str:
    """Return what Slurm said when it refused to start elements, and who can help."""
    told = f"Slurm refused to start its elements: {words.rpartition(': ')[2]}"
    return f"{told}; {JOB_SUBMIT}: ask your admin" if may_be_job_submit(words) else told


def _too_few(
    view: TrainerView, asks: Resources, snapshot: Snapshot, out: frozenset[str]
) -> str | None:
    nodes = snapshot.in_service
    if not out or (fit := len(nodes - out)) >= view.trainer.record.min_nodes:
        return None
    if words := view.state.refusal_at(snapshot.time_s):
        return refusal_sentence(words)
    others = "others lack what it asks for, Slurm refuses them, or its elements failed there"
    return f"{fit} of {len(nodes)} nodes fit: {_more_than_any(asks, snapshot) or others}"


def _more_than_any(asks: Resources, snapshot: Snapshot) -> str:
    """Name the first thing of which no node has as much as each node is to have; empty if none."""
    nodes = [has for has, _ in snapshot.nodes.by_resources]
    wanted = [("processors", asks.cpus, max((has.cpus for has in nodes), default=0))]
    memory_mb = max((has.memory_mb for has in nodes), default=0)
    wanted.append(("MB of memory", math.ceil(asks.memory_mb), math.floor(memory_mb)))
    for name, count in sorted(asks.gres):
        wanted.append((name, count, max((dict(has.gres).get(name, 0) for has in nodes), default=0)))
    short = (
        f"it asks for {count} {name} of each, and no node has more than {most}"
        for name, count, most in wanted
        if most < count
    )
    return next(short, "")


def _unfit(demands: Demands, asks: Resources, snapshot: Snapshot) -> frozenset[str]:
    constraints, counts = _parsed(demands), snapshot.configuration.counts_memory
    too_small = [names for has, names in snapshot.nodes.by_resources if not asks.fit(has, counts)]
    out = (snapshot.all_nodes - _asked(demands, snapshot)).union(*too_small)
    if not constraints and not demands.excluded:  # most trainers
        return out
    return out.union(
        node.name
        for node in snapshot.nodes
        if node.name in demands.excluded
        or not all(one.allows(node.features) for one in constraints)
    )


def _asked(demands: Demands, snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes of the trainers' partition that a trainer asks for by partition or name."""
    asked = snapshot.all_nodes
    if demands.partitions:
        of = snapshot.nodes.by_partition
        asked &= frozenset[str]().union(*(of.get(one, ()) for one in demands.partitions))
    return asked & demands.nodes if demands.nodes else asked


def _parsed(demands: Demands) -> list[Constraint]:
    return [parse_constraint(text) for text in sorted(demands.constraints)]
