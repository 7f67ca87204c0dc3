"""The cgroups of a private cluster's nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.labcluster.namespaces import Hierarchy


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
