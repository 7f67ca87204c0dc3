"""Last words of failing scripts, as they were seen, and what a beginner is told to do."""

from __future__ import annotations

import pytest

from bftrainer_slurm.cli.advice import advice

OUT_OF_MEMORY = "use a smaller batch"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("slurmstepd-n1: error: execve(): torchrun: No such file or directory", "activate your"),
        ("/spool/slurm_script: line 3: torchrun: command not found", "activate your"),
        ("script: line 3: /nowhere/venv/bin/activate: No such file or directory", "activate your"),
        ("ModuleNotFoundError: No module named 'einops.layers'", "install einops.layers in"),
        ("/usr/bin/python3: No module named torch", "install torch in"),
        ("FileNotFoundError: there is no script /nofile/train.py", "path of a script that all"),
        ("python3: can't open file '/home/alice/train.py': [Errno 2]", "path of a script that all"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB", OUT_OF_MEMORY),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0", OUT_OF_MEMORY),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: 800 bytes", OUT_OF_MEMORY),
        ("ValueError: environment variable RANK expected, but not set", "srun torchrun train.py"),
        (
            "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc] timed out",
            "set GLOO_SOCKET_IFNAME",
        ),
        ("RuntimeError: Unable to find address for: ib1", "set GLOO_SOCKET_IFNAME"),
        (
            "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 4 but the "
            "current world size is 3.",
            "convert it with ds_to_universal.py",
        ),
        ("process 0 terminated with signal SIGKILL", "most often because memory ran out"),
    ],
)
def test_what_beginners_meet_has_a_remedy(words: str, told: str) -> None:
    assert told in (advice(["it begins", words, "srun: error: n1: task 0: Exited"]) or "")


def test_a_cause_counts_more_than_what_follows_from_it() -> None:
    words = ["process 0 terminated with signal SIGKILL", "CUDA out of memory"]
    assert (advice(words) or "").startswith(OUT_OF_MEMORY)


def test_nothing_is_made_up_about_other_failures() -> None:
    assert advice(["ValueError: too many values to unpack (expected 2)"]) is None
