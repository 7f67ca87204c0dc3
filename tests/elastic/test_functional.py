"""DTensor's collectives that are waited for in Python are the same as torch's own, on gloo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from bftrainer_slurm.elastic import functional

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

WORLD = 2
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "all_gather_into_tensor": (functional.all_gather_into_tensor, (WORLD,)),
    "all_reduce": (functional.all_reduce, ("sum",)),
    "reduce_scatter_tensor": (functional.reduce_scatter_tensor, ("max", WORLD)),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """What each rank got of each collective: torch's, ours, and torch's after it was replaced."""
    folder = tmp_path_factory.mktemp("ranks")
    context = get_context("forkserver")
    ranks = [context.Process(target=_rank, args=(rank, folder)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(240)
    yield [torch.load(folder / f"answers.{rank}") for rank in range(WORLD)]


def _rank(rank: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    # Not contiguous, as DTensor's may be.
    tensor = torch.arange(12.0).reshape(3, 4).t() * (1 - 2 * rank)
    answers: dict[str, dict[str, Any]] = {name: {} for name in CASES}
    for name, (own, options) in CASES.items():
        answers[name]["torch"] = _torchs(name, tensor, options)
        answers[name]["ours"] = own(tensor, *options, dist.group.WORLD)
    works: Any = dist.Work
    waits, wait = Counter[str](), works.wait

    def counted_wait(*given: Any) -> bool:
        waits[name] += 1
        return bool(wait(*given))

    works.wait = counted_wait
    library = functional.wait_in_python()
    for name, (_, options) in CASES.items():
        answers[name]["replaced"] = _torchs(name, tensor, options)
        answers[name]["waits"] = waits[name]
    del library
    torch.save(answers, folder / f"answers.{rank}")
    dist.destroy_process_group()


def _torchs(name: str, tensor: Tensor, options: tuple[Any, ...]) -> Tensor:
    operations = torch.ops._c10d_functional
    assert dist.group.WORLD is not None
    begun = getattr(operations, name)(tensor, *options, dist.group.WORLD.group_name)
    ended: Tensor = operations.wait_tensor(begun)
    return ended.clone()


@pytest.mark.parametrize("name", CASES)
def test_ours_is_what_torchs_is(name: str, answers: list[dict[str, Any]]) -> None:
    for rank in answers:
        assert torch.equal(rank[name]["ours"], rank[name]["torch"])


@pytest.mark.parametrize("name", CASES)
def test_once_replaced_it_waits_in_python(name: str, answers: list[dict[str, Any]]) -> None:
    for rank in answers:
        assert torch.equal(rank[name]["replaced"], rank[name]["torch"])
        assert rank[name]["waits"] == 1
