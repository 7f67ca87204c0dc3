"""A simulated cluster with its own clock; the controller's loop uses it in place of Slurm.

Elements end at once, and start as soon as Slurm would start them; a change costs a trainer its
rescale costs. ``playback`` simulates the ordinary jobs.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Part,
    Queue,
    Reservation,
    TimeLimit,
    Trainer,
)
from bftrainer_slurm.replay.playback import OrdinaryJobs
from bftrainer_slurm.replay.progress import SimulatedTrainer
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.spec import TrainerRecord

PARTITION = "bftrainer"


@dataclass(frozen=True, slots=True)
class Moment:
    """The state from ``time_s`` on (Unix): nodes in holes, nodes used by trainers, samples/s."""

    time_s: float
    pool: int
    used: int
    rate: float


class SimulatedCluster:
    """Has the methods of the controller's gateway.

    ``at_once`` trainers are submitted at a time, by submit time; the next when one is done.
    """

    name = "simulated"
    queue_rpcs = grow_rpcs = 1

    def __init__(
        self,
        ordinary: OrdinaryJobs,
        span_s: tuple[float, float],
        trainers: Sequence[TrainerSpec],
        at_once: int,
        rescale_scale: float = 1.0,
        backfill_s: float | None = None,
    ) -> None:
        self.now_s, self.end_s = span_s
        self.changes = 0  # how often the controller has given up nodes
        self.has_news = True  # whether elements have news for the controller
        self.elements_gone = False  # whether elements that the controller has ended are gone
        self.done: list[SimulatedTrainer] = []
        self.idle_node_s = 0.0
        self.used_node_s = 0.0
        self.events = 0
        self._ordinary = ordinary
        self._configuration = Configuration(backfill_s=backfill_s)
        self._looked_s = self.now_s
        self._pending: dict[ElementId, frozenset[str]] = {}  # released, for any of these nodes
        self._at_once = at_once
        self._waiting = [
            SimulatedTrainer(number + 1, spec, rescale_scale)
            for number, spec in sorted(enumerate(trainers), key=lambda pair: pair[1].submit_s)
        ][::-1]
        self._active: dict[int, SimulatedTrainer] = {}
        self._seen: dict[int, Trainer] = {}  # the controller's view of unchanged trainers
        self._owner: dict[str, ElementId] = {}  # the element that runs, by node
        self._nodes = tuple(
            Node(name, NodeState.IDLE, kind | {PARTITION})
            for name, kind in sorted(zip(ordinary.names, ordinary.kinds, strict=True))
        )
        self._busy = set(ordinary.names)
        self._frozen_busy = frozenset(self._busy)
        self._take_events()
        self._submit()

    # What drives the simulation.

    @property
    def trainers(self) -> list[SimulatedTrainer]:
        """All trainers that were ever submitted."""
        return [*self.done, *self._active.values()]

    @property
    def active(self) -> dict[int, SimulatedTrainer]:
        """The trainers that are submitted and not done, by array."""
        return self._active

    def moment(self) -> Moment:
        """Return the present state."""
        return Moment(
            time_s=self.now_s,
            pool=len(self._nodes) - len(self._busy),
            used=len(self._owner),
            rate=sum(trainer.rate for trainer in self._active.values()),
        )

    def next_s(self) -> float:
        """Return when the next event is: of an ordinary job, of a trainer, or the end."""
        times = [self._ordinary.next_s(), self.end_s]
        for trainer in self._active.values():
            times += (trainer.finish_s(self.now_s), trainer.ready_s())
        if self._waiting and len(self._active) < self._at_once:
            times.append(self._waiting[-1].spec.submit_s)
        return max(self.now_s, min(times))

    def advance(self, to_s: float) -> None:
        """Advance the time to ``to_s``, and carry out the events due then."""
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
        """Return all nodes, in the scheduler's order; the queue says which ones are busy."""
        return self._nodes

    def queue(self) -> Queue:
        """Return the trainers with their elements, and the nodes of ordinary jobs."""
        for array, trainer in self._active.items():
            if array not in self._seen:
                self._seen[array] = _trainer_view(trainer)
        in_order = tuple(self._seen[array] for array in self._active)
        return Queue(in_order, self._ordinary.waiting(), self._frozen_busy)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return none: the traces have none."""
        return ()

    def configuration(self, partition: str) -> Configuration:
        """Return the backfill interval, if there are jobs."""
        return self._configuration

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of backfill."""
        return self._ordinary.last_pass(self.now_s)

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
        part: Part | None = None,
    ) -> None:
        """Release elements onto idle nodes; if jobs wait, only a backfill pass starts them."""
        if taken := nodes & (self._busy | self._owner.keys()):
            raise AssertionError(f"{elements[0]} shall start on {min(taken)}, which is not free")
        trainer = self._active[elements[0].array]
        trainer.pending.update(element.task for element in elements)
        self._pending.update(dict.fromkeys(elements, nodes))
        self._changed(trainer.array)
        if self._ordinary.starts_elements(self.now_s, self.now_s):
            self._start_pending()

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End elements of one trainer and hold them."""
        trainer = self._active[elements[0].array]
        tasks = {element.task for element in elements} & trainer.nodes.keys()
        for task in tasks:
            del self._owner[trainer.nodes[task]]
        trainer.leave(tasks, self.now_s)
        self._changed(trainer.array)
        self.changes += 1
        self.elements_gone = True

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Not needed: simulated elements do not fail."""
        raise AssertionError(f"{elements[0]} has not failed")

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold elements that were reclaimed, or have not started."""
        trainer, tasks = self._active[elements[0].array], {one.task for one in elements}
        trainer.delayed -= tasks
        self._forget_pending(trainer, tasks)
        self._changed(trainer.array)

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Not needed: simulated elements have no time limit."""
        raise AssertionError(f"{elements[0]} has no time limit")

    def cancel(self, array: int) -> None:
        """Not needed: simulated trainers disappear at their end."""
        raise AssertionError(f"trainer {array} has not failed")

    def trim(self, elements: Sequence[ElementId]) -> None:
        """Not needed: a simulated job table has room for all."""
        raise AssertionError(f"{elements[0]} has room")

    def label(self, elements: Sequence[ElementId], comment: str) -> None:
        """Not needed: nobody overwrites comments."""
        raise AssertionError(f"{elements[0]} has its comment")

    def tell(self, element: ElementId, text: str) -> None:
        """Not needed: simulated trainers join at once."""
        raise AssertionError(f"{element} has joined")

    # Inside.

    def _take_events(self) -> None:
        change = self._ordinary.advance(self.now_s, self._owner.keys())
        self.events += change.times
        if change.freed or change.taken:
            self._busy -= change.freed
            self._busy |= change.taken
            self._frozen_busy = frozenset(self._busy)
        self._reclaim((change.taken | change.cleared) & self._owner.keys())
        if self._pending and self._ordinary.starts_elements(self._looked_s, self.now_s):
            self._start_pending()
        self._looked_s = self.now_s

    def _reclaim(self, nodes: Set[str]) -> None:
        lost: dict[int, set[int]] = {}
        for node in nodes:
            element = self._owner.pop(node)
            lost.setdefault(element.array, set()).add(element.task)
        for array, tasks in lost.items():
            self._active[array].reclaim(tasks, self.now_s)
            self._changed(array)
            self.has_news = True

    def _start_pending(self) -> None:
        """Start each released element on one of its nodes that is still idle, as Slurm does."""
        taken = self._busy | self._owner.keys() | self._ordinary.promised()
        for element, nodes in list(self._pending.items()):
            node = min(nodes - taken, default=None)
            if node is not None:
                del self._pending[element]
                self._active[element.array].join(element.task, node, self.now_s)
                self._owner[node] = element
                self._changed(element.array)
                taken.add(node)

    def _forget_pending(self, trainer: SimulatedTrainer, tasks: Set[int]) -> None:
        trainer.pending -= tasks
        for task in tasks:
            self._pending.pop(ElementId(trainer.array, task), None)

    def _submit(self) -> None:
        while self._waiting and len(self._active) < self._at_once:
            if self._waiting[-1].spec.submit_s > self.now_s:
                return
            trainer = self._waiting.pop()
            self._active[trainer.array] = trainer
            self.has_news = True

    def _finish(self, trainer: SimulatedTrainer) -> None:
        for node in trainer.nodes.values():
            del self._owner[node]
        self._forget_pending(trainer, set(trainer.pending))
        trainer.nodes.clear()
        del self._active[trainer.array]
        self._changed(trainer.array)
        self.done.append(trainer)
        self.has_news = True

    def _changed(self, array: int) -> None:
        self._seen.pop(array, None)


def _trainer_view(trainer: SimulatedTrainer) -> Trainer:
    spec = trainer.spec
    elements = tuple(_element(trainer, task) for task in range(spec.max_nodes))
    record = TrainerRecord(spec.min_nodes, spec.max_nodes)
    return Trainer(trainer.array, spec.name, "replay", PARTITION, record, spec.submit_s, elements)


def _element(trainer: SimulatedTrainer, task: int) -> Element:
    id_ = ElementId(trainer.array, task)
    if task in trainer.nodes:
        node, start_s = trainer.nodes[task], trainer.joined_s[task]
        return Element(id_, ElementState.RUNNING, node, start_s)
    if task in trainer.pending:
        return Element(id_, ElementState.PENDING)
    return Element(id_, ElementState.DELAYED if task in trainer.delayed else ElementState.HELD)
