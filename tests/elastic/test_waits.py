"""Who waits for a collective looks up now and then, and is freed from one that does not end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    ProcessGroupGloo,
    Work,
)

from bftrainer_slurm.elastic.inprocess import waits
from bftrainer_slurm.elastic.inprocess.collective import of_collective

pytestmark = pytest.mark.torch

Pair = list[ProcessGroupGloo]


class EnoughError(Exception):
    """Nobody should wait any longer."""


class Patience:
    """What is asked at each look."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_end = False
        self.looked = threading.Event()

    def check(self, work: Work) -> None:
        self.asked += 1
        self.looked.set()
        if self.at_end:
            raise EnoughError

    def after_a_look(self, do: Callable[[], object]) -> None:
        """Do it once somebody who waits has looked up."""
        threading.Thread(target=lambda: (self.looked.wait(), do()), daemon=True).start()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """It is asked by all waits of this process until the test's end."""
    made = Patience()
    monkeypatch.setattr(Work, "wait", Work.wait)
    waits.look_up(made.check)
    return made


@pytest.fixture
def pair(patience: Patience) -> Pair:
    """Two ranks in this process."""
    store = HashStore()
    with ThreadPoolExecutor(2) as threads:
        limit = timedelta(seconds=60)
        return list(threads.map(lambda rank: ProcessGroupGloo(store, rank, 2, limit), range(2)))


def test_a_collective_that_does_not_end_raises_what_the_look_finds(
    patience: Patience, pair: Pair
) -> None:
    work = pair[0].allreduce([torch.ones(1)])
    patience.at_end = True
    with pytest.raises(EnoughError):
        work.wait()
    pair[1].allreduce([torch.ones(1)]).wait()  # else gloo's thread would wait for it


def test_one_that_takes_its_time_is_waited_for(patience: Patience, pair: Pair) -> None:
    summed = torch.ones(1)
    patience.after_a_look(lambda: pair[1].allreduce([torch.ones(1)]))
    pair[0].allreduce([summed]).wait()
    assert summed.item() == 2.0
    assert patience.asked > 0


def test_one_that_fails_raises_its_own_failure(pair: Pair) -> None:
    work = pair[0].allreduce([torch.ones(1)])
    del pair[1]  # hangs up
    with pytest.raises(RuntimeError, match="gloo"):
        work.wait()


def test_one_that_fails_as_another_timed_out_is_known_as_a_collectives_failure(pair: Pair) -> None:
    work = pair[0].allreduce([torch.ones(1)])
    with pytest.raises(RuntimeError, match="gloo"):
        pair[0].recv([torch.zeros(1)], 1, 0).wait(timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="pair closure") as failed:
        work.wait()
    assert of_collective(failed.value)


def test_what_is_received_late_is_waited_for(pair: Pair) -> None:
    got = torch.zeros(1)
    threading.Timer(2.5, lambda: pair[1].send([torch.ones(1)], 0, 0)).start()
    pair[0].recv([got], 1, 0).wait()
    assert got.item() == 1.0


def test_a_reduce_scatter_is_waited_for_as_torch_does(patience: Patience, pair: Pair) -> None:
    parts = [torch.zeros(1), torch.zeros(1)]
    with ThreadPoolExecutor(2) as threads:
        ends = [
            threads.submit(one.reduce_scatter([part], [[torch.ones(1), torch.ones(1)]]).wait)
            for one, part in zip(pair, parts, strict=True)
        ]
        assert all(end.result() for end in ends)
    assert [part.item() for part in parts] == [2.0, 2.0]
    work = pair[0].reduce_scatter([parts[0]], [[torch.ones(1), torch.ones(1)]])
    del pair[1]  # hangs up
    with pytest.raises(RuntimeError, match="gloo"):
        work.wait()
    assert patience.asked == 0


def test_a_timeout_of_the_callers_own_is_kept(patience: Patience, pair: Pair) -> None:
    work = pair[0].allreduce([torch.ones(1)])
    with pytest.raises(RuntimeError, match="timed out"):
        work.wait(timedelta(seconds=0.1))
    assert patience.asked == 0
    pair[1].allreduce([torch.ones(1)]).wait()
