"""Seeded changes of inputs, for targets in Python where nothing guides. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

_MOST_STEPS = 4


def changed(
    inputs: Sequence[bytes], words: Sequence[str], longest: int, random: Random
) -> Iterator[bytes]:
    """Yield changes of ``inputs`` (there is at least one) for ever, ``longest`` bytes at most."""
    pieces = [word.encode("latin-1") for word in words] or [b"0"]
    while True:
        data = random.choice(inputs)
        for _ in range(random.randint(1, _MOST_STEPS)):
            data = _step(data, random.choice(inputs), random.choice(pieces), random)
        yield data[:longest]


def _step(data: bytes, other: bytes, piece: bytes, random: Random) -> bytes:
    begin = random.randint(0, len(data))
    end = random.randint(begin, min(len(data), begin + 40))
    match random.randrange(6):
        case 0:
            return data[:begin] + bytes((random.randrange(256),)) + data[begin + 1 :]
        case 1:
            return data[:begin] + data[end:]
        case 2:
            return data[:begin] + data[begin:end] * 2 + data[end:]
        case 3:
            return data[:begin] + piece + data[begin:]
        case 4:
            return data[:begin] + piece + data[end:]
        case _:
            at = random.randint(0, len(other))
            return data[:begin] + other[at:]
