"""Where the site asks for it, each submission is made known with one datagram."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from scripts.labcluster.lab import Lab

pytestmark = pytest.mark.slurm


def test_each_submission_is_announced_once(lab_that_rewrites: Callable[[str], Lab]) -> None:
    """Two hosts are told; the first is a documentation address."""
    lab = lab_that_rewrites("spank")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        to = f"announce=192.0.2.1:6740,127.0.0.1:{listener.getsockname()[1]}"
        for command in (("sbatch", "-o/dev/null"), ("srun", "true"), ("salloc", "srun", "true")):
            given = "#!/bin/sh\nsrun true\n" if command[0] == "sbatch" else None
            with lab.plugstack(lambda line: f"{line.rstrip()} {to}\n"):
                lab.run(*command, input=given)
                lab.wait_until_idle()
            assert listener.recv(100) == b"announced\n"
            with pytest.raises(BlockingIOError):
                listener.recv(100)
