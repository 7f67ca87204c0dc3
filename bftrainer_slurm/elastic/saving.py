"""A script that is restarted saves when it is asked to, so a planned change loses no step.

The node's agent asks through the progress memory. All ranks agree on a step, and save after it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import NoReturn

from bftrainer_slurm.elastic.memory import Memory, of_agent
from bftrainer_slurm.elastic.processes import DataWorkerStart
from bftrainer_slurm.elastic.signals import SIGNALLED, Sigterm

LONGEST_SAVE_S = 30.0  # a script that has not saved by then is ended
_NO_GROUP = (
    "elastic.must_save() asks all ranks: call torch.distributed.init_process_group() before it"
)
_PLANNED = ("join", "leave")  # changes in which no rank is lost, so all can save


class Asking:
    """The agent's side: it asks for a save, and says when its processes may be ended.

    A node that Slurm takes back makes its step within ``grace_s``, or it is gone: then the others
    wait for it in a collective that may never end, and have not been told to save.
    """

    def __init__(
        self, memory: Memory, grace_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._memory = memory
        self._grace_s = grace_s
        self._clock = clock
        self._asked_s: float | None = None
        self._planned = True

    def begin(self) -> None:
        """New processes begin."""
        self._asked_s = None
        self._memory.begin()

    def is_over(self, why: str, planned: bool) -> bool:
        """Ask them to save, if the change leaves time for it; return whether to end them.

        ``planned``: no node is being taken back.
        """
        if why not in _PLANNED or not self._memory.saving:
            return True
        if self._asked_s is None or planned != self._planned:
            self._asked_s, self._planned = self._clock(), planned
            self._memory.present.asked = True
        waits = planned or self._memory.present.told
        return self._clock() - self._asked_s >= (LONGEST_SAVE_S if waits else self._grace_s)


class Saver:
    """The training process's side."""

    def __init__(self, memory: Memory, local_rank: int, local_world: int) -> None:
        import torch
        import torch.distributed as dist

        from bftrainer_slurm.elastic import torch_private

        self.memory = memory
        self._local_rank = local_rank
        self._has_saved = False
        self._flag = torch.zeros(1)
        self._sent: list[dist.Work | None] = []  # kept, as not all of them arrive before the end
        self._together = dist.is_initialized()
        if self._together:
            # A group of its own, on the CPU: so it does not mix with the script's collectives.
            self._group = dist.new_group(backend="gloo")
        elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise RuntimeError(_NO_GROUP)
        # Slurm's signal leaves time for a step; at the agent's own signal we end at once.
        self._sigterm = Sigterm(self._heed)
        if self._sigterm.watch():
            torch_private.begin_data_workers(DataWorkerStart())
        memory.present.savers = local_world

    def must_save(self) -> bool:
        """Return whether any rank was asked; the answer is the same on all."""
        import torch.distributed as dist

        self._flag[0] = self._sigterm.came or self.memory.present.asked
        if self._together:
            dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._group)
        self.memory.present.told = bool(self._flag)
        return bool(self._flag)

    def saved(self) -> NoReturn:
        """Say that all ranks have saved, and wait for the end.

        Otherwise those that stay could begin again before one that leaves has saved. The end of
        one that Slurm has signalled says that it has; the keeper waits for all that stay.
        """
        if self._together and not self._sigterm.came:
            self._await_others()
        self._has_saved = True
        self.memory.saved[self._local_rank] = True
        self._sigterm.end()

    def _await_others(self) -> None:
        """Wait for each of the others by itself: a collective fails as soon as one has ended."""
        import torch.distributed as dist

        others = set(range(dist.get_world_size(self._group))) - {dist.get_rank(self._group)}
        said, heard = self._flag, self._flag.clone()
        for rank in others:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._sent.append(dist.isend(said, rank, self._group))
        for rank in others:
            with contextlib.suppress(RuntimeError):
                dist.recv(heard, rank, self._group)

    def _heed(self) -> None:
        """End at the agent's signal, as the main thread may wait for a peer that is gone."""
        if self.memory.present.ending and not self._has_saved:
            os._exit(SIGNALLED)


_saver: Saver | None = None
_before_end: list[Callable[[], object]] = []


def before_end(do: Callable[[], object]) -> None:
    """Have ``do`` called by ``saved()``, before it says that all is saved."""
    _before_end.append(do)


def is_ending() -> bool:
    """Return whether the agent ends this process, while others wait for it."""
    return _saver is not None and bool(_saver.memory.present.ending)


def must_save() -> bool:
    """Return whether the nodes are about to change; all ranks call it after each step.

    The answer is the same on all. If it is yes, save, and call ``saved()``: this process ends
    then, and training goes on from that checkpoint on the new nodes. The first call takes SIGTERM
    over from any other handler. Outside an element, and where torchrun does not use our
    rendezvous, the answer is no.

    Raises:
        RuntimeError: there are several ranks, and no process group yet.
    """
    global _saver
    if _saver is None:
        memory = of_agent(os.environ)
        if memory is None:
            return False
        local = (int(os.environ.get(name, "1")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        _saver = Saver(memory, *local)
    return _saver.must_save()


def saved() -> NoReturn:
    """End this process, as ``sys.exit()`` does, once all ranks have saved; this does not return.

    Blocks are left, exit handlers run, and open files are written. All of it has two seconds, or
    the grace if that is longer.

    Raises:
        SystemExit: it ends.
        RuntimeError: ``must_save()`` has not been called, or only outside an element.
    """
    if _saver is None:
        raise RuntimeError("elastic.saved() is for when elastic.must_save() has said so")
    for do in _before_end:
        do()
    _saver.saved()
