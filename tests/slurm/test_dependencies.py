"""What a job with a dependency still waits for."""

from __future__ import annotations

import pytest

from bftrainer_slurm.model import ElementState
from bftrainer_slurm.slurm.dependencies import unmet

RUNS, WAITS, ENDED, ARRAY, BAD = 1, 2, 3, 5, 6  # 4: Slurm has forgotten it
TASKS = {
    RUNS: [ElementState.RUNNING],
    WAITS: [ElementState.HELD],
    ENDED: [ElementState.COMPLETED],
    ARRAY: [ElementState.COMPLETED, ElementState.FAILED, ElementState.RUNNING],
    BAD: [ElementState.COMPLETED, ElementState.CANCELLED],
}


def states_of(job: int, task: int | None) -> list[ElementState]:
    states = TASKS.get(job, [])
    return states if task is None else [states[task]]


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
        ("afterok:5_2(unfulfilled)", "afterok:5_2"),
        ("afterok:5_0(unfulfilled)", ""),
        ("aftercorr:5_*(unfulfilled)", "aftercorr:5_*"),
        ("afterok:1(fulfilled)", ""),
        ("afterok:3(failed)", "afterok:3(failed)"),
        ("singleton(unfulfilled)", ""),
        ("afterok:4(unfulfilled),afternotok:4(unfulfilled)", ""),
        # A job that ended decides before Slurm has looked at it.
        ("afterok:3(unfulfilled)", ""),
        ("afterok:6(unfulfilled)", "afterok:6(failed)"),
        ("afterok:5_1(unfulfilled)", "afterok:5_1(failed)"),
        ("afterok:6(unfulfilled)?afterany:3(unfulfilled)", ""),
        ("afterany:6(unfulfilled)", ""),
        ("afternotok:6(unfulfilled)", ""),
        ("afternotok:3(unfulfilled)", "afternotok:3(failed)"),
    ],
)
def test_what_is_left_of_a_dependency(dependency: str, left: str) -> None:
    assert unmet(dependency, states_of) == left
