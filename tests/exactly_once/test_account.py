"""What became of samples, by what processes wrote down."""

from __future__ import annotations

import pytest

from scripts.benchkit.steps import Step
from scripts.exactly_once.account import Account, Trained, account, in_the_model
from scripts.exactly_once.report import Result
from scripts.exactly_once.training import planned as planned_among
from scripts.exactly_once.ways import MOST_NODES, UNCHANGED, series
from scripts.labcluster.fleet import CHANGES


def step(number: int, life: str, time_s: float, *numbers: int, world: int = 1) -> Step:
    return Step(time_s, world, number, more={"group": life, "rate": 1.0, "numbers": list(numbers)})


def test_what_a_restart_trains_again_is_in_the_model_once() -> None:
    first = [step(1, "a", 1, 0), step(2, "a", 2, 1), step(3, "a", 3, 2)]
    again = [step(2, "b", 4, 1), step(3, "b", 5, 2), step(4, "b", 6, 3)]
    steps, thrown_away = in_the_model([*first, *again])
    assert [one.numbers for one in steps] == [(0,), (1,), (2,), (3,)]
    told = account(steps, thrown_away, samples=4, epochs=1, loss=0.5)
    assert (told.lost, told.twice, told.again, told.trained) == (0, 0, 2, 6)


def test_steps_after_the_last_ones_checkpoint_are_not_in_the_model() -> None:
    first = [step(number, "a", number, number) for number in range(1, 9)]
    last = [step(3, "b", 10, 3, 4)]
    steps, thrown_away = in_the_model([*first, *last])
    assert [one.number for one in steps] == [1, 2, 3]
    assert thrown_away == {10: 6}
    told = account(steps, thrown_away, samples=9, epochs=1, loss=None)
    assert told.lost == 5  # 0 and 5 to 8


@pytest.mark.parametrize(
    ("changes", "planned"),
    [
        ([], 0),
        ([(3.5, "leave")], 2),
        ([(3.5, "kill")], 0),
        ([(0.5, "join"), (3.5, "reclaim")], 0),
        ([(3.5, "join"), (4.5, "kill")], 2),
    ],
)
def test_what_a_planned_change_throws_away_is_told_from_what_a_kill_does(
    changes: list[tuple[float, str]], planned: int
) -> None:
    first = [step(1, "a", 1, 0), step(2, "a", 2, 1), step(3, "a", 3, 2)]
    again = [step(2, "b", 4, 1), step(3, "b", 5, 2)]
    steps, thrown_away = in_the_model([*first, *again])
    spans = planned_among(changes)
    told = account(steps, thrown_away, samples=3, epochs=1, loss=0.5, planned=spans)
    assert (told.again, told.planned) == (2, planned)


def test_ranks_of_one_step_are_one_step() -> None:
    ranks = [step(1, "a", 1, rank, world=2) for rank in range(2)]
    ((only,), _) = in_the_model(ranks)
    assert (only.world, sorted(only.numbers)) == (2, [0, 1])


def test_too_often_is_told_beside_too_seldom() -> None:
    steps, _ = in_the_model([step(1, "a", 1, 0, 0, 1)])
    told = account(steps, {}, samples=3, epochs=1, loss=0.0)
    assert (told.lost, told.twice) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_series_has_every_change_and_never_takes_the_last_node(seed: int) -> None:
    changes = series(seed, rounds=2)
    assert {one.kind for one in changes} == set(CHANGES)
    assert [one.at for one in changes] == sorted(one.at for one in changes)
    nodes = 1
    for change in changes:
        nodes = 2 if change.kind == "zero" else nodes + (1 if change.kind == "join" else -1)
        assert 1 <= nodes <= MOST_NODES


def test_the_rate_is_compared_with_that_of_a_run_without_changes() -> None:
    course = [
        Trained(number, 1, rate, (number,)) for number, rate in enumerate((4.0, 2.0, 1.0, 0.5))
    ]
    by_samples = [Trained(1, 1, 8.0, (0, 1)), Trained(2, 2, 2.0, (2, 3))]
    assert account(by_samples, {}, 4, 1, 0.0, course).rate_off == 0.0
    by_steps = [Trained(1, 1, 8.0, (0, 1)), Trained(2, 2, 4.0, (2, 3))]
    assert account(by_steps, {}, 4, 1, 0.0, course).rate_off == pytest.approx(0.25)
    by_asked = [Trained(1, 1, 8.0, (0, 1, 2)), Trained(2, 2, 4.0, (3,))]
    asked = account(by_asked, {}, 4, 1, 0.0, asked_steps=2)
    assert (asked.steps, asked.rate_off) == (2, 0.0)


@pytest.mark.parametrize(
    ("loss", "lost", "twice", "steps", "asked_steps", "ended"),
    [
        (None, 0, 0, 8, 0, "no"),
        (0.1, 0, 7, 8, 0, "yes"),
        (0.1, 1, 0, 8, 0, "early"),
        (0.1, 0, 99, 8, 0, "late"),
        (0.1, 50, 0, 8, 8, "yes"),
        (0.1, 0, 0, 7, 8, "early"),
        (0.1, 0, 0, 9, 8, "late"),
    ],
)
def test_a_training_ends_when_it_has_what_was_asked_for(
    loss: float | None, lost: int, twice: int, steps: int, asked_steps: int, ended: str
) -> None:
    found = Account(96, 96, lost, twice, 0, 0, 0.0, loss, steps)
    told = Result(UNCHANGED, ["join"], found, asked_steps=asked_steps)
    assert told.ended == ended
