"""Numbers in sentences: ``1 node``, ``2 nodes``, ``1,000 nodes``."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return so many of a thing whose plural takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
