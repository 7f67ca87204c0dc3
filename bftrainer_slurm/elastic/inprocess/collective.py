"""The process group of one generation: how it is formed, what is sent in it, how it ends.

It is torch's default group, so ``dist.get_rank()`` and the like work in users' code. A failed
collective is remembered and raised at the step's commit, never inside DDP's reducer. What a failure
or an abort means is in ``phases``; what differs between libraries is in ``gloo`` and ``nccl``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess import nccl, phases
from bftrainer_slurm.elastic.inprocess.gloo import FORM_S, Gloo
from bftrainer_slurm.elastic.inprocess.phases import Cut, PeerLostError, Phase, Phases
from bftrainer_slurm.elastic.torch_private import (
    give_torchs_own_time,
    make_default,
    open_store,
)
from bftrainer_slurm.keeper.messages import Generation
from bftrainer_slurm.keeper.protocol import parse_address

_CONNECT_S = 3.0  # a store's host that is up answers at once
_CONNECTS = 6
_STORE_S = 60.0
_AGAIN_S = 0.02
# What gloo's errors say: its files, and where another wait of the process has timed out, only this.
_GLOOS = ("gloo", "Application timeout caused pair closure")


Carrier = Gloo | nccl.Nccl


class _LateError(RuntimeError):
    """A peer's host was reached, and the peer itself, or another one, did not come in time."""


class Communicator:
    """The default process group while a generation lasts; ``gpu``: the model is on it."""

    def __init__(self, gpu: torch.device | None = None) -> None:
        self.rank = 0
        self.world = 1
        self._phases = Phases()
        self._gloo = Gloo(self._phases)
        self._nccl = None if gpu is None else nccl.Nccl(self._phases, gpu)
        self._works: list[tuple[dist.Work, Carrier]] = []  # that the step depends on
        self._woken = threading.Event()  # it was aborted, or it is over
        self._aborting = threading.Lock()

    def form(self, generation: Generation, address: str, offer: Callable[[str], None]) -> None:
        """Connect with the generation's other members.

        They reach this process at ``address``. Rank 0 opens a store, and ``offer`` tells them its
        HOST:PORT.

        Raises:
            PeerLostError: not all of them can be reached.
        """
        self.rank, self.world = generation.rank, generation.world
        self._phases.form()
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
            self.make_default(own)
            if self._nccl is not None:
                self._nccl.open()
        self.check()
        self._phases.ready()

    @property
    def backend(self) -> str:
        """torch's name of the group's backend."""
        return "gloo" if self._nccl is None else nccl.BACKEND

    def make_default(self, store: Store) -> None:
        """Make a group of this world torch's default one, in place of the one before."""
        make_default(self.backend, store, self.rank, self.world, FORM_S)

    def _open_store(self, host: str, port: int, hosts: bool) -> TCPStore:
        """Open a store, or connect to one.

        For its whole timeout, torch retries a connection that is cut or whose other end is gone.
        So the timeout is short at first, and there is no new attempt after an abort.
        """
        if not hosts:  # at once: torch waits for an answer without any limit (2.13)
            self._gloo.connections.add_store(host, port, hosted=False)
        for _ in range(_CONNECTS):
            try:
                store = open_store(host, port, hosts, timedelta(seconds=_CONNECT_S / _CONNECTS))
            except RuntimeError as error:
                failure = error
            else:
                if hosts:
                    self._gloo.connections.add_store(host, store.port, hosted=True)
                store.set_timeout(timedelta(seconds=_STORE_S))
                return store
            if self._phases.aborted is not None:
                break
        raise failure

    def formed(self) -> None:
        """Check that the group is good now that all have the same state.

        Raises:
            PeerLostError: it has failed already.
        """
        if not self._phases.usable():
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
                # A communicator of NCCL's for them could not be interrupted while it is made.
                backend = None if self._nccl is None else "gloo"
                within = dist.new_group(ranks, timedelta(seconds=FORM_S), backend)
                if self.rank in ranks:
                    give_torchs_own_time(within)
        return Channel(self, within)

    def begin(self) -> None:
        """Begin a step, or to share a state."""
        self._works = []
        self._gloo.begin()
        self._phases.begin()

    def sum_ahead(self, tensor: Tensor) -> Future[Tensor]:
        """Begin to sum a tensor over the world, in place; it becomes zero where that fails."""
        if self.world > 1 and self._may_begin():
            try:
                work, carrier = self.sum(tensor)
            except RuntimeError as error:
                self.fail(error)
            else:
                return carrier.sum_of(work, tensor, lambda done: self._sum_or_zero(done, tensor))
        if self.failed():
            tensor.zero_()
        finished: Future[Tensor] = Future()
        finished.set_result(tensor)
        return finished

    def sum_all(self, tensors: Sequence[Tensor]) -> bool:
        """Sum tensors over the world, in place; return whether these are the sums."""
        self.attempt(lambda: list(map(self.sum, tensors)))
        self._await_works()
        return not self.failed()

    def attempt(self, send: Callable[[], object]) -> None:
        """Run ``send``, which sends something to all; if it fails, the step fails at its commit."""
        if self.world > 1 and self._may_begin():
            with contextlib.suppress(PeerLostError), self.noting():
                send()

    def _may_begin(self) -> bool:
        """Return whether a collective may be begun.

        Where one is left out, one of the script's own may not follow. The other ranks would take it
        for the one before, and gloo ends a process that gets more than it has asked for. So all
        connections are cut: the step cannot be committed anywhere any more.
        """
        if not self._phases.usable():
            self._gloo.cut(gently=True)
            return False
        return True

    def sum(self, tensor: Tensor) -> tuple[dist.Work, Carrier]:
        """Begin to sum a tensor over the world."""
        return self.launch(lambda: dist.all_reduce(tensor, async_op=True), tensor)

    def launch(
        self,
        begin: Callable[[], dist.Work],
        tensor: Tensor,
        within: dist.ProcessGroup | None = None,
    ) -> tuple[dist.Work, Carrier]:
        """Begin a collective of a tensor, in this group or one ``within`` it.

        The step depends on it.
        """
        carrier: Carrier = self._gloo
        if self._nccl is not None and within is None and self._nccl.carries(tensor):
            carrier = self._nccl
        self._phases.held = carrier is self._nccl  # NCCL may wait for a peer even here
        try:
            work = begin()
        finally:
            self._phases.held = False
        self._works.append((work, carrier))
        return work, carrier

    def complete(self, start: Callable[[], dist.Work]) -> None:
        """Start a collective of tensors on the CPU, and wait until it is done.

        Raises:
            PeerLostError: it failed, or an earlier one did.
        """
        if self._may_begin():
            with self.noting():
                work = start()
            self._works.append((work, self._gloo))
            self._gloo.end_of(work)
        self.check()

    def commit(self) -> None:
        """Wait until the step's collectives are done.

        Raises:
            PeerLostError: one of them failed.
        """
        self._await_works()
        self.check()
        self._phases.ready()

    def _await_works(self) -> None:
        for work, carrier in self._works:
            carrier.end_of(work)

    def check(self) -> None:
        """Raise PeerLostError if a collective has failed."""
        if (failure := self._phases.failure) is not None:
            raise PeerLostError(str(failure)) from failure

    def fail(self, error: Exception) -> None:
        """Remember that a collective failed; the first error counts."""
        self._phases.fail(error)

    def failed(self) -> bool:
        """Return whether a collective has failed."""
        return self._phases.failure is not None

    @property
    def own_failure(self) -> Exception | None:
        """What failed here first; None: nothing, a peer is late, or it was aborted from outside."""
        failure = self._phases.failure
        peers = self._phases.aborted is not None or isinstance(failure, _LateError)
        return None if peers else failure

    def stand_by(self) -> None:
        """Be ready to abort: later there may be no thread to be had, and nobody to say so."""
        threading.Thread(target=self._abort, daemon=True).start()

    def abort(self, why: str) -> None:
        """End all collectives in flight, from another thread: a peer is lost or frozen.

        ``form`` and ``stand_by`` begin the thread that does it.
        A step whose collectives are done by then can still be committed.
        """
        self._phases.abort(why, time.monotonic())
        self._woken.set()

    def part(self) -> None:
        """Wait for the others before NCCL's communicator is ended: they may not be done with it."""
        if self._nccl is not None and self.world > 1 and self._phases.phase is Phase.READY:
            with contextlib.suppress(PeerLostError):
                self.complete(lambda: dist.all_reduce(torch.zeros(1), async_op=True))

    def close(self) -> None:
        """Cut all connections, so that no peer waits for this rank; ``rank`` and ``world`` stay."""
        self._phases.close()
        self._woken.set()
        with self._aborting:
            # To destroy a group waits for what is under way, as the broadcasts before one that
            # could not be begun.
            works = self._of_gloo()
            if not self._gloo.have_ended(works, 0.0):
                self._cut(gently=True)
                self._gloo.have_ended(works, phases.GENTLY_S)
            self._cut()
            if not self._gloo.have_ended(works, phases.HOPELESS_S):
                self._gloo.give_up(works)

    def _of_gloo(self) -> list[dist.Work]:
        return [work for work, carrier in list(self._works) if carrier is self._gloo]

    def _abort(self) -> None:
        self._woken.wait()
        # Again and again, as the group may still be forming.
        while not self._phases.over:
            how = self._phases.cut(time.monotonic())
            if how is Cut.END_PROCESS:
                nccl.end_process()
            with self._aborting:
                if self._phases.over:
                    return
                self._cut(gently=how is Cut.GENTLY)
                if how is Cut.GIVE_UP:
                    self._gloo.give_up(self._of_gloo())
            time.sleep(_AGAIN_S)

    def _cut(self, gently: bool = False) -> None:
        if self._nccl is not None and dist.is_initialized():
            self._nccl.cut()
        self._gloo.cut(gently)

    def check_end(self, work: dist.Work) -> None:
        """Check that one of gloo's collectives, which somebody waits for, may still end.

        Raises:
            PeerLostError: it will not end.
        """
        self._gloo.check_end(work)

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


class Channel:
    """Broadcasts from rank 0 of a group to the others in ``within``, or to all."""

    def __init__(self, group: Communicator, within: dist.ProcessGroup | None) -> None:
        self._group = group
        self._within = within

    def broadcast(self, tensor: Tensor) -> None:
        """Begin to fill a tensor with rank 0's content; all call it in the same order."""
        with self._group.noting():
            self._group.launch(
                lambda: dist.broadcast(tensor, src=0, group=self._within, async_op=True),
                *(tensor, self._within),
            )

    def arrive(self) -> None:
        """Wait for all broadcasts that were begun.

        Raises:
            PeerLostError: one of them failed; do not use the tensors then.
        """
        self._group.commit()


def of_collective(error: object) -> TypeGuard[RuntimeError]:
    """Return whether a failed collective raised this; gloo's errors have no own type."""
    named = isinstance(error, dist.DistError) or any(words in str(error) for words in _GLOOS)
    return named and isinstance(error, RuntimeError)


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
