"""However a training is started, by ``srun python`` or a launcher: all nodes form one group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch.distributed.launcher.api import LaunchConfig

from bftrainer_slurm.elastic.processes import processes_with
from bftrainer_slurm.elastic.tasks import apart, lightning
from bftrainer_slurm.elastic.tasks.command import torchrun_for, torchrun_for_deepspeed
from bftrainer_slurm.elastic.tasks.seats import launch_for_all, seats, use_all_processors
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents

pytestmark = pytest.mark.torch

_TORCHRUN = ["/bin/python", "-m", "torch.distributed.run", "--nproc-per-node=2"]
_PROGRAMS = REPO / "scripts" / "launch_corpus" / "corpus" / "programs"  # has a stand-in for it
_RUNNER = "deepspeed.launcher.runner"
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


_ELEMENT = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer", "SLURMD_NODENAME": "n1"}


def ran(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a Python in an element, as a task of srun."""
    environment = os.environ | srun_says("n1") | _ELEMENT | more
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_tasks_of_srun_form_one_group_with_those_of_other_nodes(
    keeper: Keeper, tmp_path: Path
) -> None:
    tasks = 2
    with started_agents(keeper, tmp_path / "trainer", _BY_SRUN) as agents:
        agents.launcher = (sys.executable, "-u")
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
        (["python", "-u", "-Xdev", "x.py"], ["/bin/python", "-u", "-Xdev", *_TORCHRUN[1:], "x.py"]),
        (["python", "-W", "error", "x.py"], ["/bin/python", "-W", "error", *_TORCHRUN[1:], "x.py"]),
        (["python", "-c", "import torch"], None),
        (["python", "-"], None),
        (["python"], None),
    ],
)
def test_a_python_is_started_again_with_its_options_and_arguments(
    command: Sequence[str], expected: Sequence[str] | None
) -> None:
    assert torchrun_for(command, "/bin/python", 2) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["--nproc-per-node=4", "train.py", "--lr", "1"]),
        ({"num_gpus": 2}, ["--nproc-per-node=2", "train.py", "--lr", "1"]),
        ({"include": "n1:1,3@n2:0"}, ["--nproc-per-node=2", "train.py", "--lr", "1"]),
        ({"module": True}, ["--nproc-per-node=4", "-m", "train.py", "--lr", "1"]),
        ({"no_python": True}, ["--nproc-per-node=4", "--no-python", "train.py", "--lr", "1"]),
    ],
    ids=str,
)
def test_deepspeeds_launcher_is_a_torchrun_here(
    given: dict[str, object], expected: Sequence[str]
) -> None:
    said: dict[str, object] = {"num_gpus": -1, "include": "", "module": False, "no_python": False}
    options = Namespace(**said | given, user_script="train.py", user_args=["--lr", "1"])
    found = torchrun_for_deepspeed(options, "/bin/python", "4")
    assert found == [*_TORCHRUN[:-1], *expected]


@pytest.mark.parametrize(
    ("command", "seen"),
    [(str(_PROGRAMS / "bin" / "deepspeed"), "under torchrun"), (f"-m{_RUNNER}", "as it is")],
    ids=["a program that calls it", "itself"],
)
def test_deepspeeds_launcher_is_known_by_its_module_whatever_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, seen: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('as it is')\n")
    environment = os.environ | _ELEMENT | {"PYTHONPATH": f"{_PROGRAMS}:{REPO}"}
    words = [sys.executable, command, "--num_gpus=2", "train.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert seen in done.stdout + done.stderr


def by_deepspeed(rank: str) -> dict[str, str]:
    """Return what DeepSpeed's launcher says to one of two processes."""
    return {"LOCAL_RANK": rank, "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (srun_says("n1", 2) | {"SLURM_LOCALID": "1"}, 2),
        (srun_says("n1", 1) | by_deepspeed("1"), 2),
        (srun_says("n1", 4) | by_deepspeed("1"), 2),
        (srun_says("n1", 1) | {"LOCAL_RANK": "0"}, 1),
        ({}, 1),
    ],
    ids=["srun", "deepspeed", "deepspeed of srun", "exported", "alone"],
)
def test_one_process_of_a_node_trains_for_all(environment: dict[str, str], expected: int) -> None:
    assert seats(environment) == expected


@pytest.mark.parametrize(
    ("devices", "accelerator", "expected"),
    [
        *[(2, "cpu", 2), ("2", "gpu", 2), ([0, 1], "gpu", 2), ("0,1,", "gpu", 2)],
        *[("auto", "cpu", 1), ("auto", "gpu", 4), (-1, "auto", 4)],
    ],
)
def test_lightning_says_how_many_processes_a_node_has(
    monkeypatch: pytest.MonkeyPatch, devices: object, accelerator: str, expected: int
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert lightning.processes({"devices": devices, "accelerator": accelerator}) == expected


_HOLDS = """
import os
from bftrainer_slurm.elastic.rendezvous.only_launcher import hold
held = hold(os.environ, 0.5)
print(held is not None, flush=True)
input()
"""


def test_a_launcher_waits_for_one_of_another_task_of_the_node_until_that_has_ended() -> None:
    element = {"BFTRAINER_ELEMENT": f"{os.getpid()}_1"}
    step = os.environ | srun_says("n1", 2) | {"SLURM_JOB_ID": str(os.getpid())} | element
    command, pipe = [sys.executable, "-c", _HOLDS], subprocess.PIPE
    with subprocess.Popen(command, env=step, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        another = step | {"SLURM_LOCALID": "1"}
        with subprocess.Popen(command, env=another, stdout=pipe) as other:
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(3)
            first.kill()
            assert other.communicate()[0] == b""
    assert other.returncode == 0


def test_who_trains_for_others_has_the_processors_of_all() -> None:
    mine = os.sched_getaffinity(0)
    step = srun_says("n1", 2) | {"SLURM_JOB_ID": str(os.getpid())}
    with subprocess.Popen(["sleep", "1000"], env=os.environ | step) as other:
        try:
            wait_until(lambda: other.pid in processes_with(f"SLURM_JOB_ID={os.getpid()}"))
            os.sched_setaffinity(0, {min(mine)})
            use_all_processors(step)
            assert os.sched_getaffinity(0) == mine
        finally:
            os.sched_setaffinity(0, mine)
            other.kill()


_GROUP = "import torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=1, "
_ALONE = "bftrainer: n1 trains by itself, without the trainer's other nodes: "


@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("import torch", {}),
        (f"{_GROUP}store=dist.HashStore())", {}),
        (f"{_GROUP}init_method='tcp://127.0.0.1:0')", {"BFTRAINER_RENDEZVOUS": "own"}),
        ("import torch", {"SLURM_STEP_NUM_TASKS": "many"}),
    ],
    ids=["no group", "a store of its own", "the user's own rendezvous", "a fault of ours"],
)
def test_a_script_that_needs_no_torchrun_is_left_alone(
    tmp_path: Path, script: str, more: dict[str, str]
) -> None:
    (path := tmp_path / "script.py").write_text(f"{script}\nprint('ran once')\n")
    assert ran(path, **more).stdout == "ran once\n"


def test_code_in_no_file_is_left_as_it_is_and_told(tmp_path: Path) -> None:
    done = ran("-c", f"{_GROUP}init_method='file://{tmp_path}/store'); print('ran once')")
    assert done.stdout == "ran once\n"
    assert done.stderr.count(_ALONE + "its code is in no file") == 1


_LAUNCHES = """
import sys, torch
from bftrainer_slurm.elastic.tasks import hooks
for own in ({"SLURM_GPUS_ON_NODE": "1"}, {"SLURM_GPUS_ON_NODE": "1", "FORCE_TORCHRUN": "0"},
            {"SLURM_GPUS_ON_NODE": "1", "USE_RAY": "1"}, {"SLURM_GPUS_ON_NODE": ""}):
    environment = {"PET_RDZV_BACKEND": "bftrainer"} | own
    hooks.install(environment, sys.orig_argv)
    print(environment.get("FORCE_TORCHRUN"))
"""


def test_llama_factory_starts_torchrun_for_one_gpu_too_unless_its_user_says_otherwise() -> None:
    assert ran("-c", _LAUNCHES).stdout.split() == ["1", "0", "None", "None"]


_SPAWNS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def one(number):
    dist.init_process_group("gloo", "file://" + sys.argv[1], rank=number, world_size=2)
    dist.barrier()
    open(f"{sys.argv[1]}-{number}-has-trained", "w").close()

if __name__ == "__main__":
    mp.start_processes(one, nprocs=2, start_method=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("method", "nodes", "told"),
    [("spawn", "1:4", 1), ("fork", "1:4", 1), ("fork", "1:1", 0)],
    ids=["spawn", "fork", "a trainer of one node"],
)
def test_processes_that_a_script_starts_itself_stay_as_they_are_and_it_is_told(
    tmp_path: Path, method: str, nodes: str, told: int
) -> None:
    (path := tmp_path / "script.py").write_text(_SPAWNS)
    done = ran(path, tmp_path / "store", method, PET_NNODES=nodes)
    assert len(list(tmp_path.glob("store-*-has-trained"))) == 2
    said = _ALONE + "the script itself (torch.multiprocessing) starts its pro"
    assert (done.stdout + done.stderr).count(said) == told


@pytest.mark.parametrize(
    ("variable", "name"),
    [("OMPI_COMM_WORLD_LOCAL_RANK", "mpirun"), ("RAY_RAYLET_PID", "Ray"), ("RANK", "")],
)
def test_who_has_started_a_process_for_one_node_has_told_it_so(variable: str, name: str) -> None:
    assert apart.starter({variable: "0"}) == name


_BIN = Path(sys.executable).parent
_LAUNCH = f"{sys.executable} -m torch.distributed.launch --use-env"
_ACCELERATE = f"{_BIN}/accelerate launch --multi_gpu --num_processes 2 --num_machines 1"
# What starts a node's processes, its options, how many processes there are, and whether it is said
# that its options are for ordinary jobs only: some launchers take ours by themselves.
_NODES = (
    ("", "--nnodes=4 --rdzv_id=$ID --rdzv_backend=c10d --rdzv_endpoint=n9:29500", 1, True),
    ("", "--standalone --nproc-per-node=1 --max-restarts=0", 1, True),
    ("", "--nnodes 2 --node_rank 1 --master_addr n9 --master_port 1", 1, False),
    ("", "--rdzv-backend static --rdzv-endpoint n9:1", 1, True),
    (_LAUNCH, "--nnodes=2 --node_rank=0 --master_addr=n9", 1, False),
    (_ACCELERATE, "", 2, True),
)


def test_nodes_meet_whatever_their_launchers_and_command_lines_are(
    keeper: Keeper, tmp_path: Path
) -> None:
    with started_agents(keeper, tmp_path / "run") as agents:
        agents.own(len(_NODES))
        world = 0
        for task, (launcher, line, processes, told) in enumerate(_NODES, 1):
            agents.launcher, agents.options = launcher.split(), line.split()
            agents.start(task)
            world += processes
            agents.wait_for_world(world, *range(1, task + 1))
            said = f"n{task} meets the trainer's other nodes; for ordinary jobs only: "
            assert agents.log(task).count(said) == told
        agents.kill(task)
        agents.wait_for_world(world - processes, *range(1, task))


@pytest.mark.parametrize(
    ("nodes", "own", "gpus", "expected"),
    [
        ("1:1", 2, "", 2),
        ("1:4", 2, "", 2),  # not said by the script
        ("3:3", 1, "", 1),
        ("2:2", 1, "", 2),
        ("4:4", 1, "2", 2),  # two nodes with two launchers each
        ("2:2", 2, "2", 2),  # they would not fit
    ],
)
def test_a_launcher_starts_the_processes_of_all_where_each_is_a_node(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    nodes: str,
    own: int,
    gpus: str,
    expected: int,
) -> None:
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    least, _, most = nodes.partition(":")
    config = LaunchConfig(int(least), int(most), own)
    launch_for_all(config, srun_says("n1", 2) | {"SLURM_GPUS_ON_NODE": gpus})
    assert config.nproc_per_node == expected
    said = f"has 2 launchers: one of them starts its {expected} processes, the others wait"
    assert said in capfd.readouterr().err


_ONE_RANK = """
import os
import torch.distributed as dist
ordinary = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
os.environ.update({name: os.environ.get(name, value) for name, value in ordinary.items()})
dist.init_process_group("gloo")
launched = "torchelastic" if "TORCHELASTIC_RUN_ID" in os.environ else "python"
print(f"{dist.get_world_size()} by {launched} of {os.environ.get('PET_NNODES')}")
"""


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ((_BIN / "torchrun", "--standalone"), "1 by torchelastic of None"),
        ((sys.executable,), "1 by python of 1:4"),
    ],
    ids=["torchrun", "python"],
)
def test_beside_another_sruns_training_it_trains_as_in_an_ordinary_job(
    tmp_path: Path, launcher: Sequence[str | Path], expected: str
) -> None:
    name = f"bftrainer-{tmp_path.name}"
    script = tmp_path / "train.py"
    script.write_text(_ONE_RANK)
    own = _ELEMENT | srun_says("n1") | {"BFTRAINER_SRUNS": name, "BFTRAINER_STEP": "1"}
    own |= {"PET_NNODES": "1:4"}
    with socket.socket(socket.AF_UNIX) as script_here:
        script_here.bind(f"\0{name}")
        script_here.listen()
        script_here.settimeout(120)
        pipe = subprocess.PIPE
        command = [*launcher, script]
        ran = subprocess.Popen(command, env=os.environ | own, stdout=pipe, stderr=pipe, text=True)
        script_here.accept()[0].sendall(b"beside\n")
        output, errors = ran.communicate()
    assert output == f"{expected}\n"
    assert errors.count("an srun trains already") == 1
