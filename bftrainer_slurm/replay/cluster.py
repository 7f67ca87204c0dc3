"""A simulated cluster over a trace: what the controller's loop sees as Slurm, and its clock.

Elements start and end at once; what a change costs is in the trainers' rescale costs.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.model import (
    Configuration,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Reservation,
    TimeLimit,
    Trainer,
)
from bftrainer_slurm.replay.progress import SimulatedTrainer
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.spec import TrainerRecord

PARTITION = "bftrainer"


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stand from a time on (Unix s): nodes in holes, those used, samples/s."""

    time_s: float
    pool: int
    used: int
    rate: float


class SimulatedCluster:
    """Has the methods of the controller's gateway; trainers come first come, first served.

    ``at_once`` of them are submitted at a time: the next one when one is done.
    """

    name = "simulated"
    grow_rpcs = 1

    def __init__(
        self,
        trace: Trace,
        trainers: Sequence[TrainerSpec],
        at_once: int,
        rescale_scale: float = 1.0,
    ) -> None:
        self.now_s = trace.start_s
        self.end_s = trace.end_s
        self.changes = 0  # how often the controller has given up nodes
        self.told = True  # whether elements have news for the controller
        self.done: list[SimulatedTrainer] = []
        self.idle_node_s = 0.0
        self.used_node_s = 0.0
        self.events = 0
        self._events = _Events(trace)
        self._at_once = at_once
        self._waiting = [
            SimulatedTrainer(number + 1, spec, rescale_scale)
            for number, spec in sorted(enumerate(trainers), key=lambda pair: pair[1].submit_s)
        ][::-1]
        self._active: dict[int, SimulatedTrainer] = {}
        self._seen: dict[int, Trainer] = {}  # as the controller sees them, where still right
        self._owner: dict[str, tuple[int, int]] = {}  # array and task, by node
        self._nodes = tuple(
            Node(name, NodeState.IDLE, frozenset({PARTITION})) for name in sorted(trace.nodes)
        )
        self._busy = set(trace.nodes)
        self._frozen_busy = frozenset(self._busy)
        self._take_events()
        self._submit()

    # What drives the simulation.

    @property
    def trainers(self) -> list[SimulatedTrainer]:
        """All trainers that were ever submitted."""
        return [*self.done, *self._active.values()]

    @property
    def at_work(self) -> dict[int, SimulatedTrainer]:
        """The trainers that are submitted and not done, by array."""
        return self._active

    def moment(self) -> Moment:
        """Return how things stand."""
        return Moment(
            time_s=self.now_s,
            pool=len(self._nodes) - len(self._busy),
            used=len(self._owner),
            rate=sum(trainer.rate for trainer in self._active.values()),
        )

    def next_s(self) -> float:
        """When something happens next: the trace's next event, a trainer's end or submission."""
        times = [self._events.next_s(), self.end_s]
        times += [trainer.finishes_s(self.now_s) for trainer in self._active.values()]
        if self._waiting and len(self._active) < self._at_once:
            times.append(self._waiting[-1].spec.submit_s)
        return max(self.now_s, min(times))

    def advance(self, to_s: float) -> None:
        """Let the time pass to ``to_s``, and let happen what happens then."""
        seconds = to_s - self.now_s
        self.idle_node_s += seconds * (len(self._nodes) - len(self._busy))
        self.used_node_s += seconds * len(self._owner)
        for trainer in self._active.values():
            trainer.advance(self.now_s, to_s)
        self.now_s = to_s
        for trainer in [one for one in self._active.values() if one.done]:
            self._finish(trainer)
        self._take_events()
        self._submit()

    # What the controller calls: bftrainer_slurm.slurm.gateway.Gateway.

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, in the scheduler's order; which ones are busy says the queue."""
        return self._nodes

    def queue(self) -> Queue:
        """Return the trainers with their elements, and the nodes of ordinary jobs."""
        for array, trainer in self._active.items():
            if array not in self._seen:
                self._seen[array] = _as_seen(trainer)
        in_order = tuple(self._seen[array] for array in self._active)
        return Queue(in_order, (), self._frozen_busy)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return none: the traces have none."""
        return ()

    def configuration(self, partition: str) -> Configuration:
        """Return no bounds."""
        return Configuration()

    def last_pass(self) -> None:
        """Return none: which jobs waited the traces do not say."""

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
    ) -> None:
        """Start elements on idle nodes."""
        for element, node in zip(elements, sorted(nodes), strict=True):
            if node in self._busy or node in self._owner:
                raise AssertionError(f"{element} is to start on {node}, which is not free")
            self._active[element.array].join(element.task, node, self.now_s)
            self._owner[node] = (element.array, element.task)
            self._changed(element.array)

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End elements of one trainer and hold them."""
        trainer = self._active[elements[0].array]
        tasks = {element.task for element in elements}
        for task in tasks:
            del self._owner[trainer.nodes[task]]
        trainer.leave(tasks, self.now_s)
        self._changed(trainer.array)
        self.changes += 1

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Not needed: simulated elements do not fail."""
        raise AssertionError(f"{elements[0]} has not failed")

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold elements that were reclaimed."""
        self._active[elements[0].array].delayed -= {element.task for element in elements}
        self._changed(elements[0].array)

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Not needed: simulated elements have no time limit."""
        raise AssertionError(f"{elements[0]} has no time limit")

    def cancel(self, array: int) -> None:
        """Not needed: a simulated trainer that is done is gone."""
        raise AssertionError(f"trainer {array} has not failed")

    def trim(self, elements: Sequence[ElementId]) -> None:
        """Not needed: a simulated job table has room for all."""
        raise AssertionError(f"{elements[0]} has room")

    # Inside.

    def _take_events(self) -> None:
        began, ended, times = self._events.until(self.now_s)
        self.events += times
        if not times:
            return
        self._busy -= began
        self._busy |= ended
        self._frozen_busy = frozenset(self._busy)
        lost: dict[int, set[int]] = {}
        for node in ended & self._owner.keys():
            array, task = self._owner.pop(node)
            lost.setdefault(array, set()).add(task)
        for array, tasks in lost.items():
            self._active[array].reclaimed(tasks, self.now_s)
            self._changed(array)
            self.told = True

    def _submit(self) -> None:
        while self._waiting and len(self._active) < self._at_once:
            if self._waiting[-1].spec.submit_s > self.now_s:
                return
            trainer = self._waiting.pop()
            self._active[trainer.array] = trainer
            self.told = True

    def _finish(self, trainer: SimulatedTrainer) -> None:
        for node in trainer.nodes.values():
            del self._owner[node]
        trainer.nodes.clear()
        del self._active[trainer.array]
        self._changed(trainer.array)
        self.done.append(trainer)
        self.told = True

    def _changed(self, array: int) -> None:
        self._seen.pop(array, None)


class _Events:
    """The trace's events, taken off in their order."""

    def __init__(self, trace: Trace) -> None:
        self._times: list[float] = trace.time_s.tolist()
        self._nodes = [trace.nodes[index] for index in trace.node]
        self._idle: list[bool] = trace.idle.tolist()
        self._next = 0

    def next_s(self) -> float:
        """Return the time of the next event."""
        return self._times[self._next] if self._next < len(self._times) else math.inf

    def until(self, time_s: float) -> tuple[set[str], set[str], int]:
        """Take the events up to a time: where holes began and ended, and at how many times."""
        end = bisect.bisect_right(self._times, time_s, lo=self._next)
        last: dict[str, bool] = {}
        for index in range(self._next, end):
            last[self._nodes[index]] = self._idle[index]
        times = len(set(self._times[self._next : end]))
        self._next = end
        began = {node for node, idle in last.items() if idle}
        return began, last.keys() - began, times


def _as_seen(trainer: SimulatedTrainer) -> Trainer:
    spec = trainer.spec
    elements = tuple(_element(trainer, task) for task in range(spec.max_nodes))
    record = TrainerRecord(spec.min_nodes, spec.max_nodes)
    return Trainer(trainer.array, spec.name, "replay", PARTITION, record, spec.submit_s, elements)


def _element(trainer: SimulatedTrainer, task: int) -> Element:
    id_ = ElementId(trainer.array, task)
    if task in trainer.nodes:
        node, start_s = trainer.nodes[task], trainer.joined_s[task]
        return Element(id_, ElementState.RUNNING, node, start_s)
    return Element(id_, ElementState.DELAYED if task in trainer.delayed else ElementState.HELD)
