"""What a turn can decide: actions, which ``act`` executes, and headroom for ordinary jobs.

Each kind of action has one class: its request to Slurm, its words in the log, what is known then.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, change, refuse, release
from bftrainer_slurm.model import ElementId, TimeLimit
from bftrainer_slurm.slurm.gateway import Gateway

_REFUSED_S = 30.0


@dataclass(frozen=True, slots=True)
class Action(ABC):
    """A request to Slurm about elements of one trainer; as a string: its line in the log."""

    elements: tuple[ElementId, ...]
    verb: ClassVar[str]  # for the log
    phase: ClassVar[Phase | None] = None  # of the elements afterwards; None: the next look shows it

    @property
    def array(self) -> int:
        """The array id of the trainer."""
        return self.elements[0].array

    def send(self, gateway: Gateway) -> None:
        """Send the request; its errors are those of the gateway."""
        self._send(gateway)

    @abstractmethod
    def _send(self, gateway: Gateway) -> None: ...

    def __str__(self) -> str:
        return f"{self.verb} {', '.join(map(str, self.elements))}"

    def after(self, state: TrainerState, refused: str, now_s: float) -> TrainerState:
        """Return the state after the request; ``refused``: Slurm's words if it has refused it."""
        if refused or self.phase is None:
            return state
        return change(state, self.elements, self.phase, now_s)


@dataclass(frozen=True, slots=True)
class _Explained(Action):
    why: str  # for the log

    def __str__(self) -> str:
        return f"{Action.__str__(self)}: {self.why}"


class Shrink(_Explained):
    """Requeue and hold running elements."""

    verb, phase = "shrink", Phase.LEAVING

    def _send(self, gateway: Gateway) -> None:
        gateway.shrink(self.elements)


class Hold(_Explained):
    """Hold pending elements that are not held."""

    verb = "hold"

    def _send(self, gateway: Gateway) -> None:
        gateway.hold(self.elements)


class Cancel(_Explained):
    """Cancel a trainer that has finished or was given up; ``elements`` are left of it."""

    verb = "cancel the rest of"

    def _send(self, gateway: Gateway) -> None:
        gateway.cancel(self.array)

    def __str__(self) -> str:
        return f"{self.verb} {self.array}: {self.why.partition(chr(10))[0]}"

    def after(self, state: TrainerState, refused: str, now_s: float) -> TrainerState:
        """Return the state with the time of the request."""
        return state if refused else replace(state, cancelled_s=now_s)


@dataclass(frozen=True, slots=True)
class EndAt(Action):
    """Set the time limits of a trainer's running elements to end at ``end_s`` (Unix seconds)."""

    verb = "limit"
    end_s: float

    def __str__(self) -> str:
        end = time.strftime("%H:%M:%S", time.localtime(self.end_s))
        return f"{Action.__str__(self)} to {end}"

    def _send(self, gateway: Gateway) -> None:
        gateway.end_at(self.elements, self.end_s)


class Trim(_Explained):
    """Cancel held elements; the trainer keeps the others."""

    verb, phase = "cancel", Phase.DONE

    def _send(self, gateway: Gateway) -> None:
        gateway.trim(self.elements)


class Revive(_Explained):
    """Requeue and hold elements that have failed, so that they can start again."""

    verb, phase = "requeue", Phase.REVIVED

    def _send(self, gateway: Gateway) -> None:
        gateway.revive(self.elements)


@dataclass(frozen=True, slots=True)
class Grow(Action):
    """Release elements of one trainer, one for each of ``nodes``; Slurm chooses which goes where.

    If ``first``, no element of the trainer is alive, and the release begins a new rendezvous.
    """

    verb = "grow"
    nodes: frozenset[str]
    others: frozenset[str]  # all other nodes of the partition
    first: bool
    limit: TimeLimit | None = None  # the time limit to ask for
    excluded: frozenset[str] = frozenset()  # nodes that the user excluded
    finished: bool = False  # the training has ended successfully, so these elements end at once
    new: bool = False  # the trainer has never had a node

    def __str__(self) -> str:
        return f"{Action.__str__(self)} on {', '.join(sorted(self.nodes))}"

    def _send(self, gateway: Gateway) -> None:
        about = self.elements, self.nodes, self.others, self.limit
        gateway.grow(*about, excluded=self.excluded)

    def after(self, state: TrainerState, refused: str, now_s: float) -> TrainerState:
        """Return the state with released elements.

        A refused request may still have been carried out in part; the next look shows it.
        """
        state = release(state, self.elements, self.nodes, now_s)
        # Until it was tried again, and one turn more.
        state = replace(state, refusal=refused, refusal_until_s=now_s + 2 * _REFUSED_S)
        return refuse(state, self.nodes, now_s + _REFUSED_S) if refused else state


class Label(_Explained):
    """Restore the comment (``why``) of all elements of a trainer: its user has overwritten it."""

    verb = "restore the comment of"

    def _send(self, gateway: Gateway) -> None:
        gateway.label(self.elements, self.why)


class Tell(_Explained):
    """Write a line (``why``) into the output of one running element."""

    verb = "notify"

    def _send(self, gateway: Gateway) -> None:
        gateway.tell(self.elements[0], self.why)

    def after(self, state: TrainerState, refused: str, now_s: float) -> TrainerState:
        """Return the state: the line is written only once, even if Slurm refuses it."""
        return replace(state, notified=True)


# The order of execution. What frees nodes comes first; elements held too late start by themselves.
ORDER = (Shrink, Hold, Cancel, EndAt, Trim, Revive, Grow, Label, Tell)


def elements_of(kind: type[Action], actions: Iterable[Action]) -> list[ElementId]:
    """Return the elements of all actions of one kind."""
    return [one for action in actions if isinstance(action, kind) for one in action.elements]


@dataclass(frozen=True, slots=True)
class Headroom:
    """Room for waiting jobs that no backfill pass has tried yet, and for the next small ones."""

    kept: Mapping[str, int] = field(default_factory=dict)  # units that stay free, by node
    elements: frozenset[ElementId] = frozenset()  # these leave
    at_once: bool = False  # they leave now, not just before the next pass: see ``decide.headroom``
