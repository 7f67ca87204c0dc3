"""A training's state as tensors and a description of the rest, and how rank 0 sends it to others.

The description is read with ``weights_only``: nothing that a peer sends is run as code.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.inprocess.collective import Channel

_PIECE = 32 * 1024 * 1024  # bytes sent at once when small tensors are joined
_LARGE = 1024 * 1024  # bytes; a tensor of this size or larger is sent alone, without a copy


def flatten(state: Any) -> tuple[Tensor, list[Tensor]]:
    """Return the description of a state (nested dicts and lists; uint8), and its tensors."""
    tensors: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        tensors.append(tensor.detach())
        return tensor.detach().to("meta")

    shape = _each_tensor(state, take)
    described = io.BytesIO()
    torch.save({"shape": shape, "devices": [tensor.device.type for tensor in tensors]}, described)
    return torch.frombuffer(described.getbuffer(), dtype=torch.uint8), tensors


def unflatten(description: Tensor, tensors: Sequence[Tensor]) -> Any:
    """Return the state that ``flatten`` took apart.

    Raises:
        pickle.UnpicklingError: the description holds more than plain values.
    """
    left = iter(tensors)
    return _each_tensor(_read(description)["shape"], lambda _: next(left))


def empty_tensors(description: Tensor) -> list[Tensor]:
    """Return new tensors with the shapes, types and device kinds of a described state."""
    found = _read(description)
    devices = iter(found["devices"])
    tensors: list[Tensor] = []

    def make(tensor: Tensor) -> Tensor:
        tensors.append(torch.empty(tensor.shape, dtype=tensor.dtype, device=next(devices)))
        return tensor

    _each_tensor(found["shape"], make)
    return tensors


def copied(state: Any) -> Any:
    """Return new dicts and lists with the same tensors."""
    return _each_tensor(state, lambda tensor: tensor)


def send(state: Any, channel: Channel) -> None:
    """Send a state, as rank 0."""
    description, tensors = flatten(state)
    channel.broadcast(torch.tensor([len(description)]))
    channel.broadcast(description)
    _broadcast(tensors, channel)


def receive(channel: Channel) -> Any:
    """Return the state that rank 0 sends, in new tensors, so that half of one does no harm."""
    length = torch.zeros(1, dtype=torch.int64)
    channel.broadcast(length)
    channel.arrive()
    description = torch.empty(int(length), dtype=torch.uint8)
    channel.broadcast(description)
    channel.arrive()
    tensors = empty_tensors(description)
    _fill(tensors, channel)
    return unflatten(description, tensors)


def share_tensors(tensors: Sequence[Tensor], first: bool, channel: Channel) -> None:
    """Give tensors of all ranks (a model's buffers) rank 0's values; ``first``: this is rank 0."""
    if first:
        _broadcast(tensors, channel)
    else:
        fresh = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in tensors]
        _fill(fresh, channel)
        for own, got in zip(tensors, fresh, strict=True):
            own.copy_(got)


def _broadcast(
    tensors: Sequence[Tensor], channel: Channel
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Broadcast rank 0's tensors in pieces; return each piece's tensors and its buffer."""
    pieces = list(_pieces(tensors))
    buffers = [_joined(piece) for piece in pieces]
    for buffer in buffers:
        channel.broadcast(buffer)
    channel.arrive()
    return zip(pieces, buffers, strict=True)


def _fill(tensors: Sequence[Tensor], channel: Channel) -> None:
    for piece, buffer in _broadcast(tensors, channel):
        if len(piece) > 1:
            for tensor, part in zip(piece, torch.split(buffer, [*map(_size, piece)]), strict=True):
                tensor_bytes(tensor).copy_(part)


def _joined(piece: Sequence[Tensor]) -> Tensor:
    return (
        tensor_bytes(piece[0])
        if len(piece) == 1
        else torch.cat([tensor_bytes(one) for one in piece])
    )


def _pieces(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Join small tensors of one device kind; both sides get the same pieces."""
    waiting: dict[str, list[Tensor]] = {}
    filled: dict[str, int] = {}
    for tensor in tensors:
        size = _size(tensor)
        if size == 0:
            continue
        if size >= _LARGE:
            yield [tensor]
            continue
        kind = tensor.device.type
        waiting.setdefault(kind, []).append(tensor)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= _PIECE:
            filled[kind] = 0
            yield waiting.pop(kind)
    yield from waiting.values()


def tensor_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's content as bytes (uint8, one dimension): a view, if it is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _read(description: Tensor) -> dict[str, Any]:
    described = io.BytesIO(description.numpy().tobytes())
    found: dict[str, Any] = torch.load(described, weights_only=True)
    return found


def _each_tensor(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return nested dicts, lists and tuples with each tensor replaced, in a fixed order."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (dict, OrderedDict):
        return {key: _each_tensor(inner, change) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_each_tensor(inner, change) for inner in value)
    return value
