"""The process group of one generation: how it is formed, how it averages gradients, how it ends.

It is torch's default group, so ``dist.get_rank()`` and the like work in users' code. A failed
collective is remembered and raised at the step's commit, never inside DDP's reducer.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import (  # type: ignore[attr-defined]
    GradBucket,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess.buckets import Collected
from bftrainer_slurm.elastic.inprocess.sockets import Connections
from bftrainer_slurm.elastic.torch_private import (
    abort_together,
    count_groups_anew,
    give_torchs_own_time,
    groups_of_process,
    open_store,
)
from bftrainer_slurm.keeper.messages import Generation
from bftrainer_slurm.keeper.protocol import parse_address

_CONNECT_S = 3.0  # a store's host that is up answers at once
_CONNECTS = 6
_STORE_S = 60.0
# gloo waits five times this for a peer to connect. There is no connection yet that could be cut, so
# the group stands still for so long if a peer is lost in these milliseconds. It is an odd number:
# gloo's connections are told by it.
_FORM_S = 2.17
_AGAIN_S = 0.02
# gloo closes a connection at once when it reads its end; stores may not.
_GENTLY_S = 1.0
# Now and then gloo forgets a send if its connection is closed just then (torch 2.13; see
# ``Connections.shut_down``). After this long, all that will ever fail has failed.
_HOPELESS_S = 5.0


class PeerLostError(Exception):
    """A collective failed: the step in flight cannot be committed."""


class _LateError(RuntimeError):
    """A peer's host was reached, and the peer itself, or another one, did not come in time."""


class Communicator:
    """The default process group while a generation lasts."""

    def __init__(self) -> None:
        self.rank = 0
        self.world = 1
        self.weight = 1.0  # of this rank's gradients in the step
        self.record = False
        self.layout: list[tuple[int, ...]] = []  # ids of the parameters in each of its buckets
        self.collected: Collected | None = None  # where the ranks' buckets differ
        self._nccl = False
        self._connections = Connections(_FORM_S)
        self._works: list[tuple[dist.Work, bool]] = []  # that the step depends on; on a GPU?
        self._sums: list[_Sum] = []  # that DDP waits for
        self._hopeless = False  # what has not ended yet never will
        self._forsaken = False  # we went on without a collective
        self._failure: Exception | None = None
        self._aborted: str | None = None
        self._woken = threading.Event()  # it was aborted, or it is over
        self._over = threading.Event()
        self._aborting = threading.Lock()

    def form(
        self, generation: Generation, backend: str, address: str, offer: Callable[[str], None]
    ) -> None:
        """Connect with the generation's other members.

        They reach this process at ``address``. Rank 0 opens a store, and ``offer`` tells them its
        HOST:PORT.

        Raises:
            PeerLostError: not all of them can be reached.
        """
        self.rank, self.world = generation.rank, generation.world
        self._nccl = "nccl" in backend
        self.stand_by()
        with self.noting():
            if generation.rank == 0:
                store = self._open_store(address, 0, hosts=True)
                offer(f"{address}:{store.port}")
            else:
                place = _reachable(generation.store or "")
                with _waiting_for_peers():
                    store = self._open_store(*place, hosts=False)
            # A wait here can be ended from outside; a wait while the group is made cannot.
            with _waiting_for_peers():
                store.set(f"here/{self.rank}", "")
                store.wait([f"here/{rank}" for rank in range(self.world)])
            own = PrefixStore(str(generation.number), store)
            make_default(backend, own, generation.rank, generation.world)
            if self._nccl:  # the first collective makes NCCL's communicator: better not in a step
                meeting = dist.all_reduce(torch.zeros(1, device="cuda"), async_op=True)
                self.end_of(meeting, on_gpu=True)
                self.check()

    def _open_store(self, host: str, port: int, hosts: bool) -> TCPStore:
        """Open a store, or connect to one.

        For its whole timeout, torch retries a connection that is cut or whose other end is gone.
        So the timeout is short at first, and there is no new attempt after an abort.
        """
        if not hosts:  # at once: torch waits for an answer without any limit (2.13)
            self._connections.add_store(host, port, hosted=False)
        for _ in range(_CONNECTS):
            try:
                store = open_store(host, port, hosts, timedelta(seconds=_CONNECT_S / _CONNECTS))
            except RuntimeError as error:
                failure = error
            else:
                if hosts:
                    self._connections.add_store(host, store.port, hosted=True)
                store.set_timeout(timedelta(seconds=_STORE_S))
                return store
            if self._aborted is not None:
                break
        raise failure

    def formed(self) -> None:
        """Check that the group is good now that all have the same state.

        Raises:
            PeerLostError: it has failed already.
        """
        if not self._usable():
            self.commit()

    def all_gather(self, numbers: Sequence[int]) -> Tensor:
        """Return the numbers of all ranks, a row for each; all ranks call it with as many.

        Raises:
            PeerLostError: they did not arrive.
        """
        rows = [torch.empty(len(numbers), dtype=torch.int64) for _ in range(self.world)]
        self.complete(lambda: dist.all_gather(rows, torch.tensor(numbers), async_op=True))
        return torch.stack(rows)

    def channel(self, others: Sequence[int] | None = None) -> Channel:
        """Return a channel from rank 0 to these ranks, or to all; all ranks call it.

        Raises:
            PeerLostError: it cannot be made.
        """
        within: dist.ProcessGroup | None = None
        if others is not None and len(others) + 1 < self.world:
            ranks = [0, *others]
            with self.noting():
                within = dist.new_group(ranks, timeout=timedelta(seconds=_FORM_S))
                if self.rank in ranks:
                    give_torchs_own_time(within)
        return Channel(self, within)

    def begin(self, weight: float, record: bool = False) -> None:
        """Begin a step in which this rank's gradients have this weight; ``record``: its layout."""
        self.weight, self.record = weight, record
        self.layout = []
        self._works, self._sums = [], []
        if self.collected is not None:
            self.collected.clear()

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        """Sum a bucket of gradients, weighted, over the world: DDP's communication hook."""
        buffer = bucket.buffer()
        if self.record:
            self.layout.append(tuple(map(id, bucket.parameters())))
        if self.weight == 0.0:
            buffer.zero_()  # not multiplied: the gradients of a rank without samples may be nan
        elif self.weight != 1.0:
            buffer.mul_(self.weight)
        if self.collected is not None:
            return self._sum_one_by_one(self.collected, bucket)
        if self.world > 1 and self._usable():
            try:
                work = dist.all_reduce(buffer, async_op=True)
            except RuntimeError as error:
                self.fail(error)
            else:
                self.watch(work, buffer.is_cuda)
                return self._sum_of(work, buffer)
        if self._failure is not None:
            buffer.zero_()
        finished: Future[Tensor] = Future()
        finished.set_result(buffer)
        return finished

    def _sum_one_by_one(self, collected: Collected, bucket: GradBucket) -> Future[Tensor]:
        """Sum each gradient by itself, once the last bucket is there."""
        future = collected.add(bucket)
        if bucket.is_last():
            self.attempt(lambda: self._begin_sums(collected.gradients()))
            for work, on_gpu in self._works:
                self.end_of(work, on_gpu)
            collected.give(good=self._failure is None)
        return future

    def _begin_sums(self, gradients: Sequence[Tensor]) -> None:
        for one in gradients:
            self.watch(dist.all_reduce(one, async_op=True), one.is_cuda)

    def attempt(self, send: Callable[[], None]) -> None:
        """Run ``send``, which sends something to all; if it fails, the step fails at its commit."""
        if self.world > 1 and self._usable():
            with contextlib.suppress(PeerLostError), self.noting():
                send()

    def watch(self, work: dist.Work, on_gpu: bool) -> None:
        """Let the step depend on a collective; on a GPU it is NCCL's."""
        self._works.append((work, on_gpu))

    def complete(self, start: Callable[[], dist.Work]) -> None:
        """Start a collective of tensors on the CPU, and wait until it is done.

        Raises:
            PeerLostError: it failed, or an earlier one did.
        """
        if self._usable():
            with self.noting():
                work = start()
            self.watch(work, on_gpu=False)
            self.end_of(work, on_gpu=False)
        self.check()

    def commit(self) -> None:
        """Wait until the step's collectives are done.

        Raises:
            PeerLostError: one of them failed.
        """
        for work, on_gpu in self._works:
            self.end_of(work, on_gpu)
        self.check()

    def check(self) -> None:
        """Raise PeerLostError if a collective has failed."""
        if self._failure is not None:
            raise PeerLostError(str(self._failure)) from self._failure

    def fail(self, error: Exception) -> None:
        """Remember that a collective failed; the first error counts."""
        if self._failure is None:
            self._failure = error

    def failed(self) -> bool:
        """Return whether a collective has failed."""
        return self._failure is not None

    @property
    def own_failure(self) -> Exception | None:
        """What failed here first; None: nothing, a peer is late, or it was aborted from outside."""
        peers = self._aborted is not None or isinstance(self._failure, _LateError)
        return None if peers else self._failure

    def stand_by(self) -> None:
        """Be ready to abort: later there may be no thread to be had, and nobody to say so."""
        threading.Thread(target=self._abort, daemon=True).start()

    def abort(self, why: str) -> None:
        """End all collectives in flight, from another thread: a peer is lost or frozen.

        ``form`` and ``stand_by`` begin the thread that does it.
        A step whose collectives are done by then can still be committed. The reason is set before
        anything is aborted, as ``end_of`` relies on that order.
        """
        self._aborted = why
        self._woken.set()

    def close(self) -> None:
        """Cut all connections, so that no peer waits for this rank; ``rank`` and ``world`` stay."""
        self._over.set()
        self._woken.set()
        with self._aborting:
            self._cut()

    def _abort(self) -> None:
        self._woken.wait()
        # Again and again, as the group may still be forming.
        begun_s = time.monotonic()
        while not self._over.is_set():
            passed_s = time.monotonic() - begun_s
            with self._aborting:
                if self._over.is_set():
                    return
                self._cut(gently=passed_s < _GENTLY_S)
                if passed_s > _HOPELESS_S:
                    self._give_up()
            self._over.wait(_AGAIN_S)

    def _give_up(self) -> None:
        """Free the threads that wait for gloo's collectives that will not end."""
        works = [work for work, on_gpu in list(self._works) if not on_gpu]
        if any(not work.is_completed() for work in works):
            self._forsake()  # first, as DDP then goes on with a wrong sum
            for one in list(self._sums):
                one.give(one.buffer)
        self._hopeless = True

    def _forsake(self) -> PeerLostError:
        """Go on without a collective that does not end."""
        error = PeerLostError("a collective does not end, though its connections were cut")
        self.fail(error)
        if not self._forsaken:
            self._forsaken = True
            for group in groups_of_process():
                _keep_for_ever(group)
        return error

    def check_end(self, work: dist.Work) -> None:
        """Check that one of gloo's collectives, which somebody waits for, may still end.

        Raises:
            PeerLostError: it will not end.
        """
        if self._hopeless and not work.is_completed():
            raise self._forsake()

    def end_of(self, work: dist.Work, on_gpu: bool) -> None:
        """Wait for a collective, and remember its failure.

        This never blocks in NCCL or gloo, which may not return. An aborted collective of NCCL's
        ends as if it were complete, with anything in its tensors. So we look after its end whether
        the group was aborted, before anybody uses them.
        """
        pause_s = 0.00005
        while not work.is_completed():
            if self._hopeless and not on_gpu:
                self._forsake()
                return
            time.sleep(pause_s)
            pause_s = min(0.001, 1.1 * pause_s)
        if not on_gpu:
            try:
                work.wait()  # it has ended; this raises its failure
            except RuntimeError as error:
                self.fail(error)
            return
        if isinstance(failure := work.exception(), Exception):
            self.fail(failure)
        if self._aborted is not None:
            self.fail(PeerLostError(self._aborted))

    def _sum_of(self, work: dist.Work, buffer: Tensor) -> Future[Tensor]:
        if self._nccl:
            summed: Future[Tensor] = work.get_future().then(
                lambda done: self._sum_or_zero(done, buffer)
            )
            return summed
        one = _Sum(buffer)
        self._sums.append(one)
        work.get_future().add_done_callback(lambda done: one.give(self._sum_or_zero(done, buffer)))
        return one.future

    def _usable(self) -> bool:
        if self._aborted is not None:
            self.fail(PeerLostError(self._aborted))
        return self._failure is None

    def _cut(self, gently: bool = False) -> None:
        if self._nccl and dist.is_initialized():
            abort_together(groups_of_process())
        self._connections.shut_down(gently)

    def _sum_or_zero(self, done: Future[list[Tensor]], buffer: Tensor) -> Tensor:
        try:
            return done.value()[0]
        except RuntimeError as error:
            self.fail(error)
            return buffer.zero_()

    @contextlib.contextmanager
    def noting(self, foreign: bool = True) -> Iterator[None]:
        """Remember a failure, and raise it as PeerLostError; all that fails is a collective's.

        ``foreign`` False: other errors may come too, and stay themselves.
        """
        try:
            yield
        except (RuntimeError, OSError) as error:  # gloo's and the store's own are RuntimeErrors
            if not (foreign or of_collective(error)):
                raise
            self.fail(error)
            raise PeerLostError(str(error)) from error


class _Sum:
    """A bucket's sum. It is set once: when it is there, or when we give up."""

    def __init__(self, buffer: Tensor) -> None:
        self.future: Future[Tensor] = Future()
        self.buffer = buffer
        self._given = threading.Lock()

    def give(self, tensor: Tensor) -> None:
        if self._given.acquire(blocking=False):
            self.future.set_result(tensor)


class Channel:
    """Broadcasts from rank 0 of a group to the others in ``within``, or to all."""

    def __init__(self, group: Communicator, within: dist.ProcessGroup | None) -> None:
        self._group = group
        self._within = within

    def broadcast(self, tensor: Tensor) -> None:
        """Begin to fill a tensor with rank 0's content; all call it in the same order."""
        with self._group.noting():
            work = dist.broadcast(tensor, src=0, group=self._within, async_op=True)
        self._group.watch(work, tensor.is_cuda)

    def arrive(self) -> None:
        """Wait for all broadcasts that were begun.

        Raises:
            PeerLostError: one of them failed; do not use the tensors then.
        """
        self._group.commit()


def of_collective(error: object) -> TypeGuard[RuntimeError]:
    """Return whether a failed collective raised this; gloo's errors have no own type."""
    named = isinstance(error, dist.DistError) or "gloo" in str(error)
    return named and isinstance(error, RuntimeError)


def make_default(backend: str, store: Store, rank: int, world: int) -> None:
    """Make a new default process group in place of the current one."""
    if dist.is_initialized():
        dist.distributed_c10d.destroy_process_group()  # not the one of ``keep_groups``
    count_groups_anew()
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=_FORM_S)
    )
    give_torchs_own_time(dist.group.WORLD)  # now that its connections are there


def _keep_for_ever(group: dist.ProcessGroup) -> None:
    """Never destroy a group: that would wait for its threads, one of which will never end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def backend_for(model: nn.Module) -> str:
    """Return the backend for a model's device."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return "cpu:gloo,cuda:nccl" if on_gpu else "gloo"


@contextlib.contextmanager
def _waiting_for_peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise _LateError(str(error)) from error


def _reachable(endpoint: str) -> tuple[str, int]:
    """Return a store's address if it answers; its client would retry for its whole timeout."""
    address = parse_address(endpoint)
    with socket.create_connection(address, timeout=_CONNECT_S):
        return address
