"""Which trainers cannot have which nodes: by what they ask for, and by what Slurm has said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.actions import Hold
from bftrainer_slurm.controller.limits import (
    Limits,
    limits_of,
    note_refused,
    why_never,
    withdraw,
)
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Memory, Release, TrainerView, Wait, view_trainer
from bftrainer_slurm.model import Demands, Element, ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, node, observation, trainer, view

HELD = element(0, ElementState.HELD)
FIRST = ElementId(ARRAY, 0)
NODES = (
    replace(node("n1"), features=frozenset({"red"})),
    replace(node("n2"), features=frozenset({"red", "big"})),
    node("n3"),
)


def asking(*elements: Element, min_nodes: int = 1, **demands: object) -> TrainerView:
    asked = Demands(**demands)  # type: ignore[arg-type]
    return view_trainer(replace(trainer(*elements, min_nodes=min_nodes), demands=asked), Memory())


def limits(*views: TrainerView, memory: Memory | None = None) -> Limits:
    return limits_of(views, observation(NODES), memory or Memory(), Settings())


def let_go(reason: str, state: ElementState = ElementState.PENDING) -> tuple[TrainerView, Memory]:
    """A trainer with an element that was let go on n1 a second ago, and what Slurm says of it."""
    memory = Memory(releases={FIRST: Release("n1", NOW_S - 1)})
    return view(replace(element(0, state, "n1"), reason=reason), memory=memory), memory


def test_who_asks_for_nothing_may_have_every_node() -> None:
    assert limits(view(HELD)) == Limits()


def test_nodes_without_the_features_are_barred() -> None:
    assert limits(asking(HELD, constraints=frozenset({"red"}))).barred == {ARRAY: {"n3"}}


def test_all_constraints_that_its_elements_have_must_hold() -> None:
    both = asking(HELD, constraints=frozenset({"red", "big|blue"}))
    assert limits(both).barred == {ARRAY: {"n1", "n3"}}


def test_excluded_nodes_are_barred() -> None:
    assert limits(asking(HELD, excluded=frozenset({"n1", "n9"}))).barred == {ARRAY: {"n1"}}


def test_a_node_that_it_has_is_not_barred() -> None:
    runs = asking(element(0, ElementState.RUNNING, "n3"), constraints=frozenset({"red"}))
    assert limits(runs).barred == {}


def test_who_has_too_few_nodes_that_fit_cannot_grow() -> None:
    wants_two = asking(HELD, HELD, min_nodes=2, constraints=frozenset({"big"}))
    found = limits(wants_two)
    assert found.stuck[ARRAY].startswith("of 3 nodes 1 will do")
    assert found.barred == {}


@pytest.mark.parametrize(
    ("demands", "said"),
    [
        ({"licenses": "matlab:1"}, "licences (matlab:1)"),
        ({"reservation": "exam"}, "reservation exam"),
        ({"constraints": frozenset({"[red|big]"})}, "features with & or |"),
    ],
)
def test_some_demands_are_not_met_at_all(demands: dict[str, object], said: str) -> None:
    assert said in str(why_never(Demands(**demands)))  # type: ignore[arg-type]
    assert said in limits(asking(HELD, **demands)).stuck[ARRAY]


def test_a_node_that_slurm_holds_an_element_for_is_barred_for_an_hour() -> None:
    refused, memory = let_go("BadConstraints", ElementState.HELD)
    memory = note_refused((refused,), memory, NOW_S)
    assert limits(refused, memory=memory).barred == {ARRAY: {"n1"}}
    later = replace(observation(NODES), time_s=NOW_S + 3601)
    assert limits_of((refused,), later, memory, Settings()).barred == {}


def test_a_reason_from_before_says_nothing_of_a_node() -> None:
    old, _ = let_go("BadConstraints", ElementState.HELD)
    elsewhere = Memory(releases={FIRST: Release("n2", NOW_S)})  # and it never reached Slurm
    for memory in (Memory(), elsewhere):
        assert not note_refused((old,), memory, NOW_S).refused


def test_an_element_that_pends_on_a_node_that_cannot_do_is_held() -> None:
    pends, memory = let_go("BadConstraints")
    actions, memory = withdraw((pends,), memory, NOW_S)
    assert actions == [Hold((FIRST,))]
    assert "n1" in memory.refused[ARRAY]
    assert not memory.releases


@pytest.mark.parametrize("reason", ["AssocMaxJobsLimit", "QOSMaxNodePerUserLimit", "Dependency"])
def test_an_element_that_waits_for_no_node_is_held_and_its_trainer_waits(reason: str) -> None:
    waits, memory = let_go(reason)
    actions, memory = withdraw((waits,), memory, NOW_S)
    assert actions == [Hold((FIRST,))]
    assert limits(waits, memory=memory).stuck[ARRAY].endswith(f"now: {reason}")


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "Prolog"])
def test_an_element_that_waits_for_its_node_is_left_to_wait(reason: str) -> None:
    waits, memory = let_go(reason)
    assert withdraw((waits,), memory, NOW_S) == ([], memory)


def test_a_wait_ends() -> None:
    memory = Memory(waits={ARRAY: Wait("Licenses", NOW_S)})
    assert limits(view(HELD), memory=memory) == Limits()
