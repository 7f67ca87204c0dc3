"""What slurmctld refuses in the trainers' partition by our job_submit.lua."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from scripts.labcluster.lab import Lab

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.skipif(os.getuid() != 0, reason="needs a user who is not Slurm's"),
]


@pytest.fixture
def lab(lab_that_rewrites: Callable[[str], Lab]) -> Lab:
    return lab_that_rewrites("lua")


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_salloc_and_srun_are_refused_in_the_trainers_partition_and_go_on_elsewhere(
    lab: Lab, command: str
) -> None:
    for partitions in ("bftrainer", "main,bftrainer"):
        refused = lab.run(command, "-p", partitions, "-N1", "true", check=False)
        assert refused.returncode != 0
        assert "takes batch scripts only" in refused.stderr
    lab.run(command, "-N1", "true")


def test_batch_scripts_are_taken_and_others_cannot_be_moved_there(lab: Lab) -> None:
    words = ("--hold", "-o/dev/null")
    ours = lab.sbatch("-p", "bftrainer", *words, script="#!/bin/sh\ntrue\n")
    job = lab.sbatch(*words, script="#!/bin/sh\ntrue\n")
    update = ("scontrol", "update", f"JobId={job}")
    assert lab.run(*update, "Partition=bftrainer", check=False).returncode != 0
    assert lab.squeue(job, "%P") == ["main"]
    lab.run(*update, "JobName=other")
    lab.run("scancel", str(job), str(ours))
