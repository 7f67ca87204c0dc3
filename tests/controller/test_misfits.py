"""Elements that fit only some nodes: the others are not tried, and it is said why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.model import Demands, ElementId, Node, Queue, Resources
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY

BIG = Resources(8000, 64, frozenset({("gpu", 4)}))
SMALL = Resources(1000, 16)


class Mixed(Setting):
    """Four nodes, of which n1 and n2 are big, and a trainer of four that asks for something."""

    def __init__(self, asks: Resources, least: int = 1) -> None:
        super().__init__(4, ARRAY, 99)
        self.tried: set[str] = set()
        queue, nodes, grow = self.slurm.queue, self.slurm.nodes, self.slurm.grow

        def asking() -> Queue:
            read = queue()
            mine, *others = read.trainers
            record = replace(mine.record, min_nodes=least)
            mine = replace(mine, record=record, demands=Demands(resources=asks))
            return replace(read, trainers=(mine, *others))

        def mixed() -> tuple[Node, ...]:
            return tuple(
                replace(node, resources=BIG if node.name in ("n1", "n2") else SMALL)
                for node in nodes()
            )

        def watched(
            elements: Sequence[ElementId], nodes: frozenset[str], *more: Any, **others: Any
        ) -> None:
            if elements[0].array == ARRAY:
                self.tried |= nodes
            grow(elements, nodes, *more, **others)

        self.slurm.queue, self.slurm.nodes = asking, mixed  # type: ignore[method-assign]
        self.slurm.grow = watched  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "asks",
    [Resources(4000), Resources(0, 32), Resources(gres=frozenset({("gpu", 1)}))],
    ids=["memory", "processors", "gres"],
)
def test_only_the_nodes_that_have_enough_are_tried_and_others_have_the_rest(
    asks: Resources,
) -> None:
    setting = Mixed(asks)
    setting.settle()
    for _ in range(20):
        setting.turn(30)
    assert setting.tried <= {"n1", "n2"}
    assert {"n3", "n4"} <= set(setting.on(99))


def test_who_needs_more_nodes_than_fit_is_never_tried_and_told_so() -> None:
    setting = Mixed(Resources(4000), least=3)
    for _ in range(20):
        setting.turn(30)
    assert setting.tried == set()
    assert str(setting.shown()["why"]).startswith("2 of 4 nodes fit")
    assert len(setting.on(99)) == 4


def test_who_fits_everywhere_may_have_all_nodes() -> None:
    setting = Mixed(Resources(500, 8))
    setting.slurm.cancel(99)
    setting.settle()
    assert len(setting.on()) == 4
