"""A rendezvous: its members, their generation, and how they get into the next one.

A pure state machine: events and the time come in, messages and the next deadline go out. It
uses no sockets, no clock and no Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import count

from bftrainer_slurm.keeper.failures import Failures
from bftrainer_slurm.keeper.messages import (
    Broken,
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
    Working,
)
from bftrainer_slurm.keeper.protocol import LAUNCHERS, Note, NoteKind
from bftrainer_slurm.keeper.ranking import Member, fitting, nodes_of, ranked
from bftrainer_slurm.sizes import ANY, Sizes

GATHER_S = 10.0  # a first generation waits this long for the nodes that the plan gives
GATHER_UNKNOWN_S = 1.0  # the same, if it is not known how many that are
JOIN_TOGETHER_S = 3.0  # a newcomer waits this long for others that are still starting
READY_S = 300.0  # one that others wait for is dropped when none of them has worked for this long
MOST_WORK_S = 7_200.0  # the same, whatever it says: one that hangs may use its processor, too
STORE_S = 60.0  # rank 0 has this long to open a store
PROGRAMS = 100  # that have ended are remembered; a batch script runs few
ADOPT_S = 10.0  # a member that does not come back this long after the first one is lost

LATE = "not ready in time"


@dataclass(frozen=True, slots=True)
class Send:
    """A message to the member with this key."""

    key: int
    message: FromKeeper


@dataclass(frozen=True, slots=True)
class HangUp:
    """The member with this key is out: end its connection."""

    key: int


Output = Send | HangUp | Note  # a note is for the controller


@dataclass(slots=True)
class _Pending:
    """A change that was announced and has not led to a generation yet."""

    change: Change
    late_s: float = math.inf  # when who is not ready is late, unless it works
    last_s: float = math.inf  # the same, even if it does


@dataclass(slots=True)
class Rendezvous:
    """The members of one run with one role.

    ``alone``: each generation has one member (an agent of an in-process run). A generation has one
    of the allowed ``sizes``: members of other nodes wait, as newcomers do. Until
    ``hold_until_s`` members of an earlier keeper may come back, so no generation is formed that
    might lack a node.
    """

    role: Role
    out: list[Output]
    alone: bool = False
    hold_until_s: float = -math.inf
    want: int = 0  # nodes that the plan gives it now; 0: not known
    sizes: Sizes = ANY
    # The programs that have ended well, each with the tasks that are through with it.
    finished: dict[str, set[int]] = field(default_factory=dict)
    number: int = 0  # of the current generation
    adopted: bool = False  # an earlier keeper formed the current generation
    highest: int = 0  # the highest number of any generation so far
    members: dict[int, Member] = field(default_factory=dict)  # by key, as they joined
    failures: Failures = field(default_factory=Failures)
    on_late: Callable[[int, float], None] = lambda task, now_s: None  # a member of it hangs
    _changes: count[int] = field(default_factory=lambda: count(1))
    _pending: _Pending | None = None
    _launcher: str = ""  # of those of its members that have said it, the last
    _offering: Generation | None = None  # waits for rank 0's store
    _offer_until_s: float = math.inf
    _first_ready_s: float = math.inf  # of newcomers
    _awaited: Member | None = None  # it was not ready at the last look
    _missing: set[int] = field(default_factory=set)  # ranks that have not come back
    _missing_until_s: float = math.inf
    _wait_until_s: float = math.inf  # then something is due without any event

    # Events.

    def join(self, key: int, identity: Identity, held: Held | None, now_s: float) -> None:
        """A member has proven who it is; ``held`` is its generation, if it comes back."""
        member = Member(key, identity)
        if held is not None:
            self._adopt(member, held, now_s)
        else:
            if (before := self._at(identity)) is not None:
                self._drop(before, "another process has taken this place", now_s)
            self.members[key] = member
            if identity.task in self.finished.get(identity.program, ()):
                del self.finished[identity.program]  # its batch script runs it once more
        self.tick(now_s)

    def hear(self, key: int, message: FromMember, now_s: float) -> None:
        """A member has sent a message. One that no longer matters is ignored, and costs nothing."""
        member = self.members.get(key)
        if member is None:
            return
        match message:
            case Ready() if message != member.ready:
                self._ready(member, message, now_s)
                if member.rank is not None and self._waits_for_another():
                    return  # if a thousand get ready one by one, only the last one matters
            case Broken(self.number) if member.rank is not None and not member.ready:
                self._interrupt("loss", now_s)
            case Working() if member.holds_up and self._pending is not None:
                self._pending.late_s = math.inf  # the time begins anew
            case Leave():
                self._leave(member, now_s)
            case Finishing():
                member.finishing = True
                self._note_finished(member.identity)
            case Done():
                self._finish(member)
            case Measured():
                self.hear_steps(message)
                return
            case StoreAt(endpoint, generation):
                self._stored(member, endpoint, generation)
            case _:
                return
        self.tick(now_s)

    def hear_steps(self, progress: Measured) -> None:
        """Take the number of steps from a progress report, if it has one."""
        steps = dict(progress.measures).get("steps")
        if steps is not None:
            self.failures.stepped(steps)

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

    def begin_anew(self, now_s: float) -> None:
        """End the generation at once: the members' processes hang."""
        self._interrupt("loss", now_s)
        self.tick(now_s)

    def drop_all(self, why: str) -> None:
        """The run is over."""
        for member in list(self.members.values()):
            self._expel(member, Dropped(why))

    def holds(self, tasks: Collection[int]) -> bool:
        """Whether a member of these tasks is still here."""
        return any(member.identity.task in tasks for member in self.members.values())

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        while (failure := self.failures.certain(now_s)) is not None:
            self.out.append(failure)
        if now_s >= self._missing_until_s:
            self._missing.clear()
            self._missing_until_s = math.inf
            self._interrupt("loss", now_s)
        if self._offering is not None and now_s >= self._offer_until_s:
            for member in [one for one in self.members.values() if one.rank == 0]:
                self._drop(member, "opened no store in time", now_s)
        self._drop_late(now_s)
        self._advance(now_s)

    def due_s(self) -> float:
        """Return when ``tick`` has something to do, if no event comes before."""
        due_s = min(self.failures.due_s(), self._missing_until_s)
        if self._offering is not None:
            due_s = min(due_s, self._offer_until_s)
        if self._pending is not None:
            due_s = min(due_s, self._pending.late_s)
        return min(due_s, self._wait_until_s)

    def _drop_late(self, now_s: float) -> None:
        """Drop those that hang.

        A planned change waits for nobody until the first one that stays is ready: all may be at
        something that takes long, as a validation. After a loss nobody trains on, so that the time
        begins at once, in case all hang. It begins anew when one that is waited for says that it
        works: who hangs beside it costs no time until that one is ready.
        """
        pending = self._pending
        if pending is None:
            return
        waits = any(one.ready is not None and not one.leaving for one in self._serving())
        if pending.change.planned and not waits:
            pending.late_s = pending.last_s = math.inf
        elif pending.late_s == math.inf:
            pending.last_s = min(pending.last_s, now_s + MOST_WORK_S)
            pending.late_s = min(pending.last_s, now_s + READY_S)
        if now_s >= pending.late_s:
            pending.late_s = math.inf
            for member in [one for one in self._serving() if one.ready is None]:
                self._drop(member, LATE, now_s)
                self.on_late(member.identity.task, now_s)

    # What follows from the events.

    def _advance(self, now_s: float) -> None:
        self._wait_until_s = math.inf
        for member in list(self.members.values()):
            if member.rank is None and member.leaving:
                self._dismiss(member, Released())
            elif self._is_over(member):
                self._dismiss(member, Finished())
        if not any(member.rank is not None for member in self.members.values()):
            self._gather(now_s)
        elif self._ends:
            self._await_the_end(now_s)
        elif self._pending is None:
            self._invite(now_s)
        else:
            self._ask_first(now_s)
            self._reform(now_s)

    def _gather(self, now_s: float) -> None:
        """Nobody is in a generation: form one when enough are ready, or after a time limit."""
        self._pending = self._offering = None
        self._missing.clear()
        self._missing_until_s = math.inf
        self._release_leavers()
        gather_s = GATHER_S if self.want else GATHER_UNKNOWN_S
        if 0 <= now_s - self._first_ready_s < gather_s:
            ready = sum(member.ready is not None for member in self.members.values())
            if 0 < ready < self.want:
                self._wait_until_s = self._first_ready_s + gather_s
                return
        entrants = self._newcomers_at(now_s)
        if not entrants:
            return
        is_whole = self.alone or nodes_of(entrants) >= self.want > 0
        due_s = now_s if is_whole else self._first_ready_s + gather_s
        due_s = max(due_s, self.hold_until_s, self.failures.not_before_s)
        if now_s >= due_s:
            self._form(entrants, now_s)
        else:
            self._wait_until_s = due_s

    def _invite(self, now_s: float) -> None:
        """No change is pending: announce one if members leave or newcomers may join."""
        if self._missing or self._offering is not None:
            return
        if now_s < self._returns_until_s():
            self._wait_until_s = self._returns_until_s()
            return
        if any(member.leaving for member in self._serving()):
            self._announce(True, "leave", now_s)
            return
        newcomers = self._newcomers_at(now_s)
        if not newcomers:
            return
        connected = sum(member.rank is None for member in self.members.values())
        due_s = self._first_ready_s + JOIN_TOGETHER_S
        if connected == len(newcomers) or now_s >= due_s:
            self._announce(True, "join", now_s)
        else:
            self._wait_until_s = due_s

    def _returns_until_s(self) -> float:
        """Return until when members of a generation later than the adopted one may come back."""
        whole = nodes_of(self._serving()) >= self.want > 0
        return -math.inf if whole or not self.adopted else self.hold_until_s

    def _reform(self, now_s: float) -> None:
        """A change was announced: form the next generation when all who stay are ready."""
        if self._missing:
            return
        late = (one for one in reversed(self.members.values()) if one.holds_up)
        self._awaited = next(late, None)
        if self._awaited is not None:
            return
        staying = [member for member in self._serving() if not member.leaving]
        if not staying:
            if all(member.ready is not None for member in self._serving()):
                self._replace_all(now_s)
        elif now_s < (due_s := max(self.failures.not_before_s, self._returns_until_s())):
            self._wait_until_s = due_s
        else:
            self._release_leavers()
            self._form(staying + self._newcomers(), now_s)

    def _replace_all(self, now_s: float) -> None:
        """All are to leave, and wait at a boundary.

        Only workers have the state. They pass it on in one more generation, if there is somebody.
        """
        newcomers = self._newcomers() if self.role is Role.WORKER else []
        if newcomers:
            self._form(self._serving() + newcomers, now_s)
        else:
            self._release_leavers()
            self._gather(now_s)

    def _waits_for_another(self) -> bool:
        """Whether the change in progress still waits for a member, so that nothing else is due."""
        pending, one = self._pending, self._awaited
        if pending is None or pending.late_s == math.inf:
            return False
        return one is not None and one.holds_up and one.key in self.members

    def _form(self, entrants: list[Member], now_s: float) -> None:
        """Form a generation of as many of them as it may have; the others wait."""
        self._pending, self._first_ready_s = None, math.inf
        in_order = fitting(ranked(entrants), self.sizes)
        for member in self._serving():
            member.rank = None
        if not in_order:
            return  # none has enough nodes: all wait for more
        self.highest += 1
        self.number, self.adopted = self.highest, False
        who = (member.identity for member in in_order)
        told = tuple(Peer(one.task, one.node, one.local_rank) for one in who)
        first = in_order[0]
        for rank, member in enumerate(in_order):
            member.rank = rank
        self.failures.began()
        generation = Generation(self.number, 0, len(in_order), self.alone, None, told)
        first.ready = None
        self.out.append(Send(first.key, generation))
        if not self.alone:
            self._offering, self._offer_until_s = generation, now_s + STORE_S
            self._tell_reformed()

    def _stored(self, member: Member, endpoint: str, number: int) -> None:
        offering = self._offering
        if offering is None or member.rank != 0 or number != offering.number:
            return
        self._offering = None
        for other in self._serving():
            if other.rank:
                other.ready = None
                told = replace(offering, rank=other.rank, store=endpoint)
                self.out.append(Send(other.key, told))

    def _tell_reformed(self) -> None:
        """Tell the controller that a new generation was formed."""
        serving = self._serving()
        measures = {
            "generation": float(self.number),
            "nodes": float(nodes_of(serving)),
            "mode": float(self.role is Role.WORKER),
        }
        if self._launcher:
            measures["launcher"] = float(LAUNCHERS.index(self._launcher))
        array = serving[0].identity.array
        self.out.append(Note(NoteKind.REFORMED, array, measures=tuple(measures.items())))

    def _ready(self, member: Member, ready: Ready, now_s: float) -> None:
        unasked = member.rank is not None and member.ready is None and self._pending is None
        if ready.cause == "failed" and member.rank is not None and not self._ends:
            who = member.identity
            note = Note(NoteKind.FAILED, who.array, who.task, who.node, text=ready.error)
            self.failures.failed(note, now_s)
        member.ready = ready
        self._launcher = ready.launcher or self._launcher
        self.highest = max(self.highest, ready.lineage)  # earlier keepers' generations count too
        if unasked:
            self._interrupt("failure" if ready.cause == "failed" else "loss", now_s)

    def _finish(self, member: Member) -> None:
        """A member has ended well: the others go on as they are.

        Whoever comes later is told so, and does not begin the training again.
        """
        who = member.identity
        del self.members[member.key]
        self.out.append(Note(NoteKind.FINISHED, who.array, who.task))
        if not member.finishing:
            self._note_finished(who)
        if (tasks := self.finished.get(who.program)) is not None:
            tasks.add(who.task)

    def _note_finished(self, who: Identity) -> None:
        if len(self.finished) < PROGRAMS:
            self.finished.setdefault(who.program, set())

    @property
    def _ends(self) -> bool:
        """Whether agents are at the end of a training: one of them is through with it.

        The others are left alone, as they may save its result: nobody joins, none begins again.
        """
        agents = self.role is Role.AGENT
        return agents and any(one.identity.program in self.finished for one in self._serving())

    def _is_over(self, member: Member) -> bool:
        """Whether nothing is left to do for a member: it comes late, or would begin again."""
        again = self.role is Role.AGENT and member.ready is not None
        return member.identity.program in self.finished and (member.rank is None or again)

    def _await_the_end(self, now_s: float) -> None:
        """Let agents end when the processes of all have, as they would wait for the lost too."""
        if self._pending is None and all(member.finishing for member in self._serving()):
            self._announce(False, "finished", now_s)

    def _leave(self, member: Member, now_s: float) -> None:
        if self.role is Role.AGENT:
            self.out.append(Send(member.key, Released()))
            self._remove(member, "leave", now_s)
        else:
            for mate in self._of((member.identity.task,)):
                mate.leaving = True

    def _adopt(self, member: Member, held: Held, now_s: float) -> None:
        """Take a member back into the generation that it is in, or let it join again."""
        # All were lost at once, as when this host was cut off, and nothing was formed since.
        over = member.identity.program in self.finished
        all_were_lost = held.generation == self.number and not (over or self._serving())
        later = self.adopted and held.generation > self.number
        if self.number == 0 or all_were_lost or later:
            self._give_way(held.generation)
            self._missing = set(range(held.world))
            self._missing_until_s = now_s + ADOPT_S
        self.highest = max(self.highest, held.generation)
        before = self._at(member.identity)
        fits = held.generation == self.number and (
            held.rank in self._missing or (before is not None and before.rank == held.rank)
        )
        self.members[member.key] = member
        if before is not None and not fits:
            self._drop(before, "another process has taken this place", now_s)
        if not fits:
            self.out.append(Send(member.key, Dropped("the others have gone on without you")))
            return
        if before is not None:
            del self.members[before.key]
            self.out.append(HangUp(before.key))
        member.rank = held.rank
        self._missing.discard(held.rank)
        if self._pending is not None:
            self.out.append(Send(member.key, self._pending.change))
        if not self._missing and self._missing_until_s < math.inf:
            self._missing_until_s = math.inf
            if not self.alone:
                self._tell_reformed()

    def _give_way(self, number: int) -> None:
        """Go on with a later generation of an earlier keeper. Members that came back from an older
        one had lost the others, and join again."""
        for member in self._serving():
            self._expel(member, Dropped("the others have gone on without you"))
        self.number, self.adopted, self._pending = number, True, None

    # Changes.

    def _interrupt(self, why: str, now_s: float) -> None:
        """End the generation at once, unless that was announced already."""
        if self._ends:
            return
        self._offering = None
        if why != "failure":
            self.failures.lost(now_s)
        if self._pending is None or self._pending.change.planned:
            self._announce(False, why, now_s)

    def _announce(self, planned: bool, why: str, now_s: float) -> None:
        if planned:
            self.failures.disturbed(now_s)
        change = Change(next(self._changes), planned, why)
        self._pending = _Pending(change)
        for member in self._serving():
            if member.ready is None:
                self.out.append(Send(member.key, change))

    def _ask_first(self, now_s: float) -> None:
        """Let rank 0 stop all workers after a step; if it has ended well, all stop at once."""
        pending = self._pending
        if self.role is not Role.WORKER or pending is None or not pending.change.planned:
            return
        if not any(member.rank == 0 for member in self._serving()):
            self._interrupt(pending.change.why, now_s)

    # Members.

    def _serving(self) -> list[Member]:
        return [member for member in self.members.values() if member.rank is not None]

    def _newcomers_at(self, now_s: float) -> list[Member]:
        """Return the newcomers if there are enough for a larger generation, and note since when."""
        newcomers, now = self._newcomers(), nodes_of(self._serving())
        if self.sizes.up_to(now + nodes_of(newcomers)) <= now:
            newcomers = []
        self._first_ready_s = min(self._first_ready_s, now_s) if newcomers else math.inf
        return newcomers

    def _newcomers(self) -> list[Member]:
        """Return those who may join: ready members of nodes whose members are all ready."""
        places: dict[tuple[int, str], list[Member]] = {}
        for member in self.members.values():
            if member.rank is None and member.ready is not None and not member.leaving:
                places.setdefault(member.place, []).append(member)
        return [
            member
            for mates in places.values()
            if len(mates) == mates[0].identity.local_world
            for member in mates
        ]

    def _of(self, tasks: Collection[int]) -> list[Member]:
        return [member for member in self.members.values() if member.identity.task in tasks]

    def _at(self, identity: Identity) -> Member | None:
        seat = identity.task, identity.local_rank
        for member in self.members.values():
            if (member.identity.task, member.identity.local_rank) == seat:
                return member
        return None

    def _drop(self, member: Member, why: str, now_s: float) -> None:
        if member.key not in self.members:
            return  # it went with a neighbour
        self.out.append(Send(member.key, Dropped(why)))
        self.out.append(HangUp(member.key))
        self._remove(member, "loss", now_s)

    def _remove(self, member: Member, why: str, now_s: float) -> None:
        """Take a member out. If it was in the generation, all others of its node go too."""
        del self.members[member.key]
        if member.rank is None:
            return
        for mate in [one for one in self.members.values() if one.place == member.place]:
            self._expel(mate, Released() if why == "leave" else Dropped("a neighbour was lost"))
        self._interrupt(why, now_s)

    def _release_leavers(self) -> None:
        for member in [one for one in self.members.values() if one.leaving]:
            self._dismiss(member, Released())

    def _dismiss(self, member: Member, message: FromKeeper) -> None:
        del self.members[member.key]
        self.out.append(Send(member.key, message))

    def _expel(self, member: Member, message: FromKeeper) -> None:
        self._dismiss(member, message)
        self.out.append(HangUp(member.key))
