"""The cgroups of a private cluster's nodes, and whether they keep jobs from devices."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.labcluster import gpus, namespaces
from scripts.labcluster.namespaces import Hierarchy


def test_cgroups_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "hierarchy", lambda *controllers: None)
    assert "freezer and devices" in str(gpus.obstacle())


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders in place of version 1's hierarchies; nothing may be left in them."""
    found = Hierarchy(1, {"freezer": str(tmp_path / "freezer"), "devices": str(tmp_path)})
    monkeypatch.setattr(namespaces, "hierarchy", lambda *controllers: found)
    return tmp_path


def refused(*_: object) -> None:
    raise PermissionError(errno.EPERM, "may not")


def test_devices_or_that_a_cgroup_denies_them_are_forbidden(
    cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "mknod", refused)
    assert "cannot be had: [Errno 1] may not" in str(gpus.obstacle())
    assert not [*cgroups.rglob("n1")]
    monkeypatch.setattr(os, "mknod", lambda path, *_: path.touch())
    monkeypatch.setattr(Path, "write_text", refused)
    why = str(gpus.obstacle())
    assert why.startswith("a cgroup cannot deny devices: ")
    assert why.endswith("/n1/devices.deny: may not")
    assert not [*cgroups.rglob("n1")]


def test_who_is_frozen_goes_on_though_another_job_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, cgroups, scan = Path("/lab"), Hierarchy(2, {"": str(tmp_path)}), os.scandir
    (own,) = cgroups.of_node(lab, "n1")
    jobs = [own / name for name in ("job1", "job2", "job3")]
    for job in jobs:
        job.mkdir(parents=True)
        (job / "cgroup.freeze").write_text("1")

    def without_the_second(path: str | Path = ".") -> Iterator[Any]:
        if Path(path) == jobs[1]:
            raise FileNotFoundError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", without_the_second)
    cgroups.thaw(lab, "n1")
    monkeypatch.undo()
    assert [(job / "cgroup.freeze").read_text() for job in jobs] == ["0", "1", "0"]
