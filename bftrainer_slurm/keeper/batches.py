"""Which of a trainer's elements runs the batch script, and which step the others start. Pure.

The keeper remembers next to nothing: each element tells all that it is doing, again after each
connection. So a new keeper knows as much as the last one as soon as they are back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.away import Away
from bftrainer_slurm.keeper.messages import (
    MAX_STEPS,
    Batch,
    HangUp,
    Identity,
    Output,
    Role,
    Send,
    Turn,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind

_SAID_NOTHING, _TOLD_NOTHING = Batch("nothing"), Turn("nothing")


@dataclass(slots=True)
class _Element:
    """One element: what it says, and what it was told since."""

    key: int
    who: Identity
    said: Batch = _SAID_NOTHING
    told: Turn = _TOLD_NOTHING

    @property
    def task(self) -> int:
        """Its task in the array."""
        return self.who.task

    @property
    def leads(self) -> bool:
        """Whether it runs the script, or is about to."""
        return self.said.doing == "leads" or self.told.do == "lead"

    @property
    def trains(self) -> bool:
        """Whether it is in a step that all elements take part in."""
        return self.said.step >= 0

    @property
    def waits(self) -> bool:
        """Whether it has nothing to do yet."""
        return self.said.doing == "waits" and self.told.do in ("nothing", "wait")


@dataclass(slots=True)
class Batches:
    """The batch scripts of one run: nobody is told to run one while anybody is ``away``.

    ``trains_on`` says whether a group trains, and nobody in it has ended well.
    """

    out: list[Output]
    away: Away
    members: Mapping[int, Identity]  # of the run, by key: its agents, too
    trains_on: Callable[[], bool] = lambda: False
    beside: bool = False  # steps have run at the same time: a number does not say which one
    elements: dict[int, _Element] = field(default_factory=dict)  # by key
    _alone: bool = False  # the script trains outside of any step, and so has none to pass on
    _what: tuple[int, str] = (-1, "")  # the newest step that trains, and how to start it
    _done: dict[int, tuple[int, str]] = field(default_factory=dict)  # its code and mark, by number
    _ended: set[int] | None = None  # the script has ended well, in these tasks
    _told: tuple[int, bool] | None = None  # what the controller knows: who leads, and if it trains

    @property
    def orphaned(self) -> bool:
        """Whether elements are in a step of a script that runs nowhere any more."""
        everyone = self.elements.values()
        led = bool(self.away) or self._ended is not None or any(one.leads for one in everyone)
        return not led and any(one.trains for one in everyone)

    def join(self, key: int, identity: Identity) -> None:
        """An element's batch task has proven who it is."""
        for other in [one for one in self.elements.values() if one.task == identity.task]:
            del self.elements[other.key]
            self.out.append(HangUp(other.key))
        self.elements[key] = _Element(key, identity)

    def hear(self, key: int, said: Batch, now_s: float) -> None:
        """An element says what it is doing."""
        if (one := self.elements.get(key)) is None:
            return
        one.said, one.told = said, _TOLD_NOTHING
        self.away.says(one.task, said)
        self.beside |= said.beside
        for number, code, mark in said.done:
            well = self._done.get(number, (1, ""))[0] == 0
            if (
                not well and len(self._done) < MAX_STEPS
            ):  # ended well on one node: it has ended well
                self._done[number] = (code, mark)
        if said.what:
            self._what = (said.step, said.what)
        if said.doing == "over":
            self._end(one, said.code)
        elif said.doing == "waits" and one.task in (self._ended or ()):
            self._ended = None  # its user runs it once more
            self._done.clear()
        self.tick(now_s)

    def lose(self, key: int, now_s: float) -> None:
        """A connection has ended."""
        one = self.elements.pop(key, None)
        if one is not None and (one.leads or one.trains):
            self.away.lost(one.who, now_s)
        self.tick(now_s)

    def lose_task(self, task: int, node: str, now_s: float) -> None:
        """Slurm says that a task is gone from a node."""
        if self._told is not None and self._told[0] == task:
            self._told = None  # the controller has forgotten it too
        for one in [*self.elements.values()]:
            if (one.task, one.who.node) == (task, node):
                del self.elements[one.key]
                self.out.append(HangUp(one.key))
        self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Tell each element what follows for it."""
        leaders = [one for one in self.elements.values() if one.leads]
        agents = [one for one in self.members.values() if one.role is Role.AGENT]
        steps = {one.task: one.step for one in agents}  # an element trains in one at a time
        for one in leaders:
            step = steps.get(one.task)
            if step == -1:
                self._alone = True
            elif step is not None and not one.trains:
                self._tell(one, Turn("trains", max(step, -1)))
        self._alone &= bool(leaders)
        everyone = self.elements.values()
        step = max((one.said.step for one in everyone if one.trains), default=-1)
        for one in sorted(self.elements.values(), key=lambda one: one.task):
            if one.waits:
                self._tell(one, self._turn(one, step, leaders, now_s))
                if one.leads:
                    leaders.append(one)
        self._tell_controller(leaders, step >= 0 or self._alone or bool(agents))

    def _turn(self, one: _Element, step: int, leaders: list[_Element], now_s: float) -> Turn:
        said = one.said
        if self._ended is not None:
            return Turn("over")
        number, what = self._what
        if step >= 0 and number == step and step not in {done[0] for done in said.done}:
            return Turn("join", step, what)
        if leaders and self._alone:
            return Turn("each")
        if leaders or step >= 0 or self.away.forbids([one.key], now_s):
            return Turn("wait")
        if any(code for _, code, _ in said.done):  # what its script's end has removed, it lacks
            return Turn("again")
        done = () if self.beside else sorted(self._done.items())
        well = ((number, code, mark) for number, (code, mark) in done if code == 0)
        return Turn("lead", done=tuple(well))

    def _tell(self, one: _Element, turn: Turn) -> None:
        if one.told != turn:
            one.told = turn
            self.out.append(Send(one.key, turn))

    def _end(self, one: _Element, code: int) -> None:
        """The script has ended: so do those who wait, and after a failure it begins at the top."""
        if code == 0:
            self._ended = (self._ended or set()) | {one.task}
        else:
            self._done.clear()
        del self.elements[one.key]
        for other in self.elements.values():
            if other.trains and code == 0 and self.trains_on():
                self._tell(other, Turn("stop"))
            elif not other.leads:
                self._tell(other, Turn("over", code=code))

    def _tell_controller(self, leaders: list[_Element], trains: bool) -> None:
        """Say whose script the others wait for, until it trains."""
        now = (min((one.task for one in leaders), default=-1), trains)
        if now[0] < 0 or now == self._told:
            return
        self._told = now
        measures = (("leads", float(now[0])), ("trains", float(trains)))
        self.out.append(Note(NoteKind.SCRIPT, self.away.array, measures=measures))
