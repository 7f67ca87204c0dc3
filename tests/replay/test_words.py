"""Counts in what commands print: one thing is not many."""

from __future__ import annotations

import pytest

from bftrainer_slurm.cli.joblogs import print_notes
from bftrainer_slurm.reader.sentences import allocation, nodes
from bftrainer_slurm.replay.drive import Outcome
from bftrainer_slurm.replay.figures import Replayed, rows
from bftrainer_slurm.replay.logs.jobs import Notes
from bftrainer_slurm.words import counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1000, "1,000 nodes")]
)
def test_one_is_not_many(count: int, said: str) -> None:
    assert counted(count, "node") == nodes(count) == said


def test_what_a_trainer_has() -> None:
    assert allocation({"nodes": ["n1"], "gpus": 1}) == "1 GPU on 1 node"
    assert allocation({"nodes": ["n1", "n2"], "gpus": 1}) == "2 GPUs on 2 nodes"


@pytest.mark.parametrize(("count", "said"), [(1, "1 event"), (2, "2 events")])
def test_a_replay(count: int, said: str) -> None:
    outcome = Outcome(count, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, count)
    shown = dict(rows(Replayed(outcome, 1.0, 1.0, ())))
    assert shown["time"] == f"1.0 hours, {said}"
    assert shown["samples"] == f"1, {counted(count, 'trainer')} done"


@pytest.mark.parametrize(("count", "said"), [(1, "1 line that"), (1234, "1,234 lines that")])
def test_lines_that_cannot_be_read(
    count: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_notes(Notes(malformed=count))
    assert capsys.readouterr().err.startswith(f"skipped {said} could not be read:\n")
