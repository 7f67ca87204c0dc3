"""A rendezvous: who is in its generation, when that ends, and who gets into the next one.

A pure state machine: events and the time come in, messages and the next deadline go out. It uses no
sockets, no clock and no Slurm. Its state follows from who is in a generation, and what was
announced to them. After each event ``_advance`` looks what is due in it:

===========  ==================================  ==================================================
state        it is so while                      what is due
===========  ==================================  ==================================================
nobody       nobody is in a generation           ``_gather``: those that are ready form the first
                                                 one when they are as many as the plan gives, or
                                                 after a time limit; never while anybody is away
all train    no change is announced              ``_invite``: a planned change when members are to
                                                 leave or newcomers may join; a loss or a failure
                                                 is announced at once, as a change that is not
change       a change is announced               ``_reform``: all that stay form the next one when
                                                 they are ready; who is late is dropped
end          the processes of one have ended     nobody joins, and nobody waits for one that is
             well                                lost; all end when the processes of all have
===========  ==================================  ==================================================

Who comes back from an earlier keeper, or after all were lost at once, is in its generation again if
nobody has formed another one. It has to be complete before anything else is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from bftrainer_slurm.arrays import format_tasks
from bftrainer_slurm.keeper.away import Away
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
    Role,
    StoreAt,
)
from bftrainer_slurm.keeper.programs import Programs
from bftrainer_slurm.keeper.protocol import LAUNCHERS, Note, NoteKind
from bftrainer_slurm.sizes import ANY, Sizes

GATHER_S = 10.0  # a first generation waits this long for the nodes that the plan gives
GATHER_UNKNOWN_S = 1.0  # the same, if it is not known how many that are
JOIN_TOGETHER_S = 3.0  # a newcomer waits this long for others that are still starting
STORE_S = 60.0  # rank 0 has this long to open a store
READY_S = 300.0  # who is not ready this long after others wait for it is dropped
ADOPT_S = 10.0  # who does not come back this long after the first of its generation is lost

LATE = "not ready in time"
ANOTHER = "another process has taken this place"
WITHOUT_YOU = "the others have gone on without you"


@dataclass(slots=True)
class Rendezvous:
    """The agents of one run, one for each element.

    A generation has one of the allowed ``sizes``: the other members wait, as newcomers do. None is
    the first while anybody is ``away``. ``orphaned`` says whether the batch script runs nowhere any
    more, as its node was lost.
    """

    out: list[Output]
    away: Away
    want: int = 0  # nodes that the plan gives it now; 0: not known
    sizes: Sizes = ANY
    orphaned: Callable[[], bool] = lambda: False
    members: dict[int, Member] = field(default_factory=dict)  # by key, as they joined
    number: int = 0  # of the current generation
    finished: Programs = field(default_factory=Programs)
    _highest: int = 0  # the highest number of any generation so far
    _size: int = 0  # nodes of the current generation as it began
    _change: Change | None = None  # that was announced, and has led to no generation yet
    _late_s: float = math.inf  # when who is not ready for it is late
    _offering: Generation | None = None  # waits for rank 0's store
    _offer_until_s: float = math.inf
    _theirs: bool = True  # the current generation, if any, is an earlier keeper's
    _missing: set[int] = field(default_factory=set)  # its ranks that have not come back
    _missing_until_s: float = math.inf  # when these are lost
    _failures: Failures = field(default_factory=Failures)
    _launcher: str = ""  # of those of its members that have said it, the last
    _first_ready_s: float = math.inf  # of newcomers
    _awaited: Member | None = None  # it was not ready at the last look
    _wait_until_s: float = math.inf  # then something is due without any event

    # Events.

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is; ``held`` is its generation, if it comes back."""
        member, before = Member(key, identity), self._at(identity.task)
        self.members[key] = member
        if held is None:
            self.finished.join(identity)
        if held is not None and self._is_in(held, before, identity, now_s):
            if before is not None:
                del self.members[before.key]
                self.out.append(HangUp(before.key))
            self._come_back(member, held)
        else:
            if before is not None:
                self._drop(before, ANOTHER, now_s)
            if held is not None:
                self._send(member, Dropped(WITHOUT_YOU))
            self.away.again(identity.task, now_s)
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
                self.away.back(member.identity.task, Role.AGENT)
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
        if (member := self.members.get(key)) is not None:
            self._lose(member, now_s)
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
        self.away.gone(task)
        self.tick(now_s)

    def resume(self, generation: int) -> None:
        """An earlier keeper has formed this generation; its members may come back."""
        if self._theirs and generation > self._highest and not self._serving():
            self.number = self._highest = generation

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether a member of these tasks is still here."""
        return bool(self._of(tasks))

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self._wait_until_s = math.inf
        while (failure := self._failures.certain(now_s)) is not None:
            self.out.append(failure)
        if self._is_time(self._missing_until_s, now_s):
            self._await_nobody()
            self._interrupt("loss", now_s)
        if self._offering is not None and self._is_time(self._offer_until_s, now_s):
            for member in [one for one in self.members.values() if one.rank == 0]:
                self._drop(member, "opened no store in time", now_s)
        while late := self._late(now_s):
            for member in late:
                self._drop(member, LATE, now_s)
        self._advance(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self._failures.due_s(), self._wait_until_s)

    def _is_time(self, due_s: float, now_s: float) -> bool:
        """Return whether something is due; if not, ``tick`` is called when it is."""
        if now_s < due_s:
            self._wait_until_s = min(self._wait_until_s, due_s)
        return now_s >= due_s

    def _late(self, now_s: float) -> list[Member]:
        """Return those of the generation that hang while a change waits for them, each once.

        A planned change waits for nobody until the first one that stays is ready: all may be at
        something that takes long, as a validation. After a loss nobody trains on, so that the time
        begins at once, in case all hang.
        """
        if self._change is None:
            return []
        serving = self._serving()
        waits = any(one.ready is not None and not one.leaving for one in serving)
        if self._change.planned and not waits:
            self._late_s = math.inf
        else:
            self._late_s = min(self._late_s, now_s + READY_S)
        if not self._is_time(self._late_s, now_s):
            return []
        self._late_s = math.inf
        return [one for one in serving if one.ready is None]

    # What follows from the events.

    def _advance(self, now_s: float) -> None:
        for member in list(self.members.values()):
            if member.rank is None and member.leaving:
                self._dismiss(member, Released())
            elif self._is_over(member):
                self._dismiss(member, Finished())
        if not (serving := self._serving()):
            self._gather(now_s)
        elif self._ends:
            if self._change is None and all(member.finishing for member in serving):
                self._announce(False, "finished", now_s)
        elif self._missing:
            return
        elif self._change is None:
            self._invite(now_s)
        else:
            self._reform(now_s)

    def _gather(self, now_s: float) -> None:
        """Nobody is in a generation: form one when enough are ready, or after a time limit."""
        self._change = self._offering = None
        self._await_nobody()
        self._release_leavers()
        due_s = GATHER_S if self.want else GATHER_UNKNOWN_S
        if self._first_ready_s <= now_s:
            ready = sum(member.ready is not None for member in self.members.values())
            some = 0 < ready < self.want
            if some and not self._is_time(self._first_ready_s + due_s, now_s):
                return
        entrants = self._newcomers_at(now_s)
        if not entrants:
            return
        due_s = now_s if len(entrants) >= self.want > 0 else self._first_ready_s + due_s
        due_s = max(due_s, self.away.hold_until_s, self._failures.not_before_s)
        keys = [one.key for one in entrants]
        if self._is_time(due_s, now_s) and not self.away.forbids(keys, now_s):
            self._form(entrants, now_s)

    def _invite(self, now_s: float) -> None:
        """No change is announced: announce one if members leave or newcomers may join."""
        if self._offering is not None or not self._is_time(self._others_until_s(), now_s):
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
        late = (one for one in reversed(self.members.values()) if one.holds_up)
        self._awaited = next(late, None)
        if self._awaited is not None:
            return
        staying = [member for member in self._serving() if not member.leaving]
        if self._failures.in_vain and self.orphaned():
            for member in list(self.members.values()):
                self._dismiss(member, Finished(code=1))
        elif not staying:
            if all(member.ready is not None for member in self._serving()):
                self._gather(now_s)
        elif self._is_time(max(self._failures.not_before_s, self._others_until_s()), now_s):
            self._release_leavers()
            self._form(staying + self._newcomers(), now_s)

    def _others_until_s(self) -> float:
        """Return until when members of a generation later than an earlier keeper's may come."""
        is_whole = len(self._serving()) >= self.want > 0
        return self.away.hold_until_s if self._theirs and not is_whole else -math.inf

    def _waits_for_another(self) -> bool:
        """Whether the change in progress still waits for a member, so that nothing else is due."""
        one = self._awaited
        if self._change is None or self._late_s == math.inf or one is None:
            return False
        return one.holds_up and one.key in self.members

    # A generation begins.

    def _form(self, entrants: list[Member], now_s: float) -> None:
        """Form a generation of as many of them as it may have; the others wait.

        The longest-serving come first, and newcomers last, in the order in which they are given.
        """
        self._change, self._late_s, self._first_ready_s = None, math.inf, math.inf
        in_order = sorted(entrants, key=lambda one: math.inf if one.rank is None else one.rank)
        in_order = in_order[: self.sizes.up_to(len(in_order))]
        for member in self._serving():
            member.rank = None
        if not in_order:
            return  # they are too few: all wait for more
        self.number = self._highest = self._highest + 1
        self._size, self._theirs = len(in_order), False
        for rank, member in enumerate(in_order):
            member.rank = rank
        told = tuple(Peer(one.identity.task, one.identity.node) for one in in_order)
        self._offering = Generation(self.number, 0, len(in_order), None, told)
        in_order[0].ready = None
        self._send(in_order[0], self._offering)
        self._tell_reformed()
        self.away.went_on({peer.task for peer in told})
        self._offer_until_s = now_s + STORE_S
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

    def _is_in(self, held: Held, before: Member | None, who: Identity, now_s: float) -> bool:
        """Whether a member has its place in the generation that it holds, as that still counts."""
        ended = who.program in self.finished or self._serving()
        if (self._theirs and held.generation > self.number) or (
            held.generation == self.number and not ended
        ):  # nobody has formed another one
            for one in self._serving():  # back from an older one, it had lost the others
                self.away.lost(one.identity, now_s)
                self._dismiss(one, Dropped(WITHOUT_YOU))
                self.out.append(HangUp(one.key))
            self.number, self._size, self._change = held.generation, held.world, None
            self._theirs, self._missing = True, set(range(held.world))
            self._missing_until_s = now_s + ADOPT_S
        self._highest = max(self._highest, held.generation)
        same = before is not None and before.rank == held.rank  # its new connection
        return held.generation == self.number and (held.rank in self._missing or same)

    def _come_back(self, member: Member, held: Held) -> None:
        member.rank = held.rank
        self.away.back(member.identity.task, Role.AGENT)
        if self._change is not None:
            self._send(member, self._change)
        self._missing.discard(held.rank)
        if not self._missing and self._missing_until_s < math.inf:
            self._await_nobody()
            self._tell_reformed()

    def _await_nobody(self) -> None:
        self._missing, self._missing_until_s = set(), math.inf

    def _tell_reformed(self) -> None:
        """Tell the controller of a new generation."""
        serving = self._serving()
        measures = {"generation": float(self.number), "nodes": float(len(serving))}
        if self._launcher:
            measures["launcher"] = float(LAUNCHERS.index(self._launcher))
        tasks = format_tasks(one.identity.task for one in serving)
        told = tuple(measures.items())
        array = serving[0].identity.array
        self.out.append(Note(NoteKind.REFORMED, array, measures=told, tasks=tasks))

    # A generation ends.

    def _take_ready(self, member: Member, ready: Ready, now_s: float) -> None:
        """A member is at a boundary: as it was asked to be, or as something has failed."""
        unasked = member.rank is not None and member.ready is None and self._change is None
        ended = self._change is not None and self._change.why == "failure"
        has_failed = ready.cause == "failed" or (ready.error != "" and ended)
        if has_failed and member.rank is not None and not self._ends:
            who = member.identity
            on = (("nodes", float(self._size)),)
            note = Note(NoteKind.FAILED, who.array, who.task, who.node, on, ready.error)
            self._failures.failed(note, now_s, explained=self.orphaned())
        member.ready = ready
        self.away.back(member.identity.task, Role.AGENT)
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
        if self._change is None or self._change.planned:
            self._announce(False, why, now_s)

    def _announce(self, planned: bool, why: str, now_s: float) -> None:
        """Announce a change to those that are not at a boundary."""
        if planned:
            self._failures.disturbed(now_s)
        self._change, self._late_s = Change(planned, why), math.inf
        for member in self._serving():
            if member.ready is None:
                self._send(member, self._change)

    def _finish(self, member: Member) -> None:
        """A member has ended well: the others go on as they are."""
        who = member.identity
        del self.members[member.key]
        self.away.back(who.task, Role.AGENT)
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

    def _drop(self, member: Member, why: str, now_s: float) -> None:
        """A member is lost, and is told so if it still listens."""
        self._send(member, Dropped(why))
        self.out.append(HangUp(member.key))
        self._lose(member, now_s)

    def _lose(self, member: Member, now_s: float) -> None:
        """A member is lost: it is away if it was in the generation and may still train."""
        stands = member.rank is None or member.ready is not None or member.finishing
        self.away.lost(member.identity, now_s, took_part=not stands)
        self._remove(member, "loss", now_s)

    def _remove(self, member: Member, why: str, now_s: float) -> None:
        """Take a member out; if it was in the generation, that is over."""
        del self.members[member.key]
        if member.rank is not None:
            self._interrupt(why, now_s)
