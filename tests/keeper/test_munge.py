"""MUNGE as proof of whose process speaks, with a munged of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.credentials import (
    JOB_SECRET,
    KEEPER_UID,
    MUNGE_SOCKET,
    CredentialError,
    Munge,
    Proof,
    Prove,
    covered,
    prover_from,
    secret_of_job,
    secret_payload,
)
from bftrainer_slurm.keeper.gate import ByMunge, Gate
from bftrainer_slurm.keeper.membership import Membership, RefusedError
from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.protocol import MAX_LINE
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside, together

MUNGED = shutil.which("munged") or "/usr/sbin/munged"
NOBODY = 65_534

pytestmark = pytest.mark.skipif(not Path(MUNGED).exists(), reason="munged is not installed")


def answers(munge_socket: str) -> bool:
    try:
        Munge(munge_socket).encode("")
    except CredentialError:
        return False
    return True


@pytest.fixture(scope="module")
def munge_socket() -> Iterator[str]:
    """The socket of a munged; its folder is one that munged takes and other users can enter."""
    with tempfile.TemporaryDirectory(prefix="bftrainer-munge-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        process = subprocess.Popen(
            [
                *(MUNGED, "--foreground", f"--socket={folder}/socket", f"--key-file={key}"),
                *(f"--pid-file={folder}/pid", f"--log-file={folder}/log"),
                f"--seed-file={folder}/seed",
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: answers(f"{folder}/socket"))
            yield f"{folder}/socket"
        finally:
            process.terminate()
            process.wait(120)


@pytest.fixture
def keeper(munge_socket: str) -> Iterator[Inside]:
    with keeper_inside(Gate(ByMunge(munge_socket))) as running:
        yield running


def prover(munge_socket: str, keeper_uid: int = os.getuid()) -> Prove:
    return prover_from({MUNGE_SOCKET: munge_socket, KEEPER_UID: str(keeper_uid)})


def member(keeper: Inside, munge_socket: str, task: int = 1, array: int = 12) -> Membership:
    identity = Identity(array, task, f"n{task}", Role.AGENT)
    made = Membership(keeper.client.address, identity, prover(munge_socket))
    keeper.members.append(made)
    made.start()
    return made


def test_a_credential_says_what_and_who(munge_socket: str) -> None:
    munge = Munge(munge_socket)
    assert munge.decode(munge.encode("what: \u00e9")) == ("what: \u00e9", os.getuid())


def test_a_credential_is_good_once(munge_socket: str) -> None:
    munge = Munge(munge_socket)
    credential = munge.encode("once")
    munge.decode(credential)
    with pytest.raises(CredentialError, match=r"(?i)replay"):
        munge.decode(credential)


@pytest.mark.parametrize("credential", ["", "MUNGE:nonsense:", "x" * 4_000])
def test_what_is_no_credential_is_refused(munge_socket: str, credential: str) -> None:
    with pytest.raises(CredentialError):
        Munge(munge_socket).decode(credential)


def test_without_munged_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="munge"):
        Munge(str(tmp_path / "socket")).encode("what")


def test_the_owners_processes_are_welcome(keeper: Inside, munge_socket: str) -> None:
    keeper.client.own(12, os.getuid(), 2)
    members = [member(keeper, munge_socket, 1), member(keeper, munge_socket, 2)]
    assert {one.world for one in together(members)} == {2}


def test_before_the_owner_is_known_members_wait(keeper: Inside, munge_socket: str) -> None:
    early = member(keeper, munge_socket)
    wait_until(lambda: "owner_unknown" in keeper.counts())
    keeper.client.own(12, os.getuid(), 1)
    assert together([early])[0].world == 1


def test_another_users_trainer_is_closed(keeper: Inside, munge_socket: str) -> None:
    keeper.client.own(12, os.getuid() + 1, 1)
    with pytest.raises(RefusedError, match="somebody else"):
        member(keeper, munge_socket).wait_generation(120)
    assert keeper.counts() == {"not_owner": 1}


def test_a_credential_without_a_key_is_refused(keeper: Inside, munge_socket: str) -> None:
    def prove(payload: str, method: str) -> Proof:
        return Proof(Munge(munge_socket).encode(f"{'x' * 64} {payload}", os.getuid()), b"")

    careless = Membership(keeper.client.address, Identity(12, 1, "n1", Role.AGENT), prove)
    keeper.members.append(careless)
    keeper.client.own(12, os.getuid(), 1)
    careless.start()
    wait_until(lambda: "bad_proof" in keeper.counts())


def test_a_keeper_of_another_user_learns_nothing_and_is_not_believed(
    keeper: Inside, munge_socket: str
) -> None:
    identity = Identity(12, 1, "n1", Role.AGENT)
    deceived = Membership(keeper.client.address, identity, prover(munge_socket, NOBODY))
    keeper.members.append(deceived)
    keeper.client.own(12, os.getuid(), 1)
    deceived.start()
    deceived.ready("new")
    wait_until(lambda: keeper.counts().get("bad_proof", 0) > 1)
    with pytest.raises(TimeoutError):
        deceived.wait_generation(0.1)


def test_without_the_keepers_user_the_member_says_what_is_missing(munge_socket: str) -> None:
    with pytest.raises(CredentialError, match="plugin of this node older"):
        prover_from({MUNGE_SOCKET: munge_socket})("payload", "munge")


def ask_for_secret(keeper: Inside, munge_socket: str, array: int, text: str) -> bytes:
    """As the plugin on a node does."""
    key = os.urandom(32)
    credential = Munge(munge_socket).encode(f"{key.hex()} {text}", os.getuid())
    with socket.create_connection(("127.0.0.1", keeper.port), timeout=120) as connection:
        line = f"secret {array} {credential}\n".encode()
        assert len(line) <= MAX_LINE
        connection.sendall(line)
        word, _, answer = connection.makefile("rb").readline().strip().partition(b" ")
    return covered(answer, key) if word == b"secret" else word + b" " + answer


def in_container(keeper: Inside, secret: bytes, array: int = 12) -> Membership:
    """A member that reaches no munged, as in a container."""
    identity = Identity(array, 1, "n1", Role.AGENT)
    environment = {MUNGE_SOCKET: "/nowhere", KEEPER_UID: "0", JOB_SECRET: secret.decode()}
    made = Membership(keeper.client.address, identity, prover_from(environment))
    keeper.members.append(made)
    made.start()
    return made


def test_a_secret_in_place_of_munge_lets_a_container_join(
    keeper: Inside, munge_socket: str
) -> None:
    secret = ask_for_secret(keeper, munge_socket, 12, secret_payload(12))
    keeper.client.own(12, os.getuid(), 2)
    members = [in_container(keeper, secret), member(keeper, munge_socket, 2)]
    assert {one.world for one in together(members)} == {2}


@pytest.mark.parametrize(("array", "owner"), [(12, os.getuid() + 1), (13, os.getuid())])
def test_a_secret_opens_no_other_trainer(
    keeper: Inside, munge_socket: str, array: int, owner: int
) -> None:
    secret = ask_for_secret(keeper, munge_socket, 12, secret_payload(12))
    keeper.client.own(array, owner, 1)
    stranger = in_container(keeper, secret, array)
    wait_until(lambda: "bad_proof" in keeper.counts())
    with pytest.raises(TimeoutError):
        stranger.wait_generation(0.1)


def test_a_credential_for_something_else_gets_no_secret(keeper: Inside, munge_socket: str) -> None:
    said = ask_for_secret(keeper, munge_socket, 13, secret_payload(12))
    assert said == b"error the credential is for something else"


def test_a_secret_is_the_same_at_the_keepers_next_start(munge_socket: str) -> None:
    secrets = []
    for _ in range(2):
        with keeper_inside(Gate(ByMunge(munge_socket, b"token"))) as keeper:
            secrets.append(ask_for_secret(keeper, munge_socket, 12, secret_payload(12)))
    assert secrets == [secret_of_job(b"token", 12, os.getuid())] * 2


IMPOSTOR = """
import os, sys
sys.path.insert(0, {package!r})
os.setgroups([]), os.setgid({uid}), os.setuid({uid})
from bftrainer_slurm.keeper.credentials import prover_from
from bftrainer_slurm.keeper.membership import Membership, RefusedError
from bftrainer_slurm.keeper.messages import Identity, Role
member = Membership({keeper!r}, Identity(12, 1, "n1", Role.AGENT), prover_from(os.environ))
member.start()
member.ready("change")
try:
    member.wait_generation(120)
except RefusedError as error:
    print("refused:", error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_unix_user_cannot_join(keeper: Inside, munge_socket: str) -> None:
    keeper.client.own(12, os.getuid(), 1)
    own = member(keeper, munge_socket, 1)
    (before,) = together([own])
    package = Path(tempfile.mkdtemp(prefix="bftrainer-package-", dir="/tmp"))
    try:
        package.chmod(0o755)
        source = Path(sys.modules["bftrainer_slurm"].__path__[0])
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / "keeper", package / source.name / "keeper", ignore=ignored)
        (package / source.name / "__init__.py").touch()
        for made, mode in (
            (package / source.name, 0o755),
            (package / source.name / "__init__.py", 0o644),
        ):
            made.chmod(mode)  # whatever this process's umask
        program = IMPOSTOR.format(package=str(package), uid=NOBODY, keeper=keeper.client.address)
        said = subprocess.run(
            [Path(sys.executable).resolve(), "-c", program],
            env={MUNGE_SOCKET: munge_socket, KEEPER_UID: str(os.getuid())},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(package)
    assert said.stdout == "refused: this trainer is somebody else's\n", said.stderr
    assert keeper.counts() == {"not_owner": 1}
    assert (own.change, before.world) == (None, 1)


def test_a_stranger_may_neither_own_nor_part(keeper: Inside) -> None:
    stranger = KeeperClient(keeper.client.address, "guess")
    for ask in (
        lambda: stranger.own(12, NOBODY, 1),
        lambda: stranger.part(12, [1]),
        lambda: stranger.lost(12, 1),
    ):
        with pytest.raises(Exception, match="only this keeper's own controller"):
            ask()
