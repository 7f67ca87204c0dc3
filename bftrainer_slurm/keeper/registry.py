"""The members of all trainers: who is let in, who has fallen silent, and the runs' timers.

It gives ``runs`` and ``rendezvous`` their events and the time, and delivers what they decide. A
member's connection is in ``session``.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from bftrainer_slurm.keeper.away import NOBODY, Engaged
from bftrainer_slurm.keeper.gate import Gate
from bftrainer_slurm.keeper.limits import MAX_KEPT, Refusals, Share, Waiting
from bftrainer_slurm.keeper.member import Output, Send
from bftrainer_slurm.keeper.messages import (
    Done,
    Finished,
    FromMember,
    Join,
    Measured,
    Ping,
    Pong,
    Role,
    Started,
    Up,
    Welcome,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind, ProtocolError
from bftrainer_slurm.keeper.runs import Run
from bftrainer_slurm.keeper.session import Serve, Session
from bftrainer_slurm.sizes import ANY, Sizes

FIRST_LINE_S = 5.0  # a connection has this long to say what it wants
PROOF_S = 10.0  # and a member this long to prove who it is
MEMBER_SILENCE_S = 5.0  # a member that is silent for longer is lost
SWEEP_S = 1.0
PROGRESS_EVERY_S = 0.5  # reports that come faster are dropped
PART_S = 2.0  # how long to wait for a planned leave
AT_ONCE = 20  # messages of a run that are sent before others' are
# Bytes that wait for a user; with more, this user's runs send nothing until some are read. So the
# list of all members, sent to each of thousands, does not add up to MAX_KEPT.
MUCH_KEPT = MAX_KEPT // 4
HELD_S = 0.01
MAX_UNPROVEN = 4_000
MAX_SESSIONS = 20_000
MANY_FILES = 65_536  # open files at the same time: each connection is one


class Registry:
    """All members' connections. ``tell`` takes notes.

    ``hold_s``: how long nothing begins after the start, as members of an earlier keeper may come
    back. ``files``: how many this process may have open.
    """

    def __init__(
        self,
        gate: Gate,
        tell: Callable[[Note], None],
        hold_s: float = 0.0,
        files: int = MANY_FILES,
    ) -> None:
        self.gate = gate
        self.refusals = Refusals()
        self._tell = tell
        self._hold_until_s = _now_s() + hold_s
        self._runs: dict[int, _Running] = {}
        self._sessions: dict[int, Session] = {}
        self._shares: dict[int, Share] = {}  # by user
        self._unproven: Waiting[Session] = Waiting(min(MAX_UNPROVEN, files // 4), _give_way)
        self._keys = itertools.count(1)
        self._swept_s = _now_s()
        asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def status(self) -> dict[str, Any]:
        """Return what the status document says about the keeper."""
        refused = dict(self.refusals.counts)
        return {"members": self._members, "runs": len(self._runs), "refused": refused}

    @property
    def _members(self) -> int:
        return len(self._sessions) - len(self._unproven)

    # What the controller asks.

    def own(
        self, array: int, uid: int, want: int, sizes: Sizes = ANY, engaged: Engaged = NOBODY
    ) -> None:
        """The controller says who owns this trainer, and how many nodes the plan gives it.

        Who was ``engaged`` before this keeper counts at the first time alone: then it knows better.
        """
        trainer = self.gate.trainers.told(array)
        before = trainer.uid
        trainer.uid, trainer.want, trainer.sizes = uid, want, sizes
        if before not in (None, uid):
            self.end(array)
            return
        took = engaged if before is None else NOBODY
        if took != NOBODY:
            self._begun(array)
        self._in_run(array, lambda run: run.own(want, sizes, took, _now_s()))

    async def part(self, array: int, tasks: Collection[int]) -> bool:
        """Let tasks leave at the next boundary; return whether they have left in time."""
        running = self._runs.get(array)
        if running is None:
            return True
        running.run.rendezvous.part(tasks, _now_s())
        self._settle(array)
        try:
            async with asyncio.timeout(PART_S):
                while running.run.rendezvous.holds(tasks):
                    await running.settled.wait()
        except TimeoutError:
            return False
        return True

    def lost(self, array: int, task: int) -> None:
        """Slurm says that a task is gone."""
        self._tell(Note(NoteKind.BACK, array, task))
        self._in_run(array, lambda run: run.lose_task(task, _now_s()))

    def end(self, array: int) -> None:
        """The trainer's run is over."""
        self._in_run(array, Run.end)
        if (running := self._runs.pop(array, None)) is not None:
            running.cancel_timer()

    # What sessions tell.

    def session(self, serve: Serve) -> Session:
        """Return what takes a connection; ``serve`` answers one of no trainer's process."""
        return Session(self, next(self._keys), serve)

    def entered(self, session: Session) -> None:
        """There is a new connection."""
        self._sessions[session.key] = session
        self._unproven.add(session, session.address)

    def check_place(self) -> None:
        """Check that one more member may be here. Raises ProtocolError."""
        if self._members >= MAX_SESSIONS:
            raise ProtocolError(f"there are {MAX_SESSIONS} members", "too_many")

    def _meet(self, session: Session, message: FromMember) -> None:
        """A trainer's process says what it has come for. Raises ProtocolError."""
        array = int(session.who)
        match message:
            case Up(task, node):
                trainer = self.gate.trainers.known(array)
                started = Started(trainer.run(array), trainer.first is True)
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
        array, user = join.identity.array, self.gate.user(join.identity.array)
        share = self._shares.setdefault(user, Share(user, _now_s()))
        share.check(array)
        running = self._begun(array)
        running.share = share
        self._unproven.discard(session)
        session.belong_to(share, array)
        session.send(Welcome())
        if join.identity.role is Role.AGENT:
            self._tell(Note(NoteKind.BACK, array, join.identity.task))
        running.run.join(session.key, join.identity, join.held, _now_s())
        self._settle(array)

    def _begun(self, array: int) -> _Running:
        """Return a trainer's run, which begins now if there is none."""
        if array not in self._runs:
            trainer = self.gate.trainers.known(array)
            # None of its elements can come back if the controller began the run in our time.
            hold_until_s = -math.inf if trainer.ended else self._hold_until_s
            self._runs[array] = _Running(Run(trainer.want, hold_until_s, trainer.sizes))
        return self._runs[array]

    def heard(self, session: Session, line: bytes) -> None:
        """A trainer's process has said something.

        Raises:
            ProtocolError: it is not something that it may say now.
        """
        message = parse_from_member(line)
        now_s = session.heard_s
        if session.array < 0:
            self._meet(session, message)
            return
        if isinstance(message, Ping):
            session.send(Pong(message.number))
            return
        if isinstance(message, Measured):
            if now_s - session.progress_s < PROGRESS_EVERY_S:
                return
            session.progress_s = now_s
            self._tell(Note(NoteKind.PROGRESS, session.array, measures=message.measures))
        self._in_run(session.array, lambda run: run.hear(session.key, message, now_s))
        if isinstance(message, Done):
            session.hang_up()

    def closed(self, session: Session) -> None:
        """A connection has ended."""
        del self._sessions[session.key]
        if session.array < 0:
            self._unproven.discard(session)
            return
        session.share.lose(session.array)
        if not session.share.members:
            self._shares.pop(session.share.user, None)
        self._in_run(session.array, lambda run: run.lose(session.key, _now_s()))

    # The clock.

    def _in_run(self, array: int, event: Callable[[Run], None]) -> None:
        """Pass an event to a trainer's run, if there is one, and do what follows from it."""
        if (running := self._runs.get(array)) is not None:
            event(running.run)
            self._settle(array)

    def _settle(self, array: int) -> None:
        running = self._runs[array]
        waits = bool(running.outputs)
        running.outputs.extend(running.run.take())
        if not waits:
            self._deliver(running)
        running.settled.set()
        running.settled = asyncio.Event()
        running.set_timer(lambda: self._due(array))

    def _due(self, array: int) -> None:
        self._runs[array].cancel_timer()
        self._in_run(array, lambda run: run.tick(_now_s()))

    def _deliver(self, running: _Running) -> None:
        """Deliver a run's outputs in order, some at a time: a thousand may each be long."""
        for _ in range(AT_ONCE):
            if not running.outputs or running.share.kept > MUCH_KEPT:
                break
            self._put_out(running.outputs.popleft())
        if running.outputs:
            held_s = HELD_S if running.share.kept > MUCH_KEPT else 0.0
            asyncio.get_running_loop().call_later(held_s, self._deliver, running)

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
            session.array
            for session in self._sessions.values()
            if fair and now_s - session.heard_s > MEMBER_SILENCE_S
        }
        for share in self._shares.values():
            share.messages, share.counted_s = 0, now_s
        for session in list(self._sessions.values()):
            session.swept()
            if not fair:
                session.heard_s = max(session.heard_s, now_s - SWEEP_S)
            elif session.array < 0:
                passed_s = now_s - session.opened_s
                if not session.who and passed_s > FIRST_LINE_S:
                    session.give_up("mute", "it has not said what it wants")
                elif passed_s > PROOF_S:
                    session.give_up("unproven", "it has not proved whose it is")
            # With a silent one those who are about as silent: if this host was cut off, and none of
            # them was told of a loss, all can go on when they are back.
            elif session.array in silent and session.heard_s < quiet_since_s:
                session.give_up("silent", "it has fallen silent")


def _give_way(session: Session) -> None:
    session.give_up("too_many", "too many connections have not proven anything yet")


class _Running:
    """A run, its user's share, its timer, and what those wait for who ask for a planned leave."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.share = Share(-1, _now_s())  # until a member has come
        self.outputs: deque[Output] = deque()  # not delivered yet
        self.settled = asyncio.Event()  # replaced at each event
        self._timer: asyncio.TimerHandle | None = None

    def set_timer(self, due: Callable[[], None]) -> None:
        due_s = self.run.due_s()
        if self._timer is not None and self._timer.when() == due_s:
            return
        self.cancel_timer()
        if due_s < math.inf:
            self._timer = asyncio.get_running_loop().call_at(due_s, due)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
