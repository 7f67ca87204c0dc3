"""The progress memory: a few numbers that a training process writes, and its node's agent reads.

A step costs about a microsecond. Times are CLOCK_MONOTONIC, one clock for all processes of a
node, so that a pause is exact even if the processes before and after it are different ones.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, replace
from math import isnan
from typing import TypeVar

VARIABLE = "BFTRAINER_STEPS"
KEPT = "BFTRAINER_STEPS_KEPT"  # a memory in which no agent looks: torchrun's own rendezvous
_NUMBERS = mmap.PAGESIZE
_SIZE = 256 * _NUMBERS  # a text follows the numbers; pages without a write take no memory
_PAST, _PRESENT, _SAVED = 64, 512, 1024  # where in the page what begins
_PROCESSES = 256  # of a node

_Kind = TypeVar("_Kind", bound=type[ctypes.Structure])


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a memory says. The counts go on from one training process of the node to the next."""

    steps: int
    samples: float | None  # None: not known
    first_s: float  # of the process that trains now; 0: it has made no step yet
    last_s: float  # 0: there was no step yet
    in_process: bool  # elastic.Trainer trains, and reports by itself
    lost: int | None = None  # steps trained again, in all; None: their numbers are not known
    lost_samples: float | None = None  # in these; None: not known
    again_s: float = 0.0  # when the process that trains now began with steps again; 0: not
    alone: bool = False  # each process trains by itself: they are in no group together
    from_start: int | None = None  # how often in a row the script began at step 0 again
    kept_s: float = 0.0  # when it last wrote a file by torch; 0: never, or it saves when asked
    other_ranks: bool = False  # it went on with another number of ranks, and we do not translate

    def stepped(self, now_s: float) -> StepCounts:
        """Return them with the times after a step of the process that trains now."""
        return replace(self, first_s=self.first_s or now_s, last_s=now_s)


def _of_doubles(kind: _Kind) -> _Kind:
    """Make each field a double: whole numbers up to 2^53 are exact, and none is half written."""
    kind._fields_ = [(name, ctypes.c_double) for name in kind.__annotations__]
    return kind


@_of_doubles
class Counts(ctypes.Structure):
    """What is counted; a process can take back what it has. See ``StepCounts``."""

    steps: float
    samples: float  # nan: not known
    first_s: float
    last_s: float


@_of_doubles
class Past(ctypes.Structure):
    """What goes on from one training process to the next. See ``StepCounts``."""

    in_process: float
    highest: float  # the highest number of a step that a script has told
    lost: float
    lost_samples: float
    again_s: float
    from_start: float
    kept_s: float
    other_ranks: float
    ranks: float  # that trained last; 0: none on this node
    told_of_ranks: float  # what another number of ranks means was told, here or elsewhere
    trains_since_s: float  # time.time() about the first step here
    generation: float  # that this node is in
    length: float  # of the text, in bytes
    written: float  # texts so far
    heard: float  # those of them that were read


@_of_doubles
class Present(ctypes.Structure):
    """What holds for the processes that train now. How they save is in ``saving``."""

    asked: float  # to save
    savers: float  # how many of this node's processes save when they are asked
    ending: float  # the next SIGTERM has to end them at once
    unwanted: float  # one that is through with its script has to end at once
    alone: float
    began: float  # they have made a step, and it is known from where


class Memory:
    """Memory that an agent and its workers share; it is freed with the last of them.

    In ``saved`` is one number for each process of the node: whether it has saved.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._page = mmap.mmap(descriptor, _SIZE)
        self.counts = Counts.from_buffer(self._page)
        self.past = Past.from_buffer(self._page, _PAST)
        self.present = Present.from_buffer(self._page, _PRESENT)
        self.saved = (ctypes.c_double * _PROCESSES).from_buffer(self._page, _SAVED)

    @classmethod
    def made(cls) -> Memory:
        """Return a new memory, all zero."""
        descriptor = os.memfd_create("bftrainer-steps")
        os.ftruncate(descriptor, _SIZE)
        return cls(descriptor)

    @classmethod
    def opened(cls, path: str) -> Memory:
        """Return the memory at its maker's ``path``.

        Raises:
            OSError: it is gone.
        """
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def made_s(self) -> float:
        """When it was made, which is when the agent began (time.time())."""
        return os.fstat(self._descriptor).st_ctime

    @property
    def path(self) -> str:
        """Where this user's other processes on this node open it; it leaves no file behind."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def read(self) -> StepCounts:
        """Return what is in it now."""
        counts, past, present = self.counts, self.past, self.present
        return StepCounts(
            *(int(counts.steps), _known(counts.samples), counts.first_s, counts.last_s),
            in_process=bool(past.in_process),
            lost=int(past.lost) if past.highest > 0 else None,
            lost_samples=_known(past.lost_samples),
            again_s=past.again_s,
            alone=bool(present.alone),
            from_start=int(past.from_start) if present.began else None,
            kept_s=0.0 if present.savers else past.kept_s,
            other_ranks=bool(past.other_ranks),
        )

    def expect_first(self) -> None:
        """Say that the process that trained has ended: the next step is another one's first."""
        self.counts.first_s = self.past.again_s = 0.0

    def begin(self) -> None:
        """Say that new processes begin, of which nothing is known, and nothing asked."""
        self._page[_PRESENT:_NUMBERS] = bytes(_NUMBERS - _PRESENT)

    @property
    def saving(self) -> bool:
        """Whether some of the processes that save when asked have not saved yet."""
        return not all(self.saved[: int(self.present.savers)])

    def begins_from_start(self) -> int:
        """Note that new processes began at step 0 again; return how often in a row."""
        self.present.began = True
        self.past.from_start += 1
        return int(self.past.from_start)

    def goes_on(self) -> None:
        """Note that new processes went on from what others had trained."""
        self.present.began = True
        self.past.from_start = 0

    # What the agent has to tell the script, see ``listeners``.

    def write(self, text: bytes) -> None:
        """Write a text over the last one; a text that is too long is not written."""
        if len(text) <= _SIZE - _NUMBERS:
            self._page[_NUMBERS : _NUMBERS + len(text)] = text
            self.past.length = len(text)
            self.past.written += 1

    @property
    def unread(self) -> bool:
        """Whether the text has not been read."""
        return self.past.written > self.past.heard

    def text(self) -> bytes:
        """Return the text, which may be half written."""
        return self._page[_NUMBERS : _NUMBERS + int(self.past.length)]

    def has_read(self) -> None:
        """Say that it has been read."""
        self.past.heard = self.past.written


def _known(samples: float) -> float | None:
    return None if isnan(samples) else samples
