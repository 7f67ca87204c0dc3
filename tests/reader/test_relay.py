"""What the keeper tells of the past: it asks the reader, by the socket in its state folder."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.reader import facts as facts_module
from bftrainer_slurm.reader.facts import Facts
from bftrainer_slurm.reader.serving import own_socket
from bftrainer_slurm.reader.site import site
from bftrainer_slurm.reader.stories import ALL
from scripts.labcluster.keeper import Keeper
from tests.cli.pasts import write_past
from tests.controller.worlds import ARRAY
from tests.keeper.conftest import keeper_process as keeper
from tests.reader.threads import serve_in_thread

__all__ = ["keeper"]


@pytest.fixture
def read(keeper: Keeper) -> Iterator[None]:
    """A reader beside the keeper."""
    page = site(keeper.state / "history.sqlite", Facts(keeper.client.status), "")
    with serve_in_thread(page, own_socket(keeper.state)):
        yield


def test_with_the_token_all_of_it_is_told(keeper: Keeper, read: None) -> None:
    write_past(keeper.state)
    told = keeper.client.history(str(ARRAY), 0)["trainer"]
    assert (told["user"], told["changes"][0]["gained"]) == ("alice", ["n1", "n2"])
    assert len(told["samples"]) == 49


def test_who_proves_nothing_is_told_what_squeue_shows(
    keeper: Keeper, read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_past(keeper.state)
    monkeypatch.setattr(facts_module, "_KEPT_S", 0.0)
    anybody = KeeperClient(keeper.client.address)
    assert anybody.history(ALL, 0)["trainers"] == []  # nobody has said yet that jobs are public
    status = {"schema": 1, "time_s": time.time(), "controller": {}, "jobs_private": False}
    keeper.client.publish(status)
    assert all(one["hidden"] for one in anybody.history(ALL, 0)["trainers"])
    assert "samples" not in anybody.history(str(ARRAY), 0)["trainer"]


@pytest.mark.parametrize("what", ["all/../1", "-1", "12 0 munge", "a?user=0"])
def test_what_cannot_be_asked_is_refused(keeper: Keeper, what: str) -> None:
    with pytest.raises(KeeperError):
        keeper.client.history(what, 0)


def test_what_the_reader_does_not_know_it_says(keeper: Keeper, read: None) -> None:
    assert "not a whole number" in keeper.client.history("everything", 0)["error"]
    assert "history.sqlite" in keeper.client.history(ALL, 0)["error"]  # there is none


def test_without_a_reader_it_is_said_how_to_start_one(keeper: Keeper) -> None:
    assert "bftrainer reader" in keeper.client.history(ALL, 0)["error"]


@pytest.mark.parametrize("module", ["keeper.__main__", "controller.daemon"])
def test_neither_keeper_nor_controller_loads_the_reader(module: str) -> None:
    script = (
        f"import sys, bftrainer_slurm.{module}\n"
        "print(*(one for one in sys.modules if one.startswith(('bftrainer_slurm.reader', "
        "'starlette', 'uvicorn', 'prometheus_client'))))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("\n", "")
