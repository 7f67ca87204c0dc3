"""Members that come back from an earlier keeper, in the generation that it had formed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.member import Member
from bftrainer_slurm.keeper.messages import Held

ADOPT_S = 10.0  # a member that does not come back this long after the first one is lost


@dataclass(slots=True)
class Returning:
    """Who has to come back, and until when.

    Until ``hold_until_s`` members may come back, so no generation is formed that might lack a node.
    """

    hold_until_s: float = -math.inf
    adopted: bool = False  # the present generation is an earlier keeper's
    missing: set[int] = field(default_factory=set)  # its ranks that have not come back
    until_s: float = math.inf  # when these are lost

    def begin(self, held: Held, now_s: float) -> None:
        """The first of a generation has come back."""
        self.adopted, self.missing = True, set(range(held.world))
        self.until_s = now_s + ADOPT_S

    def fits(self, held: Held, before: Member | None) -> bool:
        """Whether there is a place: nobody has come back to it, or ``before`` has a new process."""
        return held.rank in self.missing or (before is not None and before.rank == held.rank)

    def came(self, rank: int) -> bool:
        """A rank is back; return whether it was the last one."""
        self.missing.discard(rank)
        was_last = not self.missing and self.until_s < math.inf
        if was_last:
            self.until_s = math.inf
        return was_last

    def give_up(self) -> None:
        """Those that are missing are lost, or nobody waits for them any more."""
        self.missing, self.until_s = set(), math.inf

    def others_until_s(self, is_whole: bool) -> float:
        """Return until when members of a generation later than the adopted one may come back."""
        return self.hold_until_s if self.adopted and not is_whole else -math.inf
