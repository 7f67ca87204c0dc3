"""The port, with whatever is sent to it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bftrainer_slurm.controller.publish import web_server
from bftrainer_slurm.controller.publish.web_server import Answer, Request, serving
from scripts.labcluster.waiting import wait_until

ANY_PORT = ("127.0.0.1", 0)


def echo(request: Request) -> Answer:
    """A site that says what it was asked."""
    said = f"{request.path} {request.query} {request.headers.get('x-said', '')}"
    return Answer(200 if request.path == "/" else 404, "text/plain", said.encode(), {"X-Is": "y"})


def address_of(shown: str | None) -> tuple[str, int]:
    assert shown is not None
    host, _, port = shown.rpartition(":")
    return host, int(port)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with serving(ANY_PORT, echo) as shown:
        yield address_of(shown)


def asked(address: tuple[str, int], path: str = "/", method: str = "GET") -> tuple[int, str]:
    """The answer to one request."""
    connection = http.client.HTTPConnection(*address, timeout=120)
    try:
        connection.request(method, path, headers={"X-Said": "hello"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def answers(address: tuple[str, int]) -> bool:
    """Whether somebody gets anything."""
    with suppress(ConnectionError):
        return asked(address)[0] == 200
    return False


def test_the_site_is_told_path_query_and_headers(address: tuple[str, int]) -> None:
    assert asked(address, "/?a=b&c") == (200, "/ a=b&c hello")


def test_what_the_site_answers_is_sent(address: tuple[str, int]) -> None:
    assert asked(address, "/elsewhere")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(address: tuple[str, int], method: str) -> None:
    assert asked(address, "/", method)[0] == 501


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
    assert asked(address)[0] == 200


def test_of_a_huge_request_no_more_than_a_little_is_read() -> None:
    class Endless:
        read = 0

        def readline(self, limit: int) -> bytes:
            self.read += limit
            return b"x" * limit

    endless = Endless()
    bounded = web_server._Bounded(endless)  # type: ignore[arg-type]
    lines = [bounded.readline(65537) for _ in range(100)]
    assert endless.read == sum(map(len, lines)) == 16_384


def test_those_that_say_nothing_keep_nobody_out_for_long(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server._Handler, "timeout", 0.1)
    silent = [socket.create_connection(address, timeout=120) for _ in range(80)]
    try:
        for connection in silent:
            assert connection.recv(1) == b"", "hung up on"
        wait_until(lambda: answers(address))
    finally:
        for connection in silent:
            connection.close()


def test_who_sends_a_byte_now_and_then_is_hung_up_on(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        monkeypatch.context() as patched,
        socket.create_connection(address, timeout=120) as connection,
    ):
        patched.setattr(web_server, "_LONGEST_S", 0.3)
        connection.settimeout(0.05)
        hung_up = False

        def trickled() -> bool:
            nonlocal hung_up
            try:
                connection.send(b"x")
                hung_up = hung_up or connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                hung_up = True
            return hung_up

        wait_until(trickled)
    wait_until(lambda: answers(address))


def test_who_does_not_read_the_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server._Handler, "timeout", 2.0)
    called = threading.Event()

    def large(request: Request) -> Answer:
        called.set()
        return Answer(200, "text/plain", b"x" * 50_000_000)

    with (
        serving(ANY_PORT, large) as shown,
        socket.create_connection(address_of(shown), timeout=120) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert called.wait(120)
        wait_until(lambda: not of_requests())


def of_requests() -> list[threading.Thread]:
    """The threads that serve somebody now."""
    return [one for one in threading.enumerate() if "process_request_thread" in one.name]


def test_a_site_that_fails_fails_one_request(caplog: pytest.LogCaptureFixture) -> None:
    failures = [ZeroDivisionError()]

    def site(request: Request) -> Answer:
        if failures:
            raise failures.pop()
        return echo(request)

    with serving(ANY_PORT, site) as shown:
        assert asked(address_of(shown))[0] == 503
        assert asked(address_of(shown))[0] == 200
    assert "no answer" in caplog.text


def test_a_port_that_is_taken_is_logged_and_the_controller_works_on(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(address, echo) as shown:
        assert shown is None
    assert f"at {address[0]}:{address[1]}: Address already in use" in caplog.text


def test_no_address_is_no_server() -> None:
    with serving(None, echo) as shown:
        assert shown is None


def test_the_server_ends_with_the_controller_however_that_ends() -> None:
    with pytest.raises(ZeroDivisionError), serving(ANY_PORT, echo) as shown:
        address = address_of(shown)
        raise ZeroDivisionError
    with pytest.raises(ConnectionError):
        asked(address)
