"""Lightning's Trainer: it resumes by itself, saves when told, and its place is one of samples.

Seen with lightning 2.6. A checkpoint counts batches of a rank; they are read as batches of the
ranks that there are now, and as many are passed over in the epoch that was under way. Schedulers
whose horizon follows the number of ranks are put to the same place. The order of samples must not
depend on the ranks: that of Lightning's DistributedSampler does not, which it takes with
``strategy="ddp"``, and with ``"auto"`` only on several ranks.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from bftrainer_slurm.elastic.around import around, before
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.resuming import guarded, helping, marks
from bftrainer_slurm.elastic.resuming.rates import can_move, given, move

_TRAINING = "_bftrainer_training"  # of a Trainer: what tells this fit() from all others
_ADDED = "_bftrainer_callback"  # of a Trainer: ours
_RANKS = "_bftrainer_ranks"  # of a Trainer that goes on: how many ranks made its checkpoint
_CHOOSES = "_bftrainer_chooses"  # of a Trainer: its script leaves the checkpoint to us
_FRESH = "_bftrainer_fresh"  # of a scheduler: what its script gave it at this start
_ASKED = "_bftrainer_asked"  # of a Trainer: its script asked for the number of steps
_DEFAULT = "_bftrainer_default"  # of a Trainer: its ModelCheckpoints that were given no folder
_PROGRESS = {"last_epoch", "_step_count", "_last_lr", "optimizer"}


def change(module: ModuleType) -> None:
    """Change the Trainer of ``lightning.pytorch.trainer.trainer``, and what it consists of.

    Raises:
        AttributeError, TypeError: this version's Trainer is another one.
    """
    trainer = module.Trainer
    loop: Any = module._FitLoop
    connector: Any = module._CheckpointConnector
    asked = trainer.estimated_stepping_batches.fget
    trainings, going_on = marks.Trainings(), list[Any]()
    before(trainer, "fit", lambda arguments: _begin(trainings, going_on, arguments))
    around(trainer, "save_checkpoint", _save)
    around(module.Strategy, "remove_checkpoint", _remove)
    around(loop, "reset", _reset)
    around(connector, "resume_start", _start)
    around(connector, "restore", _come_back)
    around(connector, "restore_lr_schedulers", _restore)

    def estimated_stepping_batches(self: Any) -> Any:
        setattr(self, _ASKED, True)
        return asked(self)

    trainer.estimated_stepping_batches = property(estimated_stepping_batches)
    helping.add("lightning")
    fabric = "lightning.fabric" if module.__name__.startswith("lightning.") else "lightning_fabric"
    writer = import_module(f"{fabric}.loggers.csv_logs")._ExperimentWriter
    around(writer, "_check_log_dir_exists", partial(_keep_rows, going_on=going_on))


def _begin(
    trainings: marks.Trainings, going_on: list[Any], arguments: MutableMapping[str, Any]
) -> None:
    going_on.clear()
    prepare = partial(_prepare, trainings, going_on, arguments)
    guarded(prepare, "Lightning's fit() is left as it is")


def _prepare(
    trainings: marks.Trainings, going_on: list[Any], arguments: MutableMapping[str, Any]
) -> None:
    """Have the trainer save when told, and note what its script leaves to it."""
    from bftrainer_slurm.elastic.callbacks.lightning import Elastic

    trainer, given = arguments["self"], arguments["ckpt_path"]
    training = trainings.begin(arguments["model"], arguments["train_dataloaders"])
    setattr(trainer, _TRAINING, training)
    setattr(trainer, _CHOOSES, given in (None, "last"))
    folders = [one for one in trainer.checkpoint_callbacks if not getattr(one, "dirpath", True)]
    setattr(trainer, _DEFAULT, folders)
    chosen = marks.newest(_candidates(trainer), training)
    if chosen is not None and (getattr(trainer, _CHOOSES) or marks.is_of(Path(given), training)):
        going_on.append(trainer)
    folder = Path(trainer.default_root_dir, ".bftrainer", training)
    if (added := getattr(trainer, _ADDED, None)) is not None:
        added.folder = folder
    elif not any(isinstance(one, Elastic) for one in trainer.callbacks):
        setattr(trainer, _ADDED, Elastic(folder))
        trainer.callbacks.append(getattr(trainer, _ADDED))


def _start(
    method: Callable[..., Any],
    connector: Any,
    checkpoint_path: Any = None,
    weights_only: bool | None = None,
) -> Any:
    """Choose the checkpoint where it is loaded, as there is a group of all ranks by then."""
    without, trainer = "Lightning begins as the script says", connector.trainer
    chosen = guarded(lambda: _chosen(trainer, checkpoint_path), without, checkpoint_path)
    if chosen != checkpoint_path:  # this trainer has written it: it may hold more
        weights_only = weights_only or False
    done = method(connector, chosen, weights_only)
    if getattr(trainer, _RANKS, None) is not None:
        without = "ModelCheckpoint knows of no checkpoint before this start"
        guarded(lambda: _keep_folders(trainer, connector._loaded_checkpoint), without)
    return done


def _keep_folders(trainer: Any, loaded: Any) -> None:
    """Have each ModelCheckpoint go on in its folder, where a logger gives it another at each start.

    In another folder it would forget which of its checkpoints are the best.
    """
    for callback in getattr(trainer, _DEFAULT, ()):
        state = loaded.get("callbacks", {}).get(callback.state_key, {})
        callback.dirpath = state.get("dirpath") or callback.dirpath


def _come_back(method: Callable[..., Any], connector: Any, *given: Any, **named: Any) -> Any:
    """Let a search for a rate or a batch size end where it began, in a fit() that goes on.

    Lightning's LearningRateFinder loads what it has saved, and forgets the fit()'s own checkpoint.
    """
    trainer, loaded = connector.trainer, connector._loaded_checkpoint
    ranks = getattr(trainer, _RANKS, None)
    done = method(connector, *given, **named)
    connector._loaded_checkpoint = loaded
    setattr(trainer, _RANKS, ranks)
    return done


def _keep_rows(method: Callable[..., None], writer: Any, going_on: list[Any]) -> None:
    """Have a CSVLogger add to the file of a training that goes on, which it would delete."""
    file = Path(writer.metrics_file_path)
    if not going_on or not file.is_file():
        method(writer)
        return
    with file.open(newline="") as rows:
        writer.metrics_keys = next(csv.reader(rows), [])
    say(f"{file} keeps its rows, and gets the new ones (--bftrainer=resume=no: not)")


def _chosen(trainer: Any, given: Any) -> Any:
    """Return the checkpoint that a fit() goes on from, and note how many ranks made it."""
    if hasattr(trainer, _CHOOSES):  # else it is a test(), or so
        path = None if given is None or getattr(trainer, _CHOOSES) else Path(given)
        delattr(trainer, _CHOOSES)
        found = marks.newer(path, _candidates(trainer), getattr(trainer, _TRAINING))
        if trainer.world_size > 1:
            found = trainer.strategy.broadcast(found)  # rank 0's look counts
        if found is not None:
            given = str(found)
            if trainer.global_rank == 0:
                say(f"training goes on from {found} (--bftrainer=resume=no: not)")
    mark = None if given is None else marks.marked(Path(str(given)))
    setattr(trainer, _RANKS, None if mark is None else mark.ranks)
    return given


def _candidates(trainer: Any) -> Iterator[Path]:
    """Yield where this script's checkpoints may be."""
    folder = Path(trainer.default_root_dir)
    yield from folder.glob(".bftrainer/*/*.ckpt")
    yield from folder.glob("checkpoints/*.ckpt")
    for logger in trainer.loggers:
        if getattr(logger, "root_dir", None):
            yield from Path(logger.root_dir).glob("version_*/checkpoints/*.ckpt")
    for callback in trainer.checkpoint_callbacks:
        if getattr(callback, "dirpath", None):
            yield from Path(callback.dirpath).glob("*.ckpt")


def _save(
    method: Callable[..., Any],
    trainer: Any,
    filepath: Any,
    weights_only: Any = None,
    *more: Any,
    **named: Any,
) -> Any:
    path = Path(filepath)
    if trainer.global_rank != 0:
        return method(trainer, filepath, weights_only, *more, **named)
    guarded(lambda: marks.unmark(path), "the mark of an older checkpoint is left as it is")
    done = method(trainer, filepath, weights_only, *more, **named)
    training: str | None = getattr(trainer, _TRAINING, None)
    has_begun = trainer.fit_loop.epoch_progress.current.ready > 0  # else a search comes back to it
    if training is not None and has_begun and not weights_only:
        without = "a checkpoint is left without a mark"
        guarded(lambda: marks.mark(path, trainer.world_size, training), without)
    return done


def _remove(method: Callable[..., Any], strategy: Any, filepath: Any) -> Any:
    if strategy.is_global_zero:
        guarded(lambda: marks.unmark(Path(filepath)), "a checkpoint's mark is left as it is")
    return method(strategy, filepath)


def _restore(method: Callable[..., Any], connector: Any) -> Any:
    for config in connector.trainer.lr_scheduler_configs:
        fresh = {k: v for k, v in vars(config.scheduler).items() if k not in _PROGRESS}
        setattr(config, _FRESH, (fresh, given(config.scheduler)))
    return method(connector)


def _reset(method: Callable[..., Any], loop: Any) -> Any:
    ranks = getattr(loop.trainer, _RANKS, None)
    searches = bool(loop.trainer._checkpoint_connector._loaded_checkpoint)  # before it goes on
    if ranks is None or searches:
        return method(loop)
    setattr(loop.trainer, _RANKS, None)
    epochs = loop.epoch_progress.current
    if epochs.ready == epochs.processed:  # max_steps has Lightning end the last epoch again
        loop._restarting = loop.epoch_loop.restarting = False
    guarded(lambda: _go_on(loop, ranks), "Lightning's place in the data is left as it is")
    at_an_end = loop.epoch_loop.batch_progress.is_last_batch
    done = method(loop)
    if at_an_end:  # else the next epoch is not counted, and trained once more after a change
        loop.reset_restart_stage()
    return done


def batches_now(trained: int, ranks_then: int, ranks: int, in_epoch: int, accumulated: int) -> int:
    """Return how many batches of a rank are passed over, where ``trained`` ones were trained.

    What is left of a global batch is trained again, nothing is lost.
    """
    passed = trained * ranks_then // (ranks * accumulated) * accumulated
    return min(passed, in_epoch)


def _go_on(loop: Any, ranks_then: int) -> None:
    trainer, progress = loop.trainer, loop.epoch_loop.batch_progress
    ranks, in_epoch = trainer.world_size, loop.max_batches
    current, accumulated = progress.current, trainer.accumulate_grad_batches
    if not isinstance(in_epoch, int):
        if ranks != ranks_then and trainer.global_rank == 0:
            say(
                f"the data set is a stream: its place counts batches of {ranks} ranks now, of "
                f"{ranks_then} before, so some samples are trained twice or left out"
            )
        return
    epoch = loop.epoch_progress.current.processed
    passed = 0
    if loop.restarting:  # else the epoch was at its end, and is counted
        passed = batches_now(current.processed, ranks_then, ranks, in_epoch, accumulated)
        if progress.is_last_batch:
            passed = in_epoch
        pending = current.processed - current.completed  # 1 where it was saved at a batch's end
        current.ready = current.started = current.processed = passed
        current.completed = max(0, passed - pending)
        if passed < in_epoch and trainer.global_rank == 0:
            _say_what_waits(trainer)
    for loader in loop._combined_loader.flattened:
        if passed < in_epoch:
            _pass_over(loader, passed, epoch)
        else:
            _pass_over(loader, 0, epoch + 1)
    iter(loop._data_fetcher)
    loop._data_fetcher.fetched = 0
    if ranks != ranks_then and trainer.max_steps == -1:
        steps = epoch * math.ceil(in_epoch / accumulated) + passed // accumulated
        for config in trainer.lr_scheduler_configs:
            if config.interval == "step":
                _move(config, steps, getattr(trainer, _ASKED, False), trainer.global_rank == 0)


def _say_what_waits(trainer: Any) -> None:
    """Say what Lightning takes up at an epoch's begin alone, where it goes on in the middle."""
    for callback in trainer.callbacks:
        begun = trainer.current_epoch >= getattr(callback, "swa_start", math.inf)
        if begun and type(callback).__name__ == "StochasticWeightAveraging":
            say(
                "StochasticWeightAveraging takes up its average at the next epoch: at a change "
                "before that it begins anew (EMAWeightAveraging does not)"
            )


def _move(config: Any, steps: int, asked: bool, first: bool) -> None:
    """Put a scheduler to the place, if its horizon follows the number of ranks."""
    scheduler = config.scheduler
    fresh, numbers = getattr(config, _FRESH, ({}, {}))
    if given(scheduler) == numbers and (numbers or not asked):
        return
    if can_move(scheduler):
        vars(scheduler).update(fresh)
        move(scheduler, steps)
    elif first:
        say(f"{type(scheduler).__name__} counts steps, not samples, when nodes change")


def _pass_over(loader: Any, batches: int, epoch: int) -> None:
    sampler = loader.batch_sampler.sampler
    for one in (loader.sampler, sampler):
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
    loader.batch_sampler.sampler = _Rest(sampler, batches * loader.batch_sampler.batch_size, epoch)


class _Rest:
    """A sampler that passes over the first samples in one epoch; in others it is as it was."""

    def __init__(self, sampler: Any, samples: int, epoch: int) -> None:
        self.sampler, self._samples, self._epoch = sampler, samples, epoch
        self.epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Take the next epoch."""
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        samples: Iterator[Any] = iter(self.sampler)
        if self.epoch == self._epoch:
            for _ in range(self._samples):
                next(samples, None)
        return samples
