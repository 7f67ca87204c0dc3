"""Checkpoints appear whole or not at all, and the newest whole one is read."""

import os
from pathlib import Path
from threading import Thread

import pytest
import torch

from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints, Version


def state(step: int) -> dict[str, object]:
    return {"weights": torch.full((3,), float(step)), "cursor": {"step": step}, "none": None}


def saved(folder: Path, *steps: int, lineage: int = 1) -> Checkpoints:
    checkpoints = Checkpoints(folder, every_s=0.0)
    for step in steps:
        checkpoints.save(Version(lineage, step), state(step))
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
    assert checkpoints.newest(after=Version(1, 40)) is None
    found = checkpoints.newest(after=Version(1, 5))
    assert found is not None
    assert found["cursor"] == {"step": 40}


def test_who_has_a_state_does_without_a_later_one_that_cannot_be_read(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 40)
    for path in (tmp_path / "step-40-of-1").iterdir():
        path.write_bytes(b"torn")
    assert checkpoints.newest(after=Version(1, 5)) is None


def test_there_is_none_in_an_empty_or_missing_folder(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, 1.0).newest() is None
    assert Checkpoints(tmp_path / "missing", 1.0).newest() is None


def test_two_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2-of-1", "step-3-of-1"]


def test_those_of_a_node_that_was_cut_off_give_way_to_the_groups(tmp_path: Path) -> None:
    saved(tmp_path, 5000, 5010, lineage=5)
    saved(tmp_path, 3000, 3010, lineage=9)
    assert {path.name for path in tmp_path.iterdir()} == {"step-3000-of-9", "step-3010-of-9"}
    cut_off = saved(tmp_path, 5020, lineage=5)
    assert {path.name for path in tmp_path.iterdir()} == {"step-3000-of-9", "step-3010-of-9"}
    found = cut_off.newest(after=Version(5, 5020))
    assert found is not None
    assert found["cursor"] == {"step": 3010}


def test_one_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    (tmp_path / ".step-2-of-1.node.77").mkdir()
    found = Checkpoints(tmp_path, 1.0).newest()
    assert found is not None
    assert found["cursor"] == {"step": 1}


def test_a_damaged_one_gives_way_to_the_one_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "step-2-of-1" / ".metadata").write_bytes(b"torn")
    found = checkpoints.newest()
    assert found is not None
    assert found["cursor"] == {"step": 1}
    assert "cannot read" in capfd.readouterr().err


def test_if_none_can_be_read_training_does_not_begin_anew(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    (tmp_path / "step-1-of-1" / ".metadata").unlink()
    with pytest.raises(Exception, match="metadata"):
        checkpoints.newest()


def test_what_is_written_is_the_state_at_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_s=0.0)
    weights = torch.zeros(1_000_000)
    checkpoints.save(Version(1, 1), {"weights": weights})
    weights += 1
    checkpoints.wait()
    found = checkpoints.newest()
    assert found is not None
    assert found["weights"].sum() == 0


def test_a_step_that_another_rank_0_has_written_is_left_as_it_is(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    (tmp_path / "step-1-of-1" / "theirs").touch()
    checkpoints.save(Version(1, 1), state(1))
    checkpoints.wait()
    assert (tmp_path / "step-1-of-1" / "theirs").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step-1-of-1"]


def test_what_goes_wrong_while_writing_ends_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved(tmp_path, 1)
    in_the_way = tmp_path / f".step-2-of-1.{os.uname().nodename}.{os.getpid()}"
    in_the_way.touch()
    checkpoints.save(Version(1, 2), state(2))
    checkpoints.wait()
    assert "no checkpoint of step 2" in capfd.readouterr().err
    in_the_way.unlink()
    checkpoints.save(Version(1, 3), state(3))
    checkpoints.wait()
    assert (tmp_path / "step-3-of-1").exists()


def test_a_process_that_gets_no_thread_trains_on_without_the_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    checkpoints = saved(tmp_path, 1)
    with monkeypatch.context() as without:
        without.setattr(Thread, "start", fail)
        checkpoints.save(Version(1, 2), state(2))
    assert "no checkpoint of step 2: can't start new thread" in capfd.readouterr().err
    checkpoints.save(Version(1, 3), state(3))
    checkpoints.wait()
    assert (tmp_path / "step-3-of-1").exists()


def test_a_folder_that_cannot_be_made_ends_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    saved(tmp_path / "file" / "folder", 1)
    assert "no checkpoint of step 1" in capfd.readouterr().err


def test_the_next_is_due_after_a_while_and_not_while_one_is_written(tmp_path: Path) -> None:
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, every_s=10.0, clock=lambda: now[0])
    assert not checkpoints.due()
    now[0] = 10.0
    assert checkpoints.due()
    checkpoints.save(Version(1, 1), state(1))
    checkpoints.wait()
    assert not checkpoints.due()
