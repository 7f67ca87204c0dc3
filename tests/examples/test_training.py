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
# As torchrun says it to the only rank; port 0 is one that is free.
_ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def trained(example: str, *arguments: object, **environment: str) -> list[str]:
    """Run an example's train.py by itself, and return the lines that it printed."""
    script = REPO / "examples" / example / "train.py"
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_image_network_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    trained("images", "--folder", tmp_path, "--steps", 1, **_ALONE)
    checkpoint = tmp_path / "checkpoint.pt"
    state = torch.load(checkpoint)
    assert state["step"] == 1
    torch.save(state | {"step": 1000}, checkpoint)
    (said,) = trained("images", "--folder", tmp_path, "--steps", 1001, **_ALONE)
    assert said.startswith("step=1001 world=1 ")


def test_the_language_model_learns_and_writes(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("abcd" * 100)
    said = trained("language", "--folder", tmp_path, "--text", text, "--steps", 100)
    assert float(said[0].partition("loss=")[2]) < 1  # of four characters drawn at random: 1.39
    assert set(said[-1]) <= set("abcd")
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_a_trial_of_the_search_leaves_its_result(tmp_path: Path) -> None:
    trained("search", "--folder", tmp_path, "--epochs", 4, "--rate", 0.01)
    assert json.loads((tmp_path / "result.json").read_text())["accuracy"] > 0.8
