"""Copies of each rank's shards in the memory of another node's rank, in case a node is lost.

What is copied, and when, is in ``sharded``; how a state becomes tensors is in ``transfer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from bftrainer_slurm.elastic.inprocess.checkpoint import Version
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.transfer import (
    empty_tensors,
    flatten,
    tensor_bytes,
    unflatten,
)

# Parts that a rank has: its own and another's, of two states. When a node is lost, some ranks may
# have one step more than others.
_MOST = 4
_LENGTH = 8  # bytes that hold the description's length
_SHARD, _DIM = "shard of a tensor", "dim"
_NOBODY = -1


def local(state: Any) -> Any:
    """Return a state with this rank's shard in place of each DTensor; nothing is copied."""
    if isinstance(state, DTensor):
        [placement] = state.placements
        if not isinstance(placement, Shard):
            return state.to_local()
        return {_SHARD: state.to_local(), _DIM: placement.dim}
    if isinstance(state, dict):
        return {key: local(inner) for key, inner in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(local(inner) for inner in state)
    return state


def whole(locals_: Sequence[Any]) -> Any:
    """Return the whole state from what ``local`` returned on every rank, in the order of ranks.

    What is not a shard is taken from the first rank.
    """
    first = locals_[0]
    if isinstance(first, dict):
        if first.keys() == {_SHARD, _DIM}:
            return torch.cat([one[_SHARD] for one in locals_], dim=first[_DIM])
        return {key: whole([one[key] for one in locals_]) for key in first}
    if isinstance(first, list | tuple):
        return type(first)(whole(inner) for inner in zip(*locals_, strict=True))
    return first


def packed(state: Any) -> Tensor:
    """Return a copy of a state as bytes (uint8, one dimension)."""
    description, tensors = flatten(state)
    length = torch.tensor([len(description)])
    return torch.cat([tensor_bytes(one) for one in (length, description, *tensors)])


def unpacked(buffer: Tensor) -> Any:
    """Return the state from the bytes of ``packed``.

    Raises:
        pickle.UnpicklingError: its description holds more than plain values.
    """
    end = _LENGTH + int(buffer[:_LENGTH].clone().view(torch.int64))
    description = buffer[_LENGTH:end]
    tensors = empty_tensors(description)
    for tensor in tensors:
        own = tensor_bytes(tensor)
        own.copy_(buffer[end : end + own.numel()])
        end += own.numel()
    return unflatten(description, tensors)


def shift_of(nodes: Sequence[str | int]) -> int:
    """Return how many ranks further each rank's copy is kept, given the node of each rank.

    As few copies as possible are on the rank's own node: none, if all nodes have as many ranks.
    """
    world = len(nodes)
    return min(
        range(1, world),
        key=lambda shift: sum(
            nodes[rank] == nodes[(rank + shift) % world] for rank in range(world)
        ),
    )


class _Part(NamedTuple):
    """The shards of one rank, in one version of the state of so many ranks."""

    version: Version
    world: int
    rank: int


_TOLD = 5  # numbers that the others are told of a part: those above, and its bytes


class Neighbours:
    """This rank's copies, and how it gets those of other ranks."""

    def __init__(self) -> None:
        self._copies: dict[_Part, Tensor] = {}  # of the last states, the oldest first

    def exchange(
        self, group: Communicator, nodes: Sequence[str | int], version: Version, own: Tensor
    ) -> None:
        """Send ``own`` to the rank that keeps it, and get another rank's; all ranks call it.

        ``nodes`` has the node of each rank.

        Raises:
            PeerLostError: the copies of this state are not complete. Earlier copies are kept.
        """
        world, rank = group.world, group.rank
        if world == 1:
            self._copies = {}
            return
        shift = shift_of(nodes)
        keeper, kept = (rank + shift) % world, (rank - shift) % world
        sizes = group.all_gather([own.numel()]).flatten().tolist()
        other = torch.empty(sizes[kept], dtype=torch.uint8)
        _all_to_all(
            *(group, own, [own.numel() * (one == keeper) for one in range(world)]),
            *(other, [sizes[kept] * (one == kept) for one in range(world)]),
        )
        both = {_Part(version, world, rank): own, _Part(version, world, kept): other}
        self._copies = dict([*self._copies.items(), *both.items()][-_MOST:])

    def recovered(self, group: Communicator, known: Version | None) -> Any | None:
        """Return the whole state from copies, on rank 0; all ranks call it.

        ``known`` is the version that this rank has already. It returns None if a rank has a state
        as late as the copies, if the copies do not suffice, and on other ranks than 0.

        Raises:
            PeerLostError: the copies did not arrive; this rank still has its own.
        """
        told = [*(known or (_NOBODY, _NOBODY))]
        for part, shards in self._copies.items():
            told += [*part.version, part.world, part.rank, shards.numel()]
        nothing = [_NOBODY] * _TOLD * (_MOST - len(self._copies))
        said = group.all_gather([*told, *nothing]).tolist()
        latest = max(Version(*one[:2]) for one in said)
        holders = _holders(said)
        versions = [version for version, ranks in holders.items() if None not in ranks]
        if not versions or (version := max(versions)) <= latest:
            return None
        return self._assembled(group, version, [one for one in holders[version] if one is not None])

    def _assembled(
        self, group: Communicator, version: Version, holders: Sequence[tuple[int, int]]
    ) -> Any | None:
        """Return the whole state on rank 0, None on others.

        ``holders`` has for each old rank which rank has its shards, and their bytes.
        """
        world = len(holders)
        order = sorted(range(world), key=lambda old: holders[old][0])  # as they arrive
        mine = [old for old in order if holders[old][0] == group.rank]
        own = [self._copies[_Part(version, world, old)] for old in mine]
        sent = torch.cat(own) if own else torch.empty(0, dtype=torch.uint8)
        first = group.rank == 0
        sizes = [
            sum(size for holder, size in holders if holder == rank) * first
            for rank in range(group.world)
        ]
        got = torch.empty(sum(sizes), dtype=torch.uint8)
        _all_to_all(group, sent, [sent.numel(), *[0] * (group.world - 1)], got, sizes)
        if not first:
            return None
        parts = torch.split(got, [holders[old][1] for old in order])
        of_rank = dict(zip(order, map(unpacked, parts), strict=True))
        return whole([of_rank[old] for old in range(world)])


def _holders(said: Sequence[Sequence[int]]) -> dict[Version, list[tuple[int, int] | None]]:
    """Return for each version, and each rank of its world, who has its shards, and their bytes."""
    found: dict[Version, list[tuple[int, int] | None]] = {}
    for holder, numbers in enumerate(said):
        for start in range(2, len(numbers), _TOLD):
            lineage, step, world, rank, size = numbers[start : start + _TOLD]
            if world != _NOBODY:
                ranks = found.setdefault(Version(lineage, step), [None] * world)
                ranks[rank] = ranks[rank] or (holder, size)
    return found


def _all_to_all(
    group: Communicator,
    sent: Tensor,
    sent_sizes: Sequence[int],
    got: Tensor,
    got_sizes: Sequence[int],
) -> None:
    """Send each rank its part of ``sent``; sizes are in bytes, by rank."""
    group.complete(
        lambda: dist.all_to_all_single(got, sent, list(got_sizes), list(sent_sizes), async_op=True)
    )
