"""Options by which a launcher would meet elsewhere are named in the job's log."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bftrainer_slurm.elastic.rendezvous.command_line import overridden

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint", "n1:29400", "x.py"],
            "--rdzv_backend=c10d, --rdzv_endpoint",
        ),
        (["--standalone", "train.py", "--rdzv-backend=c10d"], "--standalone"),
        (["--node-rank=1", "--master_addr=n1", "-m", "train"], "--node-rank=1, --master_addr=n1"),
        (["launch", "--machine_rank", "1", "train.py"], "--machine_rank"),
        (["--rdzv-backend", "bftrainer", "train.py"], ""),
        (["--nproc-per-node=2", "train.py"], ""),
        (["train.py", "--standalone"], ""),
    ],
)
def test_options_that_hold_for_ordinary_jobs_only_are_found(
    arguments: list[str], said: str
) -> None:
    assert overridden(arguments) == said


def test_a_torchrun_says_which_of_its_options_do_not_hold_before_it_starts_anything() -> None:
    element = {
        "BFTRAINER_ELEMENT": "12_0",
        "SLURMD_NODENAME": "n3",
        "PET_RDZV_BACKEND": "bftrainer",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "train.py"],
        env=os.environ | element,
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0  # there is no keeper
    assert ended.stderr.count("bftrainer: n3 meets the trainer's other nodes") == 1
