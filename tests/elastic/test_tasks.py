"""``srun python``: tasks that take their rank from srun meet the trainer's other nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.tasks import waiting
from bftrainer_slurm.elastic.tasks.command import torchrun_for, torchrun_for_deepspeed
from scripts.labcluster.keeper import started_keeper
from tests.elastic.agents import Agents

pytestmark = pytest.mark.torch

_TORCHRUN = ["/bin/python", "-m", "torch.distributed.run", "--nproc-per-node=2"]
_BY_SRUN = Path(__file__).with_name("by_srun.py")


def srun_says(node: str, tasks: int = 1) -> dict[str, str]:
    """Return what srun says to the first of a node's tasks."""
    return {
        "SLURM_JOB_ID": "12",
        "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": str(tasks),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_JOB_NODELIST": node,
    }


@pytest.mark.parametrize("tasks", [1, 2])
def test_tasks_of_srun_form_one_group_with_those_of_other_nodes(tmp_path: Path, tasks: int) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with started_keeper(state) as keeper:
        agents = Agents(keeper, tmp_path / "trainer", _BY_SRUN, launcher=(sys.executable, "-u"))
        try:
            agents.own(2)
            agents.start(1, **srun_says("n1", tasks))
            agents.wait_for_world(tasks, 1)
            agents.start(2, **srun_says("n2", tasks))
            agents.wait_for_world(2 * tasks, 1, 2)
            agents.kill(2)
            agents.wait_for_world(tasks, 1)
        finally:
            agents.end()
    said = (tmp_path / "trainer" / "1.log").read_text()
    assert said.count("bftrainer: n1 starts the script again under torchrun") == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "train.py", "--lr", "1"], [*_TORCHRUN, "train.py", "--lr", "1"]),
        (["python", "-m", "train", "-c"], [*_TORCHRUN, "-m", "train", "-c"]),
        (["python", "-mtrain"], [*_TORCHRUN, "-m", "train"]),
        (["python", "-c", "import torch"], None),
        (["python", "-"], None),
        (["python"], None),
    ],
)
def test_a_python_is_started_again_with_its_arguments(
    command: Sequence[str], expected: Sequence[str] | None
) -> None:
    assert torchrun_for(command, "/bin/python", 2) == expected


def test_a_python_keeps_its_own_options() -> None:
    found = torchrun_for(["python", "-u", "-X", "dev", "train.py"], "/bin/python", 2)
    assert found == ["/bin/python", "-u", "-X", "dev", *_TORCHRUN[1:], "train.py"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--num_gpus=2", "train.py", "--deepspeed", "x.json"],
            ["train.py", "--deepspeed", "x.json"],
        ),
        (["--num_gpus", "2", "--hostfile", "hosts", "--no_ssh", "train.py"], ["train.py"]),
        (["--module", "train"], ["-m", "train"]),
        (["--no_python", "train.sh"], None),
        (["--num_gpus", "2"], None),
    ],
)
def test_deepspeeds_launcher_is_a_torchrun_here(
    arguments: Sequence[str], expected: Sequence[str] | None
) -> None:
    found = torchrun_for_deepspeed(arguments, "/bin/python", {"PET_NPROC_PER_NODE": "2"})
    assert found == (None if expected is None else [*_TORCHRUN, *expected])


def test_another_task_of_the_node_waits_until_the_first_one_has_ended() -> None:
    step = os.environ | srun_says("n1", 2)
    with subprocess.Popen(["sleep", "1000"], env=step) as first:
        other = subprocess.Popen(
            [sys.executable, "-S", waiting.__file__], env=step | {"SLURM_LOCALID": "1"}
        )
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(3)
        first.kill()
    assert other.wait(60) == 0


@pytest.mark.parametrize(
    "script",
    [
        "import torch",
        "import torch.distributed as dist; s = dist.HashStore()\n"
        "dist.init_process_group('gloo', store=s, rank=0, world_size=1)",
        "import bftrainer_slurm.elastic.inprocess.alone, torch.distributed as dist\n"
        "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:0', rank=0, world_size=1)",
    ],
    ids=["no group", "a store of its own", "in process"],
)
def test_a_script_that_needs_no_torchrun_is_left_alone(tmp_path: Path, script: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"{script}\nprint('ran once')\n")
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer"}
    ran = subprocess.run(
        [sys.executable, path],
        env=os.environ | srun_says("n1") | element,
        capture_output=True,
        text=True,
    )
    assert (ran.stdout, ran.returncode) == ("ran once\n", 0), ran.stderr


def test_a_fault_in_the_hook_ends_no_script() -> None:
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer"}
    broken = srun_says("n1") | {"SLURM_STEP_NUM_TASKS": "many"}
    ran = subprocess.run(
        [sys.executable, "-m", "this"],
        env=os.environ | element | broken,
        capture_output=True,
    )
    assert ran.returncode == 0
