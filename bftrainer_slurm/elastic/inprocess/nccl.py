"""NCCL's collectives, as far as they differ from gloo's.

From torch's sources, and seen on an H100 (docs/limits.md):

- A collective's future is complete as soon as it is begun: what follows is ordered by streams.
- One that was aborted is complete, without an exception, with anything in its tensors.
- While a communicator is made nothing can be interrupted.
- An abort may wait for ever, and a question to a communicator waits for its abort, with the GIL.

So nothing of NCCL is asked after an abort, no value is used before its end was seen, and a process
in which NCCL does not end is ended: torchrun starts it again.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from bftrainer_slurm.elastic.changes import say
from bftrainer_slurm.elastic.inprocess.phases import HOPELESS_S, Phases
from bftrainer_slurm.elastic.torch_private import abort_together, groups_of_process

BACKEND = "cpu:gloo,cuda:nccl"  # gloo carries flags, and the state that is on the CPU
# torch reads them where it makes a group.
SETTINGS = {
    # With 1, which torchrun sets, a lost peer ends this process; with 2 torch aborts a collective
    # after its time, and then it counts as complete.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # A watchdog of the watchdog: it ends the process if that one waits for the GIL.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # An abort waits so long for a dump that nobody asked for; by default it is up to a minute.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1",
}
PROVEN = (
    "training in process on GPUs was tried with a stand-in for NCCL, and with NCCL on one H100; "
    "never on several GPUs or nodes"
)
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
        if not self._phases.usable():
            return
        self._phases.held = True
        try:
            meeting = dist.all_reduce(torch.zeros(1, device=self._device), async_op=True)
        finally:
            self._phases.held = False
        self.end_of(meeting)

    def end_of(self, work: dist.Work) -> None:
        """Wait for a collective, and remember its failure; an abort is one in any case."""
        pause_s = 0.00005
        while not self._phases.met_abort():
            if work.is_completed():
                if isinstance(failure := work.exception(), Exception):
                    self._phases.fail(failure)
                self._phases.met_abort()  # just now: then it may be complete by that
                return
            time.sleep(pause_s)
            pause_s = min(0.001, 1.1 * pause_s)

    def sum_of(
        self, work: dist.Work, _: Tensor, settle: Callable[[Future[list[Tensor]]], Tensor]
    ) -> Future[Tensor]:
        """Return what DDP waits for: ``settle`` of the collective's future."""
        summed: Future[Tensor] = work.get_future().then(settle)
        return summed

    def cut(self) -> None:
        """Abort all groups of this process that are not aborted yet, or end the process.

        An abort may miss a communicator that is being made.
        """
        groups = [one for one in groups_of_process() if one not in self._aborted]
        if groups:
            if not self._phases.held:
                self._aborted.update(groups)
            # A timer of Python's own would wait for the GIL, which who waits for NCCL may hold.
            faulthandler.dump_traceback_later(HOPELESS_S, exit=True, file=2)
            try:
                abort_together(groups)
            finally:
                faulthandler.cancel_dump_traceback_later()


def end_process() -> None:
    """End a process whose training waits in NCCL."""
    say(_STUCK)
    os._exit(_EXIT_CODE)
