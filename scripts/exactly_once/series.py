"""Which changes come, and when: a seeded series, by how much of the training is done. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

CHANGES = ("join", "leave", "reclaim", "kill", "zero")
PLANNED = ("join", "leave")  # the others take a node without a word
MOST_NODES = 3


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the nodes, when this part of the samples has been trained."""

    at: float
    kind: str


def series(seed: int, rounds: int, kinds: Sequence[str] = CHANGES) -> list[Change]:
    """Return changes from one node on: in each round one of each kind, in the seed's order.

    A node joins before any that takes one, so that some node is left; ``zero`` takes them all,
    and gives two back.
    """
    order = Random(seed)
    chosen: list[str] = []
    nodes = 1
    for _ in range(rounds):
        left = [kind for kind in kinds if kind != "join"]
        order.shuffle(left)
        for kind in left:
            while nodes < 2 or (nodes < MOST_NODES and order.random() < 0.5):
                chosen.append("join")
                nodes += 1
            chosen.append(kind)
            nodes = 2 if kind == "zero" else nodes - 1
        if nodes < MOST_NODES:
            chosen.append("join")
            nodes += 1
    count = len(chosen)
    return [Change((at + 0.5) / (count + 0.5), kind) for at, kind in enumerate(chosen)]
