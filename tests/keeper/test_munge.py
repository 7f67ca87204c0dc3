"""MUNGE, by which people prove who they are, with a munged of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, Gate
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.munge import Munge
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside

MUNGED = shutil.which("munged") or "/usr/sbin/munged"

pytestmark = pytest.mark.skipif(not Path(MUNGED).exists(), reason="munged is not installed")


@pytest.fixture(scope="module")
def munge_socket() -> Iterator[str]:
    """The socket of a munged; its folder is one that munged takes and other users can enter."""
    with tempfile.TemporaryDirectory(prefix="bftrainer-munge-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        own = [f"--{what}-file={folder}/{what}" for what in ("key", "pid", "log", "seed")]
        command = [MUNGED, "--foreground", f"--socket={folder}/socket", *own]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until((folder / "socket").exists)
                yield f"{folder}/socket"
            finally:
                process.terminate()


@pytest.fixture
def keeper(munge_socket: str) -> Iterator[Inside]:
    with keeper_inside(Gate(TOKEN, KEY, munge_socket=munge_socket)) as running:
        yield running


def test_a_credential_says_what_and_who_once(munge_socket: str) -> None:
    munge = Munge(munge_socket)
    credential = munge.encode("what: \u00e9")
    assert munge.decode(credential) == ("what: \u00e9", os.getuid())
    with pytest.raises(CredentialError, match=r"(?i)replay"):
        munge.decode(credential)


@pytest.mark.parametrize("credential", ["", "MUNGE:nonsense:", "x" * 4_000])
def test_what_is_no_credential_is_refused(munge_socket: str, credential: str) -> None:
    with pytest.raises(CredentialError):
        Munge(munge_socket).decode(credential)


def test_without_munged_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="munge"):
        Munge(str(tmp_path / "socket")).encode("what")


def test_who_owns_a_trainer_sees_all_of_it(keeper: Inside, munge_socket: str) -> None:
    trainer = {"array": 12, "samples": 5.0}
    keeper.client.own(12, os.getuid(), 1)
    keeper.client.publish({"trainers": [trainer]})
    people = KeeperClient(keeper.client.address, timeout_s=120)
    assert (people.status()[1] or {})["trainers"] == [{"array": 12, "hidden": True}]
    credential = Munge(munge_socket).encode(STATUS_PAYLOAD)
    assert (people.status(credential)[1] or {})["trainers"] == [trainer]


@pytest.mark.parametrize("what", ["for something else", "nonsense"])
def test_another_credential_shows_nothing(keeper: Inside, munge_socket: str, what: str) -> None:
    credential = "nonsense" if what == "nonsense" else Munge(munge_socket).encode("another text")
    with pytest.raises(KeeperError):
        KeeperClient(keeper.client.address, timeout_s=120).status(credential)
    assert keeper.counts() == {"bad_proof": 1}
