"""The trainers' file: read, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.replay.trainers import TrainersError, read_trainers
from tests.replay.traces import NO_SUMMIT, SUMMIT

ENTRY: dict[str, Any] = {
    "name": "J0",
    "submit": 10,
    "min_nodes": 1,
    "max_nodes": 4,
    "rescale_up_s": 18,
    "rescale_down_s": 12.5,
    "total_samples": 1e6,
    "curve_nodes": [0, 1, 4],
    "curve_throughput": [0, 10, 35.5],
}


def written(folder: Path, document: object) -> Path:
    path = folder / "trainers.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_reads_a_trainer(tmp_path: Path) -> None:
    (trainer,) = read_trainers(written(tmp_path, [ENTRY]))
    assert (trainer.name, trainer.submit_s, trainer.rescale_down_s) == ("J0", 10.0, 12.5)
    assert trainer.curve.at(4) == 35.5


def test_what_may_be_left_out_is_read_too(tmp_path: Path) -> None:
    (trainer,) = read_trainers(written(tmp_path, [ENTRY | {"start_s": 8, "checkpoint_s": 300}]))
    assert (trainer.start_s, trainer.step_s, trainer.checkpoint_s) == (8.0, 0.0, 300.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_nodes": 0}, "min_nodes: Expected `int` >= 1"),
        ({"min_nodes": 5}, "1 <= min_nodes"),
        ({"min_nodes": "1"}, "min_nodes: Expected `int`"),
        ({"max_nodes": True}, "max_nodes: Expected `int`"),
        ({"rescale_up_s": -1}, "rescale_up_s: Expected `float` >= 0"),
        ({"total_samples": 0}, "total_samples: Expected `float` > 0"),
        ({"curve_nodes": [1, 2, 4]}, "first count 0"),
        ({"curve_nodes": [0, 4]}, "one value for each"),
        ({"curve_throughput": [0, 0, 0]}, "above 0 on min_nodes"),
        ({"curve_throughput": [0, "x", 1]}, r"curve_throughput\[1\]: Expected `float`"),
        ({"total_samples": 10**400}, "total_samples: Number out of range"),
        ({"curve_throughput": [0, 10, 10**400]}, "Number out of range"),
        ({"start_s": -1}, "start_s: Expected `float` >= 0"),
    ],
)
def test_names_the_key_that_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainersError, match=rf"(trainer 1|\[1\]).*{said}"):
        read_trainers(written(tmp_path, [ENTRY, ENTRY | changes]))


@pytest.mark.parametrize("key", sorted(ENTRY))
def test_names_the_key_that_is_missing(tmp_path: Path, key: str) -> None:
    entry = {name: value for name, value in ENTRY.items() if name != key}
    with pytest.raises(TrainersError, match=f"{key} is missing"):
        read_trainers(written(tmp_path, [entry]))


@pytest.mark.parametrize(
    "document", ["", "{", "{}", "[]", "[1]", "[" * 100_000, "[NaN]", "[Infinity]"]
)
def test_refuses_what_is_no_list_of_trainers(tmp_path: Path, document: str) -> None:
    with pytest.raises(TrainersError, match=r"trainers\.json"):
        read_trainers(written(tmp_path, document))


@pytest.mark.skipif(not SUMMIT.is_dir(), reason=NO_SUMMIT)
def test_reads_the_papers_trainers() -> None:
    assert len(read_trainers(SUMMIT / "trainers-imagenet-1001.json")) == 1001
