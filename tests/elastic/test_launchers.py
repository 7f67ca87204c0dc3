"""Launchers whose command lines name a rendezvous of their own: their nodes form one group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch.distributed.launcher.api import LaunchConfig

from bftrainer_slurm.elastic.tasks.seats import launch_for_all
from scripts.labcluster.keeper import Keeper
from tests.elastic.agents import started_agents
from tests.elastic.test_tasks import srun_says

_BIN = Path(sys.executable).parent
_TORCHRUN = (_BIN / "torchrun",)
_LAUNCH = (
    *(sys.executable, "-m", "torch.distributed.launch", "--use-env"),
    *("--nnodes=2", "--node_rank=0", "--master_addr=n9"),
)
_ACCELERATE = (_BIN / "accelerate", "launch", "--multi_gpu", "--num_processes", "2")

pytestmark = pytest.mark.torch


TRAINERS: dict[str, tuple[Sequence[str | Path], list[str]]] = {
    "torchrun": (
        (),
        [
            "--nnodes=4 --rdzv_id=$ID --rdzv_backend=c10d --rdzv_endpoint=n9:29500",
            "--standalone --nproc-per-node=1 --max-restarts=0",
            "--nnodes 2 --node_rank 1 --master_addr n9 --master_port 1",
            "--rdzv-backend static --rdzv-endpoint n9:1",
        ],
    ),
    "launch": (_LAUNCH, ["", ""]),
    "accelerate": ((*_ACCELERATE, "--num_machines", "1"), ["", ""]),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_nodes_meet_whatever_their_command_lines_say(
    keeper: Keeper, tmp_path: Path, kind: str
) -> None:
    launcher, lines = TRAINERS[kind]
    with started_agents(keeper, tmp_path / "run", launcher=launcher) as agents:
        agents.own(len(lines))
        for task, line in enumerate(lines, 1):
            agents.options = line.split()
            agents.start(task)
            agents.wait_for_steps(task)
            processes = agents.last_world(task) // task
            agents.wait_for_world(processes * task, *range(1, task + 1))
        agents.kill(task)
        agents.wait_for_world(processes * (task - 1), *range(1, task))
        said = "n1 meets the trainer's other nodes; for ordinary jobs only: "
        assert agents.log(1).count(said) == (kind != "launch")  # that takes ours by itself


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
        ((*_TORCHRUN, "--standalone"), "1 by torchelastic of None"),
        ((sys.executable,), "1 by python of 1:4"),
    ],
    ids=["torchrun", "python"],
)
def test_beside_another_sruns_training_it_trains_as_in_an_ordinary_job(
    tmp_path: Path, launcher: Sequence[str | Path], expected: str
) -> None:
    name = f"bftrainer-{tmp_path.name}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()

    def answer() -> None:
        while True:
            with listener.accept()[0] as asking:
                asking.sendall(b"beside\n")

    threading.Thread(target=answer, daemon=True).start()
    script = tmp_path / "train.py"
    script.write_text(_ONE_RANK)
    element = {"BFTRAINER_ELEMENT": "7_1", "PET_RDZV_BACKEND": "bftrainer", "PET_NNODES": "1:4"}
    step = srun_says("n1") | {"BFTRAINER_SRUNS": name, "BFTRAINER_STEP": "1"}
    ran = subprocess.run(
        [*launcher, script], env=os.environ | element | step, capture_output=True, text=True
    )
    assert ran.stdout == f"{expected}\n"
    assert ran.stderr.count("an srun trains already") == 1
