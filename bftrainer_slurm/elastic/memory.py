"""The progress memory: a few numbers that a training process writes, and its node's agent reads.

A step costs about a microsecond. Times are CLOCK_MONOTONIC, one clock for all processes of a
node, so that a pause is exact even if the processes before and after it are different ones.

After an upgrade, an agent and its next workers may be of two versions. So a memory begins with what
its layout follows from, and a process that has another layout does without it (``of_agent``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isnan
from typing import TypeVar
from zlib import crc32

from bftrainer_slurm.elastic.log import say

VARIABLE = "BFTRAINER_STEPS"
_PROCESSES = 256  # of a node
# Pages without a write take no memory.
_LINES, _NODES, _SIZE = mmap.PAGESIZE, 256 * mmap.PAGESIZE, 384 * mmap.PAGESIZE

_Kind = TypeVar("_Kind", bound=type[ctypes.Structure])


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a memory says. The counts go on from one training process of the node to the next."""

    steps: int
    samples: float | None  # None: not known
    first_s: float  # of the process that trains now; 0: it has made no step yet
    last_s: float  # 0: there was no step yet
    lost: int | None = None  # steps trained again, in all; None: their numbers are not known
    lost_samples: float | None = None  # in these; None: not known
    again_s: float = 0.0  # when the process that trains now began with steps again; 0: not
    alone: bool = False  # each process trains by itself: they are in no group together
    from_start: int | None = None  # how often in a row the script began at step 0 again
    kept_s: float = 0.0  # when it last wrote a file by torch; 0: never, or it saves when asked
    other_ranks: bool = False  # it went on with another number of ranks, and we do not translate
    noise: float = 0.0  # the gradient noise scale, in batches of a step; 0: not measured


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

    highest: float  # the highest number of a step that a script has told
    lost: float
    lost_samples: float
    again_s: float
    from_start: float
    kept_s: float
    other_ranks: float
    ranks: float  # that trained last; 0: none on this node
    told_of_ranks: float  # what another number of ranks means was told, here or elsewhere
    told_of_files: float  # that the script has emptied was told
    trains_since_s: float  # time.time() about the first step here
    generation: float  # that this node is in
    named: float  # bytes of the names of its nodes
    told: float  # bytes of what the agent tells the script
    heard: float  # those of them that the script has read


@_of_doubles
class Present(ctypes.Structure):
    """What holds for the processes that train now. How they save is in ``saving``."""

    asked: float  # to save
    told: float  # all ranks have been told to, after the same step
    savers: float  # how many of this node's processes save when they are asked
    ending: float  # the next SIGTERM has to end them at once
    alone: float
    began: float  # they have made a step, and it is known from where
    noise: float  # the gradient noise scale, in batches of a step; 0: not measured


class _Layout(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_char * 32),
        ("counts", Counts),
        ("past", Past),
        ("present", Present),
        ("saved", ctypes.c_double * _PROCESSES),  # whether each process of the node has
    )


def version_of(*kinds: type[ctypes.Structure]) -> bytes:
    """Return what tells a layout of these from all others: it follows from their fields."""
    fields = [[(name, kind.__name__) for name, kind, *_ in one._fields_] for one in kinds]
    return b"bftrainer-steps-%08x" % crc32(repr((fields, _LINES, _NODES, _SIZE)).encode())


VERSION = version_of(_Layout, Counts, Past, Present)


class Memory:
    """Memory that an agent and its workers share; it is freed with the last of them.

    In ``saved`` is one number for each process of the node: whether it has saved.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._page = mmap.mmap(descriptor, _SIZE)
        self._layout = _Layout.from_buffer(self._page)
        self.counts: Counts = self._layout.counts
        self.past: Past = self._layout.past
        self.present: Present = self._layout.present
        self.saved: ctypes.Array[ctypes.c_double] = self._layout.saved

    @classmethod
    def made(cls) -> Memory:
        """Return a new memory, all zero."""
        descriptor = os.memfd_create("bftrainer-steps")
        os.ftruncate(descriptor, _SIZE)
        os.pwrite(descriptor, VERSION, 0)
        return cls(descriptor)

    @classmethod
    def opened(cls, path: str) -> Memory:
        """Return the memory at its maker's ``path``.

        Raises:
            OSError: it is gone, or has another version's layout.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if os.pread(descriptor, len(VERSION), 0) != VERSION:
            os.close(descriptor)
            raise OSError("this node's torchrun has another version of BFTrainer")
        return cls(descriptor)

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
            lost=int(past.lost) if past.highest > 0 else None,
            lost_samples=_known(past.lost_samples),
            again_s=past.again_s,
            alone=bool(present.alone),
            from_start=int(past.from_start) if present.began else None,
            kept_s=0.0 if present.savers else past.kept_s,
            other_ranks=bool(past.other_ranks),
            noise=present.noise,
        )

    def begin(self) -> None:
        """Say that the processes have ended, and of the next ones nothing is known or asked."""
        self.counts.first_s = self.past.again_s = 0.0
        self._layout.present = Present()
        self._layout.saved = type(self.saved)()

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

    def tell(self, line: bytes) -> None:
        """Tell the script a line, after those that it has not read; one too long is left out."""
        if not self.untold:
            self.past.told = self.past.heard = 0
        begin = _LINES + int(self.past.told)
        end = begin + len(line) + 1
        if end <= _NODES:
            self._page[begin:end] = line + b"\n"
            self.past.told += len(line) + 1

    @property
    def untold(self) -> bool:
        """Whether there are lines that the script has not read."""
        return self.past.told > self.past.heard

    def told(self) -> list[bytes]:
        """Return these lines; they are read now."""
        begin, end = int(self.past.heard), int(self.past.told)
        self.past.heard = end
        return self._page[_LINES + begin : _LINES + end].splitlines()

    def tell_nodes(self, names: Sequence[str]) -> None:
        """Say which nodes a generation has, in the order of their ranks; too many are left out."""
        text = ",".join(names).encode()
        if _NODES + len(text) <= _SIZE:
            self._page[_NODES : _NODES + len(text)] = text
            self.past.named = len(text)

    @property
    def nodes(self) -> str:
        """Their names, with commas between; empty before there is a generation."""
        return self._page[_NODES : _NODES + int(self.past.named)].decode()


def of_agent(environment: Mapping[str, str]) -> Memory | None:
    """Return the memory that an agent has made for this process; None: it has to do without.

    If there is one of another version, or that cannot be read, that is said once on a node.
    """
    path = environment.get(VARIABLE)
    try:
        return None if path is None else Memory.opened(path)
    except FileNotFoundError:  # torchrun has ended: nobody reads what this process would count
        return None
    except OSError as error:
        if environment.get("LOCAL_RANK", "0") == "0":
            _say_once(
                f"{error}: until torchrun is started again, progress is not reported, scripts are "
                "not asked to save, and SLURM_JOB_NODELIST names one node only"
            )
    return None


_say_once = cache(say)


def _known(samples: float) -> float | None:
    return None if isnan(samples) else samples
