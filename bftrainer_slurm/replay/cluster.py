"""A simulated cluster with its own clock; the controller's loop uses it in place of Slurm.

It is the Slurm of ``slurm``, beside the ordinary jobs of ``playback``. Elements end at once. A
change costs a trainer its rescale costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Trainer,
)
from bftrainer_slurm.replay.playback import OrdinaryJobs
from bftrainer_slurm.replay.progress import SimulatedTrainer
from bftrainer_slurm.replay.slurm import PARTITION, RUNNING, InMemorySlurm, Job
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.spec import TrainerRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """The state from ``time_s`` on (Unix): nodes in holes, and nodes used by trainers."""

    time_s: float
    pool: int
    used: int


class SimulatedCluster(InMemorySlurm):
    """Has the methods of the controller's gateway.

    ``at_once`` trainers are submitted at a time, by submit time; the next when one is done.
    """

    def __init__(
        self,
        ordinary: OrdinaryJobs,
        span_s: tuple[float, float],
        trainers: Sequence[TrainerSpec],
        at_once: int,
        rescale_scale: float = 1.0,
        backfill_s: float | None = None,
    ) -> None:
        super().__init__(
            span_s[0],
            sorted(ordinary.names),
            instant=True,
            name="simulated",
            configured=Configuration(backfill_s=backfill_s),
            ordinary=set(ordinary.names),
        )
        self.end_s = span_s[1]
        self.changes = 0  # how often the controller has given up nodes
        self.has_news = True  # whether elements have news for the controller
        self.elements_gone = False  # whether elements that the controller has ended are gone
        self.done: list[SimulatedTrainer] = []
        self.idle_node_s = 0.0
        self.used_node_s = 0.0
        self.events = 0
        self._ordinary = ordinary
        self._looked_s = self.now_s
        self._at_once = at_once
        self._to_come = [
            SimulatedTrainer(number + 1, spec, rescale_scale)
            for number, spec in sorted(enumerate(trainers), key=lambda pair: pair[1].submit_s)
        ][::-1]
        self.active: dict[int, SimulatedTrainer] = {}  # submitted, not done; by array
        self._nodes = tuple(
            Node(name, NodeState.IDLE, kind | {PARTITION})
            for name, kind in sorted(zip(ordinary.names, ordinary.kinds, strict=True))
        )
        self._take_events()
        self._submit_due()

    # What drives the simulation.

    @property
    def simulated(self) -> list[SimulatedTrainer]:
        """All trainers that were ever submitted."""
        return [*self.done, *self.active.values()]

    def moment(self) -> Moment:
        """Return the present state."""
        return Moment(
            time_s=self.now_s,
            pool=len(self._nodes) - len(self.ordinary),
            used=len(self.elements(RUNNING)),
        )

    def next_s(self) -> float:
        """Return when the next event is: of an ordinary job, of a trainer, or the end."""
        times = [self._ordinary.next_s(), self.end_s]
        for trainer in self.active.values():
            times += (trainer.finish_s(self.now_s), trainer.ready_s())
        if self._to_come and len(self.active) < self._at_once:
            times.append(self._to_come[-1].spec.submit_s)
        return max(self.now_s, min(times))

    def advance(self, to_s: float) -> None:
        """Advance the time to ``to_s``, and carry out the events due then."""
        seconds = to_s - self.now_s
        self.idle_node_s += seconds * (len(self._nodes) - len(self.ordinary))
        self.used_node_s += seconds * len(self.elements(RUNNING))
        for trainer in self.active.values():
            trainer.advance(self.now_s, to_s)
        self.now_s = to_s
        for trainer in [one for one in self.active.values() if one.done]:
            self._finish(trainer)
        self._take_events()
        self._submit_due()

    # What the controller calls, where it is not as in InMemorySlurm.

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, in the scheduler's order; the queue says which ones are busy."""
        return self._nodes

    def queue(self) -> Queue:
        """Return the trainers with their elements, and the ordinary jobs."""
        return replace(super().queue(), waiting=self._ordinary.waiting())

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of backfill."""
        return self._ordinary.last_pass(self.now_s)

    def grow(
        self, elements: Sequence[ElementId], nodes: frozenset[str], *more: Any, **options: Any
    ) -> None:
        """Release elements onto idle nodes; if jobs wait, only a backfill pass starts them."""
        if taken := nodes & (self.ordinary | self.used()):
            raise AssertionError(f"{elements[0]} shall start on {min(taken)}, which is not free")
        super().grow(elements, nodes, *more, **options)

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End elements of one trainer and hold them."""
        trainer = self.active[elements[0].array]
        tasks = {element.task for element in elements} & trainer.nodes.keys()
        super().shrink(elements)
        trainer.leave(tasks, self.now_s)
        self.changes += 1
        self.elements_gone = True

    def cancel(self, array: int) -> None:
        """Refuse it: no controller has a reason to cancel a trainer that trains without fault."""
        raise AssertionError(f"trainer {array} shall be cancelled")

    # What happens to elements.

    def start(self, job: Job, node: str) -> None:
        """An element starts, and its trainer grows."""
        super().start(job, node)
        self.active[job.id.array].join(job.id.task, node, self.now_s)

    def taken(self) -> set[str]:
        """Return the nodes on which nothing can start."""
        return super().taken() | self._ordinary.promised()

    # Inside.

    def _changed(
        self, request: str, elements: Sequence[ElementId], *states: ElementState
    ) -> list[Job]:
        """Return the elements that a request changes; these are all that a replay has a use for."""
        assert request in ("grow", "shrink", "hold"), f"{request}: {elements} need none"
        return super()._changed(request, elements, *states)

    def _take_events(self) -> None:
        used = self.used()
        change = self._ordinary.advance(self.now_s, used)
        self.events += change.times
        self.ordinary -= change.freed
        self.ordinary |= change.taken
        lost = defaultdict[int, set[int]](set)
        for job in self.reclaim((change.taken | change.cleared) & used, RUNNING):
            lost[job.id.array].add(job.id.task)
        for array, tasks in lost.items():
            self.active[array].reclaim(tasks, self.now_s)
            self.has_news = True
        self.works = self._ordinary.starts_elements(self._looked_s, self.now_s)
        self.schedule()
        self.works = self._ordinary.starts_elements(self.now_s, self.now_s)  # what comes till then
        self._looked_s = self.now_s

    def _submit_due(self) -> None:
        while self._to_come and len(self.active) < self._at_once:
            if self._to_come[-1].spec.submit_s > self.now_s:
                return
            trainer = self._to_come.pop()
            self.active[trainer.array] = trainer
            spec = trainer.spec
            record = TrainerRecord(spec.min_nodes, spec.max_nodes)
            about = spec.name, "replay", PARTITION, record, spec.submit_s, ()
            self.submit(Trainer(trainer.array, *about))
            self.has_news = True

    def _finish(self, trainer: SimulatedTrainer) -> None:
        self.forget(trainer.array)
        trainer.nodes.clear()
        del self.active[trainer.array]
        self.done.append(trainer)
        self.has_news = True
