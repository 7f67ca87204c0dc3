"""What all trainers share: the loader's side of a training on ranks that come and go.

How a model is trained on them, and what becomes of its state at a change, is in ``trainer`` (DDP)
and ``sharded`` (FSDP2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.changes import ChangeLog
from bftrainer_slurm.elastic.inprocess.collective import Communicator, PeerLostError
from bftrainer_slurm.elastic.inprocess.common import Common
from bftrainer_slurm.elastic.inprocess.loader import Indexed, Loader, Source
from bftrainer_slurm.elastic.inprocess.members import Members
from bftrainer_slurm.elastic.inprocess.pace import Pace, known
from bftrainer_slurm.elastic.inprocess.sampler import Batch, Course, Cursor
from bftrainer_slurm.elastic.inprocess.scaling import Rate, ScaledRate
from bftrainer_slurm.elastic.inprocess.stream import UNKNOWN_SIZE, Stream, is_iterable
from bftrainer_slurm.elastic.steps import Counts
from bftrainer_slurm.keeper.membership import Generation

_ONE_STEP = (
    "a training step is one optimizer.step() in one trainer.step(): several batches for one update "
    "are parts of one larger batch, see docs/elastic.md"
)
_GRADIENTS_FIRST = (
    "gradients were computed after the first optimizer.step() of a step, which is its commit: "
    "write all backward() before it; networks that train in turns, as a GAN's, do not fit"
)
_CLOSURE = "optimizer.step() takes no closure here (LBFGS): a step is computed once"
_ONE_LOADER = (
    "a trainer has one loader: write torch.utils.data.ConcatDataset or StackDataset for several "
    "data sets; data that is not trained, as for validation, needs no trainer"
)


class RehearsedError(Exception):
    """The rehearsal has come to the commit, and ends there."""


class Training(ABC):
    """A training as its loader and its steps see it."""

    def __init__(self, members: Members, common: Common, seed: int | None) -> None:
        self.loss: float | Tensor | None = None  # set it to have it reported
        self.changing = members.changing
        self._members = members
        self._common = common
        self._seed = seed
        self._generation: Generation | None = None
        self._course: Course | None = None
        self._step: Step | None = None  # the one that has been entered
        self._expected: Expected | None = None  # by the batch given last, if not entered yet
        self._present = Expected(1.0, None)  # in the step entered last
        self._regroup_now = False
        self._pace = Pace()
        self._changes = ChangeLog(hear=listeners.tell)

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
        ``options`` go to DataLoader. Of an iterable data set, which needs ``state_dict`` and
        ``load_state_dict``, the only one is ``collate_fn``.
        """
        if self._course is not None:
            raise RuntimeError(_ONE_LOADER)
        iterable = is_iterable(dataset)
        self._course = Course(
            size=UNKNOWN_SIZE if iterable else len(dataset),  # type: ignore[arg-type]
            epochs=epochs,
            batch_size=batch_size,
            batch=Batch(batch),
            shuffle=shuffle,
            seed=self._seed or 0,
        )
        source: Source
        if iterable:
            source = stream = Stream(dataset, self._course, lambda: self.cursor, **options)
            self._common.add("stream", stream)
        else:
            source = Indexed(dataset, self._course, self._seed, self.changing, options)
        return Loader(self, source, self._course, self._seed)

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
        self._group.attempt(self._meet)
        try:
            self._complete()
            self._group.commit()
        except PeerLostError:
            self._lose()
            return False
        if self.rank == 0:
            self._common.save_last()
            self._report()
        self._changes.ended(self._trained())
        self._members.done()
        return True

    def _meet(self) -> None:
        self._group.watch(dist.all_reduce(torch.zeros(1), async_op=True), on_gpu=False)

    # What the loader asks for.

    def must_regroup(self) -> bool:
        """Return whether the ranks are about to change, now that a step has been committed."""
        return self._regroup_now or self._members.boundary(self._common.cursor.step)

    def regroup(self) -> None:
        """Get into the next generation, with the state of whoever has come furthest."""
        self._changes.ended(self._trained())
        self._pace.changed()
        while True:
            generation = self._members.form(self._common.version)
            try:
                self._take_over(generation)
                self._group.formed()
            except PeerLostError:
                self._await_others()  # this rank still has all that it came with
            else:
                self._generation = generation
                self._regroup_now = False
                if self.changing:
                    places = {(member.task, member.node) for member in generation.members}
                    why, tells = self._members.why, generation.rank == 0
                    self._changes.began(places, why, self._trained(), tells)
                return

    @abstractmethod
    def _take_over(self, generation: Generation) -> None:
        """Have all ranks of a generation begin with the same state."""

    def expect(self, weight: float, after: Cursor) -> None:
        """Say what the step that follows trains, and where the training stands after it."""
        self._expected = Expected(weight, after)

    def expect_rehearsal(self) -> None:
        """Say that the step that follows is not to be committed."""
        self._expected = Expected(1.0, None)

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
        self._begin(rehearsal=self._present.after is None)

    @abstractmethod
    def leave(self, step: Step, error: BaseException | None) -> bool:
        """Commit or give up a step; return whether ``error`` is dealt with."""

    @abstractmethod
    def _begin(self, rehearsal: bool) -> None:
        """Make ready for a step."""

    @abstractmethod
    def _complete(self) -> None:
        """Do what all ranks do at the end of the training."""

    def _watch(self, optimizer: torch.optim.Optimizer, rate: Rate) -> ScaledRate:
        """Have an optimizer's ``step()`` be a part of the training step; the first commits it."""
        scaled = ScaledRate(optimizer, rate)

        def before(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            if [*arguments[1:], options.get("closure")][0] is not None:
                raise TypeError(_CLOSURE)
            self._before_update(optimizer)
            assert self._course is not None
            scaled.apply(self._course.total(self.world) / self._course.batch_size)

        def after(*_: Any) -> None:
            assert self._step is not None
            self._step.stepped.append(optimizer)
            scaled.restore()

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        return scaled

    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        step = self._step
        if step is None or any(optimizer is one for one in step.stepped):
            raise RuntimeError(_ONE_STEP)
        if step.stepped:
            if self._group.averaged:
                raise RuntimeError(_GRADIENTS_FIRST)
            return
        self._check_gradients()
        if self._present.after is None:
            raise RehearsedError
        self._group.commit()
        self._group.averaged = False

    @abstractmethod
    def _check_gradients(self) -> None:
        """Check, before the optimizer steps, that its gradients are the world's."""

    def _check_updated(self, step: Step) -> None:
        """Check that a step which has come to its end has trained.

        Raises:
            RuntimeError: its batch would be lost if the next step were repeated.
        """
        if not step.updated:
            raise RuntimeError(_ONE_STEP)

    def _commit(self, after: Cursor) -> None:
        self._common.cursor = after
        self._pace.stepped()
        if self.rank == 0 and self._pace.is_due():
            self._report()
            self._changes.trained(self._trained())

    def _trained(self) -> Counts:
        return self._pace.progress(self._common.cursor.step, self._common.cursor.samples)

    def _lose(self) -> None:
        """A peer was lost while the ranks trained."""
        self._await_others()

    def _await_others(self) -> None:
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

    @property
    def _group(self) -> Communicator:
        return self._members.group


class Step:
    """One training step; ``committed`` says afterwards whether it counts or will be repeated."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.weight = 0.0  # of this rank's samples in it, from 0 to 1
        self.stepped: list[torch.optim.Optimizer] = []  # those that have, in this order
        self.committed = False

    @property
    def updated(self) -> bool:
        """Whether an optimizer has stepped."""
        return bool(self.stepped)

    def __enter__(self) -> Step:
        self._training.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self._training.leave(self, error)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a step trains: this rank's part of it, and where it leads; None: it is a rehearsal."""

    weight: float
    after: Cursor | None
