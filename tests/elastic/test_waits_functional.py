"""DTensor's collectives that are waited for in Python are the same as torch's own, on gloo."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.inprocess.waits import wait_in_python

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        torch_private.missing(torch_private.FUNCTIONAL) is not None,
        reason="this torch waits in C++ only",  # as 2.9 does
    ),
]

WORLD = 2
CASES: dict[str, tuple[Any, ...]] = {
    "all_gather_into_tensor": (WORLD,),
    "all_reduce": ("avg",),
    "reduce_scatter_tensor": ("sum", WORLD),
}
Answers = list[dict[str, dict[str, Any]]]  # of each rank, by case


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What each rank got from torch's collectives, and after they were replaced."""
    folder = tmp_path_factory.mktemp("ranks")
    context = get_context("forkserver")
    ranks = [
        context.Process(target=_rank, args=(rank, folder), daemon=True) for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(400)
    return [torch.load(folder / f"answers.{rank}") for rank in range(WORLD)]


def _rank(rank: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    # Not contiguous, as DTensor's may be.
    tensor = torch.arange(12.0).reshape(3, 4).t() * (1 - 3 * rank)
    answers: dict[str, dict[str, Any]] = {name: {} for name in CASES}
    for name in CASES:
        answers[name]["torch"] = _ended(_begun(name, tensor))
    library = wait_in_python()
    works: Any = dist.Work
    waits, wait = 0, works.wait

    def counted_wait(*given: Any) -> bool:
        nonlocal waits
        waits += 1
        return bool(wait(*given))

    works.wait = counted_wait
    for name in CASES:
        begun = _begun(name, tensor)
        answers[name]["waited at once"] = waits
        answers[name]["ours"] = _ended(begun)
        answers[name]["waited"], waits = waits, 0
    torch.save(answers, folder / f"answers.{rank}")
    dist.destroy_process_group()
    del library


def _begun(name: str, tensor: Tensor) -> Tensor:
    assert dist.group.WORLD is not None
    begin = getattr(torch.ops._c10d_functional, name)
    begun: Tensor = begin(tensor, *CASES[name], dist.group.WORLD.group_name)
    return begun


def _ended(begun: Tensor) -> Tensor:
    ended: Tensor = torch.ops._c10d_functional.wait_tensor(begun)
    return ended.clone()


@pytest.mark.parametrize("name", CASES)
def test_ours_is_what_torchs_is(name: str, answers: Answers) -> None:
    for rank in answers:
        assert torch.equal(rank[name]["ours"], rank[name]["torch"])


@pytest.mark.parametrize("name", CASES)
def test_it_is_waited_for_in_python_when_it_is_needed(name: str, answers: Answers) -> None:
    for rank in answers:
        assert (rank[name]["waited at once"], rank[name]["waited"]) == (0, 1)
