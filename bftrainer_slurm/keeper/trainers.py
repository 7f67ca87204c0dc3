"""What the controller has told of each trainer. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from bftrainer_slurm.sizes import ANY, Sizes

REMEMBERED = 20_000


@dataclass(slots=True)
class Trainer:
    """One trainer; ``want`` is how many nodes the plan gives it now (0: not known)."""

    uid: int | None = None  # its owner; None: not known yet
    want: int = 0
    sizes: Sizes = ANY  # that its group may have
    ended: int = 0  # how many runs of it
    first: bool | None = None  # whether the next element is its first; None: it has not begun
    finished: bool = False  # its training has ended well: who begins now has nothing to do

    def begin(self) -> None:
        """The next element that comes up is the first, if none has come up here."""
        self.first = self.first is None or self.first

    def end(self) -> None:
        """Its run is over: the next element begins another."""
        self.ended, self.finished = self.ended + 1, False

    def run(self, array: int) -> str:
        """Return the id of the present run."""
        return f"{array}.{self.ended + 1}"


class Trainers(OrderedDict[int, Trainer]):
    """All of them by array, those last that the controller has spoken of last."""

    def told(self, array: int) -> Trainer:
        """Return the record that the controller changes."""
        found = self.setdefault(array, Trainer())
        self.move_to_end(array)
        if len(self) > REMEMBERED:
            self.popitem(last=False)
        return found

    def known(self, array: int) -> Trainer:
        """Return what is known, which is nothing if the controller has told nothing."""
        return self.get(array) or Trainer()
