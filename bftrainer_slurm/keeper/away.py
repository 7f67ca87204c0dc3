"""Who took part in a run and cannot be heard, though Slurm may still run it. Pure.

Nobody can tell a node that is cut off, and trains on, from one that is dead: only Slurm can. So as
long as anybody is away, no first generation is formed and nobody is told to run the script from its
top. No timer ends that. Whoever waits for it says so, and the controller ends the element.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.messages import Batch, Identity, Output, Role, Send, Waits
from bftrainer_slurm.keeper.protocol import Note, NoteKind

CUT_S = 30.0  # somebody waits for it this long until it is ended: a keeper restarts in less
STILL_S = 300.0  # the same, for one that is heard, but has not said that it stands still
_AGAIN_S = 300.0  # the controller is told again after this


@dataclass(slots=True)
class _Absent:
    """One task; in which ``roles`` it took part, and since when it cannot be heard in them."""

    node: str
    roles: set[Role]
    step: int  # in which its agent trained; -1: in none, or not known
    due_s: float  # when the controller is told, if somebody waits
    awaited: bool = False


@dataclass(slots=True)
class Away:
    """The tasks that are away: true if there is any."""

    out: list[Output]
    hold_until_s: float = 0.0  # until then others may come back, too; 0: nobody
    array: int = 0
    _absent: dict[int, _Absent] = field(default_factory=dict)
    _said: dict[int, str] = field(default_factory=dict)  # what those who wait were told, by key

    def __bool__(self) -> bool:
        return bool(self._absent)

    def lost(self, who: Identity, now_s: float, took_part: bool = True) -> None:
        """A connection has ended without a word, of one that ``took_part`` or was away before."""
        absent = self._absent.get(who.task)
        if not took_part and (absent is None or who.role not in absent.roles):
            return
        self.engage(who.task, who.role, now_s, who.node)
        if who.role is Role.AGENT:
            self._absent[who.task].step = who.step

    def engage(self, task: int, role: Role, now_s: float, node: str = "") -> None:
        """A task took part, and there is no connection to it."""
        absent = self._absent.setdefault(task, _Absent(node, set(), -1, math.inf))
        absent.node = node or absent.node  # it is where it was heard last
        absent.roles.add(role)
        absent.due_s = min(absent.due_s, now_s + CUT_S)

    def again(self, task: int, now_s: float) -> None:
        """An agent of this task is heard again, but does not stand still yet."""
        if (absent := self._absent.get(task)) is not None:
            absent.due_s = now_s + STILL_S

    def back(self, task: int, role: Role) -> None:
        """A task is heard in this role: it stands still, or is in the generation that counts."""
        if (absent := self._absent.get(task)) is None:
            return
        absent.roles.discard(role)
        if not absent.roles:
            self.gone(task)

    def says(self, task: int, said: Batch) -> None:
        """A batch task is heard, and says what runs in its script."""
        self.back(task, Role.BATCH)
        absent = self._absent.get(task)
        stands = said.doing in ("waits", "over")
        if absent is not None and (stands or (said.step < 0 <= absent.step)):
            self.back(task, Role.AGENT)

    def gone(self, task: int, node: str = "") -> None:
        """A task takes part no more, or Slurm says that it is gone from this node."""
        absent = self._absent.get(task)
        if absent is not None and (not node or absent.node in ("", node)):
            del self._absent[task]
            self.out.append(Note(NoteKind.BACK, self.array, task))
        if not self._absent:
            self._said.clear()

    def went_on(self, tasks: Collection[int] = ()) -> None:
        """A group of these ``tasks`` has been formed without others that are away now."""
        for task, absent in self._absent.items():
            absent.awaited |= task not in tasks

    def forbids(self, keys: Iterable[int], now_s: float) -> bool:
        """Whether nothing may begin now; the members with these keys wait, and are told so once."""
        if not self:
            return now_s < self.hold_until_s
        self.went_on()
        task, absent = min(self._absent.items())
        more = f" and {len(self._absent) - 1} more" if len(self._absent) > 1 else ""
        node = f" on {absent.node}" if absent.node else ""
        why = (
            f"this node waits for element {self.array}_{task}{node}{more}: it may still train, as "
            "the keeper does not hear it and Slurm has not said that it is gone. Unless it comes "
            f"back within {CUT_S:.0f} s, the controller ends it"
        )
        for key in keys:
            if self._said.get(key) != why:
                self._said[key] = why
                self.out.append(Send(key, Waits(why)))
        return True

    def due_s(self) -> float:
        """Return when ``tick`` has something to do."""
        due_s = [one.due_s for one in self._absent.values() if one.awaited]
        return min([self.hold_until_s or math.inf, *due_s])

    def tick(self, now_s: float) -> None:
        """Tell the controller of those for whom others have waited long enough."""
        if self.hold_until_s <= now_s:
            self.hold_until_s = 0.0
        for task, absent in self._absent.items():
            if absent.awaited and absent.due_s <= now_s:
                absent.due_s = now_s + _AGAIN_S
                self.out.append(Note(NoteKind.CUT, self.array, task, absent.node))
