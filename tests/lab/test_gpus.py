"""Whether this host can keep jobs from devices."""

from __future__ import annotations

import errno
import os
from pathlib import Path

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


def test_devices_are_forbidden(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mknod", refused)
    assert "cannot be had: [Errno 1] may not" in str(gpus.obstacle())
    assert not [*cgroups.rglob("n1")]


def test_a_cgroup_may_not_deny_devices(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mknod", lambda path, *_: path.touch())
    monkeypatch.setattr(Path, "write_text", refused)
    why = str(gpus.obstacle())
    assert why.startswith("a cgroup cannot deny devices: ")
    assert why.endswith("/n1/devices.deny: may not")
    assert not [*cgroups.rglob("n1")]
