"""A script that is restarted at changes saves when it is told to: no step is lost at a planned one.

The node's agent asks through the progress memory, all ranks agree on a step, and save after it.
What the change is does not matter here; that a process ends well is in ``agent``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from bftrainer_slurm.elastic.data_workers import DataWorkerStart
from bftrainer_slurm.elastic.signals import on_signals, wait_for_the_end
from bftrainer_slurm.elastic.steps import VARIABLE, Memory

LONGEST_S = 30.0  # a script that has not saved by then is ended
_PLANNED = ("join", "leave")  # changes in which no rank is gone yet, or leaves by itself


class Asking:
    """The agent's side: whether its processes may be ended now that a change is announced."""

    def __init__(self, memory: Memory, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._clock = clock
        self._asked_s: float | None = None

    def begin(self) -> None:
        """New processes begin."""
        self._asked_s = None
        self._memory.begin()

    def is_over(self, why: str) -> bool:
        """Ask them to save, at a change that leaves time for it; return whether to end them."""
        if why in _PLANNED and self._memory.saving:
            if self._asked_s is None:
                self._asked_s = self._clock()
                self._memory.ask()
            return self._clock() - self._asked_s >= LONGEST_S
        return True


class Saver:
    """A process's side."""

    def __init__(self, memory: Memory, local_rank: int, local_world: int) -> None:
        import torch
        import torch.distributed as dist

        self._memory = memory
        self._local_rank = local_rank
        self._signalled = False
        self._flag = torch.zeros(1)
        # A group of its own: on the CPU, and out of the order of the script's collectives.
        self._group = dist.new_group(backend="gloo")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)
            on_signals((signal.SIGTERM,), self._heed)
            self._data_workers = DataWorkerStart()
            os.register_at_fork(after_in_child=self._begin_data_worker)
        memory.will_save(local_world)

    def must_save(self) -> bool:
        """Return whether a rank was asked, the same on all."""
        import torch.distributed as dist

        self._flag[0] = self._signalled or self._memory.asked
        dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._group)
        return bool(self._flag)

    def saved(self) -> NoReturn:
        """Wait for the end."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._memory.has_saved(self._local_rank)
        if self._signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        wait_for_the_end()

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Go on, as Slurm's signal leaves time for a step; the agent's own is heeded below."""
        self._signalled = True

    def _begin_data_worker(self) -> None:
        signal.set_wakeup_fd(-1)  # which is this process's
        self._data_workers(0)

    def _heed(self) -> None:
        """End at the agent's signal; the main thread may wait for a peer that is gone."""
        self._signalled = True
        if self._memory.ending:
            os._exit(128 + signal.SIGTERM)


_saver: Saver | None = None


def must_save() -> bool:
    """Return whether the nodes are about to change; all ranks call it after each step.

    The answer is the same on all. If it is yes, save, and call ``saved()``: this process is ended
    then, and training goes on from what was saved on the nodes that there are. The first call
    takes SIGTERM over from whoever handles it. Outside an element, and where torchrun does not use
    our rendezvous, the answer is no.
    """
    global _saver
    if _saver is None:
        path = os.environ.get(VARIABLE)
        if path is None:
            return False
        local = (int(os.environ.get(name, "1")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        _saver = Saver(Memory.opened(path), *local)
    return _saver.must_save()


def saved() -> NoReturn:
    """End this process, which has saved; does not return.

    Raises:
        RuntimeError: nothing was to be saved.
    """
    if _saver is None:
        raise RuntimeError("elastic.saved() is for when elastic.must_save() has said so")
    _saver.saved()
