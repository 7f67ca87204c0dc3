"""Which torchruns use our rendezvous, and which start as stock ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from torch.distributed.launcher.api import LaunchConfig

from bftrainer_slurm.elastic.rendezvous import handler
from bftrainer_slurm.elastic.rendezvous.command_line import STARTED_BY, is_torchrun, launcher_of
from bftrainer_slurm.elastic.rendezvous.only_launcher import is_only_launcher
from bftrainer_slurm.keeper.protocol import LAUNCHERS

_OURS = {"PET_RDZV_BACKEND": "bftrainer"}

pytestmark = pytest.mark.torch


def configured(*lines: str, **own: str) -> list[LaunchConfig]:
    """Return what an element's torchrun makes of its environment and of these command lines."""
    code = (
        "import pickle, sys; from torch.distributed.run import config_from_args, parse_args\n"
        "lines = ([*line.split(), 'train.py'] for line in sys.argv[1:])\n"
        "configs = [config_from_args(parse_args(words))[0] for words in lines]\n"
        "open(1, 'wb').write(pickle.dumps(configs))"
    )
    environment = os.environ | _OURS | {"BFTRAINER_ELEMENT": f"{os.getpid()}_9"} | own
    command = [sys.executable, "-c", code, *lines]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return list(pickle.loads(found.stdout))


def test_an_elements_torchrun_meets_at_ours_and_looks_often_unless_its_user_chooses() -> None:
    usual, own = configured("", "--monitor-interval=0.5")
    assert usual.rdzv_backend == "bftrainer"
    assert (usual.monitor_interval, own.monitor_interval) == (0.02, 0.5)


@pytest.mark.parametrize("own", [{"PET_RDZV_BACKEND": "c10d"}, {"BFTRAINER_RENDEZVOUS": "own"}])
def test_who_opts_out_has_a_stock_torchrun_that_meets_at_a_place_or_trains_on_one_node(
    own: dict[str, str],
) -> None:
    # The endpoint is of a torchrun that has started this one.
    alone, meets = configured(
        "--nnodes=1", "--nnodes=1:2 --rdzv-endpoint=n1:29400", PET_RDZV_ENDPOINT="bftrainer", **own
    )
    assert alone.rdzv_backend == meets.rdzv_backend == "c10d"
    assert (alone.rdzv_endpoint, meets.rdzv_endpoint) == ("", "n1:29400")
    assert alone.monitor_interval == LaunchConfig.monitor_interval


def test_one_that_would_train_alone_beside_the_others_is_ended_with_one_line() -> None:
    element = {"BFTRAINER_ELEMENT": "12_3", "PET_NNODES": "1:2", "PET_RDZV_BACKEND": "c10d"}
    command = [sys.executable, "-m", "torch.distributed.run", "there-is-no.py"]
    ran = subprocess.run(command, env=os.environ | element, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "needs --rdzv-endpoint=HOST:PORT" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


def test_a_torch_that_ours_cannot_work_with_ends_with_a_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    monkeypatch.setitem(sys.modules, "bftrainer_slurm.elastic.rendezvous.agent", None)
    with pytest.raises(SystemExit) as end:
        handler()(RendezvousParameters("bftrainer", "", "run", 1, 4))
    assert end.value.code == 2
    said = capfd.readouterr().err
    assert said.startswith("bftrainer: torchrun's Python cannot load the rendezvous, install torch")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "launcher", "runs_torchrun"),
    [
        ("/env/bin/python3 /env/bin/torchrun --nnodes=2 train.py", "torchrun", True),
        ("python -m torch.distributed.run train.py", "torchrun", True),
        ("python3.11 -u -m torch.distributed.launch train.py", "torch.distributed.launch", True),
        ("python /env/bin/accelerate launch train.py", "accelerate", False),
        ("python -m accelerate.commands.launch train.py", "accelerate", False),
        ("python /env/bin/llamafactory-cli train x.yaml", "llamafactory", False),
        ("python /env/bin/tune run x", "torchtune", False),
        ("python -u train.py --run torchrun", "torchrun", False),  # it imports it
        ("bash /home/alice/torchrun", "torchrun", False),
        ("", "torchrun", False),
    ],
)
def test_what_has_started_a_training_has_a_name_and_may_run_torchrun(
    command: str, launcher: str, runs_torchrun: bool
) -> None:
    words = command.split()
    assert is_torchrun(words) == runs_torchrun
    assert launcher_of(words, {}) == launcher
    assert launcher_of(words, {STARTED_BY: "srun python"}) == "srun python"
    assert {launcher, "srun python"} <= set(LAUNCHERS)


def test_outside_an_element_loading_it_changes_and_imports_nothing_and_it_refuses_to_begin() -> (
    None
):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "BFTRAINER_"))}
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "import torch.distributed.run\n"
        "from torch.distributed.elastic.rendezvous import RendezvousParameters as Parameters\n"
        "from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry\n"
        "assert 'bftrainer' in registry._registry\n"
        "assert 'bftrainer_slurm.elastic.rendezvous.agent' not in sys.modules\n"
        "assert before == dict(os.environ)\n"
        "registry.create_handler(Parameters('bftrainer', '', 'run', 1, 4))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert ran.stderr.splitlines()[-1].endswith(b"is for elements of BFTrainer's trainers only")


def test_an_element_has_one_launcher_at_a_time() -> None:
    environment = {"BFTRAINER_ELEMENT": f"{os.getpid()}_1"}
    ask = f"from {is_only_launcher.__module__} import *; print(is_only_launcher({environment}, 0.5)"
    first = [sys.executable, "-c", f"{ask}, flush=True); import os; os.fork(); input()"]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(first, stdin=pipe, stdout=pipe, stderr=null, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "True\n"
        assert not is_only_launcher(environment, 0.3)
        assert is_only_launcher({"BFTRAINER_ELEMENT": f"{os.getpid()}_2"}, 0.0)
        one.kill()
        one.wait()
        assert is_only_launcher(environment), "a child that it leaves behind does not launch"
