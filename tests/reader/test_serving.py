"""The port, with whatever is sent to it."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bftrainer_slurm.reader import serving as serving_module
from bftrainer_slurm.reader.serving import listener
from scripts.labcluster.waiting import wait_until
from tests.reader.threads import served


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nobody is hung up on but by the tests of that."""
    monkeypatch.setattr(serving_module, "_SILENT_S", 600.0)
    monkeypatch.setattr(serving_module, "_LONGEST_S", 600.0)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with served(PlainTextResponse("hello")) as there:
        yield there


def asked(address: tuple[str, int]) -> bytes:
    """The answer to one request."""
    with closing(http.client.HTTPConnection(*address, timeout=120)) as connection:
        connection.request("GET", "/")
        return connection.getresponse().read()


def answers(address: tuple[str, int]) -> bool:
    """Whether somebody gets anything."""
    with suppress(ConnectionError):
        return asked(address) == b"hello"
    return False


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /\xff\xfe%00%ff HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"\xff" * 4096 + b"\n",
    ],
)
def test_garbage_is_survived(address: tuple[str, int], garbage: bytes) -> None:
    with suppress(OSError), socket.create_connection(address, timeout=120) as connection:
        connection.sendall(garbage)  # it may be hung up on meanwhile
    assert asked(address) == b"hello"


def test_of_a_huge_request_no_more_than_a_little_is_kept(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=120) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nx: ")
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"y" * 65_536)


def test_those_that_say_nothing_keep_nobody_out_for_long(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_SILENT_S", 0.1)
    with ExitStack() as open_:
        for _ in range(80):
            silent = open_.enter_context(socket.create_connection(address, timeout=120))
        with suppress(ConnectionError):
            assert silent.recv(1) == b"", "hung up on"
        wait_until(lambda: answers(address))


def test_who_sends_a_byte_now_and_then_is_hung_up_on(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_SILENT_S", 0.3)
    connection = socket.create_connection(address, timeout=120)
    with connection, pytest.raises(ConnectionError):
        for _ in range(2400):
            connection.send(b"x")
            time.sleep(0.05)
    wait_until(lambda: answers(address))


def test_who_does_not_read_the_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "_LONGEST_S", 1.0)
    over = threading.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await Response(b"x" * 50_000_000)(scope, receive, send)
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            over.set()

    with served(large) as address, socket.create_connection(address, timeout=120) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert over.wait(120)


def test_a_port_that_is_taken_is_named(address: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="Address already in use") as raised:
        listener(*address)
    assert raised.value.filename == f"{address[0]}:{address[1]}"


def test_its_socket_is_for_its_own_account_and_there_is_one_reader(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bftrainer_slurm", "reader", "--state", str(tmp_path)]
    with subprocess.Popen([*command, "--listen", "off"]) as first:
        try:
            wait_until((tmp_path / "reader.sock").exists)
            assert (tmp_path / "reader.sock").stat().st_mode & 0o077 == 0
            second = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert second.returncode == 2
            assert second.stderr == f"bftrainer: another reader works in {tmp_path}\n"
            first.send_signal(signal.SIGINT)
            assert first.wait(120) == 130
        finally:
            first.kill()
