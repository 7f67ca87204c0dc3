"""Copies of shards as bytes, and where they are kept. How ranks lose each other: test_sharded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bftrainer_slurm.elastic.inprocess.neighbours import packed, shift_of, unpacked, whole

pytestmark = pytest.mark.torch


def shard(*rows: int, dim: int = 0) -> dict[str, Any]:
    values = torch.tensor(rows, dtype=torch.float32).reshape(-1, 1)
    return {"shard of a tensor": values if dim == 0 else values.T, "dim": dim}


def test_a_state_comes_back_from_its_bytes() -> None:
    state = {
        "weights": torch.randn(3, 5),
        "halves": torch.randn(7).to(torch.bfloat16),
        "steps": torch.tensor(12),
        "none": torch.empty(0, 5),
        "across": torch.arange(6).reshape(2, 3).T,
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": ["a", "b"]}],
    }
    found = unpacked(packed(state))
    assert found["groups"] == state["groups"]
    for name, value in state.items():
        if isinstance(value, Tensor):
            assert torch.equal(found[name], value)
            assert found[name].dtype == value.dtype


def test_bytes_are_a_copy() -> None:
    weights = torch.zeros(4)
    buffer = packed({"weights": weights})
    weights += 1
    assert torch.equal(unpacked(buffer)["weights"], torch.zeros(4))


def test_shards_are_joined_in_the_order_of_ranks_and_the_rest_is_the_first_ranks() -> None:
    joined = whole(
        [
            {"model": {"a": shard(1, 2), "b": shard(5, dim=1)}, "steps": [3]},
            {"model": {"a": shard(3), "b": shard(6, dim=1)}, "steps": [4]},
            {"model": {"a": shard(), "b": shard(7, dim=1)}, "steps": [4]},
        ]
    )
    assert joined["model"]["a"].flatten().tolist() == [1, 2, 3]
    assert joined["model"]["b"].tolist() == [[5, 6, 7]]
    assert joined["steps"] == [3]


@given(nodes=st.integers(2, 8), ranks=st.integers(1, 8))
def test_no_copy_is_on_the_node_of_its_rank_if_all_nodes_have_as_many(
    nodes: int, ranks: int
) -> None:
    node_of = [rank // ranks for rank in range(nodes * ranks)]
    shift = shift_of(node_of)
    world = len(node_of)
    assert all(node_of[rank] != node_of[(rank + shift) % world] for rank in range(world))


def test_ranks_of_one_node_keep_each_others_copies() -> None:
    assert shift_of(["n1", "n1", "n1"]) == 1
