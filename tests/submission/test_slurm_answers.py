from __future__ import annotations

from collections.abc import Sequence

import pytest

from bftrainer_slurm.submission.directives import SubmissionError
from bftrainer_slurm.submission.slurm_answers import NoAnswerError, check_gpus, without_singleton

NODES = "gpu:a100:4(S:0-1)\ngpu:h100:8,shard:64\n(null)\n"


def silent(words: Sequence[str]) -> str:
    raise NoAnswerError


@pytest.mark.parametrize(
    "given",
    [
        {"gpus-per-node": "8"},
        {"gpus-per-node": "a100:4"},
        {"gres": "gpu:h100:8"},
        {"gres": "gres:gpu:2,disk:9"},
        {"gres": "gpu=2"},
        {"gpus-per-node": "a100"},
        {"gres": "disk:9"},
        {},
    ],
)
def test_gpus_that_a_node_has_are_taken(given: dict[str, str]) -> None:
    check_gpus(given, "spare", lambda words: NODES)


@pytest.mark.parametrize(
    "given",
    [
        {"gpus-per-node": "9"},
        {"gpus-per-node": "a100:5"},
        {"gres": "gpu:v100:1"},
        {"gpus-per-node": "a100:1,h100:1"},
    ],
)
def test_more_than_any_node_has_are_refused_with_what_there_is(given: dict[str, str]) -> None:
    asked = []

    def ask(words: Sequence[str]) -> str:
        asked.append(words)
        return NODES

    with pytest.raises(SubmissionError, match=r"there are nodes with a100:4 and with h100:8$"):
        check_gpus(given, "spare", ask)
    assert "--partition=spare" in asked[0]


def test_where_slurm_does_not_say_what_nodes_have_nothing_is_refused() -> None:
    check_gpus({"gpus-per-node": "9"}, "spare", silent)
    check_gpus({"gpus-per-node": "9"}, "spare", lambda words: "(null)\n")


@pytest.mark.parametrize(
    ("dependency", "left"),
    [
        ("singleton", "afterany:7:9"),
        ("afterok:3,singleton", "afterok:3,afterany:7:9"),
        ("afterok:3", None),
    ],
)
def test_a_singleton_becomes_the_present_jobs_of_the_name(
    dependency: str, left: str | None
) -> None:
    given = {"dependency": dependency, "job-name": "my run"}
    assert without_singleton(given, lambda words: "7 my run\n8 other\n9 my run\n9 my run\n") == left


def test_without_such_jobs_nothing_is_left_of_it() -> None:
    assert without_singleton({"dependency": "singleton", "job-name": "x"}, lambda words: "") == ""


def test_a_singleton_is_refused_where_its_jobs_are_not_known() -> None:
    with pytest.raises(SubmissionError, match="write --dependency=afterany:JOB"):
        without_singleton({"dependency": "singleton", "job-name": "x"}, silent)
