"""A run: the groups of one trainer's members, and which of them a member belongs to.

Pure, as the groups are. As soon as training processes re-form in process, the agents above them
stand alone: what concerns the group is between the processes then.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from bftrainer_slurm.keeper.groups import Group, HangUp, Output, Send
from bftrainer_slurm.keeper.messages import (
    Alone,
    Done,
    FromMember,
    Held,
    Identity,
    Progress,
    Role,
)


class Run:
    """One life of a trainer's rendezvous. ``hold_until_s``: see ``Group``."""

    def __init__(self, name: str, want: int, hold_until_s: float = -math.inf) -> None:
        self.name = name
        self._out: list[Output] = []
        self._agents = Group(Role.AGENT, self._out, hold_until_s=hold_until_s)
        self._workers = Group(Role.WORKER, self._out, hold_until_s=hold_until_s)
        self._solos: dict[int, Group] = {}  # by task
        self._timed: dict[int, Group] = {}  # those of them with something due
        self._in_process = False
        self._group_of: dict[int, Group] = {}
        self._agents.want = self._workers.want = want

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._group_of)

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is; a reporter belongs to no group."""
        if identity.role is Role.WORKER:
            self._go_in_process(now_s)
            group = self._workers
        elif identity.role is Role.AGENT:
            if held is not None and held.alone:
                self._go_in_process(now_s)
                held = replace(held, rank=0, world=1)
            group = self._solo(identity.task) if self._in_process else self._agents
        else:
            return
        self._group_of[key] = group
        if self._in_process and identity.role is Role.AGENT:
            self._out.append(Send(key, Alone()))
        group.join(key, identity, held, now_s)
        self._settle(group, identity.task)

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has said something."""
        group = self._group_of.get(key)
        if group is None:
            return
        member = group.members.get(key)
        if member is None:
            return
        task = member.identity.task
        if isinstance(message, Done):
            group.finish(key, now_s)
        else:
            if isinstance(message, Progress) and group is self._workers and task in self._solos:
                # The agent's worker has come further: its next failure is no failure in a row.
                self._solos[task].hear_steps(message)
            group.hear(key, message, now_s)
        self._settle(group, task)

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended."""
        group = self._group_of.pop(key, None)
        member = None if group is None else group.members.get(key)
        if group is not None and member is not None:
            group.lose(key, now_s)
            self._settle(group, member.identity.task)

    def want(self, nodes: int, now_s: float) -> None:
        """The plan gives the trainer this many nodes (0: not known)."""
        for group in (self._agents, self._workers):
            group.want = nodes
            group.tick(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        self._steering.part(tasks, now_s)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether one of these tasks has not left yet."""
        return self._steering.holds(tasks)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        for group in (self._agents, self._workers):
            group.lose_task(task, now_s)
        if task in self._solos:
            self._solos[task].lose_task(task, now_s)
            self._settle(self._solos[task], task)

    def end(self) -> None:
        """The run is over: all are out."""
        for group in (self._agents, self._workers, *self._solos.values()):
            group.drop_all("the run has ended")

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        for group in (self._agents, self._workers):
            if group.due_s() <= now_s:
                group.tick(now_s)
        for task, solo in list(self._timed.items()):
            if solo.due_s() <= now_s:
                solo.tick(now_s)
                self._settle(solo, task)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if nothing is heard before."""
        groups = (self._agents, self._workers, *self._timed.values())
        return min(group.due_s() for group in groups)

    def take(self) -> list[Output]:
        """Return what came of the events since the last call."""
        out = self._out.copy()
        self._out.clear()
        for output in out:
            if isinstance(output, HangUp):
                self._group_of.pop(output.key, None)
        return out

    @property
    def _steering(self) -> Group:
        return self._workers if self._in_process else self._agents

    def _settle(self, group: Group, task: int) -> None:
        """Keep in mind which of a thousand agents that stand alone have something due."""
        if not group.alone:
            return
        self._timed.pop(task, None)
        if not group.members:
            self._solos.pop(task, None)
        elif group.due_s() < math.inf:
            self._timed[task] = group

    def _solo(self, task: int) -> Group:
        if task not in self._solos:
            self._solos[task] = Group(Role.AGENT, self._out, alone=True)
            self._solos[task].highest = self._agents.highest
        return self._solos[task]

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
            self._group_of[member.key] = solo
            self._out.append(Send(member.key, Alone()))
            solo.tick(now_s)
            self._settle(solo, member.identity.task)
        self._agents.tick(now_s)
