"""What a keeper leaves in its state folder, on a disk that is full."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.home import read_address, write_address

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
