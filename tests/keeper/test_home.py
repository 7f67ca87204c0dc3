"""What keeper and controller leave in their folders, whole or not at all: a disk may be full."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bftrainer_slurm.controller.publish.keys import secret_of
from bftrainer_slurm.keeper.__main__ import serve
from bftrainer_slurm.keeper.credentials import Means
from bftrainer_slurm.keeper.home import (
    StateError,
    own_secret,
    own_token,
    private_folder,
    read_address,
    read_token,
    write_address,
)

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "bftrainer-test", tmp_path]
    subprocess.run(mount, check=True)
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "filler").write_bytes(b"x" * 100_000)


@as_root
def test_on_a_full_disk_a_keeper_serves_at_the_last_address_alone(small_disk: Path) -> None:
    write_address(small_disk, "ctl:6740")
    fill(small_disk)
    write_address(small_disk, "ctl:6740")
    with pytest.raises(OSError, match="No space left"):
        write_address(small_disk, "ctl:6821")  # where nobody would find it
    assert read_address(small_disk) == "ctl:6740"


OURS: dict[str, Callable[[Path], object]] = {
    "keeper.token": own_token,
    "member.secret": own_secret,
    "page.key": secret_of,
}
DAMAGED = [b"", b"\n", b"0123456789abcdef", b"\0" * 32, b"\xff" * 32, b"two words" + b"x" * 32]


@as_root
@pytest.mark.parametrize("name", OURS)
def test_what_does_not_fit_on_the_disk_is_made_once_it_does(small_disk: Path, name: str) -> None:
    fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        OURS[name](small_disk)
    assert [one.name for one in small_disk.iterdir()] == ["filler"]
    (small_disk / "filler").unlink()
    made = OURS[name](small_disk)
    assert OURS[name](small_disk) == made
    assert len((small_disk / name).read_text()) >= 32


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("name", OURS)
def test_what_is_damaged_is_named_and_nothing_else_is_taken_for_it(
    tmp_path: Path, name: str, damaged: bytes
) -> None:
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(StateError, match=f"{tmp_path / name} is damaged: remove it"):
        OURS[name](tmp_path)
    assert read_token(tmp_path) == ""


def test_a_keeper_ends_in_one_line_over_what_is_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "member.secret").touch()
    assert serve(tmp_path, "127.0.0.1:0", Means()) == 2
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and str(tmp_path / "member.secret") in said[0]


def test_a_shared_folder_that_is_not_there_is_named_and_not_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "sahred" / "slurm"
    assert serve(tmp_path / "state", "127.0.0.1:0", Means(), wrong) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith(f"keeper: shared: {wrong}: No such file or directory; make the folder")
    assert "'shared' in bftrainer.toml" in said
    assert not wrong.parent.exists()


def test_many_that_make_it_at_once_have_the_same_for_its_owner_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(20) as makers:
        made = {*makers.map(own_token, [tmp_path] * 20)}
    assert made == {(tmp_path / "keeper.token").read_text()}
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {"keeper.token": 0o600}


# Whose a state folder must be, and who can read what is in it.


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_what_is_made_in_it_are_its_owners_alone(tmp_path: Path) -> None:
    private_folder(tmp_path / "new")
    (tmp_path / "new" / "history.sqlite").touch()
    assert (mode(tmp_path / "new"), mode(tmp_path / "new" / "history.sqlite")) == (0o700, 0o600)


def test_what_of_ours_others_could_read_or_write_is_closed_but_the_address(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    state = tmp_path / "state"
    state.mkdir()
    for name in ("history.sqlite", "keeper.log", "keeper.json", "passwd"):
        (state / name).touch()
    (state / "member.secret").symlink_to(theirs)
    state.chmod(0o777)
    private_folder(state)
    assert (mode(state), mode(theirs)) == (0o755, 0o644)
    assert {path.name: mode(path) for path in state.iterdir()} == {
        "history.sqlite": 0o600,
        "keeper.log": 0o600,
        "keeper.json": 0o644,
        "passwd": 0o644,  # somebody may name /etc
        "member.secret": 0o644,
    }


def test_a_folder_that_all_users_share_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StateError, match="choose another folder"):
        private_folder(tmp_path)
    assert mode(tmp_path) == 0o1777


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make somebody else's folder")
def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 4321, -1)
    with pytest.raises(StateError, match="somebody else's"):
        private_folder(tmp_path)
