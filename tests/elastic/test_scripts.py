"""What is read in scripts: whether a batch script runs on one node alone, what a training imports.

One with an srun that uses no node's own disk runs on one node. Warm workers have frameworks first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.batch.once import runs_once
from bftrainer_slurm.elastic.rendezvous import imports

NO_SRUN, OWN_DISK = "has no srun", "uses a node's own disk (/tmp, $TMPDIR or the like)"
# Why all of a script runs on each node; empty if it runs on one.
SCRIPTS = {
    "srun torchrun train.py": "",
    "rm -rf run; mkdir run\nsrun --container-image=x bash -c 'python train.py'": "",
    'LAUNCH="srun --label"\n$LAUNCH torchrun train.py': "",
    "exec /usr/bin/srun ./train.sh": "",
    "  # cp data /dev/shm\nsrun torchrun train.py --data /work/dev/shm/x": "",
    "torchrun train.py": NO_SRUN,
    "#SBATCH --comment=srun\n# srun torchrun train.py\ntorchrun train.py": NO_SRUN,
    "bash my_srun.sh && echo $SRUN srun2 _srun": NO_SRUN,
    "": NO_SRUN,
    "tar xf data.tar -C /dev/shm/data\nsrun torchrun train.py --data /dev/shm/data": OWN_DISK,
    "srun torchrun train.py --cache=/dev/shm": OWN_DISK,
    '[ "$BFTRAINER_FIRST" = 1 ] && make data\nsrun torch': "asks for BFTRAINER_FIRST",
}


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("text", "why"), SCRIPTS.items())
def test_a_script_runs_once_or_it_is_said_why_not(
    capfd: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    if why == OWN_DISK and Path("/dev/shm").stat().st_dev == Path.cwd().stat().st_dev:
        pytest.skip("what is in /dev/shm is in this folder's file system")
    Path("script").write_text(f"#!/bin/bash\n{text}\n")
    assert runs_once("script", "any", tells=True) == (why == "")
    said = f"bftrainer: this script {why}: all of it runs on each node\n" if why else ""
    assert capfd.readouterr().err == said


def test_what_all_nodes_see_is_nobodys_own_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/bash\nsrun torchrun train.py --cache=/dev/shm\n")
    monkeypatch.chdir("/dev/shm")
    assert runs_once(str(script), "any", tells=True)


def test_a_script_that_cannot_be_read_runs_on_each_node_unless_the_user_or_the_site_says_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("script").write_text("#!/bin/bash\nsrun true\n")
    assert runs_once("nowhere", "once", tells=True)
    assert not runs_once("script", "each", tells=True)
    assert not runs_once("nowhere", "any", tells=False)
    assert capfd.readouterr().err == ""


def test_a_python_path_that_hides_us_is_said_at_each_start(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("script").write_text("#!/bin/bash\nexport PYTHONPATH=src\ntorchrun train.py\n")
    for wanted in ("any", "once", "each"):
        runs_once("script", wanted, tells=False)
        said = capfd.readouterr().err
        assert said.startswith("bftrainer: line 2 sets PYTHONPATH anew, which hides BFTrainer")


@pytest.mark.parametrize("options", [(), ("--nproc-per-node", "2"), ("--rdzv-backend=bftrainer",)])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from transformers import Trainer\n", ["transformers.Trainer", "transformers"]),
        ("def main():\n    import lightning as L\n", ["lightning.pytorch"]),
        ("import datasets, pandas, my_module\n", []),  # nobody knows whether these can be forked
        ("from .transformers import Trainer\n", []),
        ("import accelerate\n", []),
        ("not Python\n", []),
    ],
    ids=["a framework", "in a function", "others", "relative", "of the same name", "no Python"],
)
def test_a_frameworks_modules_are_found_and_others_are_left_to_the_script(
    tmp_path: Path, text: str, found: list[str], options: tuple[str, ...]
) -> None:
    (script := tmp_path / "train.py").write_text(text)
    (tmp_path / "accelerate.py").touch()
    of_script = imports.of_script(["torchrun", *options, str(script), "--folder", "x"])
    assert set(found) <= set(of_script)
    assert found or not of_script


@pytest.mark.parametrize("words", [["--no-such-option"], ["-m", "package"], [], ["gone.py"]])
def test_a_command_line_without_a_script_that_can_be_read_is_no_fault(words: list[str]) -> None:
    assert imports.of_script(["torchrun", *words]) == []


def test_a_name_that_a_module_imports_only_when_it_is_asked_is_loaded() -> None:
    imports.load("concurrent.futures.ProcessPoolExecutor")
    assert "concurrent.futures.process" in sys.modules
