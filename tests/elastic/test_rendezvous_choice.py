"""Which torchruns use our rendezvous, and which start as stock ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bftrainer_slurm.elastic.rendezvous import choose

_WARM = {"PET_RUN_PATH": "1", "PET_START_METHOD": "forkserver", "PET_MONITOR_INTERVAL": "0.02"}
_OURS = {"PET_RDZV_BACKEND": "bftrainer"}

pytestmark = pytest.mark.torch


def test_an_elements_workers_are_warm() -> None:
    environment = dict(_OURS)
    choose(environment, ["--nproc-per-node=2", "train.py", "--rate", "1e-3"])
    assert environment == _OURS | _WARM


def test_what_the_user_has_set_stays() -> None:
    environment = _OURS | {"PET_MONITOR_INTERVAL": "0.5"}
    choose(environment, ["train.py"])
    assert environment["PET_MONITOR_INTERVAL"] == "0.5"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rdzv-backend=c10d", "train.py"],
        ["--rdzv_backend", "c10d", "train.py"],
        ["--standalone", "train.py"],
        ["--no-python", "train"],
        ["--no_python", "train"],
        ["--start-method=spawn", "train.py"],
    ],
)
def test_a_command_line_with_a_way_of_its_own_gets_stock_workers(arguments: list[str]) -> None:
    environment = _OURS | _WARM
    choose(environment, arguments)
    assert environment == _OURS


def test_a_command_line_may_name_our_rendezvous() -> None:
    environment = dict(_OURS)
    choose(environment, ["--rdzv-backend=bftrainer", "train.py"])
    assert environment == _OURS | _WARM


def test_who_opts_out_gets_stock_workers() -> None:
    environment = {"PET_RDZV_BACKEND": "c10d"} | _WARM
    choose(environment, ["train.py"])
    assert environment == {"PET_RDZV_BACKEND": "c10d"}


def test_a_torch_that_ours_cannot_work_with_falls_back_to_c10d(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bftrainer_slurm.elastic.agent", None)
    environment = dict(_OURS)
    with pytest.warns(UserWarning, match="stock c10d is used"):
        choose(environment, ["train.py"])
    assert environment == {"PET_RDZV_BACKEND": "c10d"}


def test_outside_an_element_loading_it_changes_and_imports_nothing() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "BFTRAINER_"))}
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "import torch.distributed.run\n"
        "from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry\n"
        "assert 'bftrainer' in registry._registry\n"
        "assert 'bftrainer_slurm.elastic.agent' not in sys.modules\n"
        "assert before == dict(os.environ)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_outside_an_element_ours_refuses_to_begin() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    with pytest.raises(RendezvousError, match="elements"):
        get_rendezvous_handler(RendezvousParameters("bftrainer", "", "run", 1, 4))
