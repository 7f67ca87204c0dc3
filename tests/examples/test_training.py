"""Each example trains, at a small size, and goes on where it stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts.labcluster.stage import REPO

pytestmark = [pytest.mark.torch, pytest.mark.nightly]
# As torchrun says it to the only rank; port 0 is one that is free.
_ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def trained(
    example: str, *arguments: object, script: str = "train", folder: Path | None = None
) -> list[str]:
    """Run an example's script by itself, and return the lines that it printed."""
    path = REPO / "examples" / example / f"{script}.py"
    done = subprocess.run(
        [sys.executable, str(path), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | _ALONE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_image_network_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    trained("images", "--folder", tmp_path, "--steps", 1)
    checkpoint = tmp_path / "checkpoint.pt"
    state = torch.load(checkpoint)
    assert state["step"] == 1
    torch.save(state | {"step": 1000}, checkpoint)
    (said,) = trained("images", "--folder", tmp_path, "--steps", 1001)
    assert said.startswith("step=1001 world=1 ")


def test_the_language_model_learns_and_writes(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("abcd" * 100)
    arguments = ("--folder", tmp_path, "--text", text)
    said = trained("language", *arguments, "--samples", 1600)
    assert float(said[0].partition("loss=")[2]) < 1  # of four characters drawn at random: 1.39
    assert set(said[-1]) <= set("abcd")
    said = trained("language", *arguments, "--samples", 1616)
    assert said[0].startswith("seen=1616 world=1 ")
    assert len(said) == 2  # it has gone on from its checkpoint


def test_the_loop_that_saves_ends_as_the_plain_one(tmp_path: Path) -> None:
    for script in ("plain", "train"):
        (said,) = trained("elastic", script=script, folder=tmp_path)
        assert float(said.partition("loss=")[2]) < 0.2
    assert torch.load(tmp_path / "checkpoint.pt")["place"] == {"epoch": 20, "trained": 0}


def test_a_trial_of_the_search_leaves_its_result(tmp_path: Path) -> None:
    trained("search", "--folder", tmp_path, "--epochs", 4, "--rate", 0.01)
    assert json.loads((tmp_path / "result.json").read_text())["accuracy"] > 0.8
