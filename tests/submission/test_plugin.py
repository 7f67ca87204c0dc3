"""What the plugin is told to do, with a stand-in for sbatch's options: the rewriting itself has its
table (``submission_cases.json``), which ``bftrainer submit`` and real sbatches are held to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.submission import plugin, rewrite_program
from bftrainer_slurm.submission.directives import SubmissionError
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
    ) -> list[Word]:
        arguments = () if script is None else ("/home/u/train.sh", "--lr", "1")
        sbatch = Sbatch(options, ("sbatch", *command), arguments, script, Path("/nowhere"))
        monkeypatch.setattr(plugin, "_sbatch", lambda document: sbatch)
        limits = {"max_array_size": 1001, "max_job_count": 10_000}
        return list(plugin.answer({"spec": spec, "site": site, **limits}))

    return told


def of(words: list[Word], verb: str) -> dict[str, str]:
    return {name: value for what, name, value in words if what == verb}


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


def test_options_of_a_script_that_came_through_a_pipe_are_slurms(told: Told) -> None:
    words = told({"nodes": "4", "ntasks": "8"}, script=None)
    assert of(words, "set")["ntasks"] == "2"


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
