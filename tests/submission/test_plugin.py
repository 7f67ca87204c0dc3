"""What the plugin is told to do, with a stand-in for sbatch's options: the rewriting itself has its
table (``submission_cases.json``), which real sbatches are held to, too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.submission import plugin, rewrite_program
from bftrainer_slurm.submission.directives import (
    SubmissionError,
    read_directives,
    read_environment,
    read_options,
)
from bftrainer_slurm.submission.plugin import Sbatch, Word

Told = Callable[..., list[Word]]
SCRIPT = "#!/bin/sh\n#SBATCH -N 4 -n 8\ntrue\n"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Returns what the plugin is told of these options of sbatch."""

    def told(
        options: dict[str, str],
        spec: str = "",
        command: tuple[str, ...] = (),
        script: str | None = SCRIPT,
        site: tuple[str, ...] = (),
        slurm: str = "",
    ) -> list[Word]:
        arguments = () if script is None else ("/home/u/train.sh", "--lr", "1")
        sbatch = Sbatch(options, ("sbatch", *command), arguments, script, Path("/nowhere"))
        monkeypatch.setattr(plugin, "_sbatch", lambda document: sbatch)
        monkeypatch.setattr(plugin, "_ask", lambda folder, words: slurm)
        limits = {"max_array_size": 1001, "max_job_count": 10_000}
        return list(plugin.answer({"spec": spec, "site": site, **limits}))

    return told


def of(words: list[Word], verb: str) -> dict[str, str]:
    return {name: value for what, name, value in words if what == verb}


def typed(
    told: Told,
    words: Sequence[str],
    script: str = "#!/bin/sh\n",
    environment: Mapping[str, str] | None = None,
    piped: bool = False,
    **more: Any,
) -> list[Word]:
    """What it is told of a command line, as sbatch reads it."""
    given = read_environment(environment or {}) | read_directives(script) | read_options(words)
    spec = (environment or {}).get(OPTION, given.pop("bftrainer", ""))
    return told(given, spec, tuple(words), None if piped else script, **more)


TABLE = Path(__file__).parents[1] / "slurm_plugin/submission_cases.json"
OPTION = "SLURM_SPANK__SLURM_SPANK_OPTION_bftrainer_bftrainer"
# What only sbatch sees, or only Slurm: its own mistakes, jobs that are no trainers, and nodes.
NOT_HERE = {
    *("a key as an argument of its own", "not a number", "a heterogeneous job", "salloc", "srun"),
    *("an ordinary job", "an ordinary job with a range", "an ordinary array"),
    *("leftovers of a filter", "more GPUs than a node has", "more nodes than there are"),
}


@pytest.mark.parametrize(
    "case",
    [case for case in json.loads(TABLE.read_text()) if case["name"] not in NOT_HERE],
    ids=lambda case: str(case["name"]),
)
def test_a_submission_becomes_what_the_table_says(told: Told, case: dict[str, Any]) -> None:
    of_case = (case.get("script", "#!/bin/sh\n"), case.get("environment"), "through" in case)
    if "refused" in case:
        with pytest.raises(SubmissionError) as refusal:
            typed(told, case["arguments"], *of_case)
        assert any(one in str(refusal.value) for one in case["refused"])
        return
    words = typed(told, case["arguments"], *of_case)
    made, wanted = of(words, "set"), case["job"]
    shown = {
        "Partition": made["partition"],
        "ArrayTaskId": made["array"],
        "NumNodes": f"{made['nodes']}-{made['nodes']}",
        "NumTasks": made["ntasks"],
        "NtasksPerN:B:S:C": f"{made.get('ntasks-per-node')}:0:*:*",
        "CPUs/Task": made.get("cpus-per-task"),
        "MinMemoryNode": made.get("mem"),
        "TresPerNode": f"gres:gpu:{made.get('gpus-per-node')}",
        "Comment": re.sub(r",id=[0-9a-f]{8}", "", made["comment"]),
    }
    known = shown.keys() & wanted.keys()
    assert {name: shown[name] for name in known} == {name: wanted[name] for name in known}
    taken = {"prefer", "reservation", "signal", "nodelist", "dependency"}
    assert of(words, "reset").keys() >= taken & read_options(case["arguments"]).keys()
    said = "".join(f"bftrainer: {text}\n" for verb, _, text in words if verb == "say")
    assert all(one in said for one in case.get("told", ()))


PARTS = (
    *("--gpus-per-node=2", "--gpus=8", "--gres=gpu:a100:2", "--gpus-per-node=2 --mem=100"),
    *("--gpus-per-node=a100:0,v100:2", "--gpus-per-node=a100:2,v100:0"),
)
WHOLE = (
    *("", "--gpus-per-node=0", "--gres=gpu:nvidia_a100:0", "--gres=gpu=0", "--gres=fpga:2"),
    *("--gres=gpumem:20g", "--cpus-per-task=2", "-c2 --exclusive", "-c2 --gpus-per-task=1"),
    *("--gpus-per-node=2 --exclusive", "--gpus-per-node=2 --gpus-per-task=1"),
)
WHOLE_FOR_MEMORY = (
    "--gpus-per-node=2 --mem=0",
    "--gpus-per-node=2 --mem=0G",
    "-c2 --mem-per-cpu=0",
)


def shared(told: Told, options: str, share: bool = True, gpus: str = "") -> list[Word]:
    """A trainer of a site that lets trainers share nodes, or does not."""
    nodes = f"bftrainer|1|8|8000|{gpus}\n" if gpus else ""
    script, site = "#!/bin/sh\n#SBATCH -N4\n", ("share=yes",) * share
    return typed(told, options.split(), script, site=site, slurm=nodes)


@pytest.mark.parametrize("options", [*PARTS, *WHOLE, *WHOLE_FOR_MEMORY])
def test_who_asks_for_gpus_has_a_part_of_a_node_where_the_site_shares_nodes(
    told: Told, options: str
) -> None:
    for share in (True, False):
        words, part = shared(told, options, share), share and options in PARTS
        said = next(text for verb, _, text in words if verb == "say")
        assert ("exclusive" in of(words, "set")) is not part
        assert ("; for whole nodes write --exclusive" in said) is part
        for_memory = share and options in WHOLE_FOR_MEMORY
        assert ("nodes; whole ones, since --mem=0" in said) is for_memory


@pytest.mark.parametrize("options", ["-c2", "--mem=4G"])
def test_who_asks_for_cores_alone_is_refused_where_nodes_are_shared_by_gpus(
    told: Told, options: str
) -> None:
    with pytest.raises(SubmissionError, match="trainers share nodes by GPUs"):
        shared(told, options, gpus="gpu:4")
    shared(told, options, share=False, gpus="gpu:4")
    for more in ("--exclusive", "--mem=0", "--gpus-per-node=2"):
        shared(told, f"-c2 {more}", gpus="gpu:4")


def test_a_trainer_is_set_checked_and_carried_to_its_nodes(told: Told) -> None:
    words = told({"nodes": "2-4", "ntasks": "8"}, "grace=5,resume=no,rendezvous=own,batch=each")
    assert of(words, "set")["array"] == of(words, "check")["array"] == "0-4"
    assert of(words, "check").keys() == {"array", "comment", "nodes", "partition"}
    assert of(words, "given") == {"hold": ""}
    asked = {"BFTRAINER_RENDEZVOUS": "own", "BFTRAINER_RESUME": "no", "BFTRAINER_BATCH": "each"}
    assert of(words, "job") == {"BFTRAINER": "4 5 -"} | asked
    assert of(words, "env")["SLURM_NTASKS"] == "2"  # eight on the script's four nodes
    assert of(words, "env")["PET_RDZV_BACKEND"] == "bftrainer-plugin-missing-on-this-node"
    assert of(words, "say") == {"": "1 to 4 nodes"}


def test_what_the_site_has_decided_counts(told: Told) -> None:
    site = ("keeper=h:1", "partition=spare", "qos=low", "share=yes", "max_grace=60")
    options = {"nodes": "2", "gpus-per-node": "2"}
    words = told(options, "grace=50", site=site)
    settings = of(words, "set")
    assert (settings["partition"], settings["qos"]) == ("spare", "low")
    assert "exclusive" not in settings
    with pytest.raises(SubmissionError, match=r"write at most -N 1-3"):
        told({"nodes": "4"}, script=None, site=("max_elements=3",))


def test_the_one_task_of_an_array_is_carried_too(told: Told) -> None:
    words = told({"nodes": "2", "array": "7%1", "output": "out-%a"}, script="#!/bin/sh\n")
    assert of(words, "job") == {"BFTRAINER": "2 0.5 7"}
    assert of(words, "set")["output"] == "out-7"


def test_an_array_is_refused_with_the_command_to_type(told: Told) -> None:
    command = ("--bftrainer", "-N2", "--array=0-3", "--comment=my own")
    with pytest.raises(SubmissionError) as refusal:
        told({"nodes": "2", "array": "0-3"}, command=command)
    typed = "bftrainer submit -N2 --array=0-3 '--comment=my own' /home/u/train.sh --lr 1"
    assert f"write {typed}, which makes a trainer of each task" in str(refusal.value)


EXPORTS = {"NONE": "PET_RDZV_BACKEND", "A,B=c": "A,B=c,PET_RDZV_BACKEND"}


@pytest.mark.parametrize("export", [*EXPORTS, "ALL", "all,A", "NIL"])
def test_a_list_of_exports_does_not_lose_what_keeps_a_node_from_training_alone(
    told: Told, export: str
) -> None:
    words = told({"nodes": "4", "export": export}, script="#!/bin/sh\n")
    assert of(words, "set").get("export") == EXPORTS.get(export)


def test_a_number_for_each_gpu_becomes_the_nodes(told: Told) -> None:
    options = {"nodes": "1", "gpus-per-node": "4", "cpus-per-gpu": "3", "mem-per-gpu": "2G"}
    words = told(options, script="#!/bin/sh\n")
    assert of(words, "set").items() >= {"cpus-per-task": "12", "mem": "8G"}.items()
    assert of(words, "reset").keys() == {"cpus-per-gpu", "mem-per-gpu"}
    assert of(words, "unset").keys() == {"SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU"}


def document(**more: Any) -> bytes:
    likely: dict[str, Any] = {"pid": os.getpid(), "arguments": 0, "spec": "", "site": []}
    likely |= {"max_array_size": 0, "max_job_count": 0, "options": {"nodes": "2-4"}}
    return json.dumps(likely | more).encode()


def texts(answer: bytes) -> list[str]:
    return answer.decode().split("\0")


def test_the_program_answers_what_this_process_submits() -> None:
    answer = texts(rewrite_program.answer(document()))
    assert answer[:3] == ["set", "nodes", "1"]
    assert answer[-4:] == ["done", "", "", ""]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (document(spec="speed=2"), "unknown key 'speed'"),
        (document(spec="\x1b[31m"), "'?[31m' is not KEY=VALUE"),
        (document(options={"nodes": "\x1b"}), "-N ? is not a range"),
        (b"no document", "the submission was not rewritten (JSONDecodeError: "),
        (document(pid=2**30), "the submission was not rewritten (FileNotFoundError: "),
    ],
)
def test_whatever_is_wrong_is_one_refusal(sent: bytes, why: str) -> None:
    verb, name, text, *rest = texts(rewrite_program.answer(sent))
    assert (verb, name, rest) == ("refuse", "", ["done", "", "", ""])
    assert why in text and text.isprintable()


def test_a_python_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite_program, "OLDEST", (9, 9))
    text = texts(rewrite_program.answer(document()))[2]
    assert text.startswith(f"the rewriting needs Python 9.9 or later, and {sys.executable} is 3.")
