"""A member of a group, and what comes out of the keeper's pure parts."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer_slurm.keeper.messages import FromKeeper, Identity, Ready
from bftrainer_slurm.keeper.protocol import Note


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
