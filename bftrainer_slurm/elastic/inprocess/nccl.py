"""NCCL's collectives, as far as they differ from gloo's.

What torch 2.11 with NCCL 2.28 did on an H100:

- A collective's future is complete as soon as it is begun: what follows is ordered by streams.
- One that was aborted is complete, without an exception, with anything in its tensors. One whose
  peer is lost may never end, or be complete while it still runs; then only ``wait`` raises.
- Who makes a communicator while a peer is away is never free again, whatever is aborted. The same
  process can make another one beside it.
- An abort takes half a second. To destroy a group after an error may take minutes.

So no value is used before its end was seen, and after that no abort. A thread that makes a
communicator is left behind, no group is destroyed, and a process in which an abort does not end, or
a launch, is ended: torchrun starts it again.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess.gloo import keep_for_ever
from bftrainer_slurm.elastic.inprocess.phases import HOPELESS_S, Phases
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.torch_private import abort_together, groups_of_process

BACKEND = "cpu:gloo,cuda:nccl"  # gloo carries flags, and the state that is on the CPU
# torch and NCCL read them as a process's first group is made.
SETTINGS = {
    # With 1, which torchrun sets, a lost peer ends this process; with 2 torch aborts a collective
    # after its time, and then it counts as complete.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    # It ends a process whose watchdog waits.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # An error leads to a dump of the last collectives, for which threads wait up to eight minutes.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1",
    "TORCH_FR_BUFFER_SIZE": "0",
    # With 1 an abort hangs while a communicator is made, and so does its end.
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
    # Else the first collective of each size connects, in its launch, from which no abort frees.
    "NCCL_RUNTIME_CONNECT": "0",
}
PROVEN = (
    "training in process on GPUs was tried with a stand-in for NCCL, and with NCCL on one H100 "
    "and one H200, never on several GPUs or nodes"
)
_LOOK_S = 0.001
_STUCK = "NCCL does not end: this process ends itself, and torchrun starts it again"
_EXIT_CODE = 1


class Nccl:
    """The communicators of one generation."""

    def __init__(self, phases: Phases, device: torch.device) -> None:
        self._phases = phases
        self._device = device
        self._aborted: set[dist.ProcessGroup] = set()

    @staticmethod
    def carries(tensor: Tensor) -> bool:
        """Return whether a tensor's collectives are NCCL's."""
        return tensor.is_cuda

    def open(self) -> None:
        """Make the communicator, together with all members; better now than in a step."""
        group, one = dist.group.WORLD, torch.zeros(1, dtype=torch.uint8, device=self._device)
        begun: list[dist.Work] = []

        def make() -> None:
            try:
                begun.append(dist.all_reduce(one, group=group, async_op=True))
            except RuntimeError as error:
                self._phases.fail(error)
            if group is not None and self._phases.met_abort():
                group.abort()  # the abort has missed it

        making = threading.Thread(target=make, daemon=True)
        making.start()
        while making.is_alive() and not self._phases.met_abort():
            making.join(_LOOK_S)
        for work in begun:
            self.end_of(work)

    def end_of(self, work: dist.Work) -> None:
        """Wait for a collective, and remember its failure; an abort is one in any case."""
        pause_s = 0.00005
        while not self._phases.met_abort():
            if work.is_completed():
                try:
                    work.wait()  # at once: the stream waits, and an error is raised
                except RuntimeError as error:
                    self._phases.fail(error)
                self._phases.met_abort()  # just now: then it may be complete by that
                return
            time.sleep(pause_s)
            pause_s = min(_LOOK_S, 1.1 * pause_s)

    def sum_of(
        self, work: dist.Work, _: Tensor, settle: Callable[[Future[list[Tensor]]], Tensor]
    ) -> Future[Tensor]:
        """Return what DDP waits for: ``settle`` of the collective's future."""
        summed: Future[Tensor] = work.get_future().then(settle)
        return summed

    def cut(self) -> None:
        """Abort all groups of this process that are not aborted yet, or end the process."""
        groups = [one for one in groups_of_process() if one not in self._aborted]
        if groups:
            for group in groups:
                keep_for_ever(group)
            self._aborted.update(groups)
            # As a thread of Python's could not if one waited with the GIL.
            faulthandler.dump_traceback_later(HOPELESS_S, exit=True, file=2)
            try:
                abort_together(groups)
            finally:
                faulthandler.cancel_dump_traceback_later()


def end_process() -> None:
    """End a process whose training waits in NCCL."""
    say(_STUCK)
    os._exit(_EXIT_CODE)
