"""What a keeper does for elements, controllers, readers and strangers; and its process."""

import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.disclosure import disclosed
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from scripts.labcluster.keeper import Keeper, started_keeper
from tests.keeper.inside import Inside, secret_for

UP = Note(NoteKind.UP, 12, 0, "n1")
SUBMITTED = Note(NoteKind.SUBMITTED)


def join(keeper: Inside, array: int, task: int) -> tuple[str, bool] | None:
    return keeper.client.join(array, task, "n1", secret_for(array))


def test_elements_of_one_trainer_share_a_run_until_it_ends(keeper: Inside) -> None:
    assert [join(keeper, 12, 0), join(keeper, 12, 1)] == [("12.1", False)] * 2
    keeper.client.say(12, "finished")
    assert join(keeper, 12, 3) is None, "it has nothing to do"
    assert join(keeper, 13, 0) == ("13.1", False)
    keeper.client.say(12, "ended")
    assert join(keeper, 12, 3) == ("12.2", False)


def test_one_element_of_a_trainer_is_the_first(keeper: Inside) -> None:
    keeper.client.say(12, "begins")
    assert [join(keeper, 12, task) for task in (1, 0)] == [("12.1", True), ("12.1", False)]
    keeper.client.say(12, "begins")  # as the controller has not seen it yet
    assert join(keeper, 12, 1) == ("12.1", False)


def test_a_watcher_hears_old_notes_too_and_that_this_is_all_and_goes_on_where_it_stopped(
    keeper: Inside,
) -> None:
    keeper.client.tell(SUBMITTED)
    join(keeper, 12, 0)
    stream = keeper.client.watch("", 0)
    heard = [next(stream) for _ in range(4)]
    assert [one and one.note for _, one in heard] == [None, SUBMITTED, UP, None]
    assert keeper.notes(1, heard[0][0], after=1) == [UP]


@pytest.mark.parametrize("private", [False, True])
def test_anybody_sees_the_status_and_of_trainers_what_squeue_shows_or_nothing_of_private_jobs(
    keeper: Inside, private: bool
) -> None:
    shown = {"array": 9, "name": "digits", "gpus": 2, "nodes": ["n1"]}
    mine = {**shown, "samples": 5.0, "error": "my secret"}
    keeper.client.publish({"pool": 3, "trainers": [mine], "jobs_private": private})
    age_s, status = KeeperClient(keeper.client.address).status()
    assert status is not None and 0 <= age_s < 60
    trainers = [] if private else [shown | {"hidden": True}]
    assert (status["pool"], status["trainers"]) == (3, trainers)
    assert (keeper.client.status()[1] or {})["trainers"] == [mine]


@pytest.mark.parametrize("status", [b"[" * 10_000, b"[1]"])
def test_what_is_no_status_shows_nothing(status: bytes) -> None:
    assert disclosed(status, lambda array: True) == b""


def test_a_forged_word_that_an_element_is_up_takes_nothing_away(keeper: Inside) -> None:
    keeper.client.say(12, "begins")
    with pytest.raises(KeeperError, match="has another key"):
        keeper.client.join(12, 0, "n1", secret_for(13))
    assert join(keeper, 12, 0) == ("12.1", True)
    assert keeper.notes(1) == [UP]


def test_without_a_keeper_the_client_says_so_in_one_line() -> None:
    with pytest.raises(KeeperError, match=r"127\.0\.0\.1:1"):
        KeeperClient("127.0.0.1:1").tell(SUBMITTED)


# The process.


def test_it_does_without_torch() -> None:
    program = "import sys, bftrainer_slurm.keeper.__main__; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n"


def test_datagrams_of_submissions_reach_a_watcher_as_one_note(keeper_process: Keeper) -> None:
    host, port = keeper_process.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for text in (b"announced\n", b"announced\n", b"up 12 0 n1\n", b"\xff" * 1000):
            sender.sendto(text, (host, int(port)))
    notes = (note.note for _, note in keeper_process.client.watch("", 0) if note)
    assert next(notes) == Note(NoteKind.ANNOUNCED)
    keeper_process.client.tell(SUBMITTED)
    assert next(notes) == SUBMITTED


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_is_found_again_ends_though_others_listen_and_the_next_is_in_its_place(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "bftrainer_slurm.keeper", "--state", state]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        keeper = find_or_start(state, "127.0.0.1:0")
        next(stream := keeper.watch("", 0))
        process.send_signal(number)
        assert process.wait(120) == code
        assert [note for _, note in stream if note] == []
    assert line.endswith(f"keeper at {keeper.address}, state in {state}\n")
    with started_keeper(state) as second:
        assert second.client == replace(keeper, timeout_s=second.client.timeout_s)
        second.client.tell(SUBMITTED)
