"""Whose a state folder must be, and who can read what is in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.home import StateError, private_folder


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


def test_what_others_could_read_or_write_is_closed_but_the_address_is_everybodys(
    tmp_path: Path,
) -> None:
    for name in ("history.sqlite", "keeper.log", "keeper.json"):
        (tmp_path / name).touch()
    tmp_path.chmod(0o777)
    private_folder(tmp_path)
    assert mode(tmp_path) == 0o755
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
        "history.sqlite": 0o600,
        "keeper.log": 0o600,
        "keeper.json": 0o644,
    }


def test_what_is_not_ours_in_it_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    private_folder(tmp_path)
    assert mode(tmp_path / "passwd") == 0o644


def test_a_folder_that_all_users_share_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StateError, match="choose another folder"):
        private_folder(tmp_path)
    assert mode(tmp_path) == 0o1777


def test_a_link_to_a_file_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "history.sqlite").symlink_to(tmp_path / "theirs")
    private_folder(tmp_path / "state")
    assert mode(tmp_path / "theirs") == 0o644


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make somebody else's folder")
def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 4321, -1)
    with pytest.raises(StateError, match="somebody else's"):
        private_folder(tmp_path)
