"""Each example trains, at a small size, and goes on where it stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts.labcluster.stage import REPO

pytestmark = pytest.mark.torch


def trained(example: str, *arguments: object, program: tuple[str, ...] = ()) -> str:
    """Run an example's train.py by itself, and return what it printed."""
    script = REPO / "examples" / example / "train.py"
    command = [sys.executable, *program, str(script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_torchrun(example: str, ranks: int, *arguments: object) -> str:
    program = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return trained(example, *arguments, program=program)


def test_the_image_network_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with_torchrun("images", 1, "--folder", tmp_path, "--steps", 1)
    checkpoint = tmp_path / "checkpoint.pt"
    state = torch.load(checkpoint)
    assert state["step"] == 1
    torch.save(state | {"step": 1000}, checkpoint)
    said = with_torchrun("images", 1, "--folder", tmp_path, "--steps", 1001)
    assert [line.split()[:2] for line in said.splitlines()] == [["step=1001", "world=1"]]


def test_the_language_model_learns_and_writes(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("abcd" * 100)
    folder = ("--folder", tmp_path, "--text", text)
    said = with_torchrun("language", 2, *folder, "--steps", 100)
    loss = float(said.splitlines()[0].partition("loss=")[2])
    assert loss < 1  # of four characters drawn at random: 1.39
    assert set(said.splitlines()[-1]) <= set("abcd")
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_a_trial_of_the_search_leaves_its_result(tmp_path: Path) -> None:
    trained("search", "--folder", tmp_path, "--epochs", 4, "--rate", 0.01)
    assert json.loads((tmp_path / "result.json").read_text())["accuracy"] > 0.8
