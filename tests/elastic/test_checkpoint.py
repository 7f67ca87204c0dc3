"""Checkpoints appear whole or not at all, and the newest whole one is read."""

import os
from pathlib import Path

import pytest
import torch

from bftrainer_slurm.elastic.checkpoint import Checkpoints


def state(step: int) -> dict[str, object]:
    return {"weights": torch.full((3,), float(step)), "cursor": {"step": step}, "none": None}


def saved(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder, every_s=0.0)
    for step in steps:
        checkpoints.save(step, state(step))
    checkpoints.wait()
    return checkpoints


def test_the_newest_is_read(tmp_path: Path) -> None:
    found = saved(tmp_path, 5, 40).newest()
    assert found is not None
    assert found["cursor"] == {"step": 40}
    assert found["weights"].tolist() == [40, 40, 40]
    assert found["none"] is None


def test_who_has_a_state_takes_only_a_later_one(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 5, 40)
    assert checkpoints.newest(after=40) is None
    found = checkpoints.newest(after=5)
    assert found is not None
    assert found["cursor"] == {"step": 40}


def test_who_has_a_state_does_without_a_later_one_that_cannot_be_read(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 40)
    for path in (tmp_path / "step-40").iterdir():
        path.write_bytes(b"torn")
    assert checkpoints.newest(after=5) is None


def test_there_is_none_in_an_empty_or_missing_folder(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, 1.0).newest() is None
    assert Checkpoints(tmp_path / "missing", 1.0).newest() is None


def test_two_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-3"]


def test_one_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    (tmp_path / ".step-2.node.77").mkdir()
    found = Checkpoints(tmp_path, 1.0).newest()
    assert found is not None
    assert found["cursor"] == {"step": 1}


def test_a_damaged_one_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "step-2" / ".metadata").write_bytes(b"torn")
    found = checkpoints.newest()
    assert found is not None
    assert found["cursor"] == {"step": 1}
    assert "cannot read" in capsys.readouterr().err


def test_if_none_can_be_read_training_does_not_begin_anew(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    (tmp_path / "step-1" / ".metadata").unlink()
    with pytest.raises(Exception, match="metadata"):
        checkpoints.newest()


def test_what_is_written_is_the_state_at_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_s=0.0)
    weights = torch.zeros(1_000_000)
    checkpoints.save(1, {"weights": weights})
    weights += 1
    checkpoints.wait()
    found = checkpoints.newest()
    assert found is not None
    assert found["weights"].sum() == 0


def test_a_step_that_another_rank_0_has_written_is_left_as_it_is(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    (tmp_path / "step-1" / "theirs").touch()
    checkpoints.save(1, state(1))
    checkpoints.wait()
    assert (tmp_path / "step-1" / "theirs").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_what_goes_wrong_while_writing_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved(tmp_path, 1)
    in_the_way = tmp_path / f".step-2.{os.uname().nodename}.{os.getpid()}"
    in_the_way.touch()
    checkpoints.save(2, state(2))
    checkpoints.wait()
    assert "no checkpoint of step 2" in capsys.readouterr().err
    in_the_way.unlink()
    checkpoints.save(3, state(3))
    checkpoints.wait()
    assert (tmp_path / "step-3").exists()


def test_a_folder_that_cannot_be_made_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    saved(tmp_path / "file" / "folder", 1)
    assert "no checkpoint of step 1" in capsys.readouterr().err


def test_the_next_is_due_after_a_while_and_not_while_one_is_written(tmp_path: Path) -> None:
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, every_s=10.0, clock=lambda: now[0])
    assert not checkpoints.due()
    now[0] = 10.0
    assert checkpoints.due()
    checkpoints.save(1, state(1))
    checkpoints.wait()
    assert not checkpoints.due()
