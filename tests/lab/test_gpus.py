"""Whether this host can keep jobs from devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.labcluster import gpus, namespaces
from scripts.labcluster.namespaces import Hierarchy


def test_cgroups_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "hierarchy", lambda *controllers: None)
    assert "freezer and devices" in str(gpus.obstacle())


def test_devices_are_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("may not")

    cgroups = Hierarchy(1, {"freezer": str(tmp_path / "freezer"), "devices": str(tmp_path)})
    monkeypatch.setattr(namespaces, "hierarchy", lambda *controllers: cgroups)
    monkeypatch.setattr(os, "mknod", refused)
    assert "may not" in str(gpus.obstacle())
    assert not [*tmp_path.rglob("n1")]
