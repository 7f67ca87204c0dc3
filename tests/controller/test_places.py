"""Nothing but ``Place`` takes an element for a whole node: with two places a node all goes well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.decide.actions import Grow
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.view import views_of
from bftrainer_slurm.model import ElementId, Place, TimeLimit, nodes_of
from tests.controller.decide.test_decision import Deciding, other
from tests.controller.made_up_slurm import DELAYED, ENDING, HELD, PENDING, RUNNING, MadeUpSlurm
from tests.controller.test_whatever_happens import Greedy
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    element,
    node,
    picture,
    places,
    snapshot,
    started,
    state_of,
    trainer,
    view,
)

NODES = ("n1", "n2", "n3")
FIRST, SECOND, THIRD = (ElementId(ARRAY, task) for task in range(3))


class Half(NamedTuple):
    """A fake place: half of a node. No Slurm is asked for such a thing yet."""

    node: str
    half: int

    @property
    def name(self) -> str:
        return f"{self.node}/{self.half}"


@pytest.fixture(autouse=True, scope="module")
def halves() -> Iterator[None]:
    """On each node there are two places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "on", lambda name: frozenset({Half(name, 0), Half(name, 1)}))
        yield


@dataclass
class TwoANode(MadeUpSlurm):
    """A made-up Slurm that lets two elements start on a node."""

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
    ) -> None:
        assert not nodes & others
        for job in self._changed("grow", elements, {HELD, DELAYED}):
            job.state, job.targets = PENDING, nodes
            self.schedule_()

    def taken(self) -> set[str]:
        there = Counter(job.node for job in self.all_(RUNNING, ENDING))
        return self.ordinary | {name for name in self.node_names if there[name] > 1}


def test_two_trainers_may_share_a_node() -> None:
    mine, others = view(element(0, HELD)), other(element(0, HELD))
    actions = Deciding()(of=picture(mine, others, of=snapshot((node("n1"),)))).actions
    first, second = (action for action in actions if isinstance(action, Grow))
    assert nodes_of(first.places) == nodes_of(second.places) == {"n1"}
    assert first.places | second.places == places("n1")


def test_so_may_two_elements_of_one() -> None:
    mine = view(*(element(task, HELD) for task in range(4)))
    (action,) = Deciding()(of=picture(mine, of=snapshot((node("n1"),)))).actions
    assert isinstance(action, Grow)
    assert (action.elements, action.places) == ((FIRST, SECOND), places("n1"))


def test_a_third_one_has_no_place_there() -> None:
    mine = view(*(element(task, RUNNING, "n1", start_s=NOW_S + task) for task in range(3)))
    assert (mine.placed.keys(), mine.surplus) == ({FIRST, SECOND}, (THIRD,))


def test_who_stays_keeps_its_place() -> None:
    both = trainer(element(0, RUNNING, "n1"), element(1, RUNNING, "n1"))
    (before,) = views_of([(both, state_of(both))])
    one = replace(both, elements=(element(0, HELD), both.elements[1]))
    (after,) = views_of([(one, state_of(one))], last={ARRAY: before})
    assert after.placed == {SECOND: before.placed[SECOND]}


@hypothesis_settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    taken=st.lists(st.sampled_from([None, *NODES]), max_size=6),
)
def test_whoever_comes_and_goes_each_place_is_somebodys(
    sizes: list[int], taken: list[str | None]
) -> None:
    """Ordinary jobs take one node after the other, or give all of them back (None)."""
    slurm = TwoANode(NOW_S, [*NODES])
    for array, size in enumerate(sizes, ARRAY):
        slurm.submit_(array, 1, size, f"{array:08x}")
    settings = Settings(nodes_interval_s=1)
    controller = started(slurm, Greedy(), History(":memory:"), lambda: slurm.now_s, settings)
    for name in (None, *taken):
        if name is None:
            slurm.ordinary.clear()
        else:
            slurm.start_ordinary_(name)
        for _ in range(8):
            slurm.now_s += 10
            slurm.schedule_()
            controller.turn()
        placed = [one for view in controller.registry.views for one in view.placed.items()]
        running = {job.id: job.node for job in slurm.all_(RUNNING)}
        assert {id_: place.node for id_, place in placed} == running
        assert len({place for _, place in placed}) == len(placed)
        assert len(running) == min(sum(sizes), 2 * (len(NODES) - len(slurm.ordinary)))
