"""Which torchruns use our rendezvous, and which start as stock ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bftrainer_slurm.elastic.rendezvous import choose, handler
from bftrainer_slurm.elastic.rendezvous.command_line import is_torchrun, trains_alone
from bftrainer_slurm.elastic.rendezvous.only_launcher import is_only_launcher

_QUICK = {
    "PET_MONITOR_INTERVAL": "0.02",
    "PET_RDZV_ENDPOINT": "bftrainer",
}
_OURS = {"PET_RDZV_BACKEND": "bftrainer"}

pytestmark = pytest.mark.torch


def test_an_elements_torchrun_looks_often() -> None:
    environment = dict(_OURS)
    choose(environment)
    assert environment == _OURS | _QUICK


def test_what_the_user_has_set_stays() -> None:
    environment = _OURS | {"PET_MONITOR_INTERVAL": "0.5"}
    choose(environment)
    assert environment["PET_MONITOR_INTERVAL"] == "0.5"


@pytest.mark.parametrize(
    "own", [{"PET_RDZV_BACKEND": "c10d"}, _OURS | {"BFTRAINER_RENDEZVOUS": "own"}]
)
def test_who_opts_out_has_a_stock_torchrun(own: dict[str, str]) -> None:
    environment = own | _QUICK
    choose(environment)
    assert environment == own


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
    ("environment", "arguments", "alone"),
    [
        ({"PET_RDZV_BACKEND": "c10d"}, ["train.py"], True),
        ({"PET_RDZV_BACKEND": "c10d"}, ["--rdzv_endpoint=n1:29400", "train.py"], False),
        ({"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:29400"}, ["train.py"], False),
        ({"PET_RDZV_BACKEND": "c10d"}, ["--standalone", "train.py"], False),
        (_OURS, ["train.py"], False),
    ],
)
def test_c10d_without_a_place_for_its_store_is_one_for_each_node(
    environment: dict[str, str], arguments: list[str], alone: bool
) -> None:
    assert trains_alone(environment, arguments) == alone


@pytest.mark.parametrize(
    "own", [{"PET_RDZV_BACKEND": "c10d"}, _OURS | {"BFTRAINER_RENDEZVOUS": "own"}]
)
def test_a_torchrun_that_would_train_alone_beside_the_others_is_ended_with_one_line(
    own: dict[str, str],
) -> None:
    element = {"BFTRAINER_ELEMENT": "12_3", "PET_NNODES": "1:2", **own}
    command = [sys.executable, "-m", "torch.distributed.run", "there-is-no.py"]
    ran = subprocess.run(command, env=os.environ | element, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "needs --rdzv-endpoint=HOST:PORT" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/usr/bin/python3", "/opt/venv/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-u", "train.py", "--run", "torchrun"], False),
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
