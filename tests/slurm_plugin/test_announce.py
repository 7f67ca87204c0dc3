"""Where the site asks for it, each submission is made known with one datagram."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.labcluster.lab import Lab

pytestmark = pytest.mark.slurm
SCRIPT = "#!/bin/sh\nsrun true\n"


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.settimeout(120)
        yield bound


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], plugins: Path, listener: socket.socket) -> Lab:
    """Where two hosts are told; the first is a documentation address."""
    to = f"192.0.2.1:6740,127.0.0.1:{listener.getsockname()[1]}"
    return make_lab(
        nodes=1, plugstack=[f"optional {plugins}/bftrainer.so keeper=h:1 announce={to}"]
    )


def heard(listener: socket.socket) -> list[bytes]:
    """All datagrams that have come."""
    found = []
    listener.setblocking(False)
    try:
        while True:
            found.append(listener.recv(100))
    except BlockingIOError:
        listener.settimeout(120)
        return found


@pytest.mark.parametrize(
    "command", [("sbatch", "-W", "-o", "/dev/null"), ("srun", "true"), ("salloc", "srun", "true")]
)
def test_a_submission_is_announced_once(
    lab: Lab, listener: socket.socket, command: tuple[str, ...]
) -> None:
    given = SCRIPT if command[0] == "sbatch" else None
    lab.run(*command, input=given)
    assert heard(listener) == [b"announced\n"]
