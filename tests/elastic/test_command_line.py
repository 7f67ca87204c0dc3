"""Command lines that keep a node from its trainer's others are named in the job's log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.rendezvous.command_line import apart

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=n1:29400", "x.py"],
            "--rdzv-backend, unless all of them say the same endpoint",
        ),
        (["--rdzv-backend", "c10d", "train.py"], "--rdzv-backend"),
        (["--standalone", "--rdzv-endpoint=n1", "x.py"], "--standalone"),
    ],
)
def test_a_torchrun_that_meets_elsewhere_says_so_in_the_jobs_log(
    arguments: list[str], said: str
) -> None:
    assert apart({"SLURMD_NODENAME": "n3"}, "torchrun", arguments) == (
        f"bftrainer: n3 trains apart from the trainer's other nodes, as the script says {said}: "
        "write 'srun torchrun train.py' without rendezvous flags"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nproc-per-node=2", "train.py"],
        ["--rdzv-endpoint=n1:29400", "train.py"],
        ["--rdzv-backend", "bftrainer", "train.py"],
        ["train.py", "--standalone"],
    ],
)
def test_a_torchrun_that_meets_the_others_has_nothing_to_say(arguments: list[str]) -> None:
    assert apart({}, "torchrun", arguments) is None


def test_accelerate_meets_elsewhere_unless_it_is_told_our_rendezvous() -> None:
    line = apart({}, "accelerate", ["launch", "--multi_gpu", "train.py"])
    assert "as the script says accelerate launch: " in str(line)
    ours = ["launch", "--rdzv_backend", "bftrainer", "train.py"]
    assert apart({}, "accelerate", ours) is None


def test_a_script_that_only_imports_torchrun_has_nothing_to_say() -> None:
    assert apart({}, "train.py", ["--standalone"]) is None


@pytest.mark.skipif(
    not torch_private.has_libuv(), reason="torchrun's own c10d needs a torch with libuv"
)
def test_torchrun_itself_says_it_before_it_starts_anything(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('trained')\n")
    said = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", str(script)],
        env=os.environ | {"BFTRAINER_ELEMENT": "12_0", "SLURMD_NODENAME": "n3"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stderr.count("bftrainer: n3 trains apart") == 1
    assert said.stdout == "trained\n"
