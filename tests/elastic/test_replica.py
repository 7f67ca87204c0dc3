"""Which state the ranks of a new generation begin with: ranks in threads, real checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor

from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints, Version
from bftrainer_slurm.elastic.inprocess.replica import Replica
from bftrainer_slurm.elastic.inprocess.sampler import Cursor

pytestmark = pytest.mark.torch


class Wires:
    """What the ranks of one world tell each other."""

    def __init__(self, world: int) -> None:
        self.said: list[Any] = [None] * world
        self.all_there = threading.Barrier(world, timeout=120)
        self.to: list[Queue[Tensor]] = [Queue() for _ in range(world)]


class Group:
    """A rank's Communicator, and its channel."""

    def __init__(self, rank: int, wires: Wires) -> None:
        self.rank, self.world = rank, len(wires.said)
        self._wires = wires
        self._others: list[int] = []

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def arrive(self) -> None: ...

    def all_gather(self, numbers: Iterable[int]) -> Tensor:
        self._wires.said[self.rank] = [*numbers]
        self._wires.all_there.wait()
        return torch.tensor(self._wires.said)

    def channel(self, others: list[int]) -> Group:
        self._others = others
        return self

    def broadcast(self, tensor: Tensor) -> None:
        if self.rank:
            tensor.copy_(self._wires.to[self.rank].get(timeout=120))
        for other in self._others if self.rank == 0 else []:
            self._wires.to[other].put(tensor.clone())


class Weights:
    """An object of a script's."""

    def __init__(self) -> None:
        self.values = torch.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values = state_dict["values"].clone()


def replica(folder: Path, version: tuple[int, int] | None) -> tuple[Replica, Weights]:
    """Return a rank's copy; its weights are its step."""
    weights = Weights()
    copy = Replica({"weights": weights}, Checkpoints(folder, every_s=0.0))
    if version is not None:
        copy.take(state(*version))
    return copy, weights


def state(lineage: int, step: int) -> dict[str, Any]:
    weights = {"values": torch.full((2,), float(step))}
    cursor = {"step": step, "samples": 0, "epoch": 0, "position": 0}
    return {"objects": {"weights": weights}, "cursor": cursor, "lineage": lineage}


def save(folder: Path, lineage: int, step: int) -> None:
    checkpoints = Checkpoints(folder, every_s=0.0)
    checkpoints.save(Version(lineage, step), state(lineage, step))
    checkpoints.wait()


def agree(number: int, *copies: Replica) -> None:
    """Let ranks with these copies form generation ``number``."""
    wires = Wires(len(copies))

    def run(rank: int) -> None:
        copies[rank].agree(Group(rank, wires), number)  # type: ignore[arg-type]

    with ThreadPoolExecutor() as ranks:
        list(ranks.map(run, range(len(copies))))


def test_two_ranks_that_were_cut_off_go_on_from_the_checkpoint_of_those_who_trained_on(
    tmp_path: Path,
) -> None:
    save(tmp_path, 4, 950)
    pairs = [replica(tmp_path, (3, 50)) for _ in range(2)]
    agree(5, *(copy for copy, _ in pairs))
    assert [copy.version for copy, _ in pairs] == [Version(5, 950)] * 2
    assert [weights.values.tolist() for _, weights in pairs] == [[950, 950]] * 2


def test_what_rank_0_was_given_after_it_had_met_the_others_goes_to_all(tmp_path: Path) -> None:
    """As ShardedTrainer gives it what was recovered from copies."""
    pairs = [replica(tmp_path, (3, 50)) for _ in range(2)]
    pairs[0][0].take(state(4, 50) | {"cursor": {"step": 50, "samples": 7}})
    agree(5, *(copy for copy, _ in pairs))
    assert [copy.cursor for copy, _ in pairs] == [Cursor(50, 7)] * 2


def test_who_has_rank_0s_state_is_sent_nothing_and_who_has_another_or_none_gets_it(
    tmp_path: Path,
) -> None:
    save(tmp_path, 4, 50)
    pairs = [replica(tmp_path, one) for one in ((4, 51), (4, 51), (4, 50), None)]
    pairs[1][1].values = torch.tensor([51.0, -1.0])  # it would be overwritten
    agree(5, *(copy for copy, _ in pairs))
    assert {copy.version for copy, _ in pairs} == {Version(5, 51)}
    assert [weights.values[1].item() for _, weights in pairs] == [51, -1, 51, 51]


def test_each_generation_has_a_later_lineage_though_the_keeper_counts_anew(tmp_path: Path) -> None:
    save(tmp_path, 9, 900)
    one, _ = replica(tmp_path, None)
    agree(1, one)
    assert one.version == Version(10, 900)
    agree(2, one)
    assert one.version == Version(11, 900)
