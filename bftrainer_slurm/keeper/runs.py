"""A run: the rendezvous of a trainer's agents and of its workers, and which one a member joins.

Pure, like they are. As soon as workers re-form in process, the rendezvous is between the workers,
and each of the agents above them is in a group of one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.group import Output, Send
from bftrainer_slurm.keeper.messages import (
    Alone,
    Batch,
    FromMember,
    Held,
    Identity,
    Left,
    Measured,
    Role,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import Rendezvous
from bftrainer_slurm.keeper.returning import Returning
from bftrainer_slurm.sizes import ANY, Sizes


class Run:
    """One attempt of a trainer.

    ``hold_until_s``: see ``Returning``; ``sizes``: see ``Group``; ``hold_s``: see ``Batches``.
    """

    def __init__(
        self,
        want: int,
        hold_until_s: float = -math.inf,
        sizes: Sizes = ANY,
        hold_s: float = 0.0,
    ) -> None:
        self._out: list[Output] = []
        self._batches = Batches(self._out, hold_s)
        self._agents = Rendezvous(Role.AGENT, self._out, returning=Returning(hold_until_s))
        self._workers = Rendezvous(
            Role.WORKER, self._out, returning=Returning(hold_until_s), on_late=self._end_hanging
        )
        self._solos: dict[int, Rendezvous] = {}  # by task
        self._timed: dict[int, Rendezvous] = {}  # those of them with something due
        self._in_process = False
        self._joined: dict[int, tuple[Rendezvous, Identity]] = {}  # by key: where, and who
        self._agents.want = self._workers.want = want
        self._agents.sizes = self._workers.sizes = sizes

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._joined) + len(self._batches.elements)

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is."""
        if identity.role is Role.WORKER:
            self._go_in_process(now_s)
            rendezvous = self._workers
        elif identity.role is Role.AGENT:
            if held is not None and held.alone:
                self._go_in_process(now_s)
                held = replace(held, rank=0, world=1)
            rendezvous = self._solo(identity.task) if self._in_process else self._agents
        else:
            self._batches.join(key, identity, now_s)
            return
        self._batches.trains(identity.task, 1, now_s)
        self._joined[key] = rendezvous, identity
        if self._in_process and identity.role is Role.AGENT:
            self._out.append(Send(key, Alone()))
        rendezvous.join(key, identity, held, now_s)
        self._settle(rendezvous, identity.task)

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has said something."""
        if isinstance(message, Batch):
            self._batches.hear(key, message, now_s)
            return
        if key not in self._joined:
            return
        rendezvous, who = self._joined[key]
        if isinstance(message, Left):
            self.lose(key, now_s)  # it has joined, if this is another keeper than it left
            if who.local_rank == 0:
                self._out.append(Note(NoteKind.LEFT, who.array, who.task, who.node))
            return
        if key not in rendezvous.members:  # it is out, and says so, or its connection is to end
            return
        solo = self._solos.get(who.task)
        if solo is not None and rendezvous is self._workers and isinstance(message, Measured):
            # The agent's worker made progress: its next failure does not follow the last one.
            solo.hear_steps(message)
        rendezvous.hear(key, message, now_s)
        self._settle(rendezvous, who.task)

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended."""
        self._batches.lose(key, now_s)
        if key not in self._joined:
            return
        rendezvous, who = self._joined.pop(key)
        self._batches.trains(who.task, -1, now_s)
        if key in rendezvous.members:
            rendezvous.lose(key, now_s)
            self._settle(rendezvous, who.task)

    def want(self, nodes: int, now_s: float, sizes: Sizes = ANY) -> None:
        """The plan gives the trainer this many nodes (0: not known); it may have these sizes."""
        for rendezvous in (self._agents, self._workers):
            rendezvous.want, rendezvous.sizes = nodes, sizes
            rendezvous.tick(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        self._steering.part(tasks, now_s)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether one of these tasks has not left yet."""
        return self._steering.holds(tasks)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        self._batches.lose_task(task, now_s)
        for rendezvous in (self._agents, self._workers):
            rendezvous.lose_task(task, now_s)
        if task in self._solos:
            self._solos[task].lose_task(task, now_s)
            self._settle(self._solos[task], task)

    def end(self) -> None:
        """The run is over: drop all members."""
        for rendezvous in (self._agents, self._workers, *self._solos.values()):
            rendezvous.drop_all("the run has ended")
        self._batches.end()

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        if self._batches.due_s() <= now_s:
            self._batches.tick(now_s)
        for rendezvous in (self._agents, self._workers):
            if rendezvous.due_s() <= now_s:
                rendezvous.tick(now_s)
        for task, solo in list(self._timed.items()):
            if solo.due_s() <= now_s:
                solo.tick(now_s)
                self._settle(solo, task)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        may_be_due = (self._agents, self._workers, *self._timed.values())
        due_s = min(rendezvous.due_s() for rendezvous in may_be_due)
        return min(due_s, self._batches.due_s())

    def take(self) -> list[Output]:
        """Return the outputs of all events since the last call."""
        out = self._out.copy()
        self._out.clear()
        return out

    @property
    def _steering(self) -> Rendezvous:
        return self._workers if self._in_process else self._agents

    def _settle(self, rendezvous: Rendezvous, task: int) -> None:
        """Remember which of the agents in groups of one (maybe a thousand) have something due."""
        if not rendezvous.alone:
            return
        self._timed.pop(task, None)
        if not rendezvous.members:
            self._solos.pop(task, None)
        elif rendezvous.due_s() < math.inf:
            self._timed[task] = rendezvous

    def _solo(self, task: int) -> Rendezvous:
        if task not in self._solos:
            self._solos[task] = Rendezvous(Role.AGENT, self._out, alone=True)
            self._solos[task].highest = self._agents.highest
            self._solos[task].finished = self._workers.finished  # so late agents start nothing
        return self._solos[task]

    def _end_hanging(self, task: int, now_s: float) -> None:
        """A process of this task hangs: its agent, if it has one, ends it and starts it again."""
        if (solo := self._solos.get(task)) is not None:
            solo.begin_anew(now_s)
            self._settle(solo, task)

    def _go_in_process(self, now_s: float) -> None:
        if self._in_process:
            return
        self._in_process = True
        for member in list(self._agents.members.values()):
            del self._agents.members[member.key]
            solo = self._solo(member.identity.task)
            solo.members[member.key] = member
            solo.number = self._agents.number
            member.rank = None if member.rank is None or member.ready is not None else 0
            self._joined[member.key] = solo, member.identity
            self._out.append(Send(member.key, Alone()))
            solo.tick(now_s)
            self._settle(solo, member.identity.task)
        self._agents.tick(now_s)
