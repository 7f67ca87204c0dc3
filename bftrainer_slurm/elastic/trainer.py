"""The trainer: a script's model and optimizer on ranks that come and go while it trains.

How ranks find each other is in ``members``, what they send each other in ``collective``, what
they have in common in ``common``, which samples they train in ``sampler``. Here a step is
committed or repeated.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from bftrainer_slurm.elastic.checkpoint import Checkpoints
from bftrainer_slurm.elastic.collective import (
    Group,
    PeerLostError,
    backend_for,
    of_collective,
)
from bftrainer_slurm.elastic.common import Common, Stateful
from bftrainer_slurm.elastic.loader import Loader
from bftrainer_slurm.elastic.members import find_members
from bftrainer_slurm.elastic.pace import Pace, known
from bftrainer_slurm.elastic.sampler import Batch, Course, Cursor
from bftrainer_slurm.elastic.scaling import Rate, ScaledRate
from bftrainer_slurm.elastic.state import share_tensors
from bftrainer_slurm.keeper.membership import Generation


class LayoutError(Exception):
    """This rank's gradients come in another order than rank 0's: their models differ."""


class _RehearsedError(Exception):
    """The rehearsal has come to the commit, and ends there."""


class Trainer:
    """Trains ``model`` with ``optimizer`` on whatever ranks there are.

    In an element of BFTrainer ranks come and go between steps; elsewhere the world is torchrun's,
    srun's, or this process alone. ``ddp`` is the model wrapped for it.

    Args:
        model: on the device that it trains on.
        optimizer: the one whose ``step()`` commits a training step.
        rate: what multiplies the learning rate as the global batch grows with the world.
        seed: of the order of samples, and of torch's generators in each step and rank; None
            leaves the generators to the script.
        checkpoint: a folder that all nodes see; None writes no checkpoints.
        checkpoint_every_s: seconds between them.
        broadcast_buffers: give each step rank 0's buffers, as DDP does.
        ddp: further options of DistributedDataParallel.
        others: further objects with ``state_dict`` and ``load_state_dict``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        rate: Literal["linear", "sqrt", "none"] = "linear",
        seed: int | None = 0,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every_s: float = 300.0,
        broadcast_buffers: bool = True,
        ddp: Mapping[str, Any] | None = None,
        **others: Stateful,
    ) -> None:
        options = dict(ddp or {})
        _check(options, others)
        self.loss: float | Tensor | None = None  # set it to have it reported
        self._model = model
        self._optimizer = optimizer
        self._stateful: dict[str, Any] = {"model": model, "optimizer": optimizer, **others}
        self._rate = Rate(rate)
        self._scaled = ScaledRate(optimizer)
        self._seed = seed
        self._buffers = list(model.buffers()) if broadcast_buffers else []
        self._common = Common(
            self._stateful,
            None if checkpoint is None else Checkpoints(Path(checkpoint), checkpoint_every_s),
        )
        self._members = find_members(os.environ, backend_for(model))
        self.changing = self._members.changing
        self.ddp = DistributedDataParallel(
            model,
            process_group=self._members.ddp_group(model),
            forward_sync_buffers=False,  # a step begins with it, in the present generation
            **options,
        )
        self.ddp.register_comm_hook(None, lambda _, bucket: self._group.average(bucket))
        optimizer.register_step_pre_hook(self._before_update)
        optimizer.register_step_post_hook(self._after_update)
        self._generation: Generation | None = None
        self._course: Course | None = None
        self._step: Step | None = None  # the one that has been entered
        self._expected: _Expected | None = None  # by the batch given last, if not entered yet
        self._present = _Expected(1.0, None)  # in the step entered last
        self._kept: list[Tensor] = []
        self._layout: list[tuple[int, ...]] = []
        self._regroup_now = False
        self._pace = Pace()

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        epochs: int,
        *,
        batch: Literal["local", "global"] = "local",
        shuffle: bool = True,
        **options: Any,
    ) -> Loader:
        """Return the batches of the whole training, for one ``for`` loop.

        ``batch_size`` is of each rank (``batch="local"``), or of all together (``"global"``).
        ``options`` go to DataLoader.
        """
        if self._course is not None:
            raise RuntimeError("a trainer has one loader; other data needs no trainer")
        self._course = Course(
            size=len(dataset),  # type: ignore[arg-type]
            epochs=epochs,
            batch_size=batch_size,
            batch=Batch(batch),
            shuffle=shuffle,
            seed=self._seed or 0,
        )
        return Loader(self, dataset, self._course, self._seed, options)

    def step(self) -> Step:
        """Return the context of one training step, from the forward pass to optimizer.step().

        If a peer is lost in it, the step ends where it stands, and the loader gives its samples
        again, to the ranks that there are then.
        """
        return Step(self)

    @property
    def cursor(self) -> Cursor:
        """How far the training has come."""
        return self._common.cursor

    @property
    def rank(self) -> int:
        """This process's rank in the present generation."""
        return self._group.rank

    @property
    def world(self) -> int:
        """How many ranks the present generation has."""
        return self._group.world

    @property
    def generation(self) -> int:
        """The number of the present generation; 0 before the first, and in a fixed world."""
        return 0 if self._generation is None else self._generation.number

    def finish(self) -> bool:
        """End the training, on all ranks after the same step; the loader does it at its end.

        Returns whether all ranks have come here; if not, one was lost and the training goes on.
        """
        self._group.begin(1.0)
        self._group.attempt(lambda: dist.all_reduce(torch.zeros(1)))
        self._group.attempt(self._share_buffers)
        try:
            self._group.commit()
        except PeerLostError:
            self._lose()
            return False
        if self.rank == 0:
            self._common.save_last()
            self._report()
        self._members.done()
        return True

    # What the loader asks for.

    def must_regroup(self) -> bool:
        """Return whether the ranks are about to change, now that a step has been committed."""
        return self._regroup_now or self._members.boundary(self._common.cursor.step)

    def regroup(self) -> None:
        """Get into the next generation, with the state of whoever has come furthest."""
        self._pace.changed()
        while True:
            generation = self._members.form(self._common.step)
            try:
                if self.changing:
                    self._check_layout()
                self._common.agree(self._group, generation.members)
                self._group.formed()
            except PeerLostError:
                self._lose()
            else:
                self._generation = generation
                self._regroup_now = False
                return

    def expect(self, weight: float, after: Cursor) -> None:
        """Say what the step that follows trains, and where the training stands after it."""
        self._expected = _Expected(weight, after)

    def expect_rehearsal(self) -> None:
        """Say that the step that follows is not to be committed."""
        self._expected = _Expected(1.0, None)

    def check_stepped(self) -> None:
        """Check that the batch given last was trained, at least in vain.

        Raises:
            RuntimeError: the loop's body was without ``with trainer.step():``.
        """
        if self._expected is not None:
            raise RuntimeError("each batch of the loader needs one 'with trainer.step():'")

    # What a step does.

    def enter(self, step: Step) -> None:
        """Begin a step."""
        if self._expected is None:
            raise RuntimeError("trainer.step() belongs to a batch of trainer.loader()")
        self._step, self._present, self._expected = step, self._expected, None
        step.weight = self._present.weight
        rehearsal = self._present.after is None
        self._group.begin(self._present.weight, record=rehearsal)
        if rehearsal:
            self._kept = [buffer.clone() for buffer in self._model.buffers()]
        else:
            self._group.attempt(self._share_buffers)

    def leave(self, step: Step, error: BaseException | None) -> bool:
        """Commit or give up a step; return whether ``error`` is dealt with."""
        self._step = None
        self._scaled.restore()
        if self._present.after is None:
            return self._leave_rehearsal(error)
        if error is None and not step.updated:  # a gradient scaler may pass over an update
            try:
                self._group.commit()
            except PeerLostError as failure:
                error = failure
        ours = error is None or isinstance(error, PeerLostError)
        if isinstance(error, RuntimeError) and of_collective(error):  # one of the script's own
            self._group.fail(error)
            ours = True
        # Before the update, the script may have stumbled over gradients that are none.
        follows = isinstance(error, Exception) and not step.updated
        lost = self._group.failed() and (ours or follows)
        if error is None or (step.updated and lost):
            self._commit(self._present.after)
            step.committed = True
        if not lost:
            return error is None
        self._lose()
        if not step.committed:
            self._forget_gradients()
        return True

    def _before_update(self, *_: Any) -> None:
        if self._step is None or self._step.updated:
            raise RuntimeError("a training step is one optimizer.step() in one trainer.step()")
        if self._present.after is None:
            raise _RehearsedError
        self._group.commit()
        assert self._course is not None
        times = self._course.total(self.world) / self._course.batch_size
        self._scaled.apply(self._rate.factor(times))

    def _after_update(self, *_: Any) -> None:
        assert self._step is not None
        self._step.updated = True
        self._scaled.restore()

    def _leave_rehearsal(self, error: BaseException | None) -> bool:
        for buffer, kept in zip(self._model.buffers(), self._kept, strict=True):
            buffer.copy_(kept)
        self._kept = []
        self._forget_gradients()
        places = {id(one): place for place, one in enumerate(self._model.parameters())}
        self._layout = [tuple(places[one] for one in bucket) for bucket in self._group.layout]
        return error is None or isinstance(error, _RehearsedError)

    def _forget_gradients(self) -> None:
        """Leave nothing of a step that is repeated, wherever the script has its zero_grad()."""
        self._optimizer.zero_grad()
        for one in self._stateful.values():
            if isinstance(one, torch.amp.GradScaler) and one.is_enabled():
                one.update(one.get_scale())  # it remembers that it has unscaled gradients

    def _share_buffers(self) -> None:
        if self._buffers:
            share_tensors(self._buffers, self.rank == 0, self._group.channel())

    def _commit(self, after: Cursor) -> None:
        self._common.cursor = after
        self._pace.stepped()
        if self.rank == 0:
            if self._pace.is_due():
                self._report()
            self._common.save_if_due()

    def _lose(self) -> None:
        if not self.changing:
            self._group.commit()  # raises what has happened: nobody will come
        self._regroup_now = True
        self._members.lost()

    def _report(self) -> None:
        assert self._generation is not None
        self._members.progress(
            **known(
                samples=self._common.cursor.samples,
                steps=self._common.cursor.step,
                nodes=len({member.task for member in self._generation.members}),
                generation=self._generation.number,
                pause_s=self._pace.pause_s,
                loss=self.loss,
            )
        )

    def _check_layout(self) -> None:
        """A collective whose sizes differ between ranks would end their processes."""
        mine = hashlib.sha256(repr(self._layout).encode()).hexdigest()
        if self._group.agree("layout", mine) != mine:
            raise LayoutError("this rank's gradients come in another order than rank 0's")

    @property
    def _group(self) -> Group:
        return self._members.group


class Step:
    """One training step; ``committed`` says afterwards whether it counts or will be repeated."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.weight = 0.0  # of this rank's samples in it, from 0 to 1
        self.updated = False  # the optimizer has stepped
        self.committed = False

    def __enter__(self) -> Step:
        self._trainer.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self._trainer.leave(self, error)


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a step trains: this rank's part of it, and where it leads; None: it is a rehearsal."""

    weight: float
    after: Cursor | None


def _check(options: dict[str, Any], others: dict[str, Stateful]) -> None:
    if options.get("find_unused_parameters"):
        raise ValueError("find_unused_parameters: all ranks must use the same parameters")
    for name, one in others.items():
        if isinstance(one, torch.optim.Optimizer):
            raise ValueError(f"{name}: a trainer has one optimizer, whose step() is its commit")
