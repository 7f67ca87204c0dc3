"""Reports of progress, and where one generation ends and the next begins."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from bftrainer_slurm.elastic import reporting
from bftrainer_slurm.elastic.changes import ChangeLog
from bftrainer_slurm.elastic.memory import Memory, StepCounts


def test_a_generation_is_not_over_before_what_was_read_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its steps would count for the next one, whose change is not told yet."""
    order: list[str] = []
    read, over = threading.Event(), threading.Event()

    class Changes(ChangeLog):
        def trained(self, now: StepCounts) -> None:
            read.set()
            over.wait(0.2)
            order.append("told")

    monkeypatch.setattr(reporting, "INTERVAL_S", 0.01)
    memory = Memory.made()
    reports = reporting.Reporting(memory, Mock(), Changes())
    reports.begin()
    memory.counts.first_s = memory.counts.last_s = 1.0
    assert read.wait(60)
    reports.pause()
    order.append("over")
    over.set()
    assert order == ["told", "over"]
