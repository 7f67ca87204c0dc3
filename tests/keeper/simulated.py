"""The elements of one trainer without sockets, threads or time: each does what it is told."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Batch,
    Change,
    Dropped,
    Engaged,
    FromKeeper,
    Generation,
    HangUp,
    Held,
    Identity,
    Left,
    Ready,
    Released,
    Role,
    Send,
    StoreAt,
    Turn,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import LATE, Rendezvous
from bftrainer_slurm.sizes import ANY, Sizes

WAITS, LEADS = Batch("waits"), Batch("leads")


@dataclass(eq=False)
class Process:
    """One agent, or one batch task, as it behaves by the protocol."""

    world: World
    identity: Identity
    key: int = 0
    inbox: deque[FromKeeper] = field(default_factory=deque)
    heard: list[FromKeeper] = field(default_factory=list)  # what was sent since it was looked at
    alive: bool = True
    ended: bool = False  # Slurm has said that it is gone
    connected: bool = False
    waiting: bool = False
    released: bool = False
    serves: bool = False  # was given a generation, and has not been lost since
    generation: Generation | None = None
    change: Change | None = None
    doing: str = "waits"  # of a batch task

    @property
    def running(self) -> bool:
        return self.alive and not self.waiting and not self.released and self.generation is not None

    @property
    def number(self) -> int:
        return 0 if self.generation is None else self.generation.number

    @property
    def size(self) -> int:
        return 0 if self.generation is None else self.generation.world

    def say_ready(self, cause: str = "change", error: str = "") -> None:
        self.waiting = True
        self.world.say(self, Ready(cause, error))

    def take_message(self) -> None:
        if not self.inbox:
            return
        match self.inbox.popleft():
            case Generation() as generation:
                self._enter(generation)
            case Change() as change:
                self.change = change
            case Released():
                self.released = True
                self.world.say(self, Left())
            case Dropped():
                self.world.rejoin(self)
            case Turn(do="lead") if self.doing == "waits":
                self.doing = "leads"
                self.world.say(self, Batch("leads"))
            case Turn(do="over"):
                self.world.end(self)

    def take_all(self) -> None:
        while self.alive and self.inbox:
            self.take_message()

    def train(self) -> None:
        """Stop the processes, if there is a change."""
        if self.running and self.change is not None:
            self.say_ready()

    def break_off(self) -> None:
        """Notice that a peer is gone, as a collective does."""
        if self.running and self._peer_gone():
            self.say_ready("failed")

    def _peer_gone(self) -> bool:
        """Whether one stands in this generation no more, as far as a collective can tell."""
        ranks = self.world.ranks[self.number].values()
        return any(not one.alive or one.waiting or one.number > self.number for one in ranks)

    def _enter(self, generation: Generation) -> None:
        assert self.waiting, "a generation is for those who wait"
        assert generation.number > self.number, "numbers only grow"
        self.generation, self.waiting, self.serves = generation, False, True
        self.change = None
        self.world.check(self, generation)
        if generation.rank == 0:
            self.world.say(self, StoreAt(f"n:{1000 + generation.number}", generation.number))


class World:
    """A rendezvous, its members, and virtual time. Where a task is asked for, it is its agent."""

    def __init__(
        self,
        want: int = 0,
        sizes: Sizes = ANY,
        hold_s: float = 0.0,
        engaged: Engaged = NOBODY,
    ) -> None:
        self.run = Rendezvous(want, hold_s, sizes)
        self.engaged = engaged  # what the controller knows of it
        self.now_s = 0.0
        self.keys = self.said = 0
        self.processes: list[Process] = []
        self.members: dict[int, tuple[object, ...]] = {}
        self.ranks: dict[int, dict[int, Process]] = {}
        self.notes: list[Note] = []
        self.run.own(want, sizes, engaged, 0.0)

    # Who there is.

    def __getitem__(self, task: int) -> Process:
        return self.at(task)

    def at(self, who: int | Process, role: Role = Role.AGENT) -> Process:
        """The agent, or the batch task, of a task; of several the newest."""
        if isinstance(who, Process):
            return who
        roles = [one for one in self.processes if one.identity.role is role]
        return [one for one in roles if one.identity.task == who][-1]

    def told(self, who: int, *kinds: type, role: Role = Role.AGENT) -> list[Any]:
        """What one was told since the last call, of these kinds."""
        process = self.at(who, role)
        heard, process.heard = process.heard, []
        return [one for one in heard if isinstance(one, kinds or object)]

    def turns(self) -> dict[int, Turn]:
        """What each batch task was told last since the last call."""
        last = {}
        for one in self.processes:
            if one.identity.role is Role.BATCH:
                for turn in (said for said in one.heard if isinstance(said, Turn)):
                    last[one.identity.task] = turn
                one.heard.clear()
        return last

    def noted(self, *kinds: NoteKind) -> list[Note]:
        """What the controller was told since the last call, of these kinds."""
        notes, self.notes = self.notes, []
        return [one for one in notes if one.kind in kinds]

    def quiet(self) -> World:
        """What was told so far is of no interest."""
        self.notes.clear()
        for process in self.processes:
            process.heard.clear()
        return self

    # What happens. Each returns the world, so that a case is one expression.

    def start(self, *tasks: int, ready: bool = True, step: int = -1) -> World:
        """Start the agents of elements, which are warm unless they are not ``ready``."""
        for task in tasks:
            process = self._new(Identity(12, task, f"n{task}", Role.AGENT, step=step))
            self._connect(process)
            if ready:
                process.say_ready("new")
        return self

    def batch(self, task: int, said: Batch = WAITS) -> World:
        """The batch task of an element connects, and says what it does."""
        process = self._new(Identity(12, task, f"n{task}", Role.BATCH))
        process.doing = said.doing
        self._connect(process)
        return self.say(process, said)

    def back(self, *ranks: int, number: int = 7, size: int = 2) -> World:
        """Agents of an earlier keeper's generation connect; a task is its rank."""
        for rank in ranks:
            process = self._new(Identity(12, rank, f"n{rank}", Role.AGENT))
            self._connect(process, Held(number, rank, size))
        return self

    def _new(self, identity: Identity) -> Process:
        self.processes.append(Process(self, identity))
        return self.processes[-1]

    def ready(self, *tasks: int, cause: str = "change", error: str = "") -> World:
        """These stand still."""
        for task in tasks:
            self[task].say_ready(cause, error)
        return self

    def say(self, who: int | Process, message: Any, role: Role = Role.AGENT) -> World:
        process = self.at(who, role)
        self.said += 1
        if process.connected:
            self.run.hear(process.key, message, self.now_s)
            self.deliver()
        return self

    def cut(self, *who: int | Process, role: Role = Role.AGENT) -> World:
        """They cannot be heard any more, and go on."""
        for process in [self.at(one, role) for one in who]:
            process.connected = False
            process.inbox.clear()
            self.run.lose(process.key, self.now_s)
            self.deliver()
        return self

    def kill(self, *who: int | Process) -> World:
        """Their nodes have gone; only the keeper notices."""
        for process in map(self.at, who):
            process.alive = False
            if process.connected:
                self.cut(process)
        return self

    def end(self, *who: int | Process) -> World:
        """Slurm has ended elements, and says so."""
        for of in [self.at(one).identity for one in who]:
            for process in self.processes:
                if process.identity.task == of.task:
                    process.alive = process.connected = False
                    process.ended = True
            self.lost(of.task, of.node)
        return self

    def lost(self, task: int, node: str) -> World:
        """Slurm says that a task is gone from a node."""
        self.engaged = self.engaged.without({task})
        self.run.lose_task(task, node, self.now_s)
        return self.deliver()

    def part(self, *tasks: int) -> World:
        self.run.part(tasks, self.now_s)
        return self.deliver()

    def come_back(self, who: int | Process) -> World:
        """What the client does when it reaches a keeper again."""
        process = self.at(who)
        if process.identity.role is Role.BATCH:
            self._connect(process)
            return self.say(process, Batch(process.doing))
        in_ = process.generation if process.serves and not process.released else None
        self._connect(process, in_ and Held(in_.number, in_.rank, in_.world))
        if process.released:
            self.say(process, Left())
        elif process.waiting or in_ is None:
            process.say_ready()
        return self

    def rejoin(self, process: Process) -> None:
        """What the client does when it was declared lost."""
        if process.connected:
            self.cut(process)
        process.inbox.clear()
        process.change, process.serves = None, False
        self._connect(process)
        process.say_ready()

    def restart_keeper(self) -> None:
        """The keeper is another one, and nobody has reached it yet."""
        for process in self.processes:
            process.connected = False
            process.inbox.clear()
        want, sizes = self.run.want, self.run.sizes
        self.run = Rendezvous(want, sizes=sizes)
        self.run.own(want, sizes, self.engaged, self.now_s)
        self.deliver()

    def wait(self, seconds: float) -> World:
        """Time passes, and the keeper looks whenever it wants to, and not else."""
        until_s = self.now_s + seconds
        for _ in range(1_000):
            due_s = max(self.run.due_s(), self.now_s)
            if due_s > until_s:
                self.now_s = until_s
                return self
            self.late(due_s - self.now_s)
        raise AssertionError("it looks without end")

    def late(self, seconds: float) -> World:
        """Time passes, and the keeper looks once, at its end."""
        self.now_s += seconds
        self.run.tick(self.now_s)
        return self.deliver()

    def hear(self) -> World:
        """All take what they were told."""
        for process in [*self.processes]:
            process.take_all()
        return self

    def settle(self, rounds: int = 400) -> World:
        """Let everybody behave, and time pass where nothing else happens."""
        quiet = 0
        for _ in range(rounds):
            said = self.said
            for process in [one for one in self.processes if one.alive]:
                process.take_all()
                if process.identity.role is Role.AGENT:
                    if not process.waiting and not process.released and process.generation is None:
                        process.say_ready("new")
                    process.break_off()
                    process.train()
            due_s = self.run.due_s()
            quiet = quiet + 1 if self.said == said else 0
            if quiet > 3 and due_s < math.inf:
                self.late(max(0.0, due_s - self.now_s))
        return self

    def _connect(self, process: Process, held: Held | None = None) -> None:
        self.keys += 1
        process.key, process.connected = self.keys, True
        self.run.join(process.key, process.identity, held, self.now_s)
        self.deliver()

    def deliver(self) -> World:
        for output in self.run.outputs():
            match output:
                case Send(key, message):
                    for process in [one for one in self._with(key) if one.connected]:
                        self.check_sent(process, message)
                        process.inbox.append(message)
                        process.heard.append(message)
                case HangUp(key):
                    for process in self._with(key):
                        process.connected = False
                case Note():
                    self.notes.append(output)
                    self._note(output)
        return self

    def _with(self, key: int) -> list[Process]:
        return [one for one in self.processes if one.key == key and one.alive]

    def _note(self, note: Note) -> None:
        """What the controller makes of a note."""
        measures = dict(note.measures)
        if note.kind is NoteKind.REFORMED:
            number, tasks = int(measures["generation"]), parse_tasks(note.tasks, 1_000)
            self.engaged = replace(self.engaged, generation=number, tasks=frozenset(tasks))
        elif note.kind is NoteKind.SCRIPT:
            self.engaged = replace(self.engaged, leader=int(measures["leads"]))
        elif note.kind in (NoteKind.LEFT, NoteKind.FINISHED):
            tasks = self.engaged.tasks - {note.task}
            self.engaged = replace(self.engaged, tasks=tasks)

    # What always holds.

    def check(self, process: Process, generation: Generation) -> None:
        """Each generation is one list of members, and each of them has one rank in it.

        No two of them train, as far as Slurm runs their elements.
        """
        number, who = generation.number, process.identity
        known = self.members.setdefault(number, generation.members)
        assert known == generation.members
        assert generation.world == len(generation.members)
        nodes = len({member.node for member in generation.members})
        assert nodes == self.run.sizes.up_to(nodes), "only sizes that are allowed"
        assert generation.members[generation.rank] == (who.task, who.node)
        assert generation.store == (f"n:{1000 + number}" if generation.rank else None)
        ranks = self.ranks.setdefault(number, {})
        assert generation.rank not in ranks, "a rank is given once"
        ranks[generation.rank] = process
        # One that was dropped as it was told of its generation enters it all the same: it waits for
        # the others there, who have gone on.
        train = [one for one in self.members if self.trains(one)]
        assert len(train) <= 1, "two groups would write one checkpoint"

    def trains(self, number: int) -> bool:
        """Whether a generation makes steps: all of its ranks are there, whoever hears of them."""
        ranks = self.ranks.get(number, {})
        return len(ranks) == len(self.members[number]) and all(
            one.running and one.number == number for one in ranks.values()
        )

    def check_sent(self, process: Process, message: FromKeeper) -> None:
        """Who trains is late only after a loss, or if another one waits, and no newcomer goes on
        without them.
        """
        match message:
            case Dropped(why) if why == LATE:
                others = (one for one in self.serving() if one.number == process.number)
                told = (one for one in (process.change, *process.inbox) if isinstance(one, Change))
                after_loss = any(not one.planned for one in told)
                waits = any(one.waiting for one in others)
                assert waits or after_loss, "nobody is late where all may train on"
            case Generation(rank=0, members=members):
                serving = {one.identity.task for one in self.serving()}
                stay = serving & {peer.task for peer in members}
                assert stay or not serving, "newcomers do not go on without those who train"

    def serving(self) -> list[Process]:
        """Those in a generation that the keeper has not let go or lost."""
        return [
            one
            for one in self.processes
            if (one.serves and one.alive and one.connected and not one.released)
            and not any(isinstance(message, Released | Dropped) for message in one.inbox)
        ]


def started(tasks: int, sizes: Sizes = ANY) -> World:
    """The elements from 1 on train together, in their first generation."""
    world = World(tasks, sizes).start(*range(1, tasks + 1)).settle(3)
    assert {one.number for one in world.processes} == {1}
    return world.quiet()


# Who is told something, in tables of cases.

Told = Callable[[World], list[Any]]
LOSS, JOIN = Change(planned=False, why="loss"), Change(planned=True, why="join")


def agent(task: int) -> Told:
    return lambda world: world.told(task)


def script(task: int) -> Told:
    return lambda world: world.told(task, role=Role.BATCH)


def controller(world: World) -> list[Any]:
    return [note.kind for note in world.noted(*NoteKind)]


def is_like(told: object, what: object) -> bool:
    """Whether this is the message, or a message of the kind."""
    return isinstance(told, what) if isinstance(what, type) else told == what
