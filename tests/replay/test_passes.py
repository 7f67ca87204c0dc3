"""Passes of backfill, from the starts that the log shows."""

from __future__ import annotations

from bftrainer_slurm.replay.ordinary import passes_of


def test_each_backfilled_start_is_in_a_pass_and_others_come_between() -> None:
    passes = passes_of([163.0, 100.0, 103.0, 999.0], 0.0, 200.0, 30.0)
    assert [(one.began_s, one.ended_s) for one in passes] == [
        (10, 10), (40, 40), (70, 70), (100, 103), (131.5, 131.5), (163, 163), (193, 193), (223, 223)
    ]  # fmt: skip


def test_without_a_backfilled_start_passes_come_regularly() -> None:
    assert [one.began_s for one in passes_of([], 0.0, 60.0, 30.0)] == [0, 30, 60]
