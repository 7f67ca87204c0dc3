"""How the generation of a rendezvous ends: a loss, a planned change, the end of the training. Pure.

What is due when, and who gets into the next one, is decided in ``rendezvous``.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.failures import Failures
from bftrainer_slurm.keeper.group import Group, HangUp, Member
from bftrainer_slurm.keeper.messages import (
    Change,
    Dropped,
    Identity,
    Measured,
    Ready,
    Released,
    Role,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind

READY_S = 300.0  # one that others wait for is dropped when none of them has worked for this long
MOST_WORK_S = 7_200.0  # the same, whatever it says: one that hangs may use its processor, too
_MOST_PROGRAMS = 100  # that are remembered; a batch script runs few


@dataclass(slots=True)
class Pending:
    """A change that has not led to a generation yet."""

    change: Change
    late_s: float = math.inf  # when who is not ready is late, unless it works
    last_s: float = math.inf  # the same, even if it does

    def works(self) -> None:
        """One that is waited for says that it works: the time begins anew."""
        self.late_s = math.inf

    def late(self, serving: Collection[Member], now_s: float) -> list[Member]:
        """Return those of the generation that hang, each once.

        A planned change waits for nobody until the first one that stays is ready: all may be at
        something that takes long, as a validation. After a loss nobody trains on, so that the time
        begins at once, in case all hang. It begins anew when one that is waited for says that it
        works: who hangs beside it costs no time until that one is ready.
        """
        waits = any(one.ready is not None and not one.leaving for one in serving)
        if self.change.planned and not waits:
            self.late_s = self.last_s = math.inf
        elif self.late_s == math.inf:
            self.last_s = min(self.last_s, now_s + MOST_WORK_S)
            self.late_s = min(self.last_s, now_s + READY_S)
        if now_s < self.late_s:
            return []
        self.late_s = math.inf
        return [one for one in serving if one.ready is None]


class Programs(dict[str, set[int]]):
    """What a batch script has run to a good end, each with the tasks that are through with it.

    Whoever comes later is told so, and does not begin the training again.
    """

    def end(self, who: Identity) -> None:
        """A member's processes have ended well, and wait for those of other nodes."""
        if len(self) < _MOST_PROGRAMS:
            self.setdefault(who.program, set())

    def leave(self, who: Identity) -> None:
        """A member is through with its program."""
        self.get(who.program, set()).add(who.task)

    def join(self, who: Identity) -> None:
        """A member comes; if it has been through with its program, the script runs once more."""
        if who.task in self.get(who.program, ()):
            del self[who.program]


@dataclass(slots=True)
class Ending(Group):
    """A group whose generation ends at a change, or as its program does."""

    finished: Programs = field(default_factory=Programs)
    failures: Failures = field(default_factory=Failures)
    pending: Pending | None = None  # the change that was announced

    def take_ready(self, member: Member, ready: Ready, now_s: float) -> None:
        """A member is at a boundary: as it was asked to be, or as something has failed."""
        unasked = member.rank is not None and member.ready is None and self.pending is None
        if ready.cause == "failed" and member.rank is not None and not self.ends:
            who = member.identity
            note = Note(NoteKind.FAILED, who.array, who.task, who.node, text=ready.error)
            self.failures.failed(note, now_s)
        member.ready = ready
        self.launcher = ready.launcher or self.launcher
        self.highest = max(self.highest, ready.lineage)  # earlier keepers' generations count too
        if unasked:
            self.interrupt("failure" if ready.cause == "failed" else "loss", now_s)

    def hear_steps(self, progress: Measured) -> None:
        """Take the number of steps from a progress report, if it has one."""
        steps = dict(progress.measures).get("steps")
        if steps is not None:
            self.failures.stepped(steps)

    def finish(self, member: Member) -> None:
        """A member has ended well: the others go on as they are."""
        who = member.identity
        del self.members[member.key]
        self.out.append(Note(NoteKind.FINISHED, who.array, who.task))
        if not member.finishing:
            self.finished.end(who)
        self.finished.leave(who)

    @property
    def ends(self) -> bool:
        """Whether agents are at the end of a training: one of them is through with it.

        The others are left alone, as they may save its result: nobody joins, none begins again.
        """
        agents = self.role is Role.AGENT
        return agents and any(one.identity.program in self.finished for one in self.serving())

    def is_over(self, member: Member) -> bool:
        """Whether nothing is left to do for a member: it comes late, or would begin again."""
        again = self.role is Role.AGENT and member.ready is not None
        return member.identity.program in self.finished and (member.rank is None or again)

    def await_the_end(self, now_s: float) -> None:
        """Let agents end when the processes of all have, as they would wait for the lost too."""
        if self.pending is None and all(member.finishing for member in self.serving()):
            self.announce(False, "finished", now_s)

    def leave(self, member: Member, now_s: float) -> None:
        """A member says that it has to leave: an agent at once, a worker at the next boundary."""
        if self.role is Role.AGENT:
            self.send(member, Released())
            self.remove(member, "leave", now_s)
        else:
            for mate in self.of((member.identity.task,)):
                mate.leaving = True

    def interrupt(self, why: str, now_s: float) -> None:
        """End the generation at once, unless that was announced already."""
        if self.ends:
            return
        self.offering = None
        if why != "failure":
            self.failures.lost(now_s)
        if self.pending is None or self.pending.change.planned:
            self.announce(False, why, now_s)

    def announce(self, planned: bool, why: str, now_s: float) -> None:
        """Announce a change to those that are not at a boundary."""
        if planned:
            self.failures.disturbed(now_s)
        change = Change(planned, why)
        self.pending = Pending(change)
        for member in self.serving():
            if member.ready is None:
                self.send(member, change)

    def ask_first(self, now_s: float) -> None:
        """Let rank 0 stop all workers after a step; if it has ended well, all stop at once."""
        pending = self.pending
        if self.role is not Role.WORKER or pending is None or not pending.change.planned:
            return
        if not any(member.rank == 0 for member in self.serving()):
            self.interrupt(pending.change.why, now_s)

    def drop(self, member: Member, why: str, now_s: float) -> None:
        """A member is lost, and is told so if it still listens."""
        if member.key not in self.members:
            return  # it went with a neighbour
        self.send(member, Dropped(why))
        self.out.append(HangUp(member.key))
        self.remove(member, "loss", now_s)

    def remove(self, member: Member, why: str, now_s: float) -> None:
        """Take a member out. If it was in the generation, all others of its node go too."""
        del self.members[member.key]
        if member.rank is None:
            return
        for mate in [one for one in self.members.values() if one.place == member.place]:
            self.expel(mate, Released() if why == "leave" else Dropped("a neighbour was lost"))
        self.interrupt(why, now_s)
