"""What has started a training, and what the job's log says of its own rendezvous."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bftrainer_slurm.elastic.rendezvous.command_line import STARTED_BY, launcher_of
from bftrainer_slurm.keeper.protocol import LAUNCHERS

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("command", "started_by", "launcher"),
    [
        ("/env/bin/python /env/bin/torchrun --nnodes=2 train.py", "", "torchrun"),
        ("python -m torch.distributed.run train.py", "", "torchrun"),
        ("python -u -m torch.distributed.launch train.py", "", "torch.distributed.launch"),
        ("python /env/bin/accelerate launch train.py", "", "accelerate"),
        ("python -m accelerate.commands.launch train.py", "", "accelerate"),
        ("python /env/bin/llamafactory-cli train x.yaml", "", "llamafactory"),
        ("python /env/bin/tune run x", "", "torchtune"),
        ("python -m torch.distributed.run train.py", "srun python", "srun python"),
    ],
)
def test_what_has_started_a_training_has_a_name(
    command: str, started_by: str, launcher: str
) -> None:
    told = {STARTED_BY: started_by} if started_by else {}
    assert launcher_of(command.split(), told) == launcher
    assert launcher in LAUNCHERS


def test_a_torchrun_says_that_its_own_rendezvous_does_not_hold_before_it_starts_anything() -> None:
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
    said = "n3 meets the trainer's other nodes; for ordinary jobs only: c10d at localhost:0"
    assert ended.stderr.count(f"bftrainer: {said}\n") == 1
