"""Agents of a rendezvous without sockets, threads or time: each does what it is told."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.keeper.messages import (
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
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import LATE, Rendezvous
from bftrainer_slurm.sizes import ANY, Sizes


@dataclass
class Process:
    """One agent, as it behaves by the protocol."""

    world: World
    key: int
    identity: Identity
    inbox: deque[FromKeeper] = field(default_factory=deque)
    alive: bool = True
    connected: bool = True
    waiting: bool = False
    released: bool = False
    serves: bool = False  # was given a generation, and has not been lost since
    generation: Generation | None = None
    change: Change | None = None

    @property
    def running(self) -> bool:
        return self.alive and not self.waiting and not self.released and self.generation is not None

    @property
    def number(self) -> int:
        return 0 if self.generation is None else self.generation.number

    def say_ready(self, cause: str = "change") -> None:
        self.waiting = True
        self.world.say(self, Ready(cause))

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
        assert self.generation is not None
        return any(
            peer is not None and (not peer.alive or peer.waiting or peer.number > self.number)
            for peer in self.world.standing(self.generation)
        )

    def _enter(self, generation: Generation) -> None:
        assert self.waiting, "a generation is for those who wait"
        assert generation.number > self.number, "numbers only grow"
        self.generation, self.waiting, self.serves = generation, False, True
        self.change = None
        self.world.check(self, generation)
        if generation.rank == 0:
            self.world.say(self, StoreAt(f"n:{1000 + self.key}", generation.number))


class World:
    """A rendezvous, its members, and virtual time."""

    def __init__(self, want: int = 0, sizes: Sizes = ANY) -> None:
        self.run = Rendezvous(want, sizes=sizes)
        self.engaged = Engaged()  # what the controller knows of it
        self.now_s = 0.0
        self.keys = self.said = 0
        self.processes: list[Process] = []
        self.members: dict[int, tuple[object, ...]] = {}
        self.ranks: dict[int, dict[int, Process]] = {}
        self.notes: list[Note] = []

    def start(self, task: int) -> Process:
        """Start the agent of an element; it connects, and is not warm yet."""
        process = Process(self, 0, Identity(12, task, f"n{task}", Role.AGENT))
        self.processes.append(process)
        self._connect(process)
        return process

    def say(self, process: Process, message: object) -> None:
        self.said += 1
        if process.connected:
            self.run.hear(process.key, message, self.now_s)  # type: ignore[arg-type]
            self.deliver()

    def kill(self, process: Process) -> None:
        """Its node has gone; only the keeper notices."""
        process.alive = False
        self.cut(process)

    def cut(self, process: Process) -> None:
        """It cannot be heard any more, and goes on."""
        process.connected = False
        process.inbox.clear()
        self.run.lose(process.key, self.now_s)
        self.deliver()

    def end(self, process: Process) -> None:
        """Slurm has ended its element, and says so."""
        process.alive = process.connected = False
        self._forget(process.identity.task)
        self.run.lose_task(process.identity.task, process.identity.node, self.now_s)
        self.deliver()

    def _forget(self, task: int) -> None:
        self.engaged = replace(self.engaged, tasks=self.engaged.tasks - {task})

    def come_back(self, process: Process) -> None:
        """What the client does when it reaches a keeper again."""
        serves = process.serves and process.generation is not None and not process.released
        self._connect(process, process.generation if serves else None)
        if process.released:
            self.say(process, Left())
        elif process.waiting or not serves:
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

    def rejoin(self, process: Process) -> None:
        """What the client does when it was declared lost."""
        if process.connected:
            self.run.lose(process.key, self.now_s)
        process.inbox.clear()
        process.change, process.serves = None, False
        self._connect(process)
        process.say_ready()

    def _connect(self, process: Process, in_: Generation | None = None) -> None:
        self.keys += 1
        process.key, process.connected = self.keys, True
        held = None if in_ is None else Held(in_.number, in_.rank, in_.world)
        self.run.join(process.key, process.identity, held, self.now_s)
        self.deliver()

    def part(self, tasks: set[int]) -> None:
        self.run.part(tasks, self.now_s)
        self.deliver()

    def wait_until(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s)
        self.run.tick(self.now_s)
        self.deliver()

    def deliver(self) -> None:
        for output in self.run.outputs():
            match output:
                case Send(key, message):
                    for process in self.processes:
                        if process.key == key and process.alive:
                            self.check_sent(process, message)
                            process.inbox.append(message)
                case HangUp(key):
                    for process in self.processes:
                        if process.key == key:
                            process.connected = False
                case Note():
                    self.notes.append(output)
                    self._note(output)

    def _note(self, note: Note) -> None:
        """What the controller makes of a note."""
        if note.kind is NoteKind.REFORMED:
            number = int(dict(note.measures)["generation"])
            tasks = parse_tasks(note.tasks, 1_000)
            self.engaged = Engaged(number, frozenset(tasks))
        elif note.kind in (NoteKind.LEFT, NoteKind.FINISHED):
            self._forget(note.task)

    def trains(self, number: int) -> bool:
        """Whether a generation makes steps: all of its ranks are there, whoever hears of them."""
        ranks = self.ranks.get(number, {})
        return len(ranks) == len(self.members[number]) and all(
            one.running and one.number == number for one in ranks.values()
        )

    def check(self, process: Process, generation: Generation) -> None:
        """Each generation is one list of members, and each of them has one rank in it.

        No other one trains, as far as Slurm runs its elements.
        """
        others = [one for one in self.members if one != generation.number and self.trains(one)]
        assert not others, "two groups would write one checkpoint"
        known = self.members.setdefault(generation.number, generation.members)
        assert known == generation.members
        assert generation.world == len(generation.members)
        nodes = len({member.node for member in generation.members})
        assert nodes == self.run.sizes.up_to(nodes), "only sizes that are allowed"
        peer = generation.members[generation.rank]
        who = process.identity
        assert (peer.task, peer.node) == (who.task, who.node)
        ranks = self.ranks.setdefault(generation.number, {})
        assert generation.rank not in ranks, "a rank is given once"
        ranks[generation.rank] = process

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
                tasks = {peer.task for peer in members}
                entrants = [one for one in self.processes if one.identity.task in tasks]
                if not any(one.serves for one in entrants):
                    assert not self.serving(), "newcomers do not go on without those who train"

    def serving(self) -> list[Process]:
        """Those in a generation that the keeper has not let go or lost."""
        return [
            one
            for one in self.processes
            if (one.serves and one.alive and one.connected and not one.released)
            and not any(isinstance(message, Released | Dropped) for message in one.inbox)
        ]

    def standing(self, generation: Generation) -> list[Process | None]:
        ranks = self.ranks[generation.number]
        return [ranks.get(rank) for rank in range(generation.world)]

    def settle(self, rounds: int = 400) -> None:
        """Let everybody behave, and time pass where nothing else happens."""
        quiet = 0
        for _ in range(rounds):
            said = self.said
            live = [process for process in self.processes if process.alive]
            for process in live:
                while process.inbox:
                    process.take_message()
                if not process.waiting and not process.released and process.generation is None:
                    process.say_ready("new")
                process.break_off()
                process.train()
            due_s = self.run.due_s()
            quiet = quiet + 1 if self.said == said else 0
            if quiet > 3 and due_s < math.inf:
                self.wait_until(due_s)
