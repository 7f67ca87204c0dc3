"""The port that Prometheus asks, with whatever is sent to it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from bftrainer_slurm.controller.publish import scrapes
from bftrainer_slurm.controller.publish.metrics import families
from bftrainer_slurm.controller.publish.scrapes import serving
from scripts.labcluster.waiting import wait_until
from tests.controller.publish.test_metrics import KEEPER, one, status

ANY_PORT = ("127.0.0.1", 0)


def everything() -> Iterable[Metric]:
    return families(status(one("alice", nodes=3)), 0.5, KEEPER)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with serving(ANY_PORT, everything) as shown:
        assert shown is not None
        host, _, port = shown.rpartition(":")
        yield host, int(port)


def asked(address: tuple[str, int], path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """The answer to one request."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def answers(address: tuple[str, int]) -> bool:
    """Whether a scrape gets anything."""
    with suppress(ConnectionError):
        return asked(address)[0] == 200
    return False


def told(read: Iterable[Metric]) -> list[tuple[str, str, float]]:
    """Names, labels and values of all samples."""
    samples = (sample for family in read for sample in family.samples)
    return sorted((one.name, repr(sorted(one.labels.items())), one.value) for one in samples)


def test_prometheus_parser_reads_back_what_is_served(address: tuple[str, int]) -> None:
    code, text = asked(address)
    read = told(text_string_to_metric_families(text))
    assert code == 200
    assert read == told(everything())
    assert all(name.startswith("bftrainer_") for name, _, _ in read)


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [("/", "GET", 404), ("/metrics/../etc", "GET", 404), ("/metrics", "POST", 501)],
)
def test_nothing_else_is_there(address: tuple[str, int], path: str, method: str, code: int) -> None:
    assert asked(address, path, method)[0] == code


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\xff" * 4096 + b"\n",
    ],
)
def test_garbage_is_survived(address: tuple[str, int], garbage: bytes) -> None:
    with suppress(OSError), socket.create_connection(address, timeout=30) as connection:
        connection.sendall(garbage)  # it may be hung up on meanwhile
    assert asked(address)[0] == 200


def test_those_that_say_nothing_keep_nobody_out_for_long(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrapes._Handler, "timeout", 0.1)
    silent = [socket.create_connection(address, timeout=30) for _ in range(40)]
    try:
        for connection in silent:
            assert connection.recv(1) == b"", "hung up on"
        wait_until(lambda: answers(address))
    finally:
        for connection in silent:
            connection.close()


def test_a_flood_asks_the_source_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "_KEEP_S", 3600.0)
    calls: list[int] = []

    def source() -> Iterable[Metric]:
        calls.append(1)
        return [GaugeMetricFamily("bftrainer_one", "One.", value=1)]

    with serving(ANY_PORT, source) as shown:
        assert shown is not None
        host, _, port = shown.rpartition(":")
        for _ in range(20):
            asked((host, int(port)))
    assert len(calls) == 1


def test_a_source_that_fails_fails_one_scrape(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrapes, "_KEEP_S", 0.0)
    failing = [True]

    def source() -> Iterable[Metric]:
        if failing.pop():
            failing.append(False)
            raise ZeroDivisionError
        failing.append(False)
        return everything()

    with serving(ANY_PORT, source) as shown:
        assert shown is not None
        host, _, port = shown.rpartition(":")
        assert asked((host, int(port)))[0] == 503
        assert asked((host, int(port)))[0] == 200
    assert "no metrics" in caplog.text


def test_a_port_that_is_taken_is_logged_and_the_controller_works_on(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(address, everything) as shown:
        assert shown is None
    assert f"no metrics at {address[0]}:{address[1]}: Address already in use" in caplog.text


def test_without_an_address_nothing_listens() -> None:
    with serving(None, everything) as shown:
        assert shown is None


def test_it_ends_with_the_controller() -> None:
    with serving(ANY_PORT, everything) as shown:
        assert shown is not None
    host, _, port = shown.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        asked((host, int(port)))
