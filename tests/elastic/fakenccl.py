"""A backend that behaves as NCCL does, over gloo, on the CPU.

What torch 2.11 with NCCL 2.28 did on an H100 (what comes from torch's sources has a star):

- A collective's future is done when it is launched; its values come later, in the order of launch.
- If a peer is lost, a collective ends on no rank. On some it is complete all the same, while its
  kernel still writes: only ``wait`` says so.
- An aborted collective is complete, without an exception, with anything in its tensors.
- The communicator is made by the first collective, which nothing interrupts.
- After an error a group is destroyed only after minutes, if there is a dump to be waited for.
- * An abort waits for a dump, up to a minute, and may hang: with or without the GIL.
- * Unless it is told otherwise, the watchdog itself aborts what takes too long.

gloo carries the flags beside it, as in ``cpu:gloo,cuda:nccl``. As there is no stream that a CPU's
next operation would wait for, DDP's gradients have to be views of its buckets.
"""

from __future__ import annotations

import ctypes
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    ProcessGroupGloo,
    Store,
    Work,
)
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess import nccl, trainer
from bftrainer_slurm.elastic.inprocess.sockets import Connections

NAME = "fakenccl"
POINTS = ("init", "launch", "flight", "arrival", "abort")
_WIRE_S = 31.7  # gloo's connections are told by it, see ``Connections``
_WATCHDOG_S = 1.5  # 30 minutes in torch
_DUMP_S = 60.0  # for which an abort waits
_LATE_S = 0.003
_TOLD = 0.4  # the part of the ranks that hear of an error

Begin = Callable[[Any, Tensor], Work]
told: list[Callable[[str], None]] = []  # of each point that this process comes to


def reach(point: str) -> None:
    """Say that this process has come to a point."""
    for tell in told:
        tell(point)


def carries(tensor: Tensor) -> bool:
    """Return whether a tensor would be on the GPU; the trainer's flags are not."""
    flag = tensor.numel() == 1 and tensor.dtype is not torch.uint8
    return not flag and tensor.dtype is not torch.int64


def use() -> None:
    """Let this process's Trainer train by it."""
    dist.Backend.register_backend(NAME, FakeNccl, devices=["cpu"])
    nccl.BACKEND = NAME
    nccl.Nccl.carries = staticmethod(carries)  # type: ignore[method-assign]
    trainer.gpu_of = lambda _: torch.device("cpu")


def hang(with_gil: bool) -> None:
    """Never return."""
    (ctypes.PyDLL if with_gil else ctypes.CDLL)(None).sleep(600)


class Launched:
    """A collective. ``wait`` only orders streams."""

    def __init__(self, tensor: Tensor, writes: bool) -> None:
        self.tensor = tensor
        self.begun_s = time.monotonic()
        self._writes = writes
        self._over = threading.Event()
        self._error: RuntimeError | None = None

    def is_completed(self) -> bool:
        return self._over.is_set() or self._error is not None

    def exception(self) -> None:
        raise TypeError("Unregistered type : std::exception_ptr")

    def wait(self, *_: object) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[list[Tensor]]:
        future: Future[list[Tensor]] = Future()
        future.set_result([self.tensor])
        return future

    def arrive(self, values: Tensor) -> None:
        self.tensor.copy_(values)
        self._over.set()

    def note(self, error: RuntimeError) -> None:
        self._error = error

    def spoil(self) -> None:
        """Its kernel leaves; each byte of 255 makes a NaN."""
        if self._writes and not self._over.is_set():
            self.tensor.contiguous().view(-1).view(torch.uint8).fill_(255)
        self._over.set()


class Stream:
    """A communicator, and the collectives on it, one after the other."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        reach("init")
        self._wire = ProcessGroupGloo(store, rank, world, timedelta(seconds=_WIRE_S))
        self._queue: queue.SimpleQueue[tuple[Launched, Begin] | None] = queue.SimpleQueue()
        self.failed = False
        self._aborted = threading.Event()
        self._present: Launched | None = None
        threading.Thread(target=self._run, daemon=True).start()
        if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") != "0":
            threading.Thread(target=self._watch, daemon=True).start()

    def launch(self, tensor: Tensor, begin: Begin, writes: bool = True) -> Launched:
        reach("launch")
        if self._aborted.is_set():
            raise RuntimeError("NCCL communicator was aborted")
        one = Launched(tensor, writes)
        self._queue.put((one, begin))
        return one

    def abort(self) -> None:
        self._aborted.set()
        Connections(_WIRE_S).shut_down()
        self._queue.put(None)

    def _run(self) -> None:
        while (launched := self._queue.get()) is not None:
            one, begin = launched
            self._present = one
            values = one.tensor.detach().clone()
            try:
                if self._aborted.is_set():
                    raise RuntimeError("aborted")
                work = begin(self._wire, values)
                reach("flight")
                work.wait()
                time.sleep(random.random() * _LATE_S)
                reach("arrival")
            except RuntimeError as error:  # a peer is lost, which few are told
                if not self._aborted.is_set() and random.random() < _TOLD:
                    time.sleep(random.random() * _LATE_S)
                    one.note(dist.DistBackendError(f"NCCL error: remote process exited: {error}"))
                    self.failed = True
                self._aborted.wait()
            if self._aborted.is_set():
                one.spoil()
            else:
                one.arrive(values)

    def _watch(self) -> None:
        while not self._aborted.wait(0.1):
            one = self._present
            late = one is not None and time.monotonic() - one.begun_s > _WATCHDOG_S
            if late and one is not None and not one.is_completed():
                self.abort()


class FakeNccl(dist.ProcessGroup):
    """``cpu:gloo,cuda:nccl`` in one."""

    def __init__(self, store: Store, rank: int, world: int, timeout: timedelta) -> None:
        super().__init__(rank, world)
        self._gloo: Any = ProcessGroupGloo(PrefixStore("cpu", store), rank, world, timeout)
        self._gloo._set_default_timeout(timedelta(minutes=30))
        self._where = (PrefixStore("cuda", store), rank, world)
        self._stream: Stream | None = None

    def _of(self, tensor: Tensor) -> Stream | None:
        if not carries(tensor):
            return None
        if self._stream is None:
            self._stream = Stream(*self._where)
        return self._stream

    def allreduce(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        stream = self._of(tensors[0])
        if stream is None:
            return self._gloo.allreduce(tensors, opts)
        return stream.launch(tensors[0], lambda wire, values: wire.allreduce([values], opts))

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        stream = self._of(tensors[0])
        if stream is None:
            return self._gloo.broadcast(tensors, opts)
        writes = self.rank() != opts.rootRank
        begin = lambda wire, values: wire.broadcast([values], opts)  # noqa: E731
        return stream.launch(tensors[0], begin, writes)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Any:  # type: ignore[override]
        assert not carries(inputs[0])
        return self._gloo.allgather(outputs, inputs, opts)

    def abort(self) -> None:
        reach("abort")
        dump = os.environ.get("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC")
        time.sleep(_DUMP_S if dump is None else float(dump) / 1000)
        if self._stream is not None:
            self._stream.abort()

    def shutdown(self) -> None:
        """Destroy it; the others may still need it, unless they have all met before."""
        failed = self._stream is not None and self._stream.failed
        if failed and os.environ.get("TORCH_NCCL_DUMP_ON_TIMEOUT") != "0":
            hang(with_gil=False)
        self.abort()

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return NAME
