"""The members of all trainers: who is let in, who has fallen silent, and the runs' timers.

It gives each ``Rendezvous`` its events and the time, and delivers what it decides. A
member's connection is in ``session``.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from bftrainer_slurm.keeper.credentials import CONTROLLER, Gate, secret_of_job
from bftrainer_slurm.keeper.limits import MAX_KEPT, Refusals, Share, to_evict
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Done,
    Engaged,
    Finished,
    FromMember,
    Join,
    Measured,
    Output,
    Ping,
    Pong,
    Role,
    Send,
    Started,
    Up,
    Welcome,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind, ProtocolError, whole
from bftrainer_slurm.keeper.rendezvous import Rendezvous
from bftrainer_slurm.keeper.session import Serve, Session
from bftrainer_slurm.sizes import ANY, Sizes

FIRST_LINE_S = 5.0  # a connection has this long to say what it wants
PROOF_S = 10.0  # and a member this long to prove who it is
MEMBER_SILENCE_S = 5.0  # a member that is silent for longer is lost
SWEEP_S = 1.0
PROGRESS_EVERY_S = 0.5  # reports that come faster are dropped
PART_S = 2.0  # how long to wait for a planned leave
LOOK_S = 0.01  # how often to look whether they have left
AT_ONCE = 20  # messages of a run that are sent before others' are
# Bytes that wait for a user; with more, this user's runs send nothing until some are read. So the
# list of all members, sent to each of thousands, does not add up to MAX_KEPT.
MUCH_KEPT = MAX_KEPT // 4
HELD_S = 0.01
MAX_UNPROVEN = 4_000
MAX_SESSIONS = 20_000
REMEMBERED = 20_000  # trainers
MANY_FILES = 65_536  # open files at the same time: each connection is one


@dataclass(slots=True)
class Trainer:
    """One trainer: what the controller has told of it, and its present ``run``."""

    array: int
    run: Rendezvous
    uid: int = -1  # its owner; -1: not known yet
    ended: int = 0  # how many runs of it
    first: bool | None = None  # whether the next element is its first; None: it has not begun
    finished: bool = False  # its training has ended well: who begins now has nothing to do
    outputs: deque[Output] = field(default_factory=deque)  # of its runs, not delivered yet
    share: Share = field(default_factory=lambda: Share(-1, 0.0))  # its user's, once members came
    timer: asyncio.TimerHandle | None = None

    def set_timer(self, due: Callable[[Trainer], None]) -> None:
        """Let ``due`` be called when its run has something to do."""
        due_s = self.run.due_s()
        if self.timer is not None and self.timer.when() == due_s:
            return
        if self.timer is not None:
            self.timer.cancel()
        loop = asyncio.get_running_loop()
        self.timer = loop.call_at(due_s, due, self) if due_s < math.inf else None


class Registry:
    """All trainers and their members' connections. ``tell`` takes notes.

    ``serve`` answers a connection of no trainer's process. ``hold_s``: how long nothing begins
    after the start, as members of an earlier keeper may come back. ``files``: how many this process
    may have open.
    """

    def __init__(
        self,
        gate: Gate,
        tell: Callable[[Note], None],
        serve: Serve,
        hold_s: float = 0.0,
        files: int = MANY_FILES,
    ) -> None:
        self.refusals = Refusals()
        self.serve = serve
        self._gate = gate
        self._tell = tell
        self._hold_until_s = _now_s() + hold_s if hold_s else 0.0
        self._trainers: OrderedDict[int, Trainer] = OrderedDict()  # by array, the last told last
        self._sessions: dict[int, Session] = {}
        self._shares: dict[int, Share] = {}  # by user
        self._unproven: dict[Session, str] = {}  # with their addresses, the oldest first
        self._most_unproven = min(MAX_UNPROVEN, files // 4)
        self._keys = itertools.count(1)
        self._swept_s = _now_s()
        asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def status(self) -> dict[str, Any]:
        """Return what the status document says about the keeper."""
        runs = sum(bool(one.run.connected) for one in self._trainers.values())
        return {"members": self._members, "runs": runs, "refused": dict(self.refusals.counts)}

    @property
    def _members(self) -> int:
        return len(self._sessions) - len(self._unproven)

    def _known(self, array: int) -> Trainer:
        """Return what is known, which is nothing if the controller has told nothing."""
        return self._trainers.get(array) or Trainer(
            array, Rendezvous(hold_until_s=self._hold_until_s)
        )

    def _record(self, array: int) -> Trainer:
        """Return a trainer's record, to change it; of too many the oldest idle one is forgotten."""
        found = self._trainers[array] = self._known(array)
        self._trainers.move_to_end(array)
        if len(self._trainers) > REMEMBERED:
            idle = (one.array for one in self._trainers.values() if not one.run.is_in_use)
            self._trainers.pop(next(idle, -1), None)
        return found

    def user(self, array: int) -> int:
        """Return the id of the trainer's owner; -1: it is not known."""
        told = self._trainers[array].uid if array in self._trainers else -1
        return told if self._gate.only_user < 0 else self._gate.only_user

    def secret(self, who: str) -> bytes:
        """Return the secret of the controller, or of the trainer with this array.

        Raises:
            ProtocolError: it is neither, or whose trainer it is, is not known; or there are too
                many members.
        """
        if self._members >= MAX_SESSIONS:
            raise ProtocolError(f"there are {MAX_SESSIONS} members", "too_many")
        if who == CONTROLLER:
            return self._gate.token.encode()
        array = whole(who)
        if (uid := self.user(array)) < 0:
            raise ProtocolError(f"whose trainer {array} is, is not known yet", "owner_unknown")
        return secret_of_job(self._gate.key, array, uid)

    # What the controller asks.

    def own(
        self, array: int, uid: int, want: int, sizes: Sizes = ANY, engaged: Engaged = NOBODY
    ) -> None:
        """The controller says who owns this trainer, and how many nodes the plan gives it.

        Who was ``engaged`` before this keeper counts at the first time alone: then it knows better.
        """
        trainer = self._record(array)
        before, trainer.uid = trainer.uid, uid
        if before not in (-1, uid):
            self._end(trainer)
        took = engaged if before < 0 else NOBODY
        self._in_run(trainer, lambda run: run.own(want, sizes, took, _now_s()))

    async def part(self, array: int, tasks: Collection[int]) -> bool:
        """Let tasks leave at the next boundary; return whether they have left in time."""
        trainer, end_s = self._known(array), _now_s() + PART_S
        self._in_run(trainer, lambda run: run.part(tasks, _now_s()))
        while trainer.run.holds(tasks):
            if _now_s() > end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def lost(self, array: int, task: int, node: str) -> None:
        """Slurm says that a task is gone from a node."""
        self._tell(Note(NoteKind.BACK, array, task, node))
        self._in_run(self._known(array), lambda run: run.lose_task(task, node, _now_s()))

    def told(self, array: int, what: str) -> None:
        """The controller says that the trainer begins, has finished, or that its run has ended."""
        trainer = self._record(array)
        if what == "begins":
            trainer.first = trainer.first is None or trainer.first
        elif what == "finished":
            trainer.finished = True
        else:
            trainer.ended, trainer.finished = trainer.ended + 1, False
            self._end(trainer)

    def _end(self, trainer: Trainer) -> None:
        """The trainer's run is over; the next one begins.

        None of its elements can come back if the controller has ended a run in our time.
        """
        self._in_run(trainer, Rendezvous.end)
        hold_until_s = 0.0 if trainer.ended else self._hold_until_s
        trainer.run = Rendezvous(trainer.run.want, hold_until_s, trainer.run.sizes)
        trainer.set_timer(self._due)

    # What sessions tell.

    def session(self) -> Session:
        """Return what takes a connection."""
        return Session(self, next(self._keys))

    def entered(self, session: Session) -> None:
        """There is a new connection; if too many have not proven anything yet, one has to go."""
        self._sessions[session.key] = session
        if len(self._unproven) >= self._most_unproven:
            oldest = to_evict(self._unproven)
            del self._unproven[oldest]
            oldest.give_up("too_many", "too many connections have not proven anything yet")
        self._unproven[session] = session.address

    def _meet(self, session: Session, message: FromMember) -> None:
        """A trainer's process says what it has come for. Raises ProtocolError."""
        array = int(session.who)
        match message:
            case Up(task, node):
                trainer = self._known(array)
                started = Started(f"{array}.{trainer.ended + 1}", trainer.first is True)
                if started.first:
                    trainer.first = False
                session.send(Finished() if trainer.finished else started)
                session.hang_up()
                self._tell(Note(NoteKind.UP, array, task, node))
            case Join(identity) if identity.array == array:
                self._join(session, message)
            case _:
                raise ProtocolError("not what this process may begin with")

    def _join(self, session: Session, join: Join) -> None:
        array, user = join.identity.array, self.user(join.identity.array)
        share = self._shares.setdefault(user, Share(user, _now_s()))
        share.check(array)
        trainer = self._record(array)
        trainer.share = share
        self._unproven.pop(session, None)
        session.belong_to(trainer)
        session.send(Welcome())
        if join.identity.role is Role.AGENT:
            self._tell(Note(NoteKind.BACK, array, join.identity.task))
        who = session.key, join.identity, join.held
        self._in_run(trainer, lambda run: run.join(*who, _now_s()))

    def heard(self, session: Session, line: bytes) -> None:
        """A trainer's process has said something.

        Raises:
            ProtocolError: it is not something that it may say now.
        """
        message = parse_from_member(line)
        trainer, now_s = session.trainer, session.heard_s
        if trainer is None:
            self._meet(session, message)
            return
        if isinstance(message, Ping):
            session.send(Pong(message.number))
            return
        if isinstance(message, Measured):
            if now_s - session.progress_s < PROGRESS_EVERY_S:
                return
            session.progress_s = now_s
            self._tell(Note(NoteKind.PROGRESS, trainer.array, measures=message.measures))
        self._in_run(trainer, lambda run: run.hear(session.key, message, now_s))
        if isinstance(message, Done):
            session.hang_up()

    def closed(self, session: Session) -> None:
        """A connection has ended."""
        del self._sessions[session.key]
        self._unproven.pop(session, None)
        if (trainer := session.trainer) is None:
            return
        session.share.lose(trainer.array)
        if not session.share.members:
            self._shares.pop(session.share.user, None)
        self._in_run(trainer, lambda run: run.lose(session.key, _now_s()))

    # The clock.

    def _in_run(self, trainer: Trainer, event: Callable[[Rendezvous], None]) -> None:
        """Pass an event to a trainer's run, and do what follows from it."""
        event(trainer.run)
        waits = bool(trainer.outputs)
        trainer.outputs.extend(trainer.run.outputs())
        if not waits:
            self._deliver(trainer)
        trainer.set_timer(self._due)

    def _due(self, trainer: Trainer) -> None:
        trainer.timer = None
        self._in_run(trainer, lambda run: run.tick(_now_s()))

    def _deliver(self, trainer: Trainer) -> None:
        """Deliver a run's outputs in order, some at a time: a thousand may each be long."""
        for _ in range(AT_ONCE):
            if not trainer.outputs or trainer.share.kept > MUCH_KEPT:
                break
            self._put_out(trainer.outputs.popleft())
        if trainer.outputs:
            held_s = HELD_S if trainer.share.kept > MUCH_KEPT else 0.0
            asyncio.get_running_loop().call_later(held_s, self._deliver, trainer)

    def _put_out(self, output: Output) -> None:
        if isinstance(output, Note):
            self._tell(output)
        elif (session := self._sessions.get(output.key)) is None:
            return  # it has gone
        elif isinstance(output, Send):
            session.send(output.message)
        else:
            session.hang_up()

    def _sweep(self) -> None:
        now_s = _now_s()
        # If this process itself stood still, it could hear nobody.
        fair = now_s - self._swept_s < 2 * SWEEP_S
        self._swept_s = now_s
        asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        quiet_since_s = now_s - MEMBER_SILENCE_S + 2 * SWEEP_S
        silent = {
            one.trainer.array
            for one in self._sessions.values()
            if one.trainer is not None and fair and now_s - one.heard_s > MEMBER_SILENCE_S
        }
        for share in self._shares.values():
            share.messages, share.counted_s = 0, now_s
        for session in list(self._sessions.values()):
            session.swept()
            if not fair:
                session.heard_s = max(session.heard_s, now_s - SWEEP_S)
            elif session.trainer is None:
                passed_s = now_s - session.opened_s
                if not session.who and passed_s > FIRST_LINE_S:
                    session.give_up("mute", "it has not said what it wants")
                elif passed_s > PROOF_S:
                    session.give_up("unproven", "it has not proved whose it is")
            # With a silent one those who are about as silent: if this host was cut off, and none of
            # them was told of a loss, all can go on when they are back.
            elif session.trainer.array in silent and session.heard_s < quiet_since_s:
                session.give_up("silent", "it has fallen silent")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
