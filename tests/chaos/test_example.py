"""The example that users copy: what it does with a checkpoint that went further than itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts.labcluster.cluster import free_ports
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]


def test_a_process_that_was_left_behind_does_not_replace_a_newer_checkpoint(tmp_path: Path) -> None:
    script = REPO / "examples" / "digits" / "train.py"
    command = [sys.executable, str(script), "--folder", str(tmp_path), "--samples", "12000"]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    alone["MASTER_PORT"] = str(free_ports(1)[0])
    with subprocess.Popen(command, env=os.environ | alone, stdout=subprocess.DEVNULL) as training:
        checkpoint = tmp_path / "checkpoint.pt"
        wait_until(checkpoint.exists, 300)
        beside = tmp_path / "newer"
        torch.save(torch.load(checkpoint) | {"count": 10**9, "place": 10**9}, beside)
        beside.replace(checkpoint)
        assert training.wait(500) == 0  # a busy host imports torch slowly
    assert torch.load(checkpoint)["place"] == 10**9
