"""What a keeper does for elements, controllers, readers and strangers; and its process."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import find_or_start, read_address
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
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


def test_a_watcher_hears_old_notes_too_and_goes_on_where_it_stopped(keeper: Inside) -> None:
    keeper.client.tell(SUBMITTED)
    join(keeper, 12, 0)
    assert keeper.notes(2) == [SUBMITTED, UP]
    stream = keeper.client.watch("", 0)
    identity, _ = next(stream)
    first = next(note for _, note in stream if note)
    assert keeper.notes(1, identity, first.number) == [UP]


def test_anybody_sees_the_status_and_of_trainers_what_squeue_shows(keeper: Inside) -> None:
    mine = {"array": 9, "name": "digits", "nodes": ["n1"], "samples": 5.0, "error": "my secret"}
    keeper.client.publish({"pool": 3, "trainers": [mine]})
    age_s, status = KeeperClient(keeper.client.address).status()
    assert status is not None and 0 <= age_s < 60
    shown = {"array": 9, "name": "digits", "nodes": ["n1"], "hidden": True}
    assert (status["pool"], status["trainers"]) == (3, [shown])
    assert (keeper.client.status()[1] or {})["trainers"] == [mine]


@pytest.mark.parametrize("token", ["", "wrong"])
def test_what_only_the_controller_may_needs_its_token(keeper: Inside, token: str) -> None:
    stranger = KeeperClient(keeper.client.address, token)
    requests = (
        lambda: stranger.publish({}),
        lambda: next(stranger.watch("", 0)),
        lambda: stranger.own(12, 0, 1),
        lambda: stranger.part(12, [1]),
        lambda: stranger.lost(12, 1, "n1"),
        lambda: stranger.say(12, "begins"),
    )
    for ask in requests:
        with pytest.raises(KeeperError, match=r"no secret here|has another key"):
            ask()


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


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    with started_keeper(tmp_path_factory.mktemp("state")) as running:
        yield running


def test_it_does_without_torch() -> None:
    program = "import sys, bftrainer_slurm.keeper.__main__; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n"


def test_one_that_answers_is_found_again(process: Keeper) -> None:
    found, known = find_or_start(process.state, "127.0.0.1:0"), process.client
    assert (found.address, found.token) == (known.address, known.token)


def test_datagrams_of_submissions_reach_a_watcher_as_one_note(keeper_process: Keeper) -> None:
    host, port = keeper_process.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for text in (b"announced\n", b"announced\n", b"up 12 0 n1\n", b"\xff" * 1000):
            sender.sendto(text, (host, int(port)))
    notes = (note.note for _, note in keeper_process.client.watch("", 0) if note)
    assert next(notes) == Note(NoteKind.ANNOUNCED)
    keeper_process.client.tell(SUBMITTED)
    assert next(notes) == SUBMITTED


def test_it_ends_though_others_listen_and_the_next_has_its_address(tmp_path: Path) -> None:
    with started_keeper(tmp_path) as first:
        address, stream = first.address, first.client.watch("", 0)
        next(stream)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGTERM)
        wait_until(lambda: first.pid is None)
        assert [note for _, note in stream if note] == []
    with started_keeper(tmp_path) as second:
        assert second.address == address
        second.client.tell(SUBMITTED)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_where_it_listens_and_how_it_was_ended(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "bftrainer_slurm.keeper", "--state", tmp_path / "state"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as keeper:
        assert keeper.stderr is not None
        line = keeper.stderr.readline()
        keeper.send_signal(number)
        assert keeper.wait(120) == code
    address = read_address(tmp_path / "state")
    assert line.endswith(f"keeper at {address}, state in {tmp_path / 'state'}\n")
