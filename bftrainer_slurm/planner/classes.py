"""Classes of nodes that are alike to every trainer, and how many nodes of each one has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Share: TypeAlias = tuple[int, ...]  # how many nodes of each class


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes of one kind of hardware that the same trainers cannot have."""

    name: str
    nodes: frozenset[str]
    hardware: str = ""
