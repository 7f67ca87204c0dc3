from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster.lab import Lab
from tests.slurm.conftest import runner

# What users set for Slurm's commands, and for the loader, which would change what we read.
SETTINGS = """
    SQUEUE_FORMAT=%i SQUEUE_FORMAT2=jobid SQUEUE_USERS=nobody SQUEUE_STATES=CD SQUEUE_SORT=i
    SQUEUE_ARRAY=1 SQUEUE_PARTITION=x SINFO_FORMAT=%N SINFO_PARTITION=x SCONTROL_ALL=1
    SCONTROL_SIBLING=1 SCANCEL_USER=x SCANCEL_INTERACTIVE=1 SDIAG_SORT_BY=x SACCT_FORMAT=jobid
    SACCT_FEDERATION=1 SACCTMGR_FORMAT=x SLURM_TIME_FORMAT=relative SLURM_BITSTR_LEN=1
    SLURM_CLUSTERS=other SLURM_DEBUG_FLAGS=Backfill,Protocol SLURM_EXIT_ERROR=9 SLURM_JOB_ID=9
    LD_PRELOAD=/nowhere/lib.so LD_BIND_NOW=1 LC_ALL=xx_YY LANG=xx_YY TZ=Junk/Zone
    POSIXLY_CORRECT=1 COLUMNS=1
"""
HOSTILE = dict(one.split("=") for one in SETTINGS.split())


def test_output_is_the_same_whatever_the_users_settings(tmp_path: Path) -> None:
    here = tmp_path / "slurm.conf"
    here.touch()
    stays = {"SLURM_CONF": str(here), "SLURM_JWT": "token", "LD_LIBRARY_PATH": "/opt/slurm/lib"}
    printed = runner(tmp_path, tool="env", environment=stays | HOSTILE).read("tool").splitlines()
    kept = dict(line.split("=", 1) for line in printed if line.startswith(("S", "L")))
    ours = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    assert kept == stays | ours | {"LANG": "xx_YY"}


@pytest.mark.slurm
def test_slurm_itself_answers_the_same_whatever_the_users_settings(lab: Lab) -> None:
    job = lab.sbatch("-p", "main", "-N1", "--array=0-70", "--hold", script="#!/bin/sh\nsleep 9\n")

    def told(**variables: str) -> list[object]:
        gateway = CommandGateway(SlurmRunner(environment=lab.env | variables))
        queue = gateway.queue()
        return [gateway.nodes(), queue, gateway.reservations(), gateway.configuration("bftrainer")]

    try:
        assert told(**HOSTILE) == told()
    finally:
        lab.run("scancel", str(job))


def test_a_configuration_that_is_not_there_is_told_at_once_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError, match=r"^SLURM_CONF=/nowhere does not exist; set"):
        runner(tmp_path, tool="exec sleep 60", environment={"SLURM_CONF": "/nowhere"}).read("tool")
    told = "echo 'tool: error: fetch_config: DNS SRV lookup failed' >&2; "
    last = "echo 'tool: fatal: Could not establish a configuration source' >&2; exit 1"
    with pytest.raises(SlurmUnavailableError, match=r"^tool: Could not .*; set SLURM_CONF to"):
        runner(tmp_path, tool=told + last).read("tool")


def test_a_submission_gets_the_users_own_settings_and_the_script(tmp_path: Path) -> None:
    does = 'echo "$SBATCH_ACCOUNT|$LC_ALL|$(cat)"'
    tool = runner(tmp_path, tool=does, environment={"SBATCH_ACCOUNT": "physics"})
    assert tool.submit("tool", script="#!/bin/sh") == "physics||#!/bin/sh\n"


def test_no_command_waits_for_a_terminal_nor_for_one_that_hangs(tmp_path: Path) -> None:
    assert runner(tmp_path, tool='echo "$1"; cat').read("tool", "a b") == "a b\n"
    with pytest.raises(SlurmUnavailableError, match="no answer within"):
        runner(tmp_path, tool="exec sleep 60", timeout_s=0.1).read("tool")


def test_a_failure_without_a_complaint_can_be_as_good_as_success(tmp_path: Path) -> None:
    assert runner(tmp_path, tool="echo all; exit 1").read("tool", accepted_status=1) == "all\n"
    for script in ("echo half; exit 2", "echo half; echo no >&2; exit 1"):
        with pytest.raises(GatewayError):
            runner(tmp_path, tool=script).read("tool", accepted_status=1)


def test_a_missing_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match=r"no-such-tool: cannot be run .* PATH"):
        runner(tmp_path).read("no-such-tool")


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Rate limit exceeded, please retry later",
        "slurm_load_node: Socket timed out on send/recv operation",
        "Unexpected message received for job 1_0",
        "sinfo: fatal: Could not establish a configuration source",
    ],
)
def test_slurms_words_for_unavailable_are_known(tmp_path: Path, words: str) -> None:
    tool = runner(tmp_path, tool=f"echo '{words}' >&2; exit 1")
    for ask in (tool.read, tool.change):
        with pytest.raises(SlurmUnavailableError):
            ask("tool")


def test_a_refusal_has_slurms_words_in_one_line(tmp_path: Path) -> None:
    tool = runner(tmp_path, tool="printf '1_0: No error\\n\\n1_9: Invalid job id\\n' >&2; exit 1")
    with pytest.raises(RefusedError) as refusal:
        tool.change("tool", "requeuehold", "1_[0,9]")
    assert str(refusal.value) == "tool requeuehold 1_[0,9]: 1_9: Invalid job id"


def test_a_failed_reading_is_no_refusal(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="exit status 7") as failure:
        runner(tmp_path, tool="exit 7").read("tool")
    assert type(failure.value) is GatewayError
