"""A rendezvous: when its generation ends, and who gets into the next one.

A pure state machine: events and the time come in, messages and the next deadline go out. It
uses no sockets, no clock and no Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.ending import Ending
from bftrainer_slurm.keeper.group import HangUp, Member, nodes_of
from bftrainer_slurm.keeper.messages import (
    Broken,
    Done,
    Dropped,
    Finished,
    Finishing,
    FromMember,
    Held,
    Identity,
    Leave,
    Measured,
    Ready,
    Released,
    Role,
    StoreAt,
    Working,
)
from bftrainer_slurm.keeper.returning import Returning

GATHER_S = 10.0  # a first generation waits this long for the nodes that the plan gives
GATHER_UNKNOWN_S = 1.0  # the same, if it is not known how many that are
JOIN_TOGETHER_S = 3.0  # a newcomer waits this long for others that are still starting
STORE_S = 60.0  # rank 0 has this long to open a store

LATE = "not ready in time"
ANOTHER = "another process has taken this place"
WITHOUT_YOU = "the others have gone on without you"


@dataclass(slots=True)
class Rendezvous(Ending):
    """The members of one run with one role, and when they get into the next generation."""

    returning: Returning = field(default_factory=Returning)
    want: int = 0  # nodes that the plan gives it now; 0: not known
    on_late: Callable[[int, float], None] = lambda task, now_s: None  # a member of it hangs
    _offer_until_s: float = math.inf
    _first_ready_s: float = math.inf  # of newcomers
    _awaited: Member | None = None  # it was not ready at the last look
    _wait_until_s: float = math.inf  # then something is due without any event

    # Events.

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is; ``held`` is its generation, if it comes back."""
        member = Member(key, identity)
        if held is not None:
            self._adopt(member, held, now_s)
        else:
            if (before := self.at(identity)) is not None:
                self.drop(before, ANOTHER, now_s)
            self.members[key] = member
            self.finished.join(identity)
        self.tick(now_s)

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has sent a message. One that no longer matters is ignored, and costs nothing."""
        member = self.members.get(key)
        if member is None:
            return
        match message:
            case Ready() if message != member.ready:
                self.take_ready(member, message, now_s)
                if member.rank is not None and self._waits_for_another():
                    return  # if a thousand get ready one by one, only the last one matters
            case Broken(self.number) if member.rank is not None and not member.ready:
                self.interrupt("loss", now_s)
            case Working() if member.holds_up and self.pending is not None:
                self.pending.works()
            case Leave():
                self.leave(member, now_s)
            case Finishing():
                member.finishing = True
                self.finished.end(member.identity)
            case Done():
                self.finish(member)
            case Measured():
                self.hear_steps(message)
                return
            case StoreAt(endpoint, generation):
                self.stored(member, endpoint, generation)
            case _:
                return
        self.tick(now_s)

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended without ``done``."""
        member = self.members.get(key)
        if member is not None:
            self.remove(member, "loss", now_s)
            self.tick(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        for member in self.of(tasks):
            member.leaving = True
        self.tick(now_s)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        for member in self.of((task,)):
            self.drop(member, "Slurm says that this element has ended", now_s)
        self.tick(now_s)

    def begin_anew(self, now_s: float) -> None:
        """End the generation at once: the members' processes hang."""
        self.interrupt("loss", now_s)
        self.tick(now_s)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether a member of these tasks is still here."""
        return bool(self.of(tasks))

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self._wait_until_s = math.inf
        while (failure := self.failures.certain(now_s)) is not None:
            self.out.append(failure)
        if self._is_time(self.returning.until_s, now_s):
            self.returning.give_up()
            self.interrupt("loss", now_s)
        if self.offering is not None and self._is_time(self._offer_until_s, now_s):
            for member in [one for one in self.members.values() if one.rank == 0]:
                self.drop(member, "opened no store in time", now_s)
        if (pending := self.pending) is not None:
            for member in pending.late(self.serving(), now_s):
                self.drop(member, LATE, now_s)
                self.on_late(member.identity.task, now_s)
            self._is_time(pending.late_s, now_s)
        self._advance(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self.failures.due_s(), self._wait_until_s)

    def _is_time(self, due_s: float, now_s: float) -> bool:
        """Return whether something is due; if not, ``tick`` is called when it is."""
        if now_s < due_s:
            self._wait_until_s = min(self._wait_until_s, due_s)
        return now_s >= due_s

    # What follows from the events.

    def _advance(self, now_s: float) -> None:
        for member in list(self.members.values()):
            if member.rank is None and member.leaving:
                self.dismiss(member, Released())
            elif self.is_over(member):
                self.dismiss(member, Finished())
        if not any(member.rank is not None for member in self.members.values()):
            self._gather(now_s)
        elif self.ends:
            self.await_the_end(now_s)
        elif self.pending is None:
            self._invite(now_s)
        else:
            self.ask_first(now_s)
            self._reform(now_s)

    def _gather(self, now_s: float) -> None:
        """Nobody is in a generation: form one when enough are ready, or after a time limit."""
        self.pending = self.offering = None
        self.returning.give_up()
        self.release_leavers()
        gather_s = GATHER_S if self.want else GATHER_UNKNOWN_S
        if self._first_ready_s <= now_s:
            ready = sum(member.ready is not None for member in self.members.values())
            some = 0 < ready < self.want
            if some and not self._is_time(self._first_ready_s + gather_s, now_s):
                return
        entrants = self._newcomers_at(now_s)
        if not entrants:
            return
        is_whole = self.alone or nodes_of(entrants) >= self.want > 0
        due_s = now_s if is_whole else self._first_ready_s + gather_s
        due_s = max(due_s, self.returning.hold_until_s, self.failures.not_before_s)
        if self._is_time(due_s, now_s):
            self._form(entrants, now_s)

    def _invite(self, now_s: float) -> None:
        """No change is pending: announce one if members leave or newcomers may join."""
        if self.returning.missing or self.offering is not None:
            return
        if not self._is_time(self._others_until_s(), now_s):
            return
        if any(member.leaving for member in self.serving()):
            self.announce(True, "leave", now_s)
            return
        newcomers = self._newcomers_at(now_s)
        if not newcomers:
            return
        connected = sum(member.rank is None for member in self.members.values())
        due_s = self._first_ready_s + JOIN_TOGETHER_S
        if connected == len(newcomers) or self._is_time(due_s, now_s):
            self.announce(True, "join", now_s)

    def _others_until_s(self) -> float:
        return self.returning.others_until_s(nodes_of(self.serving()) >= self.want > 0)

    def _reform(self, now_s: float) -> None:
        """A change was announced: form the next generation when all who stay are ready."""
        if self.returning.missing:
            return
        late = (one for one in reversed(self.members.values()) if one.holds_up)
        self._awaited = next(late, None)
        if self._awaited is not None:
            return
        staying = [member for member in self.serving() if not member.leaving]
        if not staying:
            if all(member.ready is not None for member in self.serving()):
                self._replace_all(now_s)
        elif self._is_time(max(self.failures.not_before_s, self._others_until_s()), now_s):
            self.release_leavers()
            self._form(staying + self.newcomers(), now_s)

    def _replace_all(self, now_s: float) -> None:
        """All are to leave, and wait at a boundary.

        Only workers have the state. They pass it on in one more generation, if there is somebody.
        """
        newcomers = self.newcomers() if self.role is Role.WORKER else []
        if newcomers:
            self._form(self.serving() + newcomers, now_s)
        else:
            self.release_leavers()
            self._gather(now_s)

    def _waits_for_another(self) -> bool:
        """Whether the change in progress still waits for a member, so that nothing else is due."""
        pending, one = self.pending, self._awaited
        if pending is None or pending.late_s == math.inf:
            return False
        return one is not None and one.holds_up and one.key in self.members

    def _form(self, entrants: list[Member], now_s: float) -> None:
        """Form a generation of as many of them as it may have; the others wait."""
        self.pending, self._first_ready_s = None, math.inf
        if self.form(entrants):
            self.returning.adopted, self._offer_until_s = False, now_s + STORE_S
            if self.offering is not None:
                self._is_time(self._offer_until_s, now_s)
            self.failures.began()

    def _adopt(self, member: Member, held: Held, now_s: float) -> None:
        """Take a member back into the generation that it is in, or let it join again."""
        # All were lost at once, as when this host was cut off, and nothing was formed since.
        over = member.identity.program in self.finished
        all_were_lost = held.generation == self.number and not (over or self.serving())
        later = self.returning.adopted and held.generation > self.number
        if self.number == 0 or all_were_lost or later:
            for one in self.serving():  # back from an older one, it had lost the others
                self.expel(one, Dropped(WITHOUT_YOU))
            self.number, self.pending = held.generation, None
            self.returning.begin(held, now_s)
        self.highest = max(self.highest, held.generation)
        before = self.at(member.identity)
        fits = held.generation == self.number and self.returning.fits(held, before)
        self.members[member.key] = member
        if not fits:
            if before is not None:
                self.drop(before, ANOTHER, now_s)
            self.send(member, Dropped(WITHOUT_YOU))
            return
        if before is not None:
            del self.members[before.key]
            self.out.append(HangUp(before.key))
        member.rank = held.rank
        if self.pending is not None:
            self.send(member, self.pending.change)
        if self.returning.came(held.rank):
            self.tell_reformed()

    # Members.

    def _newcomers_at(self, now_s: float) -> list[Member]:
        """Return the newcomers if there are enough for a larger generation, and note since when."""
        newcomers, now = self.newcomers(), nodes_of(self.serving())
        if self.sizes.up_to(now + nodes_of(newcomers)) <= now:
            newcomers = []
        self._first_ready_s = min(self._first_ready_s, now_s) if newcomers else math.inf
        return newcomers
