from pathlib import Path

import pytest

from bftrainer_slurm.elastic.progress import Progress
from tests.keeper.process import started_keeper

pytestmark = pytest.mark.torch


def test_outside_an_element_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BFTRAINER_ELEMENT", raising=False)
    Progress().report(10, loss=0.5)


def test_a_keeper_that_does_not_answer_does_not_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFTRAINER_ELEMENT", "12_3")
    monkeypatch.setenv("BFTRAINER_KEEPER", "127.0.0.1:1")
    Progress().report(10, loss=0.5)


def test_a_report_reaches_the_keeper_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started_keeper(tmp_path) as keeper:
        monkeypatch.setenv("BFTRAINER_ELEMENT", "12_3")
        monkeypatch.setenv("BFTRAINER_KEEPER", keeper.client.address)
        progress = Progress()
        progress.report(10, loss=0.5)
        progress.report(20, loss=0.4)
        keeper.client.join(12, 0, "n1")
        stream = keeper.client.watch("", 0)
        next(stream)
        notes = [note.note for _, note in (next(stream), next(stream)) if note]
    assert [dict(note.measures) for note in notes] == [{"samples": 10.0, "loss": 0.5}, {}]
