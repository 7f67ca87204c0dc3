"""A run: the rendezvous of a trainer's agents, and which of its elements run the batch script.

Pure, like they are. Both begin nothing while anybody is away, see ``away``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from bftrainer_slurm.keeper.away import NOBODY, Away, Engaged
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.member import Output
from bftrainer_slurm.keeper.messages import Batch, FromMember, Held, Identity, Left, Role
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import Rendezvous
from bftrainer_slurm.sizes import ANY, Sizes


class Run:
    """One attempt of a trainer.

    ``hold_until_s``: until then members may come back of whom even the controller knows nothing.
    ``sizes``: see ``Rendezvous``.
    """

    def __init__(self, want: int, hold_until_s: float = -math.inf, sizes: Sizes = ANY) -> None:
        self._out: list[Output] = []
        self.away = Away(self._out, hold_until_s)
        self._batches = Batches(self._out, self.away, lambda: self._rendezvous.trains_on)
        self._rendezvous = Rendezvous(
            self._out, self.away, want, sizes, lambda: self._batches.orphaned
        )
        self._agents: dict[int, Identity] = {}  # by key; some may be out of the rendezvous

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._agents) + len(self._batches.elements)

    @property
    def matters(self) -> bool:
        """Whether it has members, or some are away."""
        return self.size > 0 or bool(self.away)

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is."""
        self.away.array = identity.array
        if identity.role is Role.BATCH:
            self._batches.join(key, identity)
            return
        self._batches.trains(identity, 1, now_s)
        self._agents[key] = identity
        self._then(now_s, lambda: self._rendezvous.join(key, identity, held, now_s))

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has said something."""
        if isinstance(message, Batch):
            self._then(now_s, lambda: self._batches.hear(key, message, now_s))
        elif isinstance(message, Left) and key in self._agents:
            who = self._agents[key]
            self.lose(key, now_s)  # it has joined, if this is another keeper than it left
            self._then(now_s, lambda: self.away.back(who.task, Role.AGENT))
            self._out.append(Note(NoteKind.LEFT, who.array, who.task, who.node))
        else:
            self._then(now_s, lambda: self._rendezvous.hear(key, message, now_s))

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended."""
        self._batches.lose(key, now_s)
        if (who := self._agents.pop(key, None)) is not None:
            self._batches.trains(who, -1, now_s)
            self._rendezvous.lose(key, now_s)
            if self._batches.beside and not self._agents:
                self._rendezvous.finished.clear()

    def own(self, want: int, sizes: Sizes, engaged: Engaged, now_s: float) -> None:
        """The plan gives the trainer this many nodes (0: not known); it may have these sizes.

        Those who are ``engaged`` and have no connection are away.
        """
        if engaged != NOBODY:
            self._rendezvous.resume(engaged.generation)
            agents = {who.task for who in self._agents.values()}
            for task in engaged.tasks - agents:
                self.away.engage(task, Role.AGENT, now_s)
            batches = {one.task for one in self._batches.elements.values()}
            for task in {engaged.leader} - {-1} - batches:
                self.away.engage(task, Role.BATCH, now_s)
        self._rendezvous.want, self._rendezvous.sizes = want, sizes
        self._begin(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        self._rendezvous.part(tasks, now_s)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether one of these tasks has not left yet."""
        return self._rendezvous.holds(tasks)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        self._rendezvous.lose_task(task, now_s)
        self._batches.lose_task(task, now_s)
        self._begin(now_s)

    def end(self) -> None:
        """The run is over: drop all members."""
        self._rendezvous.drop_all("the run has ended")
        self._batches.end()

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self.away.tick(now_s)
        self._begin(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self._rendezvous.due_s(), self.away.due_s())

    def take(self) -> list[Output]:
        """Return the outputs of all events since the last call."""
        out = self._out.copy()
        self._out.clear()
        return out

    def _then(self, now_s: float, event: Callable[[], None]) -> None:
        """Let something happen; if nobody is away any more, those begin who waited for that."""
        was_away = bool(self.away)
        event()
        if was_away and not self.away:
            self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        self._batches.tick(now_s)
        self._rendezvous.tick(now_s)
