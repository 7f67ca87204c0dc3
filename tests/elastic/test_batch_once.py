"""Which batch scripts run on one node: those with an srun that use no node's own disk."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
ONCE = [
    "srun torchrun train.py",
    "rm -rf run; mkdir run\nsrun --container-image=x bash -c 'python train.py'",
    'LAUNCH="srun --label"\n$LAUNCH torchrun train.py',
    "exec /usr/bin/srun ./train.sh",
    "  # cp data /dev/shm\nsrun torchrun train.py --data /work/dev/shm/x",
]
NO_SRUN = [
    "torchrun train.py",
    "#SBATCH --comment=srun\n# srun torchrun train.py\ntorchrun train.py",
    "bash my_srun.sh && echo $SRUN srun2 _srun",
    "",
]
OWN_DISK = [
    "tar xf data.tar -C /dev/shm/data\nsrun torchrun train.py --data /dev/shm/data",
    "srun torchrun train.py --cache=/dev/shm",
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("script_once")
    subprocess.run(
        ["make", "-s", "-C", PLUGIN, f"BUILD={folder}", f"{folder}/libscript_once.so"], check=True
    )
    found = ctypes.CDLL(str(folder / "libscript_once.so"))
    found.script_runs_on_each.restype = ctypes.c_char_p
    return found


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def why_each(library: ctypes.CDLL, text: str) -> str:
    Path("script").write_text(f"#!/bin/bash\n{text}\n")
    said = library.script_runs_on_each(b"script")
    return "" if said is None else said.decode()


@pytest.mark.parametrize("text", ONCE)
def test_a_script_that_trains_by_srun_runs_once(library: ctypes.CDLL, text: str) -> None:
    assert why_each(library, text) == ""


@pytest.mark.parametrize("text", NO_SRUN)
def test_one_without_srun_runs_on_each_node(library: ctypes.CDLL, text: str) -> None:
    assert why_each(library, text) == "has no srun"


@pytest.mark.parametrize("text", OWN_DISK)
def test_one_that_uses_the_nodes_own_disk_does_too(library: ctypes.CDLL, text: str) -> None:
    if Path("/dev/shm").stat().st_dev == Path.cwd().stat().st_dev:
        pytest.skip("what is in /dev/shm is in this folder's file system")
    assert why_each(library, text).startswith("uses a node's own disk")


def test_one_that_is_written_for_each_node_does_too(library: ctypes.CDLL) -> None:
    text = '[ "$BFTRAINER_FIRST" = 1 ] && make data\nsrun torchrun train.py'
    assert why_each(library, text) == "asks for BFTRAINER_FIRST"


def test_what_all_nodes_see_is_nobodys_own_disk(library: ctypes.CDLL) -> None:
    os.chdir("/dev/shm")
    try:
        assert why_each(library, "srun torchrun train.py --cache=/dev/shm") == ""
    finally:
        Path("script").unlink()


def test_a_script_that_cannot_be_read_runs_on_each_node(library: ctypes.CDLL) -> None:
    assert library.script_runs_on_each(b"nowhere") == b"has no srun"
