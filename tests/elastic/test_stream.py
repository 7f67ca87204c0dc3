"""An iterable data set with state: each sample once an epoch, whatever happens to the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from bftrainer_slurm.elastic.inprocess.sampler import Batch, Course, Cursor, Part
from bftrainer_slurm.elastic.inprocess.stream import UNKNOWN_SIZE, Stream

pytestmark = pytest.mark.torch


class Counted(IterableDataset[int]):
    """Gives the numbers of its samples; its state is the next one's."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._next = 0

    def __iter__(self) -> Iterator[int]:
        while self._next < self._size:
            self._next += 1
            yield self._next - 1

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._next = state_dict["next"]


class Rank:
    """One rank's stream, and where its training stands."""

    def __init__(self, size: int, course: Course) -> None:
        self.cursor = Cursor()
        self.stream = Stream(Counted(size), course, lambda: self.cursor, collate_fn=list)

    def take_over(self, other: Rank) -> None:
        """Begin where another one stands, as a newcomer."""
        state = other.stream.state_dict()
        self.stream.load_state_dict(state)
        self.cursor = other.cursor


def after(batch: tuple[Any, Part]) -> Cursor:
    """Return where the training stands after the step that a batch is of."""
    _, part = batch
    assert part.after is not None
    return part.after


courses = st.builds(
    Course,
    size=st.just(UNKNOWN_SIZE),
    epochs=st.integers(1, 3),
    batch_size=st.integers(1, 12),
    batch=st.sampled_from(Batch),
)
# The world of a step, whether it is lost and repeated, and whether a newcomer takes over from it.
steps = st.lists(
    st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), min_size=1, max_size=12
)


@given(st.integers(1, 80), courses, steps)
def test_each_sample_is_trained_once_an_epoch_whoever_comes_and_goes(
    size: int, course: Course, events: list[tuple[int, bool, bool]]
) -> None:
    first, trained = Rank(size, course), [[] for _ in range(course.epochs)]  # type: ignore[var-annotated]
    while not course.is_over(first.cursor):
        world, lost, joins = events.pop(0) if events else (3, False, False)
        if joins:
            newcomer = Rank(size, course)
            newcomer.stream.rehearsal()
            newcomer.take_over(first)
            first = newcomer
        given = [first.stream.batch(first.cursor, rank, world) for rank in range(world)]
        assert len({part.after for _, part in given}) == 1
        assert sum(part.weight for _, part in given) == pytest.approx(1.0)
        if not lost:
            trained[first.cursor.epoch] += [
                n for batch, part in given if part.weight for n in batch
            ]
            first.cursor = after(given[0])
    assert trained == [list(range(size))] * course.epochs


def test_no_rank_trains_a_lone_sample_where_two_can_be_had() -> None:
    rank = Rank(9, Course(UNKNOWN_SIZE, 1, 4))
    sizes = []
    while rank.cursor.epoch == 0:
        sizes.append(rank.cursor.samples)
        rank.cursor = after(rank.stream.batch(rank.cursor, 0, 2))
    assert sizes == [0, 7]  # not 8, which would leave one


def test_a_data_set_whose_order_changes_is_told_the_epoch() -> None:
    class Shuffled(Counted):
        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                yield number + 100 * self.epoch

    cursor = Cursor()
    stream = Stream(Shuffled(4), Course(UNKNOWN_SIZE, 2, 4), lambda: cursor, collate_fn=list)
    assert stream.batch(cursor, 0, 1)[0] == [0, 1, 2, 3]
    cursor = after(stream.batch(cursor, 0, 1))
    assert stream.batch(cursor, 0, 1)[0] == [100, 101, 102, 103]


def test_a_data_set_without_samples_is_an_error() -> None:
    rank = Rank(0, Course(UNKNOWN_SIZE, 1, 4))
    with pytest.raises(ValueError, match="Counted gives no sample after 0 of epoch 0"):
        rank.stream.batch(rank.cursor, 0, 1)


class Stateless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


class Peculiar(Counted):
    def state_dict(self) -> dict[str, Any]:
        return {"self": Cursor()}


@pytest.mark.parametrize(
    ("dataset", "options", "said"),
    [
        (Stateless(), {}, "Stateless has no length and no state: write its state_dict"),
        (Counted(1), {"num_workers": 2}, "num_workers: an iterable data set is read by"),
        (Peculiar(1), {}, r"Peculiar\.state_dict\(\) has to consist of tensors"),
    ],
)
def test_what_cannot_be_is_refused_by_saying_what_to_write(
    dataset: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        Stream(dataset, Course(UNKNOWN_SIZE, 1, 4), Cursor, **options)
