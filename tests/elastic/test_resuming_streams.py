"""Streams in accelerate's loaders: where a training goes on in one, on another number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard, IterableDatasetShard
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from bftrainer_slurm.elastic.resuming.huggingface import Place, Saved, read
from bftrainer_slurm.elastic.resuming.marks import Read, mark
from bftrainer_slurm.elastic.resuming.streams import Stream, stream_of

pytestmark = pytest.mark.torch
BATCH = 4
ENDLESS = 10_000


class Numbers(IterableDataset[int]):
    """Each worker process has numbers of its own."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        return iter(range(worker.id if worker else 0, ENDLESS, worker.num_workers if worker else 1))


def shard(ranks: int, rank: int, data: Any, workers: int = 0) -> DataLoaderShard:
    """A rank's loader, as accelerate prepares it with dispatch_batches=False."""
    if ranks > 1:
        data = IterableDatasetShard(data, BATCH, num_processes=ranks, process_index=rank)
    return DataLoaderShard(data, batch_size=BATCH, num_workers=workers)


def numbers(ranks: int, batches: int, passed: int, workers: int) -> Counter[int]:
    """What all ranks get in so many batches after those that are passed over."""
    found: Counter[int] = Counter()
    for rank in range(ranks):
        loader = skip_first_batches(shard(ranks, rank, Numbers(), workers), passed)
        for batch in islice(loader, batches):
            found.update(batch.tolist())
    return found


def known(loader: Any, ranks: int) -> Stream:
    found = stream_of(loader, ranks)
    assert found is not None
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulated", [1, 4])
@pytest.mark.parametrize(("then", "now"), [(1, 3), (3, 1), (2, 3)])
def test_no_sample_is_left_out_and_few_are_trained_again(
    then: int, now: int, accumulated: int, workers: int
) -> None:
    trained = numbers(then, 12, 0, workers)
    read = known(shard(then, 0, Numbers(), workers), then).read(12)
    passed = known(shard(now, 0, Numbers(), workers), now).batches(read, accumulated)
    assert passed is not None
    assert passed % accumulated == 0
    after = numbers(now, 24 // now, passed, workers)
    again = sum((trained & after).values())
    assert again < now * BATCH * accumulated * max(1, workers)
    copies = max(1, workers)
    for worker in range(copies):
        own = sorted(one for one in trained | after if one % copies == worker)
        assert own == list(range(worker, worker + len(own) * copies, copies))


@pytest.mark.parametrize("split", [False, True])
def test_where_rank_0_reads_for_all_its_worker_processes_change_nothing(split: bool) -> None:
    two, one = (
        known(DataLoaderDispatcher(Numbers(), split, batch_size=BATCH, num_workers=workers), 3)
        for workers in (2, 1)
    )
    assert two.read(5).samples == (5 * BATCH if split else 15 * BATCH)
    assert one.batches(two.read(5), 1) is None  # they read it in another order


class Shuffled(Numbers):
    def __init__(self) -> None:
        self.generator = torch.Generator()


@pytest.mark.parametrize(
    ("loader", "ranks"),
    [
        (DataLoader(Numbers(), batch_size=BATCH), 3),
        (DataLoaderShard(Numbers(), batch_size=BATCH), 3),
        (DataLoaderShard(Numbers(), batch_size=None), 1),
        (shard(3, 0, Shuffled()), 3),
        (shard(1, 0, Shuffled()), 1),
    ],
    ids=["the script's loader", "a part for each rank", "of batches", "seeded", "not seeded"],
)
def test_it_is_not_known_where_the_order_may_depend_on_the_ranks(loader: Any, ranks: int) -> None:
    assert stream_of(loader, ranks) is None


def test_a_stream_that_ends_goes_on_in_the_epoch_that_was_under_way() -> None:
    place = Place.of_stream(Saved(1.02, 60, 1), 4, accumulated=2, asked_steps=200)
    assert (place.epoch, place.batches, place.step, place.last) == (1, 4, 2, 200)
    assert place.epochs > 100


def test_a_finished_training_is_passed_over() -> None:
    place = Place.of_stream(Saved(1.0, 200, 1), 0, accumulated=2, asked_steps=200)
    assert not range(place.epoch, place.epochs)


def test_a_checkpoint_says_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"epoch": 0.5, "global_step": 50}')
    mark(tmp_path, 3, "ours", Read(640, "shard 2"))
    assert read(tmp_path) == Saved(0.5, 50, 3, Read(640, "shard 2"))
    mark(tmp_path, 3, "ours")
    assert read(tmp_path) == Saved(0.5, 50, 3)
