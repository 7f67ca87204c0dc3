"""A training's state as tensors and a description of the rest, and its way from rank 0 to others.

The description is read with ``weights_only``: nothing that a peer sends is run as code.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

_PIECE = 32 * 1024 * 1024  # bytes that go at once; smaller tensors are put together
_LARGE = 1024 * 1024  # bytes from which on a tensor goes by itself, without a copy


def flatten(state: Any) -> tuple[bytes, list[Tensor]]:
    """Return the description of a state (nested dicts and lists), and its tensors in order."""
    tensors: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        tensors.append(tensor.detach())
        return tensor.detach().to("meta")

    shape = _each_tensor(state, take)
    described = io.BytesIO()
    torch.save({"shape": shape, "devices": [tensor.device.type for tensor in tensors]}, described)
    return described.getvalue(), tensors


def unflatten(description: bytes, tensors: Sequence[Tensor]) -> Any:
    """Return the state that ``flatten`` took apart.

    Raises:
        pickle.UnpicklingError: the description holds more than plain values.
    """
    left = iter(tensors)
    return _each_tensor(_read(description)["shape"], lambda _: next(left))


def empty_tensors(description: bytes) -> list[Tensor]:
    """Return new tensors with the shapes, types and kinds of device of a described state."""
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


class Channel(Protocol):
    """Rank 0's word to all others that take part."""

    def broadcast(self, tensor: Tensor) -> None:
        """Begin to give a tensor rank 0's content; all call it in the same order."""

    def arrive(self) -> None:
        """Wait for all that was begun. Raises PeerLostError."""


def send(state: Any, channel: Channel) -> None:
    """Send a state, as rank 0."""
    description, tensors = flatten(state)
    channel.broadcast(torch.tensor([len(description)]))
    channel.broadcast(torch.frombuffer(bytearray(description), dtype=torch.uint8))
    buffers = [_joined(piece) for piece in _pieces(tensors)]
    for buffer in buffers:
        channel.broadcast(buffer)
    channel.arrive()


def receive(channel: Channel) -> Any:
    """Return the state that rank 0 sends, in new tensors: one torn on its way does no harm."""
    length = torch.zeros(1, dtype=torch.int64)
    channel.broadcast(length)
    channel.arrive()
    description = torch.empty(int(length), dtype=torch.uint8)
    channel.broadcast(description)
    channel.arrive()
    described = description.numpy().tobytes()
    tensors = empty_tensors(described)
    _fill(tensors, channel)
    return unflatten(described, tensors)


def share_tensors(tensors: Sequence[Tensor], first: bool, channel: Channel) -> None:
    """Give tensors that all ranks have, a model's buffers, the values of the ``first`` rank."""
    if first:
        for buffer in [_joined(piece) for piece in _pieces(tensors)]:
            channel.broadcast(buffer)
        channel.arrive()
    else:
        fresh = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in tensors]
        _fill(fresh, channel)
        for own, got in zip(tensors, fresh, strict=True):
            own.copy_(got)


def _fill(tensors: Sequence[Tensor], channel: Channel) -> None:
    pieces = list(_pieces(tensors))
    buffers = [_joined(piece) for piece in pieces]
    for buffer in buffers:
        channel.broadcast(buffer)
    channel.arrive()
    for piece, buffer in zip(pieces, buffers, strict=True):
        if len(piece) > 1:
            for tensor, part in zip(piece, torch.split(buffer, [*map(_size, piece)]), strict=True):
                _bytes(tensor).copy_(part)


def _joined(piece: Sequence[Tensor]) -> Tensor:
    return _bytes(piece[0]) if len(piece) == 1 else torch.cat([_bytes(one) for one in piece])


def _pieces(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Put small tensors of one kind of device together; both sides come to the same pieces."""
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


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _read(description: bytes) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(description), weights_only=True)
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
