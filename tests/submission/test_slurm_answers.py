from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bftrainer_slurm.submission.directives import SubmissionError
from bftrainer_slurm.submission.slurm_answers import (
    Ask,
    NoAnswerError,
    check_nodes,
    without_singleton,
)

WITH_GPUS = "spare|4|32|256000|gpu:a100:4(S:0-1)\n"
NODES = f"""{WITH_GPUS}spare|2|96|1024000|gpu:h100:8,shard:64
spare|1|128|512000|(null)
main|9|512|4096000|gpu:v100:16
"""


def silent(words: Sequence[str]) -> str:
    raise NoAnswerError


def printing(*answers: str) -> Ask:
    """Slurm's commands print this, one after the other; any further one is a question too many."""
    left = list(answers)
    return lambda words: left.pop(0)


def refusal(given: dict[str, str], ask: Ask | None = None, **options: Any) -> str:
    """Why it is refused, empty if it is not."""
    try:
        check_nodes(given, "spare", ask or printing(NODES, ""), **options)
    except SubmissionError as error:
        return str(error)
    return ""


TAKEN = [
    *({}, {"gpus-per-node": "8"}, {"gpus-per-node": "a100:4"}, {"gpus-per-node": "a100"}),
    *({"gres": "gpu:h100:8"}, {"gres": "gres:gpu:2,disk:9"}, {"gres": "gpu=2"}),
    *({"gres": "disk:9"}, {"mem": "1000000"}, {"mem": "0"}, {"mem-per-cpu": "1000G"}),
    {"mem": "1000G", "gpus-per-node": "8"},
    {"cpus-per-task": "32", "ntasks-per-node": "4"},
    {"cpus-per-task": "12", "gpus-per-node": "8", "ntasks-per-node": "8"},
]
GPUS = "a100:4 and with h100:8 and with no GPUs"
MEMORY = "1024000 MB and with 256000 MB and with 512000 MB"
CPUS = "128 CPUs and with 32 CPUs and with 96 CPUs"
BOTH = "a100:4, 256000 MB and with h100:8, 1024000 MB and with no GPUs, 512000 MB"


@pytest.mark.parametrize(
    ("given", "there"),
    [
        *((given, "") for given in TAKEN),
        ({"gpus-per-node": "9"}, GPUS),
        ({"gpus-per-node": "a100:5"}, GPUS),
        ({"gres": "gpu:v100:2"}, GPUS),
        ({"gres": "gpu:a100:1,gpu:h100:1"}, GPUS),
        ({"mem": "1200G"}, MEMORY),
        ({"mem-per-cpu": "1200G"}, MEMORY),
        ({"cpus-per-task": "64", "ntasks-per-node": "4"}, CPUS),
        ({"gpus-per-node": "a100:4", "mem": "300G"}, BOTH),
    ],
)
def test_what_no_node_has_is_refused_with_what_there_is(given: dict[str, str], there: str) -> None:
    wanted = " ".join(f"--{name}={value}" for name, value in given.items())
    why = f"{wanted}: no node of partition spare has that; there are nodes with {there}"
    answers = (NODES, "")[: 1 + ("mem-per-cpu" in given)]
    assert refusal(given, printing(*answers)) == (why if there else "")


@pytest.mark.parametrize(
    ("options", "whole", "refused"),
    [
        ("11G", True, "--mem-per-cpu=11G for all CPUs of a node"),
        ("10G", True, ""),
        ("11G", False, ""),
        ("11G -c 90", False, ""),
        ("10G -c 15 -n 8", False, "--mem-per-cpu=10G --cpus-per-task=15 --ntasks-per-node=8"),
    ],
)
def test_memory_for_each_cpu_counts_for_those_of_the_element_where_slurm_counts_memory(
    options: str, whole: bool, refused: str
) -> None:
    memory, *words = options.replace("-c", "cpus-per-task").replace("-n", "ntasks-per-node").split()
    given = {"mem-per-cpu": memory, **dict(zip(words[::2], words[1::2], strict=True))}
    for counted, why in (("CR_CORE", ""), ("CR_CORE_MEMORY", refused)):
        config = f"SelectTypeParameters    = {counted}\nSlurmUser = slurm\n"
        said = refusal(given, printing(NODES, config), whole=whole)
        assert said.partition(": no node of partition spare has that")[0] == why


def test_where_slurm_does_not_say_what_nodes_have_nothing_is_refused() -> None:
    for ask in (silent, printing(""), printing("spare|1|32|1|(null)\n")):
        assert refusal({"gpus-per-node": "9", "mem": "9G"}, ask) == ""
    for ask in (silent, printing("")):
        assert refusal({}, ask, least=9) == ""
    assert refusal({"cpus-per-task": "4"}, silent, of_cores=True) == ""


def test_more_nodes_than_there_are_are_refused_with_their_number() -> None:
    assert refusal({}, least=7) == ""
    assert refusal({}, least=8) == (
        "it needs at least 8 nodes at a time, and partition spare has 7; write -N MIN-MAX with a "
        "MIN of at most 7"
    )


def test_who_asks_for_nothing_of_a_node_costs_no_question() -> None:
    assert refusal({"time": "60", "ntasks-per-node": "4", "mem": "0"}, printing()) == ""


def test_a_trainer_of_cores_is_refused_where_all_nodes_have_gpus_and_are_shared_by_them() -> None:
    said = refusal({"cpus-per-task": "4"}, printing(WITH_GPUS), of_cores=True)
    assert "write --gpus-per-node, or --exclusive for whole" in said
    assert refusal({"cpus-per-task": "4"}, of_cores=True) == ""


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
    if dependency == "singleton":
        assert without_singleton(given, lambda words: "") == ""
        with pytest.raises(SubmissionError, match="write --dependency=afterany:JOB"):
            without_singleton(given, silent)
