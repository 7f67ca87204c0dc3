"""Whatever worlds a training goes through: each sample once an epoch, each step's weights one."""

import math
from collections import Counter
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.elastic.inprocess.sampler import Batch, Course, Cursor, share

courses = st.builds(
    Course,
    size=st.integers(1, 300),
    epochs=st.integers(1, 3),
    batch_size=st.integers(1, 40),
    batch=st.sampled_from(Batch),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
)
worlds = st.lists(st.integers(1, 9), min_size=1, max_size=50)


def steps(course: Course, worlds: list[int]) -> list[tuple[Cursor, int]]:
    """Return where each step begins and its world, if worlds follow each other like this."""
    cursor, taken = Cursor(), []
    for world in chain(worlds, repeat(worlds[-1])):
        if course.is_over(cursor):
            break
        taken.append((cursor, world))
        cursor = course.after(cursor, world)
    return taken


def trained(course: Course, cursor: Cursor, world: int) -> list[int]:
    """Return the samples that count in a step."""
    return [
        sample
        for rank in range(world)
        if course.part(cursor, rank, world).weight > 0
        for sample in next(course.batches(cursor, rank, world))
    ]


@given(courses, worlds)
def test_no_sample_is_skipped_or_repeated_within_an_epoch(
    course: Course, worlds: list[int]
) -> None:
    epochs: dict[int, Counter[int]] = {}
    for cursor, world in steps(course, worlds):
        epochs.setdefault(cursor.epoch, Counter()).update(trained(course, cursor, world))
    assert epochs == {
        epoch: Counter(dict.fromkeys(range(course.size), 1)) for epoch in range(course.epochs)
    }


@given(courses, worlds)
def test_a_step_repeated_by_another_world_begins_at_the_same_sample(
    course: Course, worlds: list[int]
) -> None:
    for cursor, world in steps(course, worlds):
        first = next(course.batches(cursor, 0, world))[0]
        assert all(next(course.batches(cursor, 0, other))[0] == first for other in (1, 2, 5))


@given(courses, worlds)
def test_weights_are_the_parts_of_samples_and_sum_to_one(course: Course, worlds: list[int]) -> None:
    for cursor, world in steps(course, worlds):
        weights = [course.part(cursor, rank, world).weight for rank in range(world)]
        assert math.isclose(sum(weights), 1.0)
        assert weights[0] > 0


@given(courses, worlds)
def test_a_rank_without_samples_computes_with_rank_0s(course: Course, worlds: list[int]) -> None:
    for cursor, world in steps(course, worlds):
        for rank in range(world):
            batch = next(course.batches(cursor, rank, world))
            assert batch
            if course.part(cursor, rank, world).weight == 0:
                assert batch == next(course.batches(cursor, 0, world))


@given(courses, st.integers(1, 9))
def test_batches_in_a_row_are_those_of_each_step(course: Course, world: int) -> None:
    for rank in range(world):
        row = list(course.batches(Cursor(), rank, world))
        assert row == [
            next(course.batches(cursor, rank, world)) for cursor, _ in steps(course, [world])
        ]


@given(st.integers(2, 500), st.integers(3, 40), worlds)
def test_no_rank_has_a_lone_sample(size: int, batch_size: int, worlds: list[int]) -> None:
    course = Course(size, 1, batch_size)
    for cursor, world in steps(course, worlds):
        parts = [len(share(0, course.taken(cursor, world), rank, world)) for rank in range(world)]
        assert 1 not in parts


def test_a_local_batch_grows_with_the_world_and_a_global_one_does_not() -> None:
    assert Course(100, 1, 8, Batch.LOCAL).total(3) == 24
    assert Course(100, 1, 8, Batch.GLOBAL).total(3) == 8


def test_each_epoch_has_an_order_of_its_own() -> None:
    course = Course(50, 2, 50)
    first, second = course.batches(Cursor(), 0, 1)
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(("size", "epochs", "batch_size"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_an_empty_training_is_refused(size: int, epochs: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match="must not be"):
        Course(size, epochs, batch_size)
