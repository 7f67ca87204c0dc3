"""What a keeper does for elements, controllers, readers and strangers; and its process."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside, secret_for

UP = Note(NoteKind.UP, 12, 0, "n1")
SUBMITTED = Note(NoteKind.SUBMITTED)


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside() as running:
        yield running


def raw(keeper: Inside, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", keeper.port), timeout=120) as connection:
        connection.sendall(sent)
        return connection.recv(4096)


def join(keeper: Inside, array: int, task: int, node: str) -> tuple[str, bool] | None:
    return keeper.client.join(array, task, node, secret_for(array))


def read_notes(client: KeeperClient, count: int, identity: str = "", after: int = 0) -> list[Note]:
    notes = (note.note for _, note in client.watch(identity, after) if note)
    return list(islice(notes, count))


def test_elements_of_one_trainer_share_a_run_and_trainers_do_not(keeper: Inside) -> None:
    first, second = join(keeper, 12, 0, "n1"), join(keeper, 12, 1, "n2")
    assert first == second != join(keeper, 13, 0, "n3")


def test_after_the_end_of_a_run_the_next_element_begins_another(keeper: Inside) -> None:
    before = join(keeper, 12, 0, "n1")
    keeper.client.say(12, "ended")
    after = join(keeper, 12, 0, "n1")
    assert after != before


def test_who_starts_when_the_training_has_finished_is_told_so_until_it_begins_anew(
    keeper: Inside,
) -> None:
    keeper.client.say(12, "finished")
    assert join(keeper, 12, 3, "n1") is None
    assert join(keeper, 13, 0, "n1") == ("13.1", False)
    keeper.client.say(12, "ended")
    assert join(keeper, 12, 3, "n1") == ("12.2", False)


def test_one_element_of_a_trainer_is_the_first(keeper: Inside) -> None:
    keeper.client.say(12, "begins")
    assert [join(keeper, 12, task, "n1") for task in (1, 0)] == [
        ("12.1", True),
        ("12.1", False),
    ]
    keeper.client.say(12, "begins")  # as the controller has not seen it yet
    assert join(keeper, 12, 1, "n1") == ("12.1", False)


def test_notes_reach_a_watcher_in_order_also_those_from_before(keeper: Inside) -> None:
    keeper.client.tell(SUBMITTED)
    join(keeper, 12, 0, "n1")
    assert read_notes(keeper.client, 2) == [SUBMITTED, UP]


def test_a_watcher_goes_on_where_it_stopped(keeper: Inside) -> None:
    keeper.client.tell(SUBMITTED)
    join(keeper, 12, 0, "n1")
    stream = keeper.client.watch("", 0)
    identity, _ = next(stream)
    first = next(note for _, note in stream if note)
    assert read_notes(keeper.client, 1, identity, first.number) == [UP]


def test_the_published_status_is_shown_to_anybody(keeper: Inside) -> None:
    keeper.client.publish({"pool": 3})
    age_s, status = KeeperClient(keeper.client.address).status()
    assert status is not None
    assert status["pool"] == 3
    assert 0 <= age_s < 60


def test_of_others_trainers_nobody_sees_more_than_squeue_shows(keeper: Inside) -> None:
    mine = {"array": 9, "name": "digits", "nodes": ["n1"], "samples": 5.0, "error": "my secret"}
    keeper.client.publish({"trainers": [mine]})
    (seen,) = (KeeperClient(keeper.client.address).status()[1] or {})["trainers"]
    assert seen == {"array": 9, "name": "digits", "nodes": ["n1"], "hidden": True}
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
        lambda: stranger.say(12, "ended"),
        lambda: stranger.say(12, "finished"),
        lambda: stranger.say(12, "begins"),
    )
    for ask in requests:
        with pytest.raises(KeeperError, match=r"no secret here|has another key"):
            ask()


def test_a_forged_word_that_an_element_is_up_takes_nothing_away(keeper: Inside) -> None:
    keeper.client.say(12, "begins")
    assert raw(keeper, b"up 12 0 n1\n").startswith(b"refused ")
    with pytest.raises(KeeperError, match="has another key"):
        keeper.client.join(12, 0, "n1", secret_for(13))
    assert join(keeper, 12, 0, "n1") == ("12.1", True)
    assert read_notes(keeper.client, 1) == [UP]


@pytest.mark.parametrize(
    "sent", [b"nonsense\n", b"gone 1 2 $(reboot)\n", b"\xff\xfe\n", b"\n", b"watch\n"]
)
def test_a_malformed_line_is_answered_with_an_error(keeper: Inside, sent: bytes) -> None:
    assert raw(keeper, sent).startswith(b"refused ")
    keeper.client.tell(SUBMITTED)


def test_without_a_keeper_the_client_says_so_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(KeeperError, match=address):
        KeeperClient(address).tell(SUBMITTED)


# The process.


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    with started_keeper(tmp_path_factory.mktemp("state")) as running:
        yield running


def test_it_does_without_torch() -> None:
    program = "import sys, bftrainer_slurm.keeper.__main__; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n"


def test_no_other_one_beside_it_serves_trainers(process: Keeper) -> None:
    process.client.join(12, 0, "n1", process.secret(12))
    assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == ""


def test_the_address_file_names_it(process: Keeper) -> None:
    content = json.loads((process.state / "keeper.json").read_text())
    assert Path(f"/proc/{content['pid']}").exists()


def test_the_token_is_for_its_owner_only(process: Keeper) -> None:
    assert (process.state / "keeper.token").stat().st_mode & 0o777 == 0o600


def test_one_that_answers_is_found_again(process: Keeper) -> None:
    found, known = find_or_start(process.state, "127.0.0.1:0"), process.client
    assert (found.address, found.token) == (known.address, known.token)


def test_datagrams_of_submissions_reach_a_watcher_as_one_note(tmp_path: Path) -> None:
    with started_keeper(tmp_path) as fresh:
        host, port = fresh.address.split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for text in (b"announced\n", b"announced\n", b"up 12 0 n1\n", b"\xff" * 1000):
                sender.sendto(text, (host, int(port)))
        announced = Note(NoteKind.ANNOUNCED)
        assert read_notes(fresh.client, 1) == [announced]
        fresh.client.tell(SUBMITTED)
        assert read_notes(fresh.client, 2) == [announced, SUBMITTED]


def test_it_ends_at_once_though_others_are_connected_and_the_next_has_its_address(
    tmp_path: Path,
) -> None:
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
