"""What a batch script has run to a good end. Pure."""

from __future__ import annotations

from bftrainer_slurm.keeper.messages import Identity

_MOST = 100  # that are remembered, the newest: members come late to those alone


class Programs(dict[str, set[int]]):
    """What a batch script has run to a good end, each with the tasks that are through with it.

    Whoever comes later is told so, and does not begin the training again.
    """

    def end(self, who: Identity) -> None:
        """A member's processes have ended well, and wait for those of other nodes."""
        self.setdefault(who.program, set())
        while len(self) > _MOST:
            del self[next(iter(self))]

    def leave(self, who: Identity) -> None:
        """A member is through with its program."""
        self.get(who.program, set()).add(who.task)

    def join(self, who: Identity) -> None:
        """A member comes; if it has been through with its program, the script runs once more."""
        if who.task in self.get(who.program, ()):
            del self[who.program]
