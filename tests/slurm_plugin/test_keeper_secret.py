"""The secret that the plugin asks the keeper for, in place of MUNGE in containers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.credentials import secret_of_job
from bftrainer_slurm.keeper.gate import ByMunge, Gate, OneUser, Voucher
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import keeper_inside
from tests.keeper.test_munge import munge_socket, pytestmark  # noqa: F401

# In a process of its own: the plugin forks in one without threads.
ASK = """
import ctypes, sys
library, keeper, socket, user, array = sys.argv[1:]
plugin = ctypes.CDLL(library)
plugin.secret_request_make.restype = plugin.secret_ask.restype = ctypes.c_bool
request, secret = ctypes.create_string_buffer(512 + 32), ctypes.create_string_buffer(65)
made = plugin.secret_request_make(request, socket.encode(), int(user), int(array))
given = plugin.secret_ask(keeper.encode(), request, secret)
print(secret.value.decode() if made and given else "none")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keeper-secret") / "libkeeper_secret.so"
    make = ["make", "-s", "-C", str(REPO / "slurm_plugin"), f"BUILD={path.parent}", str(path)]
    subprocess.run(make, check=True)
    return path


def plugins_secret(library: Path, keeper: str, socket: str, user: int = os.getuid()) -> str:
    command = [sys.executable, "-c", ASK, str(library), keeper, socket, str(user), "12"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("make", "given"),
    [
        pytest.param(lambda socket: ByMunge(socket, b"token"), True, id="munge"),
        pytest.param(lambda _: OneUser(b"of one user alone"), False, id="personal mode"),
    ],
)
def test_the_keeper_gives_it_for_a_credential(
    library: Path,
    munge_socket: str,  # noqa: F811
    make: Callable[[str], Voucher],
    given: bool,
) -> None:
    secret = secret_of_job(b"token", 12, os.getuid()).decode()
    with keeper_inside(Gate(make(munge_socket))) as keeper:
        ask = partial(plugins_secret, library, keeper.client.address, munge_socket)
        if given:  # the plugin waits for a moment only, and a busy machine may need longer
            wait_until(lambda: ask() == secret)
        else:
            assert ask() == "none"


def test_another_users_keeper_gives_none(library: Path, munge_socket: str) -> None:  # noqa: F811
    with keeper_inside(Gate(ByMunge(munge_socket))) as keeper:
        assert plugins_secret(library, keeper.client.address, munge_socket, 65_534) == "none"


def test_without_munged_there_is_none_and_nobody_waits(library: Path, tmp_path: Path) -> None:
    assert plugins_secret(library, "127.0.0.1:1", str(tmp_path / "socket")) == "none"
