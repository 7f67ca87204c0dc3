"""Trainers on the free GPUs of a log: on whole nodes, or on parts of them. Pure.

Every ``every_s`` the planner makes a new plan if anything has changed. Ordinary jobs run where and
when the log has them: elements on their GPUs end at once. The controller's loop takes no part. So
these figures compare parts with whole nodes, and do not replace the loop's replay.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlanMaker, PlannedTrainer, Problem
from bftrainer_slurm.replay.logs.gpus import FreeGpus
from bftrainer_slurm.replay.progress import SimulatedTrainer
from bftrainer_slurm.replay.trace import HOUR_S
from bftrainer_slurm.replay.trainers import TrainerSpec

_FORWARD_S = 120.0


@dataclass(frozen=True, slots=True)
class PartsResult:
    """GPU-hours that were free, GPU-hours that trainers had, and their samples."""

    free_hours: float
    used_hours: float
    samples: float
    plans: int
    reclaimed: int  # elements that ended for an ordinary job


def over_gpus(spec: TrainerSpec, whole: int) -> TrainerSpec:
    """Return a trainer whose curve is over GPUs; ``whole`` GPUs train like a node."""
    gpus = tuple(whole * nodes for nodes in spec.curve.nodes)
    return replace(spec, curve=ThroughputCurve(gpus, spec.curve.values))


def replay_parts(
    gpus: FreeGpus,
    trainers: Sequence[TrainerSpec],
    choices: Sequence[tuple[int, ...]],
    planner: PlanMaker,
    every_s: float,
    reached: Callable[[float], None] = lambda now_s: None,
) -> PartsResult:
    """Replay a part of a log; calls ``reached`` with each moment that is done (Unix seconds).

    While trainer k has no node, the plan chooses from ``choices[k]`` how many GPUs of each node it
    gets; its curve is then over GPUs. Without choices it gets whole nodes.
    """
    played = _Playback(gpus, trainers, choices)
    tick_s, row = gpus.from_s, 0
    while played.now_s < gpus.to_s:
        while row < len(gpus.time_s) and gpus.time_s[row] <= played.now_s:
            played.set_free(int(gpus.node[row]), int(gpus.free[row]))
            row += 1
        if played.now_s >= tick_s:
            played.plan(planner)
            tick_s += every_s
        event_s = float(gpus.time_s[row]) if row < len(gpus.time_s) else math.inf
        played.advance(min(tick_s, event_s, gpus.to_s, played.ready_s()))
        reached(played.now_s)
    return played.result


class _Playback:
    """The state: free GPUs of each node, and the trainers with their elements."""

    def __init__(
        self, gpus: FreeGpus, trainers: Sequence[TrainerSpec], choices: Sequence[tuple[int, ...]]
    ) -> None:
        self.now_s = gpus.from_s
        self._gpus = gpus
        self._number = {name: number for number, name in enumerate(gpus.names)}
        self._free = [0] * len(gpus.names)
        self._total_free = self._used = 0
        self._work = [SimulatedTrainer(number, spec, 1.0) for number, spec in enumerate(trainers)]
        self._choices = choices
        self._tasks = [0] * len(trainers)
        kinds: dict[int, list[int]] = defaultdict(list)
        for number, has in enumerate(gpus.has.tolist()):
            if has:
                kinds[has].append(number)
        self._kinds = kinds
        self._changed = True
        self._free_s = self._used_s = 0.0
        self._plans = self._reclaimed = 0

    @property
    def result(self) -> PartsResult:
        """The result so far."""
        samples = sum(one.samples for one in self._work)
        free_hours, used_hours = self._free_s / HOUR_S, self._used_s / HOUR_S
        return PartsResult(free_hours, used_hours, samples, self._plans, self._reclaimed)

    def ready_s(self) -> float:
        """Return when the next element begins to train."""
        return min((one.ready_s() for one in self._work), default=math.inf)

    def advance(self, to_s: float) -> None:
        """Let the trainers train."""
        for one in self._work:
            one.advance(self.now_s, to_s)
        self._free_s += self._total_free * (to_s - self.now_s)
        self._used_s += self._used * (to_s - self.now_s)
        self.now_s = to_s

    def set_free(self, node: int, free: int) -> None:
        """Set the number of a node's free GPUs; end elements that no longer fit."""
        self._total_free += free - self._free[node]
        self._free[node] = free
        self._changed = True
        name = self._gpus.names[node]
        here = [
            (self._units(number, node), number, task)
            for number, one in enumerate(self._work)
            for task, its in one.nodes.items()
            if its == name
        ]
        used = sum(units for units, _, _ in here)
        while used > free:
            # The smallest one that suffices, else the largest: as few elements as possible.
            enough = [one for one in here if used - one[0] <= free]
            victim = min(enough) if enough else max(here)
            here.remove(victim)
            used -= victim[0]
            self._used -= victim[0]
            self._work[victim[1]].reclaim({victim[2]}, self.now_s)
            self._reclaimed += 1

    def plan(self, planner: PlanMaker) -> None:
        """Plan anew if anything has changed, and carry it out at once."""
        if not self._changed:
            return
        self._changed = False
        self._plans += 1
        problem = self._problem()
        found = planner.plan(problem)
        for number, one in enumerate(self._work):
            wanted = found.assignment[str(number)]
            leaving = {task for task, node in one.nodes.items() if node not in wanted}
            for task in leaving:
                self._used -= self._units(number, self._number[one.nodes[task]])
            if leaving:
                one.leave(leaving, self.now_s)
        for number, one in enumerate(self._work):
            held = set(one.nodes.values())
            if not held:
                one.per_node = found.gpus.get(str(number), 1)
            for node in sorted(found.assignment[str(number)] - held):
                one.join(self._tasks[number], node, self.now_s)
                self._tasks[number] += 1
                self._used += self._units(number, self._number[node])

    def _units(self, trainer: int, node: int) -> int:
        return self._work[trainer].per_node if self._choices[trainer] else int(self._gpus.has[node])

    def _problem(self) -> Problem:
        names = self._gpus.names
        held = {node for one in self._work for node in one.nodes.values()}
        classes = tuple(
            NodeClass(
                f"{has} GPUs",
                frozenset(names[at] for at in nodes if self._free[at] or names[at] in held),
                gpus=has,
            )
            for has, nodes in self._kinds.items()
        )
        pool = frozenset[str]().union(*(part.nodes for part in classes))
        return Problem(
            pool=pool,
            forward_time_s=_FORWARD_S,
            trainers=tuple(self._planned(number, one) for number, one in enumerate(self._work)),
            costs=Costs.PAUSE,
            classes=classes,
            free={name: self._free[self._number[name]] for name in pool},
        )

    def _planned(self, number: int, one: SimulatedTrainer) -> PlannedTrainer:
        spec, choices = one.spec, self._choices[number]
        return PlannedTrainer(
            key=str(number),
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            current=frozenset(one.nodes.values()),
            curve=spec.curve,
            rescale_up_s=spec.rescale_up_s,
            rescale_down_s=spec.rescale_down_s,
            gpus=one.per_node if choices and one.nodes else 0,
            choices=choices,
        )
