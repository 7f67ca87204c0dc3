"""Where a training goes on, on another number of ranks; which checkpoint is taken."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.imported import when_imported
from bftrainer_slurm.elastic.resuming import huggingface, lightning, torchdata
from bftrainer_slurm.elastic.resuming.huggingface import Place, Saved, read
from bftrainer_slurm.elastic.resuming.marks import Trainings, mark, marked, newer, newest, rename


@pytest.fixture(autouse=True)
def _helped_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "helping", set())


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
        epoch, ranks = 1 + made * accumulated / of_rank[0], saved_by if known else None
        now = {"ranks": read_by, "batches": batches, "accumulated": accumulated}
        now |= {"steps_in_epoch": steps[1], "steps": 3 * steps[1], "epochs": 3, "asked_steps": 0}
        place = Place.of(Saved(epoch, steps[0] + made, ranks), **now)
        trained = min(batches, made * accumulated * saved_by)
        again = trained - place.batches * read_by
        assert place.epoch == 1
        assert 0 <= again < accumulated * read_by + (0 if known else saved_by)
        assert place.last - (steps[0] + made) == 3 * steps[1] - place.step
        if known and read_by == saved_by:
            assert (again, place.last) == (0, 3 * steps[1])


NUMBERS = {"ranks": 3, "batches": 120, "steps_in_epoch": 40, "accumulated": 1}


@pytest.mark.parametrize("epoch", [1, 2])
def test_hugging_face_at_the_end_of_an_epoch_begins_the_next(epoch: int) -> None:
    place = Place.of(Saved(epoch, epoch * 120), **NUMBERS, steps=80, epochs=2, asked_steps=0)
    assert (place.epoch, place.batches, place.last) == (epoch, 0, epoch * 120 + (2 - epoch) * 40)


def test_hugging_face_makes_as_many_steps_as_were_asked_for() -> None:
    place = Place.of(Saved(0.5, 60), **NUMBERS, steps=200, epochs=5, asked_steps=200)
    assert (place.epoch, place.batches, place.last) == (0, 20, 200)
    assert place.epochs * 40 - 20 >= 140 > (place.epochs - 1) * 40 - 20


def begun(number: int = 1, width: int = 4, samples: int = 9, **environment: str) -> str:
    """What tells a process's training of this number from others."""
    model, data = torch.nn.Linear(width, 1), range(samples)
    trainings = Trainings()
    element = {"BFTRAINER_ELEMENT": "12_3", "BFTRAINER_STEP": "0"}
    return [trainings.begin(model, data, element | environment) for _ in range(number)][-1]


@pytest.mark.torch
@pytest.mark.parametrize(
    "other",
    [
        {"number": 2},
        {"width": 5},
        {"samples": 8},
        {"BFTRAINER_STEP": "1"},
        {"BFTRAINER_ELEMENT": "13_3"},
    ],
    ids=["fit", "model", "data", "step", "trainer"],
)
def test_a_training_is_known_after_a_restart_on_any_node_and_is_no_other(
    other: dict[str, Any],
) -> None:
    assert begun() == begun(BFTRAINER_ELEMENT="12_0")
    assert begun() != begun(**other)


@pytest.mark.torch
def test_what_torchrun_starts_without_an_srun_is_told_apart_by_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = set()
    for rate in ("1e-3", "1e-4"):
        monkeypatch.setattr(sys, "argv", ["train.py", "--rate", rate])
        found |= {begun(BFTRAINER_STEP=""), begun(BFTRAINER_STEP="0")}
    assert len(found) == 3


@pytest.mark.torch
def test_a_stream_has_no_length_and_a_loader_that_of_its_data() -> None:
    model = torch.nn.Linear(1, 1)
    loaders = [torch.utils.data.DataLoader(range(9), batch_size=size) for size in (1, 3)]
    found = [Trainings().begin(model, data, {}) for data in (*loaders, iter(range(9)))]
    assert found[0] == found[1] != found[2]


def test_the_newest_complete_checkpoint_of_a_training_is_taken_whatever_its_script_names(
    tmp_path: Path,
) -> None:
    names = ("theirs", "old", "new", "last", "cut off")
    theirs, old, new, link, cut = (tmp_path / name for name in names)
    for path in (theirs, old, new, cut):
        path.touch()
    for path, training in ((theirs, "theirs"), (old, "ours"), (new, "ours")):
        mark(path, 3, training)
    link.symlink_to(new)
    given = {None: new, old: new, new: None, link: None, theirs: None, cut: None}
    for path, expected in {**given, tmp_path / "x": None}.items():
        assert newer(path, [theirs, old, new, cut], "ours") == expected, path
    assert newer(None, [theirs, cut], "ours") is None


def test_one_that_was_cut_off_as_it_was_removed_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-9"
    (folder / "shards").mkdir(parents=True)
    for name in ("model.safetensors", "shards/1"):
        (folder / name).touch()
    mark(folder, 1, "ours")
    (folder / "tokenizer.json").touch()  # by the script's own ``on_save``
    assert newest([folder], "ours") == folder
    (folder / "shards" / "1").unlink()
    assert newest([folder], "ours") is None


@pytest.mark.parametrize("sharded", [False, True])
def test_a_mark_follows_a_checkpoint_that_takes_anothers_name(
    tmp_path: Path, sharded: bool
) -> None:
    made = [tmp_path / "step-9.ckpt", tmp_path / "last.ckpt"]
    for ranks, path in enumerate(made, start=1):
        path.mkdir() if sharded else path.touch()
        mark(path, ranks, "ours")
    rename(*made)
    assert newest(made, "ours") == made[1]
    assert getattr(marked(made[1]), "ranks", None) == 1
    assert not list(tmp_path.glob("step-9*"))


@pytest.mark.parametrize(("weights_only", "marks"), [(None, True), (False, True), (True, False)])
def test_lightning_saves_with_all_that_a_script_gives_it(
    tmp_path: Path, weights_only: bool | None, marks: bool
) -> None:
    begun = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(ready=1)))
    trainer = SimpleNamespace(global_rank=0, world_size=3, fit_loop=begun)
    setattr(trainer, lightning._TRAINING, "ours")
    save = Mock(side_effect=lambda _, path, *more, **named: path.mkdir())
    lightning._save(save, trainer, path := tmp_path / "a.ckpt", weights_only, storage_options=7)
    save.assert_called_once_with(trainer, path, weights_only, storage_options=7)
    assert getattr(marked(path), "ranks", None) == (3 if marks else None)


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"ranks": 1}', "\0" * 9000])
def test_a_file_that_is_not_ours_is_no_mark(tmp_path: Path, text: str) -> None:
    (tmp_path / "bftrainer.json").write_text(text)
    assert newest([tmp_path], "ours") is None
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


def test_what_is_turned_off_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in resuming.MODULES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    resuming.install({"BFTRAINER_RESUME": "no"})
    assert not resuming.counts_samples()


@pytest.mark.parametrize("then", [1, 2, 3, 5])
@pytest.mark.parametrize("now", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulated", [1, 4])
def test_lightning_trains_less_than_a_global_batch_again(
    then: int, now: int, accumulated: int
) -> None:
    for trained in range(0, 60 // then, accumulated):
        passed = lightning.batches_now(trained, then, now, 60 // now, accumulated)
        again = trained * then - passed * now
        assert 0 <= again < now * accumulated
        assert passed % accumulated == 0
        assert then != now or again == 0


def test_lightning_passes_over_an_epochs_samples_in_that_epoch_alone() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(range(40), 2, 0)  # type: ignore[arg-type]
    sampler.set_epoch(3)
    whole = list(BatchSampler(sampler, 4, drop_last=False))
    rest = lightning._Rest(sampler, 8, epoch=3)
    batches = BatchSampler(rest, 4, drop_last=False)  # type: ignore[arg-type]
    assert list(batches) == whole[2:]
    assert len(batches) == len(whole)
    rest.set_epoch(4)
    assert list(batches) == list(BatchSampler(sampler, 4, drop_last=False)) != whole


@pytest.mark.parametrize(
    ("options", "facts", "said"),
    [
        ({}, {}, []),
        ({"train_sampling_strategy": "random"}, {}, []),
        ({}, {"is_stream": True, "counted": True}, []),
        ({"max_steps": 300}, {}, ["max_steps=300 are steps of 3 ranks now, of 1 before"]),
        ({"max_steps": 300}, {"is_stream": True}, ["max_steps=300", "the data set is a stream"]),
        ({}, {"own_scheduler": True}, ["the script's own scheduler counts steps of 3 ranks"]),
        ({"train_sampling_strategy": "group_by_length"}, {}, ["train_sampling_strategy="]),
    ],
)
def test_hugging_face_says_what_does_not_follow_samples(
    options: dict[str, Any], facts: dict[str, bool], said: list[str]
) -> None:
    args = SimpleNamespace(**{"world_size": 3, "max_steps": -1} | options)
    known = {"is_stream": False, "counted": False, "own_scheduler": False} | facts
    lines = list(huggingface.not_counted(args, 1, **known))
    assert len(lines) == len(said)
    assert all(line.startswith(begins) for line, begins in zip(lines, said, strict=True))


@pytest.mark.parametrize(("restores", "forgets"), [(False, True), (True, False)])
def test_hugging_faces_patience_is_forgotten_unless_callbacks_are_restored(
    restores: bool, forgets: bool
) -> None:
    def trainer(*callbacks: object) -> SimpleNamespace:
        return SimpleNamespace(
            args=SimpleNamespace(restore_callback_states_from_checkpoint=restores),
            callback_handler=SimpleNamespace(callbacks=callbacks),
        )

    stopping = type("EarlyStoppingCallback", (), {})()
    assert huggingface.forgets_patience(trainer("other", stopping)) == forgets
    assert not huggingface.forgets_patience(trainer("other"))


def test_torchdatas_place_is_left_alone_where_it_is_not_one_of_batches() -> None:
    loader = SimpleNamespace(sampler=SimpleNamespace(num_replicas=3, rank=0))
    of_one = {"_num_yielded": 30, "_bftrainer_ranks": 1}
    with pytest.raises(ValueError, match="state of its own"):
        torchdata._placed(loader, of_one | {"dataset_state": {"shard": 7}})
    of_three, over = of_one | {"_bftrainer_ranks": 3}, of_one | {"_iterator_finished": True}
    for state in ({}, {"_num_yielded": 30}, of_three, over):
        assert torchdata._placed(loader, state) is state


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(("then", "now", "again"), [(1, 3, 8), (3, 1, 0), (2, 3, 4)])
def test_torchdatas_loader_goes_on_after_the_same_samples(
    monkeypatch: pytest.MonkeyPatch, workers: int, stateful: bool, then: int, now: int, again: int
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader, stateful_dataloader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    for name in ("state_dict", "load_state_dict"):
        monkeypatch.setattr(StatefulDataLoader, name, getattr(StatefulDataLoader, name))
    torchdata.change(stateful_dataloader)
    kind = StatefulDistributedSampler if stateful else DistributedSampler

    def loader(ranks: int, rank: int) -> Any:
        sampler = kind(range(240), ranks, rank)
        options = {"num_workers": workers, "snapshot_every_n_steps": 3}
        return StatefulDataLoader(range(240), 4, sampler=sampler, **options)

    def numbers(batches: Any, count: int = 99) -> list[int]:
        return [int(one) for _, batch in zip(range(count), batches, strict=False) for one in batch]

    first = [loader(then, rank) for rank in range(then)]
    trained = [one for each in first for one in numbers(iter(each), 5)]
    state = first[0].state_dict()
    rest = []
    for rank in range(now):
        new = loader(now, rank)
        new.load_state_dict(state)
        rest += numbers(iter(new))
    assert set(trained) | set(rest) == set(range(240))
    assert len(trained) + len(rest) == 240 + again
