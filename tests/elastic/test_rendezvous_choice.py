"""Which torchruns use our rendezvous, and which start as stock ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from torch.distributed.launcher.api import LaunchConfig

from bftrainer_slurm.elastic.rendezvous import handler
from bftrainer_slurm.elastic.rendezvous.command_line import is_torchrun
from bftrainer_slurm.elastic.rendezvous.only_launcher import is_only_launcher

_OURS = {"PET_RDZV_BACKEND": "bftrainer"}

pytestmark = pytest.mark.torch


def configured(words: str = "", **own: str) -> LaunchConfig:
    """Return what an element's torchrun makes of its command line and environment."""
    code = (
        "import pickle, sys; from torch.distributed.run import config_from_args, parse_args\n"
        "config, _, _ = config_from_args(parse_args(sys.argv[1:]))\n"
        "open(1, 'wb').write(pickle.dumps(config))"
    )
    environment = os.environ | _OURS | {"BFTRAINER_ELEMENT": f"{os.getpid()}_9"} | own
    command = [sys.executable, "-c", code, *words.split(), "train.py"]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    config = pickle.loads(found.stdout)
    assert isinstance(config, LaunchConfig)
    return config


def test_an_elements_torchrun_meets_at_ours_and_looks_often() -> None:
    config = configured()
    assert (config.rdzv_backend, config.monitor_interval) == ("bftrainer", 0.02)


def test_how_often_it_looks_may_be_the_users_choice() -> None:
    assert configured("--monitor-interval=0.5").monitor_interval == 0.5
    assert configured(PET_MONITOR_INTERVAL="0.3").monitor_interval == 0.3


@pytest.mark.parametrize("own", [{"PET_RDZV_BACKEND": "c10d"}, {"BFTRAINER_RENDEZVOUS": "own"}])
def test_who_opts_out_has_a_stock_torchrun(own: dict[str, str]) -> None:
    config = configured(PET_RDZV_ENDPOINT="bftrainer", **own)  # of a torchrun that has started this
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "")
    assert config.monitor_interval == LaunchConfig.monitor_interval


@pytest.mark.parametrize("own", [{"PET_RDZV_BACKEND": "c10d"}, {"BFTRAINER_RENDEZVOUS": "own"}])
def test_a_torchrun_that_would_train_alone_beside_the_others_is_ended_with_one_line(
    own: dict[str, str],
) -> None:
    element = _OURS | {"BFTRAINER_ELEMENT": "12_3", "PET_NNODES": "1:2", **own}
    command = [sys.executable, "-m", "torch.distributed.run", "there-is-no.py"]
    ran = subprocess.run(command, env=os.environ | element, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "needs --rdzv-endpoint=HOST:PORT" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


def test_a_torchrun_of_its_own_may_meet_at_a_place_or_train_on_one_node() -> None:
    own = {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1:2"}
    assert configured("--rdzv-endpoint=n1:29400", **own).rdzv_endpoint == "n1:29400"
    assert configured("--nnodes=1", **own).max_nodes == 1


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
    ("command", "expected"),
    [
        (["/usr/bin/python3", "/opt/venv/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python3.11", "-u", "-m", "torch.distributed.launch", "train.py"], True),
        (["python", "-u", "train.py", "--run", "torchrun"], False),
        (["bash", "/home/alice/torchrun"], False),
        ([], False),
    ],
)
def test_a_script_that_imports_torchrun_is_not_taken_for_it(
    command: list[str], expected: bool
) -> None:
    assert is_torchrun(command) == expected


def test_outside_an_element_loading_it_changes_and_imports_nothing() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "BFTRAINER_"))}
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "import torch.distributed.run\n"
        "from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry\n"
        "assert 'bftrainer' in registry._registry\n"
        "assert 'bftrainer_slurm.elastic.rendezvous.agent' not in sys.modules\n"
        "assert before == dict(os.environ)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_outside_an_element_ours_refuses_to_begin() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    with pytest.raises(RendezvousError, match="elements"):
        get_rendezvous_handler(RendezvousParameters("bftrainer", "", "run", 1, 4))


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
