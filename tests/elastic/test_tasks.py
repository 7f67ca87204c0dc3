"""``srun python``: tasks that take their rank from srun meet the trainer's other nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.tasks import apart, lightning, waiting
from bftrainer_slurm.elastic.tasks.command import (
    deepspeeds_arguments,
    torchrun_for,
    torchrun_for_deepspeed,
)
from bftrainer_slurm.elastic.tasks.seats import Seat, seat, use_all_processors
from scripts.labcluster.keeper import Keeper
from tests.elastic.agents import started_agents

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


def by_deepspeed(rank: str) -> dict[str, str]:
    """Return what DeepSpeed's launcher says to one of two processes."""
    return {"LOCAL_RANK": rank, "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1"}


def test_tasks_of_srun_form_one_group_with_those_of_other_nodes(
    keeper: Keeper, tmp_path: Path
) -> None:
    tasks = 2
    with started_agents(
        keeper, tmp_path / "trainer", _BY_SRUN, launcher=(sys.executable, "-u")
    ) as agents:
        agents.own(2)
        agents.start(1, **srun_says("n1", tasks))
        agents.wait_for_world(tasks, 1)
        agents.start(2, **srun_says("n2", tasks))
        agents.wait_for_world(2 * tasks, 1, 2)
        agents.kill(2)
        agents.wait_for_world(tasks, 1)
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
        (["-q", "--save_pid", "--num_accelerators", "2", "train.py"], ["train.py"]),
        (["--include=localhost:0,1", "train.py"], ["train.py"]),
        (["-i", "n1:1,3@n2:0", "train.py"], ["train.py"]),
        (["--module", "train"], ["-m", "train"]),
        (["--no_python", "train.sh"], ["--no-python", "train.sh"]),
        (["--num_gpus", "2"], None),
        (["--num_gpus"], None),
    ],
)
def test_deepspeeds_launcher_is_a_torchrun_here(
    arguments: Sequence[str], expected: Sequence[str] | None
) -> None:
    found = torchrun_for_deepspeed(arguments, "/bin/python", {"PET_NPROC_PER_NODE": "2"})
    assert found == (None if expected is None else ([*_TORCHRUN, *expected], True))


def test_deepspeeds_processes_get_their_rank_as_an_argument_unless_it_is_unwanted() -> None:
    found = torchrun_for_deepspeed(["--no_local_rank", "train.py"], "/bin/python", {})
    assert found is not None
    assert not found[1]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "/env/bin/deepspeed", "train.py"], ["train.py"]),
        (["python", "/env/bin/ds", "train.py"], ["train.py"]),
        (["python", "-m", "deepspeed.launcher.runner", "train.py"], ["train.py"]),
        (["python", "train.py", "deepspeed"], None),
    ],
)
def test_deepspeeds_launcher_is_known_by_its_command_line(
    command: Sequence[str], expected: Sequence[str] | None
) -> None:
    assert deepspeeds_arguments(command) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (srun_says("n1", 2) | {"SLURM_LOCALID": "1"}, Seat(1, 2, "SLURM_LOCALID=0")),
        (srun_says("n1", 1) | by_deepspeed("1"), Seat(1, 2, "LOCAL_RANK=0")),
        (srun_says("n1", 4) | by_deepspeed("1"), Seat(1, 2, "SLURM_LOCALID=0,LOCAL_RANK=0")),
        (
            srun_says("n1", 4) | by_deepspeed("0") | {"SLURM_LOCALID": "3"},
            Seat(3, 4, "SLURM_LOCALID=0"),
        ),
        (srun_says("n1", 1) | {"LOCAL_RANK": "0"}, Seat()),
        ({}, Seat()),
    ],
    ids=["srun", "deepspeed", "deepspeed of srun", "another deepspeed", "exported", "alone"],
)
def test_each_process_of_a_node_has_a_seat(environment: dict[str, str], expected: Seat) -> None:
    assert seat(environment) == expected


@pytest.mark.parametrize(
    ("devices", "accelerator", "expected"),
    [(2, "cpu", 2), ("2", "gpu", 2), ([0, 1], "gpu", 2), ("0,1,", "gpu", 2), ("auto", "cpu", 1)],
)
def test_lightning_says_how_many_processes_a_node_has(
    devices: object, accelerator: str, expected: int
) -> None:
    assert lightning.processes({"devices": devices, "accelerator": accelerator}) == expected


def test_another_task_of_the_node_waits_until_the_first_one_has_ended() -> None:
    step = os.environ | srun_says("n1", 2)
    with subprocess.Popen(["sleep", "1000"], env=step) as first:
        other = subprocess.Popen(
            [sys.executable, "-S", waiting.__file__, "SLURM_LOCALID=0"],
            env=step | {"SLURM_LOCALID": "1"},
        )
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(3)
        first.kill()
    assert other.wait(120) == 0


def test_the_first_task_has_the_processors_of_all() -> None:
    mine = os.sched_getaffinity(0)
    step = srun_says("n1", 2) | {"SLURM_JOB_ID": str(os.getpid())}
    with subprocess.Popen(["sleep", "1000"], env=os.environ | step) as other:
        try:
            os.sched_setaffinity(0, {min(mine)})
            use_all_processors(step)
            assert os.sched_getaffinity(0) == mine
        finally:
            os.sched_setaffinity(0, mine)
            other.kill()


def _run(
    tmp_path: Path, script: str, *arguments: object, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in an element, as a task of srun."""
    path = tmp_path / "script.py"
    path.write_text(script)
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer"}
    ran = subprocess.run(
        [sys.executable, path, *map(str, arguments)],
        env=os.environ | srun_says("n1") | element | {"SLURMD_NODENAME": "n1"} | more,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


_GROUP = "import torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=1, "


@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("import torch", {}),
        (f"{_GROUP}store=dist.HashStore())", {}),
        (f"{_GROUP}init_method='tcp://127.0.0.1:0')", {"BFTRAINER_RENDEZVOUS": "own"}),
    ],
    ids=["no group", "a store of its own", "the user's own rendezvous"],
)
def test_a_script_that_needs_no_torchrun_is_left_alone(
    tmp_path: Path, script: str, more: dict[str, str]
) -> None:
    assert _run(tmp_path, f"{script}\nprint('ran once')\n", **more).stdout == "ran once\n"


def test_a_fault_in_the_hook_ends_no_script() -> None:
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer"}
    broken = srun_says("n1") | {"SLURM_STEP_NUM_TASKS": "many"}
    ran = subprocess.run(
        [sys.executable, "-m", "this"],
        env=os.environ | element | broken,
        capture_output=True,
    )
    assert ran.returncode == 0


@pytest.mark.parametrize(
    ("gpus", "more", "expected"),
    [
        ("1", {}, "1"),
        ("1", {"FORCE_TORCHRUN": "0"}, "0"),
        ("1", {"USE_RAY": "1"}, ""),
        ("", {}, ""),
    ],
    ids=["one GPU", "the script's own", "Ray", "no GPU"],
)
def test_llama_factory_starts_torchrun_for_one_gpu_too(
    tmp_path: Path, gpus: str, more: dict[str, str], expected: str
) -> None:
    path = tmp_path / "lmf"
    path.write_text("import os, torch; print(os.environ.get('FORCE_TORCHRUN', ''))\n")
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer"}
    ran = subprocess.run(
        [sys.executable, path, "train"],
        env=os.environ | element | {"SLURM_GPUS_ON_NODE": gpus} | more,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.strip() == expected, ran.stderr


_SPAWNS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def one(number):
    dist.init_process_group("gloo", "file://" + sys.argv[1], rank=number, world_size=2)
    dist.barrier()
    open(f"{sys.argv[1]}-{number}-has-trained", "w").close()

if __name__ == "__main__":
    mp.start_processes(one, nprocs=2, start_method=sys.argv[2])
"""
_ALONE = "bftrainer: n1 trains by itself, without the trainer's other nodes: "


def _run_apart(tmp_path: Path, script: str, *arguments: str, nodes: str = "1:4") -> str:
    """Run a script in an element of a trainer of several nodes; return what it has printed."""
    ran = _run(tmp_path, script, tmp_path / "store", *arguments, PET_NNODES=nodes)
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_a_script_starts_itself_stay_as_they_are_and_it_is_told(
    tmp_path: Path, method: str
) -> None:
    said = _run_apart(tmp_path, _SPAWNS, method)
    assert len(list(tmp_path.glob("store-*-has-trained"))) == 2
    assert said.count(_ALONE + "the script itself (torch.multiprocessing) starts its pro") == 1


def test_a_script_that_may_have_one_node_only_is_not_told_that_it_has_one(tmp_path: Path) -> None:
    assert _ALONE not in _run_apart(tmp_path, _SPAWNS, "spawn", nodes="1:1")


_TRAINS_ALONE = """
from bftrainer_slurm.elastic.tasks import apart
apart.SOON_S = 0.1
import threading, torch

torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
        thread.join()
"""


def test_a_script_without_a_group_is_told_that_it_trains_alone(tmp_path: Path) -> None:
    assert _run_apart(tmp_path, _TRAINS_ALONE).count(_ALONE + "the script is one process") == 1


_HAS_DESTROYED_ITS_GROUP = _TRAINS_ALONE.replace(
    "import threading, torch\n",
    """import tempfile, threading, torch, torch.distributed as dist
meeting = dist.FileStore(tempfile.mktemp(), 1)
dist.init_process_group("gloo", store=meeting, rank=0, world_size=1)
dist.destroy_process_group()
""",
)


def test_a_script_that_has_destroyed_its_group_is_told_nothing(tmp_path: Path) -> None:
    assert _ALONE not in _run_apart(tmp_path, _HAS_DESTROYED_ITS_GROUP)


def test_who_started_a_process_is_seen_by_the_command_lines_of_its_parents(tmp_path: Path) -> None:
    for process, parent, command in (
        (30, 20, "python\0train.py\0mpirun\0x\0mpirun"),
        (20, 10, "sh"),
        (10, 1, "/opt/mpi/bin/mpirun\0-np\x002"),
    ):
        folder = tmp_path / str(process)
        folder.mkdir()
        (folder / "cmdline").write_text(command + "\0")
        (folder / "stat").write_text(f"{process} (a ) b) S {parent} 1 1")
    assert apart.starter(10, tmp_path) == "mpirun"
    assert apart.starter(20, tmp_path) == "mpirun"
    (tmp_path / "10" / "cmdline").write_text("bash\0script\xff")
    assert apart.starter(20, tmp_path) is None
    assert apart.starter(40, tmp_path) is None
