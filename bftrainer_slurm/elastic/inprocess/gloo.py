"""gloo's collectives: they fail when their connections are cut, or are given up."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess.phases import PeerLostError, Phases
from bftrainer_slurm.elastic.inprocess.sockets import Connections
from bftrainer_slurm.elastic.torch_private import groups_of_process

# gloo waits five times this for a peer to connect. There is no connection yet that could be cut, so
# the group stands still for so long if a peer is lost in these milliseconds. It is an odd number:
# gloo's connections are told by it.
FORM_S = 2.17


class Gloo:
    """The connections and collectives of one generation."""

    def __init__(self, phases: Phases) -> None:
        self.connections = Connections(FORM_S)
        self._phases = phases
        self._sums: list[_Sum] = []  # that DDP waits for
        self._hopeless = False  # what has not ended yet never will
        self._forsaken = False  # we went on without a collective

    def begin(self) -> None:
        """Forget the sums of the step before."""
        self._sums = []

    def end_of(self, work: dist.Work) -> None:
        """Wait for a collective, and remember its failure; this never blocks in gloo."""
        pause_s = 0.00005
        while not work.is_completed():
            if self._hopeless:
                self._forsake()
                return
            time.sleep(pause_s)
            pause_s = min(0.001, 1.1 * pause_s)
        try:
            work.wait()  # it has ended; this raises its failure
        except RuntimeError as error:
            self._phases.fail(error)

    def sum_of(
        self, work: dist.Work, buffer: Tensor, settle: Callable[[Future[list[Tensor]]], Tensor]
    ) -> Future[Tensor]:
        """Return what DDP waits for: ``settle`` of the collective's future, or the buffer."""
        one = _Sum(buffer)
        self._sums.append(one)
        work.get_future().add_done_callback(lambda done: one.give(settle(done)))
        return one.future

    def cut(self, gently: bool = False) -> None:
        """Cut the connections: all that is under way fails, here and at the peers."""
        self.connections.shut_down(gently)

    def have_ended(self, works: Sequence[dist.Work], within_s: float) -> bool:
        """Wait so long at most for collectives whose connections are cut; return whether all ended.

        Those that were given up count as ended.
        """
        until_s = time.monotonic() + within_s
        while not self._hopeless and not all(work.is_completed() for work in works):
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.001)
        return True

    def give_up(self, works: Sequence[dist.Work]) -> None:
        """Free the threads that wait for collectives that will not end."""
        if any(not work.is_completed() for work in works):
            self._forsake()  # first, as DDP then goes on with a wrong sum
            for one in list(self._sums):
                one.give(one.buffer)
        self._hopeless = True

    def check_end(self, work: dist.Work) -> None:
        """Check that a collective, which somebody waits for, may still end.

        Raises:
            PeerLostError: it will not end.
        """
        if self._hopeless and not work.is_completed():
            raise self._forsake()

    def _forsake(self) -> PeerLostError:
        """Go on without a collective that does not end."""
        error = PeerLostError("a collective does not end, though its connections were cut")
        self._phases.fail(error)
        if not self._forsaken:
            self._forsaken = True
            for group in groups_of_process():
                keep_for_ever(group)
        return error


class _Sum:
    """A bucket's sum. It is set once: when it is there, or when we give up."""

    def __init__(self, buffer: Tensor) -> None:
        self.future: Future[Tensor] = Future()
        self.buffer = buffer
        self._given = threading.Lock()

    def give(self, tensor: Tensor) -> None:
        if self._given.acquire(blocking=False):
            self.future.set_result(tensor)


def keep_for_ever(group: dist.ProcessGroup) -> None:
    """Never destroy a group: that would wait for its threads, one of which will never end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
