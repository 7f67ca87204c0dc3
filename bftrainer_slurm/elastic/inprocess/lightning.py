"""A Lightning strategy whose ranks come and go while it trains.

To Lightning each process is alone. Its loop asks for tickets; a ticket becomes a batch of
``elastic.Trainer``'s when the loop moves it to the device, and that is where ranks change. The
optimizer's step is repeated with another batch if a peer is lost. The training is one epoch of
Lightning's: an epoch that ended while a rank lost its peers could not be taken back.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import lightning
from lightning.pytorch import callbacks
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic.inprocess.alone import agree
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.stream import is_iterable

_NO_LOADER = (
    "the training data is one torch.utils.data.DataLoader with a batch_size, no sampler of its "
    "own and no drop_last, as it is decided elsewhere which samples a rank trains"
)
_AVERAGES = tuple(
    getattr(callbacks, name)
    for name in ("StochasticWeightAveraging", "WeightAveraging")
    if hasattr(callbacks, name)  # lightning 2.5 has only one
)
_OF_WORKERS = (
    *("num_workers", "prefetch_factor", "worker_init_fn"),
    *("multiprocessing_context", "timeout"),
)
_STOPPED = (
    "this rank stopped, and the others may not have: do not set should_stop in a module's "
    "on_train_batch_end; a callback or training_step may set it"
)


class InProcess(SingleDeviceStrategy):
    """For ``lightning.Trainer(strategy=InProcess(checkpoint=folder), devices=1, max_steps=...)``.

    Args:
        batch: whether the DataLoader's ``batch_size`` is a rank's, or that of all ranks together.
        options: as ``elastic.Trainer``'s: ``checkpoint``, ``rate``, ``seed``, ...
    """

    def __init__(self, *, batch: Literal["local", "global"] = "local", **options: Any) -> None:
        super().__init__("cpu")
        self.elastic: elastic.Trainer | None = None
        self._batch_is, self._options = batch, options
        self._loops = _Loops(self)
        self._step = ExitStack()  # the step that is not over yet
        self._source: DataLoader[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self._batch: Any = None
        self._wishes_stop = self._will_stop = False

    # What ranks there are.

    @property
    def is_global_zero(self) -> bool:
        """Whether this is rank 0; nobody is before the ranks have met."""
        if self.elastic is None:
            return not _in_element() or self._source is None
        return self.elastic.leads

    @property
    def global_rank(self) -> int:
        """This process's rank at present."""
        return 0 if self.elastic is None else self.elastic.rank

    @global_rank.setter
    def global_rank(self, rank: int) -> None: ...  # the base class sets 0

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Let all ranks stop after the next step, in which all get to know that one wishes to."""
        if all:
            return decision
        self._wishes_stop |= decision
        return False

    # The batches.

    def setup(self, trainer: lightning.Trainer) -> None:
        """Check what will be trained."""
        if trainer.state.fn == "fit" and self.elastic is not None:
            raise RuntimeError("fit() is called once in a process")
        self.trainer = trainer  # a module that asks for estimated_stepping_batches needs it
        super().setup(trainer)
        if trainer.state.fn == "fit":
            _check(trainer)
            trainer.callbacks.append(_Last(self))
            if _in_element():
                rank_zero_only.rank = 1  # until they have met

    def process_dataloader(self, dataloader: object) -> object:
        """Take the training's DataLoader, and give tickets for its batches."""
        if not self.trainer.training:
            return dataloader
        self._source = _checked(dataloader)
        return _Tickets()

    def batch_to_device(self, batch: Any, *others: Any, **more: Any) -> Any:
        """Get the batch for a ticket."""
        if not isinstance(batch, _Tickets):
            if self.trainer.training:  # of several loaders
                raise ValueError(_NO_LOADER)
            return super().batch_to_device(batch, *others, **more)
        self._loops.note()
        self._step.close()
        self._batch = self._next()
        return self._batch

    def _next(self) -> Any:
        if self._batches is None:
            self._batches = self._begin()
        batch = self.precision_plugin.convert_input(next(self._batches))
        rank_zero_only.rank = 0 if self.is_global_zero else 1  # whose loggers write
        return super().batch_to_device(batch)

    def _begin(self) -> Iterator[Any]:
        assert self._source is not None
        source, trainer = self._source, self.trainer
        if _in_element():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning's would end the loop
        others = {
            f"scheduler_{place}": config.scheduler
            for place, config in enumerate(self.lr_scheduler_configs)
        }
        self.elastic = elastic.Trainer(
            self.lightning_module, self.optimizers, loops=self._loops, **others, **self._options
        )
        self.model = self.elastic.ddp
        self.elastic.cursor = Cursor(step=trainer.global_step)  # ckpt_path has no other place
        self.loader = self.elastic.loader(
            source.dataset,
            source.batch_size or 1,
            sys.maxsize,
            batch=self._batch_is,
            shuffle=not isinstance(source.sampler, SequentialSampler),
            until=self.is_over,
            collate_fn=source.collate_fn,
            **{name: getattr(source, name) for name in _OF_WORKERS},
        )
        return iter(self.loader)

    def is_over(self) -> bool:
        """Return whether the training is over; the same on all ranks."""
        return self._loops.stopped or self._loops.steps >= self.trainer.max_steps

    # A step.

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        """Compute the loss, of another batch if the step is repeated."""
        return super().training_step(self._batch, *arguments[1:], **options)

    def backward(self, closure_loss: Tensor, *others: Any, **more: Any) -> Tensor:
        """Compute averaged gradients, and the mean loss."""
        assert self.elastic is not None
        loss: Tensor = super().backward(closure_loss, *others, **more)
        agreed = agree(float(loss), self._weight, self._wishes_stop)
        self.elastic.loss, self._will_stop = agreed
        return loss

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], *others: Any, **more: Any
    ) -> Any:
        """Compute a step and update, again with another batch if it was in vain."""
        assert self.elastic is not None
        while True:
            with ExitStack() as entered:
                step = entered.enter_context(self.elastic.step())
                self._weight = step.weight
                result = super().optimizer_step(optimizer, closure, *others, **more)
                self._step = entered.pop_all()  # it is over when Lightning has counted it
                self.hold_stop()
                self._loops.stopped |= self._will_stop
                self.trainer.should_stop |= self._will_stop
                return result
            self._loops.in_step = True
            self._batch = self._next()  # StopIteration, if the others have trained the last step
            self._loops.in_step = False

    def hold_stop(self) -> None:
        """Stop only after a step in which all ranks know that one wishes to."""
        if self.trainer.should_stop and not self._loops.stopped:
            self._wishes_stop, self.trainer.should_stop = True, False

    def on_validation_end(self) -> None:
        """Hold what callbacks wish then."""
        self.hold_stop()

    def on_train_end(self) -> None:
        """End the training on all ranks, whoever is lost meanwhile."""
        self._loops.note()
        self._step.close()
        if self._batches is not None:
            for _ in self._batches:
                raise RuntimeError(_STOPPED)


class _Last(lightning.Callback):
    """Looks at what the other callbacks have wished."""

    def __init__(self, strategy: InProcess) -> None:
        self._strategy = strategy

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Hold it."""
        self._strategy.hold_stop()


class _Tickets:
    """As many tickets as the loop asks for; it asks for one ahead."""

    def __iter__(self) -> Iterator[_Tickets]:
        while True:
            yield self


class _Loops:
    """What newcomers get of Lightning's loops and callbacks: where they are between two steps."""

    def __init__(self, strategy: InProcess) -> None:
        self._strategy = strategy
        self._noted: dict[str, Any] = {}
        self.stopped = False  # before the last step
        self.in_step = False  # the loop has counted one more as begun

    @property
    def steps(self) -> int:
        """How many steps were trained, between two steps."""
        return int(self._noted["optimizer"]["optimizer"]["step"]["total"]["completed"])

    def note(self) -> None:
        """Note where the loops are, between two steps."""
        loop = self._strategy.trainer.fit_loop.epoch_loop
        self._noted = {name: one.state_dict() for name, one in self._counts().items()}
        self._noted["loop"] = loop.on_save_checkpoint()

    def state_dict(self) -> dict[str, Any]:
        """Return it."""
        callbacks = {one.state_key: one.state_dict() for one in self._strategy.trainer.callbacks}
        return {"counts": self._noted, "callbacks": callbacks, "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it over from rank 0, or from a checkpoint."""
        self._noted, self.stopped = state_dict["counts"], state_dict["stopped"]
        for one in self._strategy.trainer.callbacks:
            if state := state_dict["callbacks"].get(one.state_key):
                one.load_state_dict(state)
        counts = self._counts()
        for name, one in counts.items():
            one.load_state_dict(self._noted[name])
        self._strategy.trainer.fit_loop.epoch_loop.on_load_checkpoint(self._noted["loop"])
        self._strategy.trainer.should_stop |= self.stopped
        if self.in_step and not self._strategy.is_over():
            counts["batch"].increment_ready()
            counts["batch"].increment_started()
            counts["optimizer"].optimizer.step.increment_ready()

    def _counts(self) -> dict[str, Any]:
        loop = self._strategy.trainer.fit_loop.epoch_loop
        return {
            "batch": loop.batch_progress,
            "scheduler": loop.scheduler_progress,
            "optimizer": loop.automatic_optimization.optim_progress,
        }


def _in_element() -> bool:
    return bool(os.environ.get("BFTRAINER_KEEPER"))


def _checked(loader: object) -> DataLoader[Any]:
    """Return the training's loader.

    Raises:
        ValueError: something of it would not hold.
    """
    if not isinstance(loader, DataLoader) or loader.batch_size is None or loader.drop_last:
        raise ValueError(_NO_LOADER)
    known = type(loader.sampler) in (RandomSampler, SequentialSampler)
    if not known and not is_iterable(loader.dataset):
        raise ValueError(_NO_LOADER)
    return loader


def _check(trainer: lightning.Trainer) -> None:
    """Refuse what would train wrongly, or not at all.

    Raises:
        ValueError: the message says what.
    """
    module = trainer.lightning_module
    refused = {
        "manual optimization": not module.automatic_optimization,
        "accumulate_grad_batches": trainer.accumulate_grad_batches > 1,
        "precision": trainer.precision not in ("32-true", "bf16-mixed", "bf16-true", "64-true"),
        "max_epochs (give max_steps)": trainer.max_epochs not in (None, -1),
        "no max_steps": trainer.max_steps < 1,
        "min_steps, min_epochs": bool(trainer.min_steps or trainer.min_epochs),
        "val_check_interval (give a number of steps)": (
            trainer.enable_validation and not isinstance(trainer.val_check_interval, int)
        ),
        "limit_train_batches": (
            isinstance(trainer.limit_train_batches, int)
            or trainer.limit_train_batches not in (1.0, math.inf)
        ),
        "on_before_batch_transfer (use on_after_batch_transfer)": any(
            is_overridden("on_before_batch_transfer", one) for one in (module, trainer.datamodule)
        ),
        "schedulers by epoch": any(
            one.interval != "step" for one in trainer.strategy.lr_scheduler_configs
        ),
        "ReduceLROnPlateau, as each rank has metrics of its own": any(
            one.reduce_on_plateau for one in trainer.strategy.lr_scheduler_configs
        ),
        "averages of weights that newcomers do not get": any(
            isinstance(one, _AVERAGES) for one in trainer.callbacks
        ),
    }
    found = ", ".join(name for name, used in refused.items() if used)
    if found:
        raise ValueError(f"not in process: {found}; see 'bftrainer help lightning'")
