"""Hugging Face's Trainer: it resumes by itself, saves when told, and its place is one of samples.

Seen with transformers 5.23 and 5.24. ``trainer_state.json`` has ``global_step``, optimizer steps of
whatever ranks there were, and ``epoch``, a fraction, which is the same for any number of ranks. The
place in the data, the end and the learning rate follow ``epoch``; ``global_step`` goes on counting
steps, so that the highest checkpoint stays the newest. Where the script asks for ``max_steps``, it
gets as many steps, and the rate follows them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from bftrainer_slurm.elastic.around import around, before
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.resuming import guarded, helping, marks
from bftrainer_slurm.elastic.resuming.rates import move
from bftrainer_slurm.elastic.resuming.streams import Stream, stream_of

_TRAINING = "_bftrainer_training"  # of a Trainer: what tells this train() from all others
_PLACE = "_bftrainer_place"  # of a Trainer that goes on from a checkpoint
_STREAM = "_bftrainer_stream"  # of a Trainer: how it reads its stream, and batches in an epoch
_STATE = "trainer_state.json"
_BY_LENGTH = ("group_by_length", "batch_rebalance")
_ROUNDING = 1e-6  # of a batch
_METHODS = {  # and how many parameters they have, self included
    "set_initial_training_values": 3,
    "_init_training_state": 6,
    "_load_optimizer_and_scheduler": 2,
}


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint says of its place."""

    epoch: float
    global_step: int
    ranks: int | None = None  # None: not known
    stream: marks.Read | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a training goes on, in steps of the ranks that there are now."""

    epoch: int  # complete ones
    batches: int  # of a rank, trained of the next epoch
    step: int  # optimizer steps from the beginning, as if these ranks had made all
    last: int  # ``global_step`` at the end
    epochs: int  # in which the loop must look for batches

    @classmethod
    def of(
        cls,
        saved: Saved,
        *,
        ranks: int,
        batches: int,
        steps_in_epoch: int,
        accumulated: int,
        steps: int,
        epochs: int,
        asked_steps: int,
        drops_last: bool = False,
    ) -> Place:
        """Return the place; what is left of a global batch is trained again, nothing is lost.

        Args:
            saved: what the checkpoint says.
            ranks: that there are now.
            batches: of all ranks together, in an epoch.
            steps_in_epoch: of the optimizer.
            accumulated: batches of a rank in a step.
            steps: of the whole training.
            epochs: of the whole training.
            asked_steps: what the script asked for; 0: for epochs.
            drops_last: a step that not all ranks have a batch for is left out.
        """
        fraction, whole = math.modf(saved.epoch)
        trained = int(fraction * batches + _ROUNDING)  # at least; the last step repeats some
        if saved.ranks is not None:
            of_rank = batches // saved.ranks if drops_last else math.ceil(batches / saved.ranks)
            trained = min(batches, round(fraction * of_rank) * saved.ranks)
        epoch, made = int(whole), trained // (ranks * accumulated)
        step = epoch * steps_in_epoch + made
        last = asked_steps or saved.global_step + max(0, steps - step)
        if asked_steps:
            epochs = epoch + math.ceil((made + asked_steps - saved.global_step) / steps_in_epoch)
        return cls(epoch, made * accumulated, step, last, epochs)

    @classmethod
    def of_stream(cls, saved: Saved, batches: int, *, accumulated: int, asked_steps: int) -> Place:
        """Return the place in a stream, of which a rank passes over so many batches."""
        epoch = int(saved.epoch)
        epochs = epoch if saved.global_step >= asked_steps else sys.maxsize
        return cls(epoch, batches, batches // accumulated, asked_steps, epochs)


def read(checkpoint: Path) -> Saved | None:
    """Return what a checkpoint says of its place; None: it says nothing."""
    try:
        state = json.loads((checkpoint / _STATE).read_text())
        place = float(state["epoch"]), int(state["global_step"])
        mark = marks.marked(checkpoint)
        return Saved(*place) if mark is None else Saved(*place, mark.ranks, mark.stream)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def change(module: ModuleType) -> None:
    """Change the Trainer of ``transformers.trainer``.

    Raises:
        AttributeError, TypeError: this version's Trainer is another one.
    """
    trainer = module.Trainer
    trainings = marks.Trainings()
    before(trainer, "train", lambda arguments: _begin(trainings, arguments))
    _mark_what_is_complete(module)
    helping.add("huggingface")  # or says why not
    for name, parameters in _METHODS.items():
        method = getattr(trainer, name, None)
        if method is None or len(signature(method).parameters) != parameters:
            say(
                f"this version of transformers counts steps, not samples, when nodes change: its "
                f"Trainer has no {name}() as that of 5.24 has it"
            )
            return
    around(trainer, "set_initial_training_values", _values)
    around(trainer, "_init_training_state", _init_state)
    around(trainer, "_load_optimizer_and_scheduler", _load_scheduler)


def _mark_what_is_complete(module: ModuleType) -> None:
    """Mark a checkpoint before older ones are removed, and before the script's own ``on_save``."""
    saving: list[Any] = []

    def save(method: Callable[..., Any], trainer: Any, *given: Any, **named: Any) -> Any:
        if (folder := _own_folder(trainer)) is not None:
            guarded(
                lambda: marks.unmark(folder), "the mark of an older checkpoint is left as it is"
            )
        saving.append(trainer)
        try:
            return method(trainer, *given, **named)
        finally:  # a script may go on after a full disk
            saving.remove(trainer)

    def remove_older(method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        for trainer in saving:
            if (folder := _own_folder(trainer)) is not None:
                mark = partial(_mark, folder, trainer)
                guarded(mark, "a checkpoint is left without a mark")
        return method(*given, **named)

    around(module.Trainer, "_save_checkpoint", save)
    removes = "rotate_checkpoints"
    if hasattr(module, removes):
        around(module, removes, remove_older)
    else:
        around(module.Trainer, f"_{removes}", remove_older)


def _mark(folder: Path, trainer: Any) -> None:
    read, (stream, in_epoch) = None, getattr(trainer, _STREAM, (None, 0))
    if stream is not None:
        fraction, _ = math.modf(trainer.state.epoch)
        read = stream.read(round(fraction * in_epoch))
    marks.mark(folder, trainer.args.world_size, getattr(trainer, _TRAINING), read)


def _own_folder(trainer: Any) -> Path | None:
    """Return the checkpoint of the present step, where this rank marks it and it is there."""
    folder = Path(trainer.args.output_dir, f"checkpoint-{trainer.state.global_step}")
    marks_it = hasattr(trainer, _TRAINING) and trainer.is_world_process_zero()
    return folder if marks_it and folder.is_dir() else None


def _begin(trainings: marks.Trainings, arguments: MutableMapping[str, Any]) -> None:
    trainer, given = arguments["self"], arguments["resume_from_checkpoint"]
    without = "Hugging Face's Trainer begins as the script says"
    chosen = guarded(lambda: _prepared(trainings, trainer, given), without, given)
    arguments["resume_from_checkpoint"] = chosen


def _prepared(trainings: marks.Trainings, trainer: Any, given: Any) -> Any:
    """Have the trainer save when told; return the checkpoint that it goes on from."""
    _save_when_told(trainer)
    training = trainings.begin(trainer.model, trainer.train_dataset)
    setattr(trainer, _TRAINING, training)
    chosen = _chosen(trainer, training, None if isinstance(given, bool) else given)
    setattr(trainer, _PLACE, None)
    trainer._bftrainer_checkpoint = chosen or None
    return given if chosen is None else chosen


def _save_when_told(trainer: Any) -> None:
    from bftrainer_slurm.elastic.callbacks.huggingface import Elastic

    if not any(isinstance(one, Elastic) for one in trainer.callback_handler.callbacks):
        trainer.add_callback(Elastic())


def _chosen(trainer: Any, training: str, given: str | None) -> str | None:
    """Return the checkpoint that a training goes on from; rank 0's look counts."""
    from accelerate.utils import broadcast_object_list

    candidates = Path(trainer.args.output_dir).glob("checkpoint-*")
    paths = [marks.newer(None if given is None else Path(given), candidates, training)]
    if trainer.args.world_size > 1:
        broadcast_object_list(paths)
    if paths[0] is None:
        return given
    if trainer.args.process_index == 0:
        say(f"training goes on from {paths[0]} (--bftrainer=resume=no: not)")
        if trainer.args.save_only_model:
            say("it has no optimizer's state (save_only_model=True): this begins anew")
        if forgets_patience(trainer):
            say(
                "EarlyStoppingCallback counts its patience anew "
                "(restore_callback_states_from_checkpoint=True: it goes on)"
            )
    return str(paths[0])


def forgets_patience(trainer: Any) -> bool:
    """Return whether the count of an EarlyStoppingCallback is not read from checkpoints."""
    stops = any(
        type(one).__name__ == "EarlyStoppingCallback" for one in trainer.callback_handler.callbacks
    )
    return stops and not trainer.args.restore_callback_states_from_checkpoint


def _values(method: Callable[..., Any], trainer: Any, args: Any, dataloader: Any) -> Any:
    values = method(trainer, args, dataloader)
    without = "Hugging Face's Trainer counts steps, not samples"
    return guarded(lambda: _placed(trainer, args, dataloader, values), without, values)


def _placed(trainer: Any, args: Any, dataloader: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Find the place, and return the values with as many epochs as it takes."""
    checkpoint = getattr(trainer, "_bftrainer_checkpoint", None)
    saved = read(Path(checkpoint)) if isinstance(checkpoint, str) else None
    epochs, steps_in_epoch, samples, *others, steps = values
    together = others[1] // args.gradient_accumulation_steps  # samples of all ranks' batches
    is_stream = epochs == sys.maxsize  # without a length, and so without epochs
    ranks, asked_steps = args.world_size, max(0, args.max_steps)
    place = None
    if is_stream:
        place = _place_in_stream(trainer, args, stream_of(dataloader, ranks), saved)
    if saved is not None and saved.ranks not in (None, ranks) and args.process_index == 0:
        own_scheduler = trainer.lr_scheduler is not None and not trainer._created_lr_scheduler
        counted = place is not None
        for line in not_counted(args, saved.ranks, is_stream, counted, own_scheduler):
            say(line)
    if place is not None:
        _, in_epoch = getattr(trainer, _STREAM)
        steps_in_epoch = in_epoch // args.gradient_accumulation_steps
        return (place.epochs, steps_in_epoch, samples, *others[:2], in_epoch, steps)
    if saved is None or not trainer.args.num_train_epochs or is_stream:
        return values
    drops_last = args.dataloader_drop_last
    place = Place.of(
        saved,
        ranks=ranks,
        batches=(math.floor if drops_last else math.ceil)(samples * args.world_size / together),
        steps_in_epoch=steps_in_epoch,
        accumulated=args.gradient_accumulation_steps,
        steps=steps,
        epochs=epochs,
        asked_steps=asked_steps,
        drops_last=drops_last,
    )
    setattr(trainer, _PLACE, place)
    return (place.epochs, *values[1:])


def _place_in_stream(
    trainer: Any, args: Any, stream: Stream | None, saved: Saved | None
) -> Place | None:
    """Find the place in a stream, and note how it is read; None: the place is not known."""
    accumulated, place, steps = args.gradient_accumulation_steps, None, args.max_steps
    if saved is not None and stream is not None and not args.ignore_data_skip:
        batches = stream.batches(saved.stream, accumulated)
        if batches is not None:
            place = Place.of_stream(
                saved, batches, accumulated=accumulated, asked_steps=args.max_steps
            )
            setattr(trainer, _PLACE, place)
            steps = max(1, place.step + args.max_steps - saved.global_step)
    setattr(trainer, _STREAM, (stream, steps * accumulated))
    return place


def not_counted(
    args: Any, ranks_before: int | None, is_stream: bool, counted: bool, own_scheduler: bool
) -> Iterator[str]:
    """Yield a line for each part of a training that does not follow samples.

    Args:
        args: the TrainingArguments.
        ranks_before: how many ranks wrote the checkpoint.
        is_stream: the data set has no length.
        counted: the place in the stream is one of samples.
        own_scheduler: the script has made it.
    """
    ranks = args.world_size
    if args.max_steps > 0:
        yield (
            f"max_steps={args.max_steps} are steps of {ranks} ranks now, of {ranks_before} before, "
            "and the learning rate follows steps"
            + ("" if is_stream else ": num_train_epochs in its place follows samples")
        )
    if own_scheduler:
        yield (
            f"the script's own scheduler counts steps of {ranks} ranks now, of {ranks_before} "
            "before: if its length depends on their number, the rate is off its course"
        )
    if is_stream:
        if not counted:
            yield (
                f"the data set is a stream: its place counts steps of {ranks} ranks now, of "
                f"{ranks_before} before, so some samples are trained twice or left out"
            )
    elif (order := getattr(args, "train_sampling_strategy", "random")) in _BY_LENGTH:
        yield (
            f"train_sampling_strategy='{order}' has another order of samples on {ranks} ranks than "
            f"on {ranks_before}: in this epoch some are trained twice or left out"
        )


def _init_state(method: Callable[..., Any], trainer: Any, *given: Any, **named: Any) -> Any:
    begins = method(trainer, *given, **named)
    place: Place | None = getattr(trainer, _PLACE, None)
    if place is None:
        return begins
    trainer.state.max_steps = place.last
    return place.epoch, 0 if trainer.args.ignore_data_skip else place.batches


def _load_scheduler(method: Callable[..., Any], trainer: Any, checkpoint: Any) -> Any:
    loaded = method(trainer, checkpoint)
    place: Place | None = getattr(trainer, _PLACE, None)
    if place is not None and trainer.args.max_steps <= 0 and trainer._created_lr_scheduler:
        move(trainer.lr_scheduler, place.step)
    return loaded
