"""What the trainers' own logs say: generations of ranks, the steps they made, what was lost.

A number counts a trainer's progress: completed steps, or batches of 32 for the digits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from scripts.benchkit.logs import Tail

_TAIL = 3  # this many steps after the next generation began are more than a straggler makes
_TWIN_S = 2.0
_TOGETHER_S = 5.0


@dataclass(slots=True)
class Generation:
    """What ranks that trained together have done. Times in seconds of CLOCK_MONOTONIC."""

    key: str
    first_s: float
    first: float  # the number after its first step
    last_s: float = 0.0
    last: float = 0.0
    world: int = 0
    places: dict[str, str] = field(default_factory=dict)  # by NODE.PID: its node
    step: float = 1.0  # what one step adds to the number, at most
    tail: deque[float] = field(default_factory=lambda: deque(maxlen=_TAIL))


@dataclass(frozen=True, slots=True)
class Loss:
    """Steps that were made and are lost, and how many may be: those since the last checkpoint."""

    time_s: float
    lost: float
    allowed: float


class Training:
    """All that one trainer's processes have written so far; ``read`` takes in what is new."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder)
        self._generations: list[Generation] = []
        self._by_key: dict[str, Generation] = {}  # the last with each key
        self.saves: list[tuple[float, float]] = []  # when a checkpoint was complete, and its number

    def read(self) -> None:
        lines = [(line.split(), path.name) for path, new in self._tail.read() for line in new]
        for (time_s, kind, key, world, number), process in sorted(lines, key=_time):
            if kind == "saved":
                self.saves.append((float(time_s), float(number)))
            else:
                self.add_step(process, float(time_s), key, int(world), float(number))

    def add_step(self, process: str, time_s: float, key: str, world: int, number: float) -> None:
        """Note one rank's step with its generation; ``process`` is NODE.PID, as on the node."""
        one = self._by_key.get(key)
        if one is not None and process not in one.places and time_s > one.first_s + _TOGETHER_S:
            one = None  # all ranks of a generation step at once: another one uses its port
        if one is None:
            one = self._by_key[key] = Generation(key, time_s, number)
            self._generations.append(one)
        one.first_s = min(one.first_s, time_s)
        one.first = min(one.first, number)
        if number > one.last:
            one.step = max(one.step, number - one.last) if one.last else one.step
            one.last = number
        one.last_s = max(one.last_s, time_s)
        one.world = world
        one.places[process] = process.partition(".")[0]
        one.tail.append(time_s)

    @property
    def generations(self) -> list[Generation]:
        return sorted(self._generations, key=lambda one: one.first_s)

    @property
    def newest(self) -> Generation | None:
        return max(self._generations, key=lambda one: one.last_s, default=None)

    @property
    def reached(self) -> float:
        return max((one.last for one in self._generations), default=0.0)


def _time(line: tuple[list[str], str]) -> float:
    return float(line[0][0])


def losses(generations: Sequence[Generation], saves: Sequence[tuple[float, float]]) -> list[Loss]:
    """Return what each generation lost of what the ones before it had reached."""
    found = []
    for before, one in pairwise(generations):
        # What earlier ones had reached beyond that is counted already.
        lost = before.last - (one.first - one.step)
        if lost > 0:
            saved = max((number for time_s, number in saves if time_s < one.first_s), default=0.0)
            # Only its peers may have logged the step in which a process wrote the checkpoint.
            allowed = max(0.0, before.last - saved) + max(one.step, before.step)
            found.append(Loss(one.first_s, lost, allowed))
    return found


def twins(generations: Sequence[Generation], apart: Collection[str] = ()) -> list[str]:
    """Return where an old generation went on to train while a newer one did.

    A generation that has all its processes on nodes ``apart``, which are cut off, may do so.
    """
    return [
        f"generation {old.key} made steps {old.tail[0] - new.first_s:.1f} s after {new.key} began"
        for old, new in pairwise(generations)
        if len(old.tail) == _TAIL
        and old.tail[0] > new.first_s + _TWIN_S
        and not _is_apart(old, apart)
    ]


def forget_apart(generations: Iterable[Generation], apart: Collection[str]) -> None:
    """Forget the steps so far of generations on nodes ``apart``; later ones make twins again."""
    for one in generations:
        if _is_apart(one, apart):
            one.tail.clear()


def _is_apart(one: Generation, apart: Collection[str]) -> bool:
    return set(one.places.values()) <= set(apart)


def doubled(generations: Sequence[Generation], most: int = 1) -> list[str]:
    """Return where more than ``most`` processes of one generation trained on the same node."""
    return [
        f"generation {one.key} has {number} processes on {node}"
        for one in generations
        for node, number in sorted(Counter(one.places.values()).items())
        if number > most
    ]
