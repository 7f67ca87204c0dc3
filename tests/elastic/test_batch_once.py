"""Which batch scripts run on one node: those with an srun that use no node's own disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.batch.once import runs_once

EACH = ": all of it runs on each node\n"
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


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def why_each(capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What a script's user is told of why it runs on each node; empty if it runs on one."""

    def found(text: str) -> str:
        Path("script").write_text(f"#!/bin/bash\n{text}\n")
        once = runs_once("script", "any", tells=True)
        said = capfd.readouterr().err
        assert once == (said == "")
        return said.removeprefix("bftrainer: this script ").removesuffix(EACH)

    return found


@pytest.mark.parametrize("text", ONCE)
def test_a_script_that_trains_by_srun_runs_once(why_each: Callable[[str], str], text: str) -> None:
    assert why_each(text) == ""


@pytest.mark.parametrize("text", NO_SRUN)
def test_one_without_srun_runs_on_each_node(why_each: Callable[[str], str], text: str) -> None:
    assert why_each(text) == "has no srun"


@pytest.mark.parametrize("text", OWN_DISK)
def test_one_that_uses_the_nodes_own_disk_does_too(
    why_each: Callable[[str], str], text: str
) -> None:
    if Path("/dev/shm").stat().st_dev == Path.cwd().stat().st_dev:
        pytest.skip("what is in /dev/shm is in this folder's file system")
    assert why_each(text).startswith("uses a node's own disk")


def test_one_that_is_written_for_each_node_does_too(why_each: Callable[[str], str]) -> None:
    text = '[ "$BFTRAINER_FIRST" = 1 ] && make data\nsrun torchrun train.py'
    assert why_each(text) == "asks for BFTRAINER_FIRST"


def test_what_all_nodes_see_is_nobodys_own_disk(
    why_each: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/dev/shm")
    try:
        assert why_each("srun torchrun train.py --cache=/dev/shm") == ""
    finally:
        Path("script").unlink()


def test_a_script_that_cannot_be_read_runs_on_each_node(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not runs_once("nowhere", "any", tells=True)
    assert capfd.readouterr().err == f"bftrainer: this script has no srun{EACH}"


def test_the_user_and_the_site_need_no_reason(capfd: pytest.CaptureFixture[str]) -> None:
    Path("script").write_text("#!/bin/bash\nsrun true\n")
    assert runs_once("nowhere", "once", tells=True)
    assert not runs_once("script", "each", tells=True)
    assert capfd.readouterr().err == ""


def test_a_python_path_that_hides_us_is_said_at_each_start(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("script").write_text("#!/bin/bash\nexport PYTHONPATH=src\ntorchrun train.py\n")
    for wanted in ("any", "once", "each"):
        runs_once("script", wanted, tells=False)
        said = capfd.readouterr().err
        assert said.startswith("bftrainer: line 2 sets PYTHONPATH anew, which hides BFTrainer")
