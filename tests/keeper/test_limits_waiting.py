"""Who has to go where too many wait."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.home import read_address
from bftrainer_slurm.keeper.limits import address_of, to_evict
from bftrainer_slurm.keeper.protocol import parse_address
from scripts.labcluster.waiting import wait_until


def test_the_oldest_of_the_greediest_address_goes() -> None:
    waiting = dict(enumerate(["honest", "greedy", "greedy", "greedy", "honest", "other"]))
    gone = []
    while waiting:
        gone.append(to_evict(waiting))
        del waiting[gone[-1]]
    assert gone == [1, 0, 2, 3, 4, 5]


def test_an_address_is_read_off_a_peers_name() -> None:
    assert address_of(("10.0.0.1", 4321)) == "10.0.0.1"
    assert address_of(("::1", 4321, 0, 0)) == "::1"
    assert address_of("") == address_of(None) == "?"


def test_where_few_files_may_be_open_silence_keeps_nobody_out_either(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "bftrainer_slurm.keeper", "--state", str(tmp_path)])
    with ExitStack() as stack:
        keeper = subprocess.Popen(["bash", "-c", f"ulimit -n 128; exec {command}"])
        stack.callback(keeper.wait)
        stack.callback(keeper.kill)
        wait_until(lambda: read_address(tmp_path))
        address = read_address(tmp_path) or ""
        host, port = parse_address(address)
        for _ in range(300):
            stack.enter_context(socket.create_connection((host, port), 10))
        assert (
            KeeperClient(address, timeout_s=30).status()[1] is None
        )  # an answer: there is none yet
