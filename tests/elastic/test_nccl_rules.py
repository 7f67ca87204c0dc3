"""What holds for collectives on GPUs, with works that do as NCCL's did on an H100.

A collective that was aborted is complete as soon as its kernel has left, without an exception, and
with anything in its tensors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import OpType  # type: ignore[attr-defined]
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess import nccl, waits
from bftrainer_slurm.elastic.inprocess.collective import Channel, Communicator
from bftrainer_slurm.elastic.inprocess.peers import RestartError, find_peers
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError, Phases
from bftrainer_slurm.elastic.torch_private import abort_together
from tests.elastic.alone import as_new_process

pytestmark = pytest.mark.torch

GPU = torch.device("cuda", 0)


class FakeWork:
    """Ends when it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.over = threading.Event()
        self.failure = failure

    def is_completed(self) -> bool:
        return self.over.is_set()

    def exception(self) -> Exception | None:
        raise TypeError("Unregistered type : std::exception_ptr")  # torch 2.11

    def wait(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return True


class FakeTensor:
    """A tensor on a GPU, as far as a channel looks."""

    is_cuda = True


def on_gpu(*works: FakeWork) -> Communicator:
    """A group of two ranks in a step that depends on these works."""
    group = Communicator(GPU)
    group.stand_by()
    group.world = 2
    group.begin()
    for work in works:
        group.launch(lambda one=work: cast(dist.Work, one), cast(Tensor, FakeTensor()))
    return group


def aborted(group: Communicator, *works: FakeWork) -> None:
    """Abort as the keeper's word does; the works' kernels leave by it."""
    group.abort("a peer is lost")
    for work in works:
        work.over.set()


def test_what_was_done_before_the_abort_is_committed() -> None:
    work = FakeWork()
    group = on_gpu(work)
    work.over.set()
    group.commit()
    aborted(group)
    group.close()


def test_a_step_whose_collective_was_aborted_is_not_committed_though_it_is_complete() -> None:
    work = FakeWork()
    group = on_gpu(work)
    threading.Timer(0.05, aborted, (group, work)).start()
    with pytest.raises(PeerLostError, match="a peer is lost"):
        group.commit()
    group.close()


def test_nor_is_one_of_which_some_collectives_were_done_before() -> None:
    first, last = FakeWork(), FakeWork()
    first.over.set()
    group = on_gpu(first, last)
    threading.Timer(0.05, aborted, (group, last)).start()
    with pytest.raises(PeerLostError):
        group.commit()
    group.close()


def test_a_failure_of_nccls_own_is_one() -> None:
    work = FakeWork(RuntimeError("NCCL: unhandled system error"))
    work.over.set()
    with pytest.raises(PeerLostError, match="system error"):
        on_gpu(work).commit()


def test_state_that_came_by_an_aborted_collective_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = FakeWork()
    group = on_gpu()
    monkeypatch.setattr(dist, "broadcast", lambda *_, **__: work)
    channel = Channel(group, None)
    channel.broadcast(cast(torch.Tensor, FakeTensor()))
    threading.Timer(0.05, aborted, (group, work)).start()
    with pytest.raises(PeerLostError):
        channel.arrive()
    group.close()


def test_after_an_abort_nothing_more_is_begun() -> None:
    group = on_gpu()
    aborted(group)
    begun: list[str] = []
    group.attempt(lambda: begun.append("a broadcast"))
    assert not begun
    with pytest.raises(PeerLostError):
        group.commit()
    group.close()


def test_what_is_on_the_cpu_beside_nccl_is_given_up_as_gloos_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bftrainer_slurm.elastic.inprocess.phases.HOPELESS_S", 0.1)
    never = FakeWork()
    group = on_gpu()
    group.launch(lambda: cast(dist.Work, never), torch.ones(1))
    group.abort("a peer is lost")
    begin_s = time.monotonic()
    with pytest.raises(PeerLostError, match="does not end"):
        group.commit()
    assert time.monotonic() - begin_s < 30
    group.close()


@pytest.mark.parametrize("of_nccl", [True, False])
def test_all_groups_of_a_process_are_aborted_at_once_and_one_that_is_over_keeps_no_other(
    of_nccl: bool,
) -> None:
    order: list[str] = []

    class Nccl:
        def _group_start(self) -> None:
            order.append("begin")

        def _group_end(self) -> None:
            order.append("end")

    class Ended:
        def __init__(self, name: str, error: Exception | None = None, on_gpu: bool = True) -> None:
            self.name, self.error, self.on_gpu = name, error, on_gpu

        def abort(self) -> None:
            order.append(self.name)
            if self.error is not None:
                raise self.error

        def _get_backend(self, device: torch.device) -> object:
            assert device.type == "cuda"
            if not self.on_gpu:
                raise RuntimeError("No backend type associated with device type cuda")
            return Nccl() if of_nccl else object()

    over = Ended("script", RuntimeError("over"))
    groups: list[Any] = [Ended("state", on_gpu=False), over, Ended("default")]
    abort_together(groups)
    aborted = ["state", "script", "default"]
    assert order == (["begin", *aborted, "end"] if of_nccl else aborted)


class NcclWork:
    """What a collective of NCCL's looks like before its end: its future is there at once."""

    def __init__(self) -> None:
        self.waited: list[tuple[Any, ...]] = []

    def is_completed(self) -> bool:
        return False

    def get_future(self) -> Future[list[Tensor]]:
        future: Future[list[Tensor]] = Future()
        future.set_result([])
        return future

    def _get_op_type(self) -> int:
        return int(OpType.ALLREDUCE)


def test_a_wait_for_nccl_has_no_time_limit_as_that_would_abort_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(work: NcclWork, *arguments: Any) -> bool:
        work.waited.append(arguments)
        return True

    monkeypatch.setattr(dist.Work, "wait", wait)
    waits.look_up(lambda _: None)
    work: Any = NcclWork()
    assert dist.Work.wait(work)
    assert work.waited == [()]


ELEMENT = {"BFTRAINER_KEEPER": "ctl:6820", "BFTRAINER_ELEMENT": "12_3"}


def test_on_gpus_an_elements_script_does_not_train_alone_where_nobody_would_restart_it() -> None:
    refused = pytest.raises(RestartError, match=r"on GPUs .* write 'srun torchrun'")
    with as_new_process(), refused:
        find_peers(ELEMENT, GPU, nccl_in_process=False, saves=True)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """NCCL's collectives do not even begin, before the test's end."""
    over = threading.Event()

    def begin(*_: object, **__: object) -> FakeWork:
        over.wait()
        raise RuntimeError("a peer is lost")

    monkeypatch.setattr(dist, "all_reduce", begin)
    yield over
    over.set()


@pytest.mark.usefixtures("stuck")
def test_who_makes_a_communicator_that_will_not_be_is_left_behind() -> None:
    phases = Phases()
    one = nccl.Nccl(phases, torch.device("cpu"))
    threading.Timer(0.05, phases.abort, ("a peer is lost", 0.0)).start()
    one.open()
    assert phases.met_abort()


def test_a_launch_that_does_not_come_back_ends_the_process(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.elastic.inprocess.phases.HOPELESS_S", 0.1)
    monkeypatch.setattr(nccl, "end_process", stuck.set)
    group = on_gpu()
    begin = dist.all_reduce

    def abort_and_begin(tensor: Tensor, **options: Any) -> object:
        group.abort("a peer is lost")
        return begin(tensor, **options)

    monkeypatch.setattr(dist, "all_reduce", abort_and_begin)
    group.attempt(lambda: group.sum(cast(Tensor, FakeTensor())))
    assert stuck.is_set()
    with pytest.raises(PeerLostError):
        group.commit()
    group.close()


def test_on_gpus_nothing_is_ended_that_others_still_use(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[torch.device] = []

    def meet(tensor: Tensor, **_: object) -> FakeWork:
        met.append(tensor.device)
        work = FakeWork()
        work.over.set()
        return work

    monkeypatch.setattr(dist, "all_reduce", meet)
    group = on_gpu()
    group.part()
    assert not met  # in a step the others may not come
    group.commit()
    group.part()
    assert met == [torch.device("cpu")]
    aborted(group)
    group.part()
    assert len(met) == 1
    group.close()
