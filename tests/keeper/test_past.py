"""What the keeper tells of the past: the history lies in its state folder."""

from __future__ import annotations

import time

import pytest

from bftrainer_slurm.controller.publish.stories import ALL
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.model import ElementId
from scripts.labcluster.keeper import Keeper
from tests.controller.worlds import ARRAY, trainer


@pytest.fixture
def history(keeper: Keeper) -> History:
    """The history of a controller that works: the keeper reads what is being written."""
    now_s = time.time()
    history = History(keeper.state / "history.sqlite")
    history.meet(ARRAY, "a", now_s)
    history.describe(trainer(), now_s)
    history.begin_stay(ElementId(ARRAY, 0), "n1", now_s - 600)
    history.add_progress(ARRAY, now_s - 60, 1000.0, "{}")
    return history


def test_with_the_token_all_of_it_is_told(keeper: Keeper, history: History) -> None:
    told = keeper.client.history(str(ARRAY), 0)["trainer"]
    assert (told["user"], told["changes"][0]["gained"]) == ("alice", ["n1"])
    assert len(told["samples"]) == 1


def test_who_proves_nothing_is_told_what_squeue_shows(keeper: Keeper, history: History) -> None:
    anybody = KeeperClient(keeper.client.address)
    assert anybody.history(ALL, 0)["trainers"] == []  # nobody has said yet that jobs are public
    keeper.client.publish({"jobs_private": False})
    (one,) = anybody.history(ALL, 0)["trainers"]
    assert one["hidden"]
    assert "samples" not in anybody.history(str(ARRAY), 0)["trainer"]


@pytest.mark.parametrize("what", ["everything", "-1", "12 0 munge"])
def test_what_cannot_be_asked_is_refused(keeper: Keeper, what: str) -> None:
    with pytest.raises(KeeperError):
        keeper.client.history(what, 0)


def test_where_there_is_no_history_that_is_said(keeper: Keeper) -> None:
    assert "history.sqlite" in keeper.client.history(ALL, 0)["error"]
