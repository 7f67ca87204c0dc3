"""The problems to plan: recorded ones, made ones like them, and streams of events.

The made ones have seven curves, like the seven ImageNet models of the recorded ones. The curves
are not concave, and reach half to nearly all of linear speed-up at the largest size. A rescale
costs about 18 s up, and 12 s down.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.instance import read_instance
from bftrainer_slurm.planner.packing import pack_most
from bftrainer_slurm.planner.problem import NodeClass, Plan, PlannedTrainer, Problem
from bftrainer_slurm.sizes import Sizes

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "planner-instances"
FORWARD_TIME_S = 120.0
_MODELS = 7
_KINDS = ("old", "new")
_MOST_AT_ONCE = 50  # nodes that come or go in one event


def recorded(trainers: int, nodes: int) -> list[Problem]:
    """Return the recorded problems of this size; none if the data is absent."""
    return [read_instance(path) for path in sorted(RECORDED.glob(f"{trainers}x{nodes}-*.json"))]


def made(trainers: int, nodes: int, seed: int, measured: bool = True) -> Problem:
    """Return a problem in which three fifths to nine tenths of the nodes are used, scattered.

    ``measured``: curves with the bends of a measurement; otherwise they are smooth and concave.
    """
    dice = random.Random(f"{trainers}x{nodes}-{seed}")
    names = [f"n{number}" for number in range(nodes)]
    held: list[set[str]] = [set() for _ in range(trainers)]
    for name in dice.sample(names, int(nodes * dice.uniform(0.6, 0.9))):
        dice.choice(held).add(name)
    largest = 64 if nodes <= 64 * trainers // 2 else 256
    curves = [_curve(dice, largest, measured) for _ in range(_MODELS)]
    planned = tuple(
        PlannedTrainer(
            key=str(key),
            min_nodes=1,
            max_nodes=largest,
            current=frozenset(held[key]),
            curve=curves[key % _MODELS],
            rescale_up_s=dice.uniform(17, 19),
            rescale_down_s=dice.uniform(11, 13),
        )
        for key in range(trainers)
    )
    return Problem(frozenset(names), FORWARD_TIME_S, planned)


def made_with_sizes(trainers: int, nodes: int, seed: int) -> Problem:
    """Return such a problem in which trainers may have only 1, 2, 4, ... nodes, or multiples of 4.

    Some of them have other numbers of nodes now, as after a loss.
    """
    problem = made(trainers, nodes, seed)
    kinds = Sizes(step=4), Sizes(tuple(2**power for power in range(12)))
    planned = []
    for number, one in enumerate(problem.trainers):
        sizes = kinds[number % 2].between(1, one.max_nodes)
        planned.append(replace(one, min_nodes=sizes[0], sizes=sizes))
    return replace(problem, trainers=tuple(planned))


def made_with_classes(trainers: int, nodes: int, seed: int) -> Problem:
    """Return such a problem with 8 classes of nodes: four for each of two kinds of hardware.

    A trainer has nodes of one kind. It may not use three classes, one class, or may use all.
    """
    problem = made(trainers, nodes, seed)
    dice = random.Random(f"classes of {trainers}x{nodes}-{seed}")
    parts: list[set[str]] = [set() for _ in range(8)]
    for name in sorted(problem.pool):
        dice.choice(parts).add(name)
    classes = tuple(
        NodeClass(f"class {number}", frozenset(part), _KINDS[number % 2])
        for number, part in enumerate(parts)
    )
    planned = tuple(_on_one_kind(one, classes, dice) for one in problem.trainers)
    return replace(problem, trainers=planned, classes=classes)


def _on_one_kind(
    trainer: PlannedTrainer, classes: tuple[NodeClass, ...], dice: random.Random
) -> PlannedTrainer:
    """Return the trainer with only those of its nodes that are of one kind and that it may use."""
    kind = dice.choice(_KINDS)
    barred = dice.sample([one.name for one in classes[2:]], dice.choice((0, 0, 1, 3)))
    usable = frozenset().union(
        *(one.nodes for one in classes if one.hardware == kind and one.name not in barred)
    )
    return replace(trainer, current=trainer.current & usable, barred=frozenset(barred))


def made_in_parts(trainers: int, nodes: int, seed: int) -> Problem:
    """Return a problem on nodes of 8 GPUs, some or all of which ordinary jobs have.

    A third of the nodes are free; of the others 1 to 7 GPUs are. Elements have 1, 2, 4 or 8 GPUs,
    or whole nodes. Trainers have as many as found room, one after the other.
    """
    problem = made(trainers, nodes, seed)
    dice = random.Random(f"parts of {trainers}x{nodes}-{seed}")
    free = {node: dice.choice((8, 8, 8, *range(1, 8))) for node in sorted(problem.pool)}
    planned = tuple(
        replace(one, current=frozenset[str](), gpus=dice.choice((1, 2, 4, 8, 0)))
        for one in problem.trainers
    )
    classes = (NodeClass("gpu", problem.pool, gpus=8),)
    empty = replace(problem, trainers=planned, classes=classes, free=free)
    most = 3 * sum(free.values()) // (trainers * 4)  # GPUs of a trainer, if it has many
    wanted = []
    for one in planned:
        few = min(one.max_nodes, dice.randint(0, most) // (one.gpus or 8))
        room = (empty.room(one, number) for number in range(len(empty.rows)))
        wanted.append(tuple(min(few, count) for count in room))
    had = pack_most(empty, wanted)
    planned = tuple(replace(one, current=its) for one, its in zip(planned, had, strict=True))
    return replace(empty, trainers=planned)


def after_event(
    problem: Problem, plan: Plan, dice: random.Random, serial: Iterator[int]
) -> Problem:
    """Return the next problem: the plan is carried out, and 1 to 50 nodes have come or gone.

    ``serial`` numbers the new nodes, over the whole stream.
    """
    if problem.in_parts:
        return _after_jobs(problem, plan, dice)
    most = min(_MOST_AT_ONCE, len(problem.pool) // 4)
    size = dice.randint(1, max(1, most))
    if dice.random() < 0.5:
        pool = problem.pool | {f"new{next(serial)}" for _ in range(size)}
    else:
        pool = problem.pool - set(dice.sample(sorted(problem.pool), size))
    trainers = tuple(
        replace(trainer, current=plan.assignment[trainer.key] & pool)
        for trainer in problem.trainers
    )
    # A new node gets a random class.
    parts = [set(one.nodes & pool) for one in problem.classes]
    for name in sorted(pool.difference(*parts)) if parts else ():
        dice.choice(parts).add(name)
    classes = tuple(
        replace(one, nodes=frozenset(part))
        for one, part in zip(problem.classes, parts, strict=True)
    )
    return replace(problem, pool=pool, trainers=trainers, classes=classes)


def _after_jobs(problem: Problem, plan: Plan, dice: random.Random) -> Problem:
    """Return the next problem: on 1 to 50 nodes ordinary jobs have come or gone.

    A job that comes ends as many elements as it needs.
    """
    (part,) = problem.classes
    free = dict(problem.free)
    current = [set(plan.assignment[one.key]) for one in problem.trainers]
    most = min(_MOST_AT_ONCE, len(problem.pool) // 4)
    for node in dice.sample(sorted(problem.pool), dice.randint(1, most)):
        free[node] = dice.randint(0, part.gpus)
        taken = 0
        for one, its in zip(problem.trainers, current, strict=True):
            if node in its:
                taken += part.units_of(one.gpus)
                if taken > free[node]:
                    its.discard(node)
                    taken -= part.units_of(one.gpus)
    trainers = tuple(
        replace(one, current=frozenset(its))
        for one, its in zip(problem.trainers, current, strict=True)
    )
    return replace(problem, trainers=trainers, free=free)


def _curve(dice: random.Random, largest: int, measured: bool) -> ThroughputCurve:
    """Return the speed-up at 1, 2, 4, ... nodes; a measured point is some per cent off."""
    sizes = list(itertools.takewhile(lambda n: n <= largest, (2**power for power in range(12))))
    exponent = dice.uniform(0.85, 0.99)
    off = [dice.uniform(0.95, 1.02) if measured else 1.0 for _ in sizes[1:]]
    values = [1.0, *(n**exponent * factor for n, factor in zip(sizes[1:], off, strict=True))]
    return ThroughputCurve((0, *sizes), (0.0, *values))
