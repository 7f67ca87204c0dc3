"""Hugging Face's Trainer on ranks that come and go while it trains.

To Transformers and accelerate each process is alone. Batches, averaged gradients and the commit of
a step are ``elastic.Trainer``'s, the loop is Transformers' own. A step is an ``elastic`` one from
``training_step``, which repeats it if a peer is lost, to ``on_step_end``: between them all is
local to this rank, and cannot fail because of a peer.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Literal

import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic.inprocess.alone import agree, alone
from bftrainer_slurm.elastic.inprocess.loader import Loader, seed_step
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.scaling import RateRule

_PLACE = "bftrainer"  # in a checkpoint's trainer_state.json
_FLAGS = ("is_world_process_zero", "is_local_process_zero")
_SPEEDS = ("train_runtime", "train_samples_per_second", "train_steps_per_second")
_ARGUMENTS = (
    "args is bftrainer_slurm.elastic.inprocess.huggingface.TrainingArguments: transformers' own "
    "would make a group of processes that cannot change"
)
_ON_CPU = (
    "on GPUs training in process has never been shown to work: use transformers' own Trainer, with "
    "bftrainer_slurm.elastic.callbacks.huggingface.Elastic"
)
_EARLY = ("lomo", "layerwise")  # optimizers that do not wait for averaged gradients
_OWN_DATA = (
    "{}() is not yours to override in process, as it is decided elsewhere which samples a rank "
    "trains: give train_dataset and data_collator"
)
_STEPS = (
    "how many steps an epoch has depends on the nodes: give max_steps, or batch='global' with "
    "per_device_train_batch_size for all ranks together"
)
_EPOCHS = (
    "a callback has set control.should_epoch_stop: in process an epoch ends for all ranks where "
    "its data does; should_training_stop is heard"
)


class _OverError(Exception):
    """The others have trained the last step, in which this rank lost them."""


class TrainingArguments(transformers.TrainingArguments):
    """Transformers' own, for one process of many; the progress bar is off, as rank 0 may change."""

    def __post_init__(self) -> None:
        self.disable_tqdm = True
        self.ignore_data_skip = True  # the loader goes on where the checkpoint was
        with alone():
            super().__post_init__()

    @property
    def process_index(self) -> int:
        """This process's rank at present: only rank 0 saves."""
        return dist.get_rank() if dist.is_initialized() else 0


class Trainer(transformers.Trainer):
    """Transformers' own; its ``train()`` goes on whatever ranks come and go.

    Args:
        batch: whether ``per_device_train_batch_size`` is a rank's ("local"), or that of all ranks
            together ("global").
        rate, rate_ramp: how the learning rate follows the global batch, see ``elastic.Trainer``.
        others: as transformers.Trainer's.

    Raises:
        ValueError: an argument is not supported in process; the message says which.
    """

    def __init__(
        self,
        *others: Any,
        batch: Literal["local", "global"] = "local",
        rate: RateRule | None = None,
        rate_ramp: int = 0,
        **more: Any,
    ) -> None:
        self.elastic: elastic.Trainer | None = None
        self._batch, self._rate, self._rate_ramp = batch, rate, rate_ramp
        self._shared = _Shared(self)
        self._step = ExitStack()  # the step that is not over yet
        self._wishes_stop = self._will_stop = self.is_in_train = False
        callbacks = [_First(self.end_step), *(more.pop("callbacks", None) or [])]
        with alone():
            super().__init__(*others, callbacks=callbacks, **more)
        _check(self.args)

    def train(self, *arguments: Any, **options: Any) -> TrainOutput:
        """Train as transformers' Trainer does; once in a process."""
        if self.elastic is not None:
            raise RuntimeError("train() is called once in a process")
        self.remove_callback(_Last)
        self.add_callback(_Last(self.end_hooks))  # after those that the script has added
        try:
            output = super().train(*arguments, **options)
        except _OverError:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            self.is_in_train = False
            output = TrainOutput(self.state.global_step, 0.0, {})
        for _ in self._batches:  # there is none: all ranks meet, whoever is lost meanwhile
            raise AssertionError("the training is over")
        loss = self._shared.of_all.mean()
        return output._replace(training_loss=loss, metrics=output.metrics | {"train_loss": loss})

    def get_train_dataloader(self) -> _Batches:
        """Return the batches of the whole training, as one epoch without a length."""
        if type(self)._get_train_sampler is not transformers.Trainer._get_train_sampler:
            raise TypeError(_OWN_DATA.format("_get_train_sampler"))
        own = super().get_train_dataloader()
        self._data = own.dataset, own.collate_fn
        if self.args.max_steps <= 0:
            self.args.max_steps = self._steps_of_epochs()
        self._batches = _Batches(self)
        return self._batches

    def _steps_of_epochs(self) -> int:
        size = _size(self._data[0])
        if self._batch == "local" or size == math.inf:
            raise ValueError(_STEPS)
        each: int = math.ceil(size / self.args.train_batch_size)
        steps: int = math.ceil(self.args.num_train_epochs * each)
        return steps

    def get_batch_samples(self, epoch_iterator: Iterator[Any], *others: Any) -> tuple[Any, Any]:
        """Stop where there are no more batches."""
        samples, items = super().get_batch_samples(epoch_iterator, *others)
        if not samples:
            self.control.should_training_stop = True
        return samples, items

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Compute averaged gradients: of another batch if the step was in vain, or a rehearsal."""
        if self.elastic is None:
            raise TypeError(_OWN_DATA.format("get_train_dataloader"))
        while True:
            with ExitStack() as entered:
                step = entered.enter_context(self.elastic.step())
                items = self._items_for(step.weight, num_items_in_batch)
                loss: Tensor = super().training_step(self.elastic.ddp, inputs, items)
                agreed = agree(float(loss), step.weight, self._wishes_stop)
                step.make_ready()
                self._step = entered.pop_all()
                self.elastic.loss, self._will_stop = agreed
                return loss
            found, num_items_in_batch = self.get_batch_samples(self._batches, 1, self.args.device)
            if not found:
                raise _OverError
            inputs = found[0]

    def _items_for(self, weight: float, items: Tensor | int | None) -> Tensor | int | None:
        """Return the tokens to divide a loss by, so that all tokens of the world count the same."""
        if items is None or not self.args.average_tokens_across_devices:
            return items
        total = torch.tensor([float(items) if weight else 0.0])
        dist.all_reduce(total)
        return total[0] * weight if weight else items

    def end_step(self) -> None:
        """Commit the step; the Trainer has updated its state."""
        assert self.elastic is not None
        self._step.close()
        self._shared.add(float(self.elastic.loss or 0.0))
        self._shared.stopped |= self._will_stop
        cursor = self.elastic.cursor
        self.state.epoch = cursor.epoch + cursor.position / _size(self._data[0])
        self.state.stateful_callbacks[_PLACE] = {"args": {}, "attributes": asdict(cursor)}
        self.control.should_epoch_stop |= self._batches.ends_epoch
        self.control.should_training_stop |= self.is_over()

    def is_over(self) -> bool:
        """Return whether the training is over; the same on all ranks."""
        return self._shared.stopped or self.state.global_step >= self.state.max_steps

    def end_hooks(self) -> None:
        """Leave it to rank 0 to save, and stop only after a step in which all ranks know of it."""
        if not self.is_world_process_zero():
            self.control.should_save = False
        if self.control.should_epoch_stop and not self._batches.ends_epoch:
            raise ValueError(_EPOCHS)
        if self.control.should_training_stop and not self.is_over():
            self._wishes_stop, self.control.should_training_stop = True, False

    def _evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Draw the same random numbers on all ranks: what follows from the result has to agree."""
        seed_step(self.args.seed, self.state.global_step, 0)
        return super()._evaluate(*arguments, **options)

    def log(self, logs: dict[str, float], *others: Any) -> None:
        """Log the losses of all ranks, since the last time, also those before this one joined."""
        if "loss" in logs:
            logs["loss"] = self._shared.since_log.take()
        if "train_loss" in logs:
            logs["train_loss"] = self._shared.of_all.mean()
            for name in _SPEEDS:  # those of this process, which may have joined in the end
                logs.pop(name, None)
        super().log(logs, *others)

    def floating_point_ops(self, inputs: Any) -> int:
        """Count those of all ranks, as if their batches were of one size."""
        assert self.elastic is not None
        return int(super().floating_point_ops(inputs)) * self.elastic.world

    def is_world_process_zero(self) -> bool:
        """Return whether this is rank 0; nobody is before the ranks have met."""
        if self.elastic is None:
            return not self.is_in_train
        return self.elastic.leads

    def is_local_process_zero(self) -> bool:
        """Return the same, as the ranks of a node come and go too."""
        return self.is_world_process_zero()

    def begin(self) -> Loader:
        """Let this rank's state, which may be a checkpoint's, train with the others'."""
        args, (dataset, collate) = self.args, self._data
        self.elastic = elastic.Trainer(
            self.model,
            self.optimizer.optimizer,  # torch's: accelerate has wrapped it
            seed=args.seed,
            scheduler=self.lr_scheduler,
            trainer=self._shared,
            rate=self._rate,
            rate_ramp=self._rate_ramp,
        )
        self.elastic.cursor = self._place()
        return self.elastic.loader(
            dataset,
            args.train_batch_size,
            sys.maxsize,
            batch=self._batch,
            shuffle=_sampling(args) != "sequential",
            until=self.is_over,
            collate_fn=collate,
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )

    def _place(self) -> Cursor:
        kept = self.state.stateful_callbacks.get(_PLACE)
        if kept is not None:
            return Cursor(**kept["attributes"])
        return Cursor(step=self.state.global_step, epoch=int(self.state.epoch or 0))


class _Batches:
    """All batches, however often the loop begins an epoch with ``iter``."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._loader: Loader | None = None
        self._led = False

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        if self._loader is None:
            self._loader = self._trainer.begin()
            self._given = iter(self._loader)
        batch = next(self._given)
        leads = self._trainer.is_world_process_zero()  # the ranks may have changed
        for flag in _FLAGS:
            setattr(self._trainer.state, flag, leads)
        if leads and not self._led:
            self._led = True
            self._begin_trackers()
        return batch

    def _begin_trackers(self) -> None:
        """Let W&B and the like begin their run at the next log: before, this was not rank 0."""
        for one in self._trainer.callback_handler.callbacks:
            if hasattr(one, "_initialized"):
                one._initialized = False

    @property
    def ends_epoch(self) -> bool:
        """Whether the last batch was its epoch's last one."""
        return self._loader is not None and self._loader.ends_epoch


class _First(transformers.TrainerCallback):
    """Calls ``look`` at the end of a step, before the callbacks that the script has given."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Call it."""
        self._look()


class _Last(_First):
    """Calls it whenever another callback may have wished something, after all of them."""

    on_evaluate = on_log = on_save = _First.on_step_end
    on_epoch_begin = on_epoch_end = on_step_begin = _First.on_step_end


class _Average:
    """A mean of numbers that come one by one."""

    def __init__(self, total: float = 0.0, count: int = 0) -> None:
        self.total, self.count = total, count

    def add(self, number: float) -> None:
        self.total, self.count = self.total + number, self.count + 1

    def mean(self) -> float:
        return self.total / max(self.count, 1)

    def take(self) -> float:
        mean = self.mean()
        self.total, self.count = 0.0, 0
        return mean


class _Shared:
    """What of the Trainer newcomers get: its state, that of its callbacks, and mean losses."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.since_log, self.of_all = _Average(), _Average()
        self.stopped = False  # before the last step

    def add(self, loss: float) -> None:
        """Count the loss of a step."""
        if math.isfinite(loss) or not self._trainer.args.logging_nan_inf_filter:
            self.since_log.add(loss)
            self.of_all.add(loss)

    def state_dict(self) -> dict[str, Any]:
        """Return it, in JSON, as Transformers does in checkpoints."""
        state = asdict(self._trainer.state)
        own = {name: value for name, value in state.items() if name not in _FLAGS}
        callbacks = [one.state()["attributes"] for one in self._callbacks()]
        means = [vars(self.since_log), vars(self.of_all)]
        return {"json": json.dumps([own, callbacks, means, self.stopped])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it over from rank 0."""
        state, callbacks, means, self.stopped = json.loads(state_dict["json"])
        self.since_log, self.of_all = [_Average(**mean) for mean in means]
        objects = [self._trainer.state, *self._callbacks()]
        for one, attributes in zip(objects, [state, *callbacks], strict=True):
            for name, value in attributes.items():
                setattr(one, name, value)

    def _callbacks(self) -> list[Any]:
        found = self._trainer.callback_handler.callbacks
        return [one for one in found if isinstance(one, ExportableState)]


def _size(dataset: Any) -> float:
    return len(dataset) if hasattr(dataset, "__len__") else math.inf


def _sampling(args: Any) -> Any:
    return getattr(args, "train_sampling_strategy", "random")  # transformers 5.0 has none


def _check(args: Any) -> None:
    """Refuse what would train wrongly, or not at all.

    Raises:
        TypeError, ValueError: the message says what.
    """
    if not isinstance(args, TrainingArguments):
        raise TypeError(_ARGUMENTS)
    if args.device.type != "cpu":
        raise ValueError(_ON_CPU)
    refused = {
        "gradient_accumulation_steps": args.gradient_accumulation_steps > 1,
        "fp16": args.fp16,
        "deepspeed": args.deepspeed,
        "fsdp": args.fsdp,
        "torch_compile": args.torch_compile,
        "auto_find_batch_size": args.auto_find_batch_size,
        "enable_jit_checkpoint": getattr(args, "enable_jit_checkpoint", False),
        "save_on_each_node": args.save_on_each_node,
        "data_seed (seed is for the data too)": args.data_seed not in (None, args.seed),
        "optim, if it updates in backward()": any(one in args.optim for one in _EARLY),
        "load_best_model_at_end": args.load_best_model_at_end,
        "save_strategy='best'": args.save_strategy == "best",
        "dataloader_drop_last": args.dataloader_drop_last,
        "include_num_input_tokens_seen": args.include_num_input_tokens_seen not in (False, "no"),
        "train_sampling_strategy": _sampling(args) not in ("random", "sequential"),
        "group_by_length": getattr(args, "group_by_length", False),  # its name until 5.0
    }
    found = ", ".join(name for name, used in refused.items() if used)
    if found:
        raise ValueError(f"not in process: {found}; see 'bftrainer help huggingface'")
