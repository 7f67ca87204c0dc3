"""A client hears from whoever listens at the keeper's address; what is no keeper's is an error."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError

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
NO_STREAM = [b"keeper\n", b"\n", b"ok\n", b"keeper a b\n", b"\xff\n"]


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


@contextmanager
def somebody_who_says(answer: bytes) -> Iterator[KeeperClient]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield KeeperClient(f"127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
