"""A run: the rendezvous of a trainer's agents, and which of its elements run the batch script.

Pure, like they are. Both begin nothing while anybody is away, see ``away``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from bftrainer_slurm.keeper.away import NOBODY, Away, Engaged
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.member import HangUp, Output, Send
from bftrainer_slurm.keeper.messages import Batch, Dropped, FromMember, Held, Identity, Left, Role
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
        self.members: dict[int, Identity] = {}  # all, by key; some may be out of the rendezvous
        self.away = Away(self._out, hold_until_s)
        self._batches = Batches(
            self._out, self.away, self.members, lambda: self.rendezvous.trains_on
        )
        self.rendezvous = Rendezvous(
            self._out, self.away, want, sizes, lambda: self._batches.orphaned
        )

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is."""
        self.away.array = identity.array
        self.members[key] = identity
        if identity.role is Role.BATCH:
            self._batches.join(key, identity)
            return
        self._batches.tick(now_s)
        self._then(now_s, lambda: self.rendezvous.join(key, identity, held, now_s))

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has said something."""
        if isinstance(message, Batch):
            self._then(now_s, lambda: self._batches.hear(key, message, now_s))
        elif not isinstance(message, Left):
            self._then(now_s, lambda: self.rendezvous.hear(key, message, now_s))
        elif (who := self.members.get(key)) is not None:
            self.lose(key, now_s)  # it has joined, if this is another keeper than it left
            self._then(now_s, lambda: self.away.back(who.task, Role.AGENT))
            self._out.append(Note(NoteKind.LEFT, who.array, who.task, who.node))

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended."""
        self.members.pop(key, None)
        self._batches.lose(key, now_s)
        self.rendezvous.lose(key, now_s)
        if self._batches.beside and not self._tasks(Role.AGENT):
            self.rendezvous.finished.clear()

    def own(self, want: int, sizes: Sizes, engaged: Engaged, now_s: float) -> None:
        """The plan gives the trainer this many nodes (0: not known); it may have these sizes.

        Those who are ``engaged`` and have no connection are away.
        """
        if engaged != NOBODY:
            self.rendezvous.resume(engaged.generation)
            for task in engaged.tasks - self._tasks(Role.AGENT):
                self.away.engage(task, Role.AGENT, now_s)
            for task in {engaged.leader} - {-1} - self._tasks(Role.BATCH):
                self.away.engage(task, Role.BATCH, now_s)
        self.rendezvous.want, self.rendezvous.sizes = want, sizes
        self._begin(now_s)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        self.rendezvous.lose_task(task, now_s)
        self._batches.lose_task(task, now_s)
        self._begin(now_s)

    def end(self) -> None:
        """The run is over: drop all members."""
        for key in self.members:
            self._out += [Send(key, Dropped("the run has ended")), HangUp(key)]
        self.rendezvous.members.clear()

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self.away.tick(now_s)
        self._begin(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self.rendezvous.due_s(), self.away.due_s())

    def take(self) -> list[Output]:
        """Return the outputs of all events since the last call."""
        out = self._out.copy()
        self._out.clear()
        return out

    def _tasks(self, role: Role) -> set[int]:
        """Return the tasks that are connected in this role."""
        return {who.task for who in self.members.values() if who.role is role}

    def _then(self, now_s: float, event: Callable[[], None]) -> None:
        """Let something happen; if nobody is away any more, those begin who waited for that."""
        was_away = bool(self.away)
        event()
        if was_away and not self.away:
            self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        self._batches.tick(now_s)
        self.rendezvous.tick(now_s)
