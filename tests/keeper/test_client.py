"""A client hears from whoever listens at the keeper's address; what is no keeper's is an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from bftrainer_slurm.keeper import server
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError, SilentError
from bftrainer_slurm.keeper.credentials import Gate
from bftrainer_slurm.keeper.messages import Serving, encode
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote, write_line
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside
from tests.keeper.wire import who_says

NO_STATUS = [
    b"document\n",
    b"document 1.0 2\n{}",
    b"document 1.0 2 2\n[]{}",
    b"document 1.0 2 2\n{}[]",
    b"document 1.0 5 2\n{{{{{{}",
    b"document 1.0 -1 2\n{}{}",
    b"document 1.0 2 999999999999999\n{}{}",
    b"document soon 2 2\n{}{}",
    b"document 1.0 100000 2\n" + b"[" * 100_000 + b"{}",
    b"\xff\xfe\n",
    b"",
]
NO_STREAM = [b'{"answer":{}}\n', b"\n", b"ok\n", b'{"serving":{}}\n', b"\xff\n", b"refused no\n"]


def short(answer: bytes) -> str:
    return ascii(answer[:24])


@pytest.mark.parametrize("answer", NO_STATUS, ids=short)
def test_what_is_no_status_is_an_error(answer: bytes) -> None:
    with somebody_who_says(answer) as client, pytest.raises(KeeperError):
        client.status()


@pytest.mark.parametrize("answer", NO_STREAM, ids=short)
def test_what_is_no_stream_of_notes_is_an_error(answer: bytes) -> None:
    with somebody_who_says(answer) as client, pytest.raises(KeeperError):
        list(client.watch("", 0))


def test_a_keeper_that_says_nothing_more_is_given_up_though_it_does_not_hang_up() -> None:
    note = NumberedNote(1, 5.0, Note(NoteKind.SUBMITTED))
    said = encode(Serving("abc")) + b"\n" + write_line({"note": note})
    with somebody_who_says(said, ends=False) as client:
        stream = client.watch("", 0, silent_s=3)
        assert [next(stream) for _ in range(2)] == [("abc", None)] * 2
        assert next(stream) == ("abc", note)
        with pytest.raises(SilentError):
            next(stream)


def test_a_keeper_without_news_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STILL_HERE_S", 0.1)
    with keeper_inside() as keeper:
        stream = keeper.client.watch("", 0, silent_s=2)
        assert next(stream)[1] is None
        later = threading.Timer(3, keeper.client.tell, [Note(NoteKind.SUBMITTED)])
        later.start()
        numbered = next(note for _, note in stream if note)
        later.join()
        assert numbered.note.kind is NoteKind.SUBMITTED


def test_a_client_goes_on_to_the_host_where_our_keeper_answers(keeper: Inside) -> None:
    hangs, another = socket.create_server(("127.0.0.1", 0)), keeper_inside(Gate("other", KEY))
    with hangs, another as other:
        silent, ours = f"127.0.0.1:{hangs.getsockname()[1]}", keeper.client.address
        address = ",".join(("127.0.0.1:1", silent, other.client.address, ours))
        client = KeeperClient(address, TOKEN, timeout_s=3)
        client.own(13, 0, 1)
        assert client.status()[1] is None


@contextmanager
def somebody_who_says(answer: bytes, ends: bool = True) -> Iterator[KeeperClient]:
    """A client that believes in whoever says this."""
    with who_says(answer, ends), patch("bftrainer_slurm.keeper.client.introduce"):
        yield KeeperClient("127.0.0.1:1", TOKEN)
