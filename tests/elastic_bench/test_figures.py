"""What is said of the steps is true of them."""

from __future__ import annotations

import pytest

from scripts.elastic_bench.figures import (
    account,
    agreed,
    standstill,
    usual_step_s,
)
from scripts.elastic_bench.steplog import Step


def course(*parts: tuple[float, int, int, int]) -> list[Step]:
    """Return steps of one second: (time of the first, first step, how many, world) each."""
    return [
        Step(begin_s + n, first + n, world, 1000 * world + first + n)
        for begin_s, first, count, world in parts
        for n in range(count)
    ]


# Steps 1 to 10 with four nodes at seconds 1 to 10; from second 14.5 on with three.
LOST = course((1.0, 1, 10, 4), (14.5, 11, 5, 3))


def test_a_pause_is_from_the_last_step_to_the_first_one_after_it_less_a_step() -> None:
    assert standstill(LOST, 10.4, world=3, usual_s=1.0, planned=False) == pytest.approx(3.5)


def test_steps_made_between_a_kill_and_its_notice_are_no_pause() -> None:
    assert standstill(LOST, 7.9, world=3, usual_s=1.0, planned=False) == pytest.approx(3.5)


def test_training_on_before_a_planned_change_is_no_pause_however_slow_it_was() -> None:
    slower = [*course((1.0, 1, 3, 4)), *course((9.0, 4, 1, 4)), *course((12.0, 5, 3, 5))]
    assert standstill(slower, 3.5, world=5, usual_s=1.0, planned=True) == pytest.approx(2.0)


def test_a_world_of_another_size_on_the_way_does_not_end_a_pause_after_a_loss() -> None:
    flapping = [*course((1.0, 1, 3, 4)), *course((6.0, 4, 1, 2)), *course((9.0, 5, 2, 3))]
    assert standstill(flapping, 3.0, world=3, usual_s=1.0, planned=False) == pytest.approx(4.0)


@pytest.mark.parametrize(("since_s", "world"), [(10.4, 2), (0.5, 4)])
def test_who_never_trained_there_or_before_has_no_pause(since_s: float, world: int) -> None:
    assert standstill(LOST, since_s, world, usual_s=1.0, planned=False) is None


def test_the_usual_step_is_the_median_in_the_present_world() -> None:
    steps = [*course((0.0, 1, 5, 4)), Step(20.0, 6, 3, 0), Step(22.0, 7, 3, 0), Step(24.5, 8, 3, 0)]
    assert usual_step_s(steps) == pytest.approx(2.25)


def test_steps_done_again_are_counted_by_the_node_that_did_most_again() -> None:
    nodes = {
        "n1": course((1.0, 1, 10, 2), (20.0, 8, 5, 1)),  # 8, 9, 10 again
        "n2": course((1.0, 1, 10, 2)),
    }
    found = account(nodes)
    assert (found.steps, found.repeated, found.missing) == (12, 3, 0)


def test_a_step_that_nobody_made_is_missing() -> None:
    assert account({"n1": course((1.0, 1, 3, 1), (9.0, 6, 2, 1))}).missing == 2


def test_weights_that_differ_after_a_step_are_noticed() -> None:
    mine, others = course((1.0, 1, 3, 2)), course((1.0, 1, 3, 2))
    others[1] = Step(2.0, 2, 2, 5)
    found = account({"n1": mine, "n2": others})
    assert (found.compared, found.differing) == (3, 1)


def test_a_step_that_only_the_lost_node_completed_is_not_compared() -> None:
    nodes = {"n1": course((1.0, 1, 3, 2)), "n2": course((1.0, 1, 2, 2), (6.0, 3, 1, 1))}
    assert account(nodes).compared == 2


def test_nodes_agree_after_the_last_step_that_all_made() -> None:
    mine, others = course((1.0, 1, 5, 2)), course((1.0, 1, 4, 2))
    assert agreed({"n1": mine, "n2": others}) is True
    others[-1] = Step(4.0, 4, 2, 5)
    assert agreed({"n1": mine, "n2": others}) is False


def test_nodes_without_a_common_step_neither_agree_nor_differ() -> None:
    assert agreed({"n1": course((1.0, 1, 2, 1)), "n2": []}) is None
