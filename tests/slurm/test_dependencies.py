"""What a job with a dependency still waits for."""

from __future__ import annotations

import pytest

from bftrainer_slurm.slurm.dependencies import unmet

RUNS, WAITS, ENDED = 1, 2, 3  # the jobs there are, and a task 4 of 5 that runs


def blocks(job: int, task: int | None, begun: bool) -> bool:
    if begun:
        return job == WAITS
    return job in (RUNS, WAITS) or (job, task) in ((5, 4), (5, None))


@pytest.mark.parametrize(
    ("dependency", "left"),
    [
        ("", ""),
        ("afterok:1(unfulfilled)", "afterok:1"),
        ("afterany:3(unfulfilled)", ""),
        ("afterany:3(unfulfilled),afterok:2(unfulfilled)", "afterok:2"),
        ("afterany:3(unfulfilled)?afterok:2(unfulfilled)", ""),
        ("afterany:1(unfulfilled)?afterok:2(unfulfilled)", "afterany:1,afterok:2"),
        ("after:1(unfulfilled)", ""),
        ("after:1+5(unfulfilled)", ""),
        ("after:2(unfulfilled)", "after:2"),
        ("afterok:5_4(unfulfilled)", "afterok:5_4"),
        ("afterok:5_3(unfulfilled)", ""),
        ("aftercorr:5_*(unfulfilled)", "aftercorr:5_*"),
        ("afterok:1(fulfilled)", ""),
        ("afterok:3(failed)", "afterok:3(failed)"),
        ("singleton(unfulfilled)", ""),
    ],
)
def test_what_is_left_of_a_dependency(dependency: str, left: str) -> None:
    assert unmet(dependency, blocks) == left
