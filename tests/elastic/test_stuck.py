"""Collectives that gloo never ends, though their connections are cut, hold nobody.

It comes to that in a race inside gloo that cannot be timed: a made-up collective stands for it.
"""

from __future__ import annotations

import time
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Work  # type: ignore[attr-defined]
from torch.futures import Future

from bftrainer_slurm.elastic.inprocess import gloo, phases
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError

pytestmark = pytest.mark.torch


class Forgotten:
    """A collective that nobody will end."""

    def __init__(self) -> None:
        self.future: Future[list[Tensor]] = Future()

    def is_completed(self) -> bool:
        return False

    def get_future(self) -> Future[list[Tensor]]:
        return self.future

    def wait(self) -> None:
        raise AssertionError("would never return")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Communicator:
    """A group of two in a step."""
    monkeypatch.setattr(phases, "HOPELESS_S", 0.2)
    made = Communicator()
    made.stand_by()
    made.world = 2
    made.begin()
    return made


def lose_in(group: Communicator, work: Forgotten, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next collective be this one, in which the peer is lost."""

    def begin(*_: object, **__: object) -> Forgotten:
        group.abort("the peer is lost")
        return work

    monkeypatch.setattr(dist, "all_reduce", begin)


def test_a_backward_pass_comes_to_its_end_and_the_step_is_not_committed(
    group: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_in(group, Forgotten(), monkeypatch)
    group.sum_ahead(torch.ones(3)).wait()
    with pytest.raises(PeerLostError, match="does not end"):
        group.commit()
    group.close()


def test_who_waits_for_another_collective_is_told_that_it_does_not_end(group: Communicator) -> None:
    work = cast(Work, Forgotten())
    Communicator().check_end(work)  # it may still end where nobody has given up
    group.abort("the peer is lost")
    with pytest.raises(PeerLostError, match="does not end"):
        while True:
            group.check_end(work)
    assert group.failed()
    group.close()


def test_a_sum_that_comes_after_all_is_left_alone(
    group: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Forgotten()
    lose_in(group, late, monkeypatch)
    summed = group.sum_ahead(torch.ones(3))
    given = summed.wait().clone()
    late.future.set_result([torch.full((3,), 7.0)])
    time.sleep(0.1)
    assert torch.equal(summed.wait(), given)
    group.close()


def test_a_group_is_not_destroyed_while_a_broadcast_before_the_failed_one_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To destroy it would wait for that one, maybe for ever."""
    monkeypatch.setattr(phases, "GENTLY_S", 0.1)
    monkeypatch.setattr(phases, "HOPELESS_S", 0.2)
    begun: list[Forgotten] = []

    def broadcast(*_: object, **__: object) -> Forgotten:
        if begun:
            raise RuntimeError("gloo: Connection reset by peer")
        begun.append(Forgotten())
        return begun[0]

    kept: list[object] = []
    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(gloo, "groups_of_process", lambda: ["the group"])
    monkeypatch.setattr(gloo, "keep_for_ever", kept.append)
    group = Communicator()
    group.begin()
    channel = group.channel()
    channel.broadcast(torch.ones(1))
    with pytest.raises(PeerLostError):
        channel.broadcast(torch.ones(1))
    group.close()
    group.close()
    assert kept == ["the group"]
