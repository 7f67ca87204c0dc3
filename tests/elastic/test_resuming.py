"""Where a training goes on, on another number of ranks; which checkpoint is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.imported import when_imported
from bftrainer_slurm.elastic.resuming.huggingface import Place, Saved, read
from bftrainer_slurm.elastic.resuming.marks import mark, marked, newest


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("saved_by", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("read_by", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("accumulated", [1, 4])
def test_hugging_face_loses_no_sample_and_repeats_less_than_a_global_batch(
    saved_by: int, read_by: int, accumulated: int, known: bool
) -> None:
    batches = 100  # of all ranks, in an epoch; not a multiple of any of these
    of_rank = [-(-batches // ranks) for ranks in (saved_by, read_by)]
    steps = [-(-one // accumulated) for one in of_rank]
    for made in range(1, steps[0]):
        place = Place.of(
            Saved(
                *(1 + made * accumulated / of_rank[0], steps[0] + made),
                saved_by if known else None,
            ),
            ranks=read_by,
            batches=batches,
            steps_in_epoch=steps[1],
            accumulated=accumulated,
            steps=3 * steps[1],
            epochs=3,
            asked_steps=0,
        )
        trained = min(batches, made * accumulated * saved_by)
        again = trained - place.batches * read_by
        assert place.epoch == 1
        assert 0 <= again < accumulated * read_by + (0 if known else saved_by)
        assert place.last - (steps[0] + made) == 3 * steps[1] - place.step
        if known and read_by == saved_by:
            assert (again, place.last) == (0, 3 * steps[1])


@pytest.mark.parametrize("epoch", [1.0, 2.0])
def test_hugging_face_at_the_end_of_an_epoch_begins_the_next(epoch: float) -> None:
    numbers = {"ranks": 3, "batches": 120, "steps_in_epoch": 40, "accumulated": 1}
    place = Place.of(Saved(epoch, int(epoch) * 120), **numbers, steps=80, epochs=2, asked_steps=0)
    assert (place.epoch, place.batches) == (int(epoch), 0)
    assert place.last == int(epoch) * 120 + (2 - int(epoch)) * 40


def test_hugging_face_makes_as_many_steps_as_were_asked_for() -> None:
    numbers = {"ranks": 3, "batches": 120, "steps_in_epoch": 40, "accumulated": 1}
    place = Place.of(Saved(0.5, 60), **numbers, steps=200, epochs=5, asked_steps=200)
    assert (place.epoch, place.batches, place.last) == (0, 20, 200)
    assert place.epochs * 40 - 20 >= 140 > (place.epochs - 1) * 40 - 20


def test_only_a_complete_checkpoint_of_this_trainer_is_taken(tmp_path: Path) -> None:
    ours, others = {"BFTRAINER_ELEMENT": "12_3"}, {"BFTRAINER_ELEMENT": "13_0"}
    old, new = folders = [tmp_path / "checkpoint-9", tmp_path / "checkpoint-10"]
    for folder in folders:
        folder.mkdir()
    assert newest(folders, ours) is None  # they may be another training's, or cut off
    mark(old, 3, ours)
    assert newest(folders, ours) == old
    assert newest(folders, others) is None
    mark(new, 2, ours)
    assert newest(folders, ours) == new
    found = marked(new)
    assert found is not None
    assert found.ranks == 2


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"ranks": 1}', "\0" * 9000])
def test_a_file_that_is_not_ours_is_no_mark(tmp_path: Path, text: str) -> None:
    (tmp_path / "bftrainer.json").write_text(text)
    assert newest([tmp_path], {"BFTRAINER_ELEMENT": "12_0"}) is None
    (tmp_path / "trainer_state.json").write_text(text)
    assert read(tmp_path) is None


def test_a_module_is_changed_when_it_is_imported_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_later.py").write_text("VALUE = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    called: list[str] = []
    when_imported({"imported_later": lambda module: called.append(module.__name__)})
    assert called == []
    import imported_later  # type: ignore[import-not-found]

    assert called == ["imported_later"]
    assert imported_later.VALUE == 1
    when_imported({"imported_later": lambda module: called.append("again")})
    assert called == ["imported_later", "again"]
    del sys.modules["imported_later"]
