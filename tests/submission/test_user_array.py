"""A job array of a user's: which tasks it has, what their scripts see, and where they write."""

from __future__ import annotations

import pytest

from bftrainer_slurm.submission.directives import SubmissionError
from bftrainer_slurm.submission.user_array import UserArray, files_of_task, read_array


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-3", UserArray((0, 1, 2, 3))),
        ("7", UserArray((7,))),
        ("0-99", UserArray(tuple(range(100)))),
        ("5,1-2,1", UserArray((1, 2, 5))),
        ("0-8:4", UserArray((0, 4, 8), step=4)),
        ("0-8:4%2", UserArray((0, 4, 8), step=4, throttle="2")),
    ],
)
def test_reads_an_array(text: str, array: UserArray) -> None:
    assert read_array(text) == array


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-", "0-100", "0-999999999", "0,1;id", "-1"])
def test_refuses_what_is_none_or_has_too_many_tasks(text: str) -> None:
    with pytest.raises(SubmissionError, match="write for example --array=0-9"):
        read_array(text)


def test_a_script_sees_its_own_task() -> None:
    assert read_array("2-6:2").environment(4) == {
        "SLURM_ARRAY_TASK_ID": "4",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "6",
        "SLURM_ARRAY_TASK_STEP": "2",
    }


def test_only_what_names_the_task_is_named_anew() -> None:
    given = {"output": "%A/%a-%%a-%3a.out", "error": "err-%j", "input": "in_%a"}
    assert files_of_task(given, 12) == {"input": "in_12", "output": "%A/12-%%a-012.out"}
