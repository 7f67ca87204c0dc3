"""A rendezvous: who is in its generation, when that ends, and who gets into the next one.

A pure state machine: events and the time come in, messages and the next deadline go out. It uses no
sockets, no clock and no Slurm. Its state follows from who is in a generation, and what was
announced to them. After each event ``_advance`` looks what is due in it:

===========  ==================================  ==================================================
state        it is so while                      what is due
===========  ==================================  ==================================================
nobody       nobody is in a generation           ``_gather``: those that are ready form the first
                                                 one when they are as many as the plan gives, or
                                                 10 s after the first (1 s if the plan is not
                                                 known); never while anybody is away
all train    no change is announced              ``_invite``: a planned change when members are to
                                                 leave, or newcomers are ready and of an allowed
                                                 number; a loss or a failure is announced at once,
                                                 as a change that is not planned
change       a change is announced               ``_reform``: all that stay form the next one when
                                                 they are ready; who is not ready 300 s after
                                                 others wait for it is dropped; if nobody stays,
                                                 nobody is in a generation
end          the processes of one have ended     nobody joins, and nobody waits for one that is
             well                                lost; all end when the processes of all have
===========  ==================================  ==================================================

Who comes back from an earlier keeper, or after all were lost at once, is in its generation again if
nobody has formed another one. It has to be complete before anything else is due.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import InitVar, dataclass, field, replace

from bftrainer_slurm.arrays import format_tasks
from bftrainer_slurm.keeper.away import Away
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.failures import Failures
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Batch,
    Change,
    Done,
    Dropped,
    Engaged,
    Finished,
    Finishing,
    FromKeeper,
    FromMember,
    Generation,
    HangUp,
    Held,
    Identity,
    Leave,
    Left,
    Measured,
    Output,
    Peer,
    Ready,
    Released,
    Role,
    Send,
    StoreAt,
)
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
_NONE = Generation(0, 0, 0, None, ())
_MOST_FINISHED = 100  # that are remembered, the newest: members come late to those alone


@dataclass(slots=True)
class Member:
    """One agent's connection. ``rank`` is its rank in the current generation, if any."""

    key: int
    identity: Identity
    rank: int | None = None
    ready: Ready | None = None
    leaving: bool = False
    finishing: bool = False  # its processes have ended well, and it waits for the others'

    @property
    def holds_up(self) -> bool:
        """Whether the next generation waits for it, if a change was announced."""
        return self.rank is not None and self.ready is None and not self.leaving


@dataclass(slots=True)
class Rendezvous:
    """One attempt of a trainer: its agents, one for each element, and its ``batches``.

    A generation has one of the allowed ``sizes``: the other members wait, as newcomers do. None is
    the first while anybody is ``away``. ``hold_until_s``: until then members may come back of whom
    even the controller knows nothing.
    """

    want: int = 0  # nodes that the plan gives it now; 0: not known
    hold_until_s: InitVar[float] = 0.0
    sizes: Sizes = ANY
    out: list[Output] = field(default_factory=list)
    connected: dict[int, Identity] = field(default_factory=dict)  # all, by key; some may be out
    members: dict[int, Member] = field(default_factory=dict)  # agents, by key, as they joined
    away: Away = field(init=False)
    batches: Batches = field(init=False)
    generation: Generation = _NONE  # the current one, as rank 0 was told of it
    # What the batch script has run to a good end, each with the tasks that are through with it: who
    # comes later is told so, and does not begin the training again.
    finished: dict[str, set[int]] = field(default_factory=dict)
    _highest: int = 0  # the highest number of any generation so far
    _change: Change | None = None  # that was announced, and has led to no generation yet
    _late_s: float = math.inf  # when who is not ready for it is late
    _store_until_s: float = math.inf  # when rank 0's store is late, if the others wait for it
    _theirs: bool = True  # the current generation, if any, is an earlier keeper's
    _missing: set[int] = field(default_factory=set)  # its ranks that have not come back
    _missing_until_s: float = math.inf  # when these are lost
    _failures: Failures = field(default_factory=Failures)
    _launcher: str = ""  # of those of its members that have said it, the last
    _first_ready_s: float = math.inf  # of newcomers
    _awaited: Member | None = None  # it was not ready at the last look
    _wait_until_s: float = math.inf  # then something is due without any event

    def __post_init__(self, hold_until_s: float) -> None:
        self.away = Away(self.out, hold_until_s)
        self.batches = Batches(self.out, self.away, self.connected, lambda: self.trains_on)

    # Events.

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is; ``held`` is its generation, if it comes back."""
        self.away.array = identity.array
        self.connected[key] = identity
        if identity.role is Role.BATCH:
            self.batches.join(key, identity)
            return
        self.batches.tick(now_s)
        was_away = bool(self.away)
        member, before = Member(key, identity), self._at(identity.task)
        self.members[key] = member
        if held is None and identity.task in self.finished.get(identity.program, ()):
            del self.finished[identity.program]  # the script runs once more
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
        self._settle(was_away, now_s)

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has said something. What no longer matters is ignored, and costs nothing."""
        was_away = bool(self.away)
        match message:
            case Batch():
                self.batches.hear(key, message, now_s)
            case Left() if (who := self.connected.get(key)) is not None:
                self.lose(key, now_s)  # it has joined, if this is another keeper than it left
                self.away.back(who.task, Role.AGENT)
                self.out.append(Note(NoteKind.LEFT, who.array, who.task, who.node))
            case _:
                member = self.members.get(key)
                if member is None or not self._take(member, message, now_s):
                    return
        self._settle(was_away, now_s)

    def _take(self, member: Member, message: FromMember, now_s: float) -> bool:
        """Take what an agent says; return whether anything may be due now."""
        match message:
            case Ready() if message != member.ready:
                self._take_ready(member, message, now_s)
                # If a thousand get ready one by one, only the last one matters.
                return member.rank is None or not self._waits_for_another()
            case Leave():
                self._send(member, Released())
                self._remove(member, "leave", now_s)
                self.away.back(member.identity.task, Role.AGENT)
            case Finishing():
                member.finishing = True
                self._end(member.identity.program)
            case Done():
                self._finish(member)
            case StoreAt(endpoint, generation):
                self._stored(member, endpoint, generation)
            case Measured():
                steps = dict(message.measures).get("steps")
                if steps is not None:
                    self._failures.stepped(steps)
                return False
            case _:
                return False
        return True

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended without ``done``."""
        self.connected.pop(key, None)
        self.batches.lose(key, now_s)
        if (member := self.members.get(key)) is not None:
            self._lose(member, now_s)
            self._look(now_s)
        if self.batches.beside and not self._tasks(Role.AGENT):
            self.finished.clear()

    def own(self, want: int, sizes: Sizes, engaged: Engaged, now_s: float) -> None:
        """The plan gives the trainer this many nodes (0: not known); it may have these sizes.

        Those who are ``engaged``, by an earlier keeper, and have no connection are away.
        """
        if engaged != NOBODY:
            if self._theirs and engaged.generation > self._highest and not self._serving():
                self._highest = engaged.generation  # its members may come back
                self.generation = replace(_NONE, number=self._highest)
            for task in engaged.tasks - self._tasks(Role.AGENT):
                self.away.engage(task, Role.AGENT, now_s)
            for task in {engaged.leader} - {-1} - self._tasks(Role.BATCH):
                self.away.engage(task, Role.BATCH, now_s)
        self.want, self.sizes = want, sizes
        self.batches.tick(now_s)
        self._look(now_s)

    def part(self, tasks: Collection[int], now_s: float) -> None:
        """These tasks are to leave at the next boundary."""
        for member in self._of(tasks):
            member.leaving = True
        self._look(now_s)

    def lose_task(self, task: int, node: str, now_s: float) -> None:
        """Slurm says that this task is gone from a node; elsewhere it goes on."""
        for member in self._of((task,)):
            if member.identity.node == node:
                self._drop(member, "Slurm says that this element has ended", now_s)
        self.away.gone(task, node)
        self.batches.lose_task(task, node, now_s)
        self._look(now_s)

    def end(self) -> None:
        """The run is over: drop all members."""
        for key in self.connected:
            self.out += [Send(key, Dropped("the run has ended")), HangUp(key)]
        self.members.clear()

    @property
    def is_in_use(self) -> bool:
        """Whether anybody is connected, or away."""
        return bool(self.connected) or bool(self.away)

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether a member of these tasks is still here."""
        return bool(self._of(tasks))

    def outputs(self) -> list[Output]:
        """Return the outputs of all events since the last call."""
        out = self.out.copy()
        self.out.clear()
        return out

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self.away.tick(now_s)
        self.batches.tick(now_s)
        self._look(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        return min(self._failures.due_s(), self._wait_until_s, self.away.due_s())

    def _settle(self, was_away: bool, now_s: float) -> None:
        """Look what is due; where nobody is away any more, batch tasks that waited begin, too."""
        if was_away and not self.away:
            self.batches.tick(now_s)
        self._look(now_s)

    def _look(self, now_s: float) -> None:
        self._wait_until_s = math.inf
        while (failure := self._failures.certain(now_s)) is not None:
            self.out.append(failure)
        if self._missing and self._is_time(self._missing_until_s, now_s):
            self._missing.clear()
            self._interrupt("loss", now_s)
        if self._is_time(self._store_until_s, now_s):
            for member in [one for one in self.members.values() if one.rank == 0]:
                self._drop(member, "opened no store in time", now_s)
        while late := self._late(now_s):
            for member in late:
                self._drop(member, LATE, now_s)
        self._advance(now_s)

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
        self._change, self._store_until_s = None, math.inf
        self._missing.clear()
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
        if self._store_until_s < math.inf or not self._is_time(self._others_until_s(), now_s):
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
        if self._failures.in_vain and self.batches.orphaned:
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
        self._highest, self._theirs = self._highest + 1, False
        for rank, member in enumerate(in_order):
            member.rank = rank
        told = tuple(Peer(one.identity.task, one.identity.node) for one in in_order)
        self.generation = Generation(self._highest, 0, len(in_order), None, told)
        in_order[0].ready = None
        self._send(in_order[0], self.generation)
        self._tell_reformed()
        self.away.went_on({peer.task for peer in told})
        self._store_until_s = now_s + STORE_S
        self._is_time(self._store_until_s, now_s)
        self._failures.began()

    def _stored(self, member: Member, endpoint: str, number: int) -> None:
        """Rank 0 has opened its store: tell the others."""
        if self._store_until_s == math.inf or (member.rank, number) != (0, self.generation.number):
            return
        self._store_until_s = math.inf
        for other in self._serving():
            if other.rank:
                other.ready = None
                self._send(other, replace(self.generation, rank=other.rank, store=endpoint))

    def _is_in(self, held: Held, before: Member | None, who: Identity, now_s: float) -> bool:
        """Whether a member has its place in the generation that it holds, as that still counts."""
        ended = who.program in self.finished or self._serving()
        if (self._theirs and held.generation > self.generation.number) or (
            held.generation == self.generation.number and not ended
        ):  # nobody has formed another one
            for one in self._serving():  # back from an older one, it had lost the others
                self.away.lost(one.identity, now_s)
                self._dismiss(one, Dropped(WITHOUT_YOU))
                self.out.append(HangUp(one.key))
            self.generation = Generation(held.generation, 0, held.world, None, ())
            self._change, self._store_until_s = None, math.inf
            self._theirs, self._missing = True, set(range(held.world))
            self._missing_until_s = now_s + ADOPT_S
        self._highest = max(self._highest, held.generation)
        same = before is not None and before.rank == held.rank  # its new connection
        return held.generation == self.generation.number and (held.rank in self._missing or same)

    def _come_back(self, member: Member, held: Held) -> None:
        member.rank = held.rank
        self.away.back(member.identity.task, Role.AGENT)
        if self._change is not None:
            self._send(member, self._change)
        if self._missing == {held.rank}:
            self._tell_reformed()
        self._missing.discard(held.rank)

    def _tell_reformed(self) -> None:
        """Tell the controller of a new generation."""
        serving = self._serving()
        measures = {"generation": float(self.generation.number), "nodes": float(len(serving))}
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
            on = (("nodes", float(self.generation.world)),)
            note = Note(NoteKind.FAILED, who.array, who.task, who.node, on, ready.error)
            self._failures.failed(note, now_s, explained=self.batches.orphaned)
        member.ready = ready
        self.away.back(member.identity.task, Role.AGENT)
        self._launcher = ready.launcher or self._launcher
        if unasked:
            self._interrupt("failure" if ready.cause == "failed" else "loss", now_s)

    def _interrupt(self, why: str, now_s: float) -> None:
        """End the generation at once, unless that was announced already."""
        if self._ends:
            return
        self._store_until_s = math.inf
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
            self._end(who.program)
        self.finished.get(who.program, set()).add(who.task)

    def _end(self, program: str) -> None:
        """A program has come to a good end in an element."""
        self.finished.setdefault(program, set())
        while len(self.finished) > _MOST_FINISHED:
            del self.finished[next(iter(self.finished))]

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

    def _tasks(self, role: Role) -> set[int]:
        """Return the tasks that are connected in this role."""
        return {who.task for who in self.connected.values() if who.role is role}

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
