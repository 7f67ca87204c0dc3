"""A rendezvous: who is in its generation, when that ends, and who gets into the next one.

A pure state machine: events and the time come in, messages and the next deadline go out. It
uses no sockets, no clock and no Slurm. The state of a generation is one of these:

- nobody is in one: ``_gather`` forms the first when enough are ready;
- all train: ``_invite`` announces a change when members are to leave or newcomers may join;
- a change is ``pending``, planned or not: ``_reform`` forms the next one when all who stay are
  ready;
- the training ``ends``: nobody joins, and all end when the processes of all have.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from bftrainer_slurm.keeper.failures import Failures
from bftrainer_slurm.keeper.member import HangUp, Member, Output, Send
from bftrainer_slurm.keeper.messages import (
    Change,
    Done,
    Dropped,
    Finished,
    Finishing,
    FromKeeper,
    FromMember,
    Generation,
    Held,
    Identity,
    Leave,
    Measured,
    Peer,
    Ready,
    Released,
    StoreAt,
)
from bftrainer_slurm.keeper.programs import Programs
from bftrainer_slurm.keeper.protocol import LAUNCHERS, Note, NoteKind
from bftrainer_slurm.keeper.returning import Returning
from bftrainer_slurm.sizes import ANY, Sizes

GATHER_S = 10.0  # a first generation waits this long for the nodes that the plan gives
GATHER_UNKNOWN_S = 1.0  # the same, if it is not known how many that are
JOIN_TOGETHER_S = 3.0  # a newcomer waits this long for others that are still starting
STORE_S = 60.0  # rank 0 has this long to open a store
READY_S = 300.0  # who is not ready this long after others wait for it is dropped

LATE = "not ready in time"
ANOTHER = "another process has taken this place"
WITHOUT_YOU = "the others have gone on without you"


@dataclass(slots=True)
class Pending:
    """A change that has not led to a generation yet."""

    change: Change
    late_s: float = math.inf  # when who is not ready is late

    def late(self, serving: Collection[Member], now_s: float) -> list[Member]:
        """Return those of the generation that hang, each once.

        A planned change waits for nobody until the first one that stays is ready: all may be at
        something that takes long, as a validation. After a loss nobody trains on, so that the time
        begins at once, in case all hang.
        """
        waits = any(one.ready is not None and not one.leaving for one in serving)
        if self.change.planned and not waits:
            self.late_s = math.inf
        else:
            self.late_s = min(self.late_s, now_s + READY_S)
        if now_s < self.late_s:
            return []
        self.late_s = math.inf
        return [one for one in serving if one.ready is None]


@dataclass(slots=True)
class Rendezvous:
    """The agents of one run, one for each element.

    A generation has one of the allowed ``sizes``: the other members wait, as newcomers do.
    """

    out: list[Output]
    want: int = 0  # nodes that the plan gives it now; 0: not known
    sizes: Sizes = ANY
    returning: Returning = field(default_factory=Returning)
    members: dict[int, Member] = field(default_factory=dict)  # by key, as they joined
    orphaned: bool = False  # the batch script runs nowhere any more: its node was lost
    number: int = 0  # of the current generation
    finished: Programs = field(default_factory=Programs)
    _highest: int = 0  # the highest number of any generation so far
    _size: int = 0  # nodes of the current generation as it began
    _pending: Pending | None = None  # the change that was announced
    _offering: Generation | None = None  # waits for rank 0's store
    _failures: Failures = field(default_factory=Failures)
    _launcher: str = ""  # of those of its members that have said it, the last
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
            if (before := self._at(identity.task)) is not None:
                self._drop(before, ANOTHER, now_s)
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
                self._take_ready(member, message, now_s)
                if member.rank is not None and self._waits_for_another():
                    return  # if a thousand get ready one by one, only the last one matters
            case Leave():
                self._send(member, Released())
                self._remove(member, "leave", now_s)
            case Finishing():
                member.finishing = True
                self.finished.end(member.identity)
            case Done():
                self._finish(member)
            case Measured():
                steps = dict(message.measures).get("steps")
                if steps is not None:
                    self._failures.stepped(steps)
                return
            case StoreAt(endpoint, generation):
                self._stored(member, endpoint, generation)
            case _:
                return
        self.tick(now_s)

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended without ``done``."""
        member = self.members.get(key)
        if member is not None:
            self._remove(member, "loss", now_s)
            self.tick(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        for member in self._of(tasks):
            member.leaving = True
        self.tick(now_s)

    def lose_task(self, task: int, now_s: float) -> None:
        """Slurm says that this task is gone."""
        for member in self._of((task,)):
            self._drop(member, "Slurm says that this element has ended", now_s)
        self.tick(now_s)

    def drop_all(self, why: str) -> None:
        """The run is over."""
        for member in list(self.members.values()):
            self._expel(member, why)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether a member of these tasks is still here."""
        return bool(self._of(tasks))

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self._wait_until_s = math.inf
        while (failure := self._failures.certain(now_s)) is not None:
            self.out.append(failure)
        if self._is_time(self.returning.until_s, now_s):
            self.returning.give_up()
            self._interrupt("loss", now_s)
        if self._offering is not None and self._is_time(self._offer_until_s, now_s):
            for member in [one for one in self.members.values() if one.rank == 0]:
                self._drop(member, "opened no store in time", now_s)
        if (pending := self._pending) is not None:
            for member in pending.late(self._serving(), now_s):
                self._drop(member, LATE, now_s)
            self._is_time(pending.late_s, now_s)
        self._advance(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self._failures.due_s(), self._wait_until_s)

    def _is_time(self, due_s: float, now_s: float) -> bool:
        """Return whether something is due; if not, ``tick`` is called when it is."""
        if now_s < due_s:
            self._wait_until_s = min(self._wait_until_s, due_s)
        return now_s >= due_s

    # What follows from the events.

    def _advance(self, now_s: float) -> None:
        for member in list(self.members.values()):
            if member.rank is None and member.leaving:
                self._dismiss(member, Released())
            elif self._is_over(member):
                self._dismiss(member, Finished())
        if not self._serving():
            self._gather(now_s)
        elif self._ends:
            # The processes of all have ended: no agent waits for one that was lost.
            if self._pending is None and all(member.finishing for member in self._serving()):
                self._announce(False, "finished", now_s)
        elif self._pending is None:
            self._invite(now_s)
        else:
            self._reform(now_s)

    def _gather(self, now_s: float) -> None:
        """Nobody is in a generation: form one when enough are ready, or after a time limit."""
        self._pending = self._offering = None
        self.returning.give_up()
        self._release_leavers()
        gather_s = GATHER_S if self.want else GATHER_UNKNOWN_S
        if self._first_ready_s <= now_s:
            ready = sum(member.ready is not None for member in self.members.values())
            some = 0 < ready < self.want
            if some and not self._is_time(self._first_ready_s + gather_s, now_s):
                return
        entrants = self._newcomers_at(now_s)
        if not entrants:
            return
        is_whole = len(entrants) >= self.want > 0
        due_s = now_s if is_whole else self._first_ready_s + gather_s
        due_s = max(due_s, self.returning.hold_until_s, self._failures.not_before_s)
        if self._is_time(due_s, now_s):
            self._form(entrants, now_s)

    def _invite(self, now_s: float) -> None:
        """No change is pending: announce one if members leave or newcomers may join."""
        if self.returning.missing or self._offering is not None:
            return
        if not self._is_time(self._others_until_s(), now_s):
            return
        if any(member.leaving for member in self._serving()):
            self._announce(True, "leave", now_s)
            return
        newcomers = self._newcomers_at(now_s)
        if not newcomers:
            return
        connected = sum(member.rank is None for member in self.members.values())
        due_s = self._first_ready_s + JOIN_TOGETHER_S
        if connected == len(newcomers) or self._is_time(due_s, now_s):
            self._announce(True, "join", now_s)

    def _reform(self, now_s: float) -> None:
        """A change was announced: form the next generation when all who stay are ready."""
        if self.returning.missing:
            return
        late = (one for one in reversed(self.members.values()) if one.holds_up)
        self._awaited = next(late, None)
        if self._awaited is not None:
            return
        staying = [member for member in self._serving() if not member.leaving]
        if self.orphaned and self._failures.in_vain:
            for member in list(self.members.values()):
                self._dismiss(member, Finished(code=1))
        elif not staying:
            if all(member.ready is not None for member in self._serving()):
                self._gather(now_s)
        elif self._is_time(max(self._failures.not_before_s, self._others_until_s()), now_s):
            self._release_leavers()
            self._form(staying + self._newcomers(), now_s)

    def _others_until_s(self) -> float:
        return self.returning.others_until_s(len(self._serving()) >= self.want > 0)

    def _waits_for_another(self) -> bool:
        """Whether the change in progress still waits for a member, so that nothing else is due."""
        pending, one = self._pending, self._awaited
        if pending is None or pending.late_s == math.inf:
            return False
        return one is not None and one.holds_up and one.key in self.members

    # A generation begins.

    def _form(self, entrants: list[Member], now_s: float) -> None:
        """Form a generation of as many of them as it may have; the others wait.

        The longest-serving come first, and newcomers last, in the order in which they are given.
        """
        self._pending, self._first_ready_s = None, math.inf
        in_order = sorted(entrants, key=lambda one: math.inf if one.rank is None else one.rank)
        in_order = in_order[: self.sizes.up_to(len(in_order))]
        for member in self._serving():
            member.rank = None
        if not in_order:
            return  # they are too few: all wait for more
        self.number = self._highest = self._highest + 1
        self._size = len(in_order)
        for rank, member in enumerate(in_order):
            member.rank = rank
        told = tuple(Peer(one.identity.task, one.identity.node) for one in in_order)
        self._offering = Generation(self.number, 0, len(in_order), None, told)
        in_order[0].ready = None
        self._send(in_order[0], self._offering)
        self._tell_reformed()
        self.returning.adopted, self._offer_until_s = False, now_s + STORE_S
        self._is_time(self._offer_until_s, now_s)
        self._failures.began()

    def _stored(self, member: Member, endpoint: str, number: int) -> None:
        """Rank 0 has opened its store: tell the others."""
        offering = self._offering
        if offering is None or member.rank != 0 or number != offering.number:
            return
        self._offering = None
        for other in self._serving():
            if other.rank:
                other.ready = None
                self._send(other, replace(offering, rank=other.rank, store=endpoint))

    def _adopt(self, member: Member, held: Held, now_s: float) -> None:
        """Take a member back into the generation that it is in, or let it join again."""
        # All were lost at once, as when this host was cut off, and nothing was formed since.
        over = member.identity.program in self.finished
        all_were_lost = held.generation == self.number and not (over or self._serving())
        later = self.returning.adopted and held.generation > self.number
        if self.number == 0 or all_were_lost or later:
            for one in self._serving():  # back from an older one, it had lost the others
                self._expel(one, WITHOUT_YOU)
            self.number, self._size, self._pending = held.generation, held.world, None
            self.returning.begin(held, now_s)
        self._highest = max(self._highest, held.generation)
        before = self._at(member.identity.task)
        fits = held.generation == self.number and self.returning.fits(held, before)
        if not fits:
            if before is not None:
                self._drop(before, ANOTHER, now_s)
            self.members[member.key] = member
            self._send(member, Dropped(WITHOUT_YOU))
            return
        self.members[member.key] = member
        if before is not None:
            del self.members[before.key]
            self.out.append(HangUp(before.key))
        member.rank = held.rank
        if self._pending is not None:
            self._send(member, self._pending.change)
        if self.returning.came(held.rank):
            self._tell_reformed()

    def _tell_reformed(self) -> None:
        """Tell the controller of a new generation."""
        serving = self._serving()
        measures = {"generation": float(self.number), "nodes": float(len(serving))}
        if self._launcher:
            measures["launcher"] = float(LAUNCHERS.index(self._launcher))
        array = serving[0].identity.array
        self.out.append(Note(NoteKind.REFORMED, array, measures=tuple(measures.items())))

    # A generation ends.

    def _take_ready(self, member: Member, ready: Ready, now_s: float) -> None:
        """A member is at a boundary: as it was asked to be, or as something has failed."""
        unasked = member.rank is not None and member.ready is None and self._pending is None
        ended = self._pending is not None and self._pending.change.why == "failure"
        has_failed = ready.cause == "failed" or (ready.error != "" and ended)
        if has_failed and member.rank is not None and not self._ends:
            who = member.identity
            on = (("nodes", float(self._size)),)
            note = Note(NoteKind.FAILED, who.array, who.task, who.node, on, ready.error)
            self._failures.failed(note, now_s, explained=self.orphaned)
        member.ready = ready
        self._launcher = ready.launcher or self._launcher
        if unasked:
            self._interrupt("failure" if ready.cause == "failed" else "loss", now_s)

    def _interrupt(self, why: str, now_s: float) -> None:
        """End the generation at once, unless that was announced already."""
        if self._ends:
            return
        self._offering = None
        if why != "failure":
            self._failures.lost(now_s)
        if self._pending is None or self._pending.change.planned:
            self._announce(False, why, now_s)

    def _announce(self, planned: bool, why: str, now_s: float) -> None:
        """Announce a change to those that are not at a boundary."""
        if planned:
            self._failures.disturbed(now_s)
        change = Change(planned, why)
        self._pending = Pending(change)
        for member in self._serving():
            if member.ready is None:
                self._send(member, change)

    def _finish(self, member: Member) -> None:
        """A member has ended well: the others go on as they are."""
        who = member.identity
        del self.members[member.key]
        self.out.append(Note(NoteKind.FINISHED, who.array, who.task))
        if not member.finishing:
            self.finished.end(who)
        self.finished.leave(who)

    @property
    def trains_on(self) -> bool:
        """Whether there is a generation, and none of its members has ended well."""
        return bool(self._serving()) and not self._ends

    @property
    def _ends(self) -> bool:
        """Whether this is the end of a training: one of the members is through with it.

        The others are left alone, as they may save its result: nobody joins, none begins again.
        """
        return any(one.identity.program in self.finished for one in self._serving())

    def _is_over(self, member: Member) -> bool:
        """Whether nothing is left to do for a member: it comes late, or would begin again."""
        begins = member.rank is None or member.ready is not None
        return begins and member.identity.program in self.finished

    # Members.

    def _serving(self) -> list[Member]:
        """Return those that are in the generation."""
        return [member for member in self.members.values() if member.rank is not None]

    def _newcomers(self) -> list[Member]:
        """Return those who may join."""
        return [
            member
            for member in self.members.values()
            if member.rank is None and member.ready is not None and not member.leaving
        ]

    def _newcomers_at(self, now_s: float) -> list[Member]:
        """Return the newcomers if there are enough for a larger generation, and note since when."""
        newcomers, now = self._newcomers(), len(self._serving())
        if self.sizes.up_to(now + len(newcomers)) <= now:
            newcomers = []
        self._first_ready_s = min(self._first_ready_s, now_s) if newcomers else math.inf
        return newcomers

    def _of(self, tasks: Collection[int]) -> list[Member]:
        return [member for member in self.members.values() if member.identity.task in tasks]

    def _at(self, task: int) -> Member | None:
        return next(iter(self._of((task,))), None)

    def _send(self, member: Member, message: FromKeeper) -> None:
        self.out.append(Send(member.key, message))

    def _dismiss(self, member: Member, message: FromKeeper) -> None:
        """Tell a member that it is out."""
        del self.members[member.key]
        self._send(member, message)

    def _release_leavers(self) -> None:
        for member in [one for one in self.members.values() if one.leaving]:
            self._dismiss(member, Released())

    def _expel(self, member: Member, why: str) -> None:
        """Tell a member that it is out, and end its connection."""
        self._dismiss(member, Dropped(why))
        self.out.append(HangUp(member.key))

    def _drop(self, member: Member, why: str, now_s: float) -> None:
        """A member is lost, and is told so if it still listens."""
        self._send(member, Dropped(why))
        self.out.append(HangUp(member.key))
        self._remove(member, "loss", now_s)

    def _remove(self, member: Member, why: str, now_s: float) -> None:
        """Take a member out; if it was in the generation, that is over."""
        del self.members[member.key]
        if member.rank is not None:
            self._interrupt(why, now_s)
