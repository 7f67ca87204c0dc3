from dataclasses import replace

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import (
    Memory,
    Observation,
    Release,
    free_nodes,
    hardware_of,
)
from bftrainer_slurm.model import ElementId, ElementState, NodeState, Reservation, WaitingJob
from tests.controller.worlds import ARRAY, NOW_S, element, node, observation, view

SETTINGS = Settings(min_hole_s=60)


def free(seen: Observation, *views: object, memory: Memory | None = None) -> set[str]:
    return set(free_nodes(seen, views, memory or Memory(), SETTINGS))  # type: ignore[arg-type]


def test_an_idle_node_is_free() -> None:
    assert free(observation((node("n1"),))) == {"n1"}


def test_a_node_of_another_partition_is_not() -> None:
    assert free(observation((node("n1", partition="other"),))) == set()


def test_an_unavailable_node_is_not() -> None:
    assert free(observation((node("n1", NodeState.UNAVAILABLE),))) == set()


def test_a_node_with_an_ordinary_job_is_not_though_it_was_idle_when_nodes_were_read() -> None:
    seen = observation((node("n1"), node("n2")), ordinary_nodes=frozenset({"n1"}))
    assert free(seen) == {"n2"}


def test_a_node_that_was_busy_is_free_once_no_job_is_on_it() -> None:
    assert free(observation((node("n1", NodeState.BUSY),))) == {"n1"}


def test_a_node_with_an_element_that_runs_or_ends_is_not() -> None:
    mine = view(element(0, ElementState.RUNNING, "n1"), element(1, ElementState.ENDING, "n2"))
    assert free(observation((node("n1"), node("n2"), node("n3"))), mine) == {"n3"}


def test_a_node_that_an_element_is_about_to_start_on_is_not() -> None:
    memory = Memory(releases={ElementId(ARRAY, 0): Release("n1", NOW_S)})
    mine = view(element(0, ElementState.PENDING), memory=memory)
    assert free(observation((node("n1"), node("n2"))), mine, memory=memory) == {"n2"}


def test_a_node_that_a_waiting_job_is_about_to_get_is_not() -> None:
    soon = WaitingJob(7, "main", 1, NOW_S + 30, ("n1",))
    later = WaitingJob(8, "main", 1, NOW_S + 300, ("n2",))
    assert free(observation((node("n1"), node("n2")), waiting=(soon, later))) == {"n2"}


def test_a_node_in_a_reservation_now_or_soon_is_not() -> None:
    maintenance = Reservation("maintenance", NOW_S + 30, NOW_S + 3600, ("n1",))
    seen = replace(observation((node("n1"), node("n2"))), reservations=(maintenance,))
    assert free(seen) == {"n2"}


def test_a_node_to_avoid_is_not_until_its_time_is_over() -> None:
    seen = observation((node("n1"), node("n2")))
    memory = Memory(avoid={"n1": NOW_S + 10, "n2": NOW_S - 10})
    assert free(seen, memory=memory) == {"n2"}


def test_reclaimed_elements_are_let_go_before_held_ones() -> None:
    mine = view(
        element(0, ElementState.HELD),
        element(1, ElementState.DELAYED),
        element(2, ElementState.RUNNING, "n1"),
    )
    assert [spare.task for spare in mine.spare] == [1, 0]


def test_a_trainer_is_finishing_once_an_element_has_completed() -> None:
    assert view(element(0, ElementState.COMPLETED), element(1, ElementState.RUNNING)).finishing


def test_a_nodes_hardware_is_the_first_feature_that_the_admin_names() -> None:
    seen = observation((replace(node("n1"), features=frozenset({"ib", "a100", "big"})), node("n2")))
    assert hardware_of(seen, Settings(hardware=("v100", "a100", "big"))) == {
        "n1": "a100",
        "n2": "",
    }
    assert hardware_of(seen, Settings()) == {}
