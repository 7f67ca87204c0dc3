from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of one's own, with a slurm.conf that says nothing; no controller, and no job."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "slurm.conf").touch()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    for name in ("BFTRAINER_STATE", "BFTRAINER_KEEPER", "XDG_STATE_HOME", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are those of UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
