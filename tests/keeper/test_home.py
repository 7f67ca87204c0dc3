"""What keeper and controller leave in their folders, whole or not at all: a disk may be full."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.controller.publish.keys import secret_of
from bftrainer_slurm.keeper.__main__ import serve
from bftrainer_slurm.keeper.credentials import Means
from bftrainer_slurm.keeper.home import (
    StateError,
    own_secret,
    own_token,
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
def test_a_keeper_with_the_address_of_the_one_before_serves_on_a_full_disk(
    small_disk: Path,
) -> None:
    write_address(small_disk, "ctl:6740")
    fill(small_disk)
    write_address(small_disk, "ctl:6740")
    assert read_address(small_disk) == "ctl:6740"


@as_root
def test_a_keeper_that_nobody_would_find_does_not(small_disk: Path) -> None:
    write_address(small_disk, "ctl:6740")
    fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        write_address(small_disk, "ctl:6821")
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


def test_of_many_that_make_it_at_once_all_have_the_same(tmp_path: Path) -> None:
    made: list[str] = []
    makers = [threading.Thread(target=lambda: made.append(own_token(tmp_path))) for _ in range(20)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(made) == 20 and set(made) == {(tmp_path / "keeper.token").read_text()}
