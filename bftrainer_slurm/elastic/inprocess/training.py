"""What all trainers share: the loader, the steps, and the changes of the ranks.

How a model is trained, and what happens to its state at a change, is in ``trainer`` (DDP) and
``sharded`` (FSDP2). What is reported is in ``reporting``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.loader import Indexed, Loader
from bftrainer_slurm.elastic.inprocess.peers import Peers
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from bftrainer_slurm.elastic.inprocess.replica import Replica
from bftrainer_slurm.elastic.inprocess.sampler import Batch, Course, Cursor, Part
from bftrainer_slurm.elastic.inprocess.scaling import Rate
from bftrainer_slurm.elastic.inprocess.stream import UNKNOWN_SIZE, Stream, is_iterable
from bftrainer_slurm.elastic.reporting import Progress
from bftrainer_slurm.elastic.saving import saved
from bftrainer_slurm.elastic.steps import makes_state
from bftrainer_slurm.keeper.messages import Generation

_ONE_STEP = (
    "a training step is one optimizer.step() in one trainer.step(), also its scaler's update(): "
    "several batches for one update are parts of one larger batch, see 'bftrainer help elastic'"
)
_CLOSURE = "LBFGS computes its closure several times: a step is computed once"
_ONE_LOADER = (
    "a trainer has one loader: write torch.utils.data.ConcatDataset or StackDataset for several "
    "data sets; data that is not trained, as for validation, needs no trainer"
)


class RehearsedError(Exception):
    """A rehearsal has reached the commit of its step, and ends there."""


class Training(ABC):
    """A training as its loader and its steps see it."""

    def __init__(self, peers: Peers, replica: Replica, seed: int | None) -> None:
        self.loss: float | Tensor | None = None  # set it to have it reported
        self.changing = peers.changing
        self._peers = peers
        self._replica = replica
        self._seed = seed
        self._progress = Progress(lambda: self.cursor, peers.progress)
        self._course: Course | None = None
        self._step: Step | None = None  # the one that has been entered
        self._expected: Part | None = None  # of the last batch, if its step is not entered yet
        self._regroup_now = False

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        epochs: int,
        *,
        batch: Literal["local", "global"] = "local",
        shuffle: bool = True,
        until: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> Loader:
        """Return the batches of the whole training, for one ``for`` loop.

        ``batch_size`` is for each rank (``batch="local"``), or for all together (``"global"``).
        ``until`` says between steps whether the training is over before its last epoch. It has to
        say the same on all ranks that have the same state, newcomers included.
        ``options`` go to DataLoader. An iterable data set needs ``state_dict`` and
        ``load_state_dict``, and ``collate_fn`` is its only option.
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
        source: Indexed | Stream
        if iterable:
            source = stream = Stream(dataset, self._course, lambda: self.cursor, **options)
            self._replica.add("stream", stream)
        else:
            source = Indexed(dataset, self._course, self._seed, self.changing, options)
        return Loader(self, source, self._course, self._seed, until)

    def step(self) -> Step:
        """Return the context of one training step, from the forward pass to optimizer.step().

        If a peer is lost in it, the step ends there, and the loader gives its samples again, to
        the ranks of the next generation.
        """
        return Step(self)

    @property
    def cursor(self) -> Cursor:
        """How far the training has come."""
        return self._replica.cursor

    @cursor.setter
    def cursor(self, place: Cursor) -> None:
        """Begin there, with the state of a checkpoint of the script's own; before the loop only."""
        self._replica.cursor = place

    @property
    def rank(self) -> int:
        """This process's rank in the current generation."""
        return self._group.rank

    @property
    def leads(self) -> bool:
        """Whether this is rank 0; nobody is before ranks that come and go have met."""
        return self.rank == 0 and (self.generation > 0 or not self.changing)

    @property
    def world(self) -> int:
        """How many ranks the current generation has."""
        return self._group.world

    @property
    def generation(self) -> int:
        """The number of the current generation; 0 before the first, and in a fixed world."""
        return self._progress.changes.era.generation

    def finish(self) -> bool:
        """End the training, on all ranks after the same step; the loader calls it at its end.

        Returns whether all ranks have come here; if not, one was lost, and the training goes on.
        """
        self._group.begin()
        try:
            self._complete()
            if self.rank == 0:
                self._replica.save_last()
            # Nobody is done before that: if rank 0 is lost in it, another one saves.
            self._group.attempt(lambda: self._group.sum(torch.zeros(1)))
            self._group.commit()
        except PeerLostError:
            self._lose()
            return False
        if self.rank == 0:
            self._progress.tell(self.loss)
        self._progress.ended()
        self._peers.done()
        return True

    # What the loader asks for.

    def must_regroup(self) -> bool:
        """Return whether the ranks are about to change, now that a step has been committed.

        If this process is started again for that, it saves, and does not return.
        """
        if self._peers.must_save():
            self._save_and_end()
        return self._peers.boundary(self._replica.cursor.step) or self._regroup_now

    def _save_and_end(self) -> NoReturn:
        self._group.begin()
        self._complete()
        self._group.commit()
        if self.rank == 0:
            self._replica.save_last()
        saved()

    def regroup(self) -> None:
        """Get into the next generation, with the state of the rank that has come furthest."""
        self._progress.ended()
        while True:
            generation = self._peers.form(self._replica.version)
            try:
                self._take_over(generation)
                self._group.formed()
            except PeerLostError:
                self._await_others()  # this rank still has the state that it came with
            else:
                self._regroup_now = False
                tells = self.changing and generation.rank == 0
                self._progress.began(generation, self._peers.why, tells)
                return

    @abstractmethod
    def _take_over(self, generation: Generation) -> None:
        """Let all ranks of a generation begin with the same state."""

    def expect(self, part: Part) -> None:
        """Say which part the next step trains."""
        self._expected = part

    def check_stepped(self) -> None:
        """Check that the last batch had its step, even if the step was not committed.

        Raises:
            RuntimeError: the loop's body had no ``with trainer.step():``.
        """
        if self._expected is not None:
            raise RuntimeError("each batch of the loader needs one 'with trainer.step():'")

    # What a step does.

    def enter(self, step: Step) -> None:
        """Begin a step."""
        if self._expected is None:
            raise RuntimeError("trainer.step() belongs to a batch of trainer.loader()")
        self._step, step.part, self._expected = step, self._expected, None
        self._progress.begins(step.part.after)
        self._begin(step)
        if not step.rehearses:
            self._peers.begin_step(self.cursor.step)

    @abstractmethod
    def leave(self, step: Step, error: BaseException | None) -> bool:
        """Commit or give up a step; return whether ``error`` is dealt with."""

    @abstractmethod
    def _begin(self, step: Step) -> None:
        """Prepare a step."""

    @abstractmethod
    def _complete(self) -> None:
        """Do what all ranks do before the last save.

        Raises:
            PeerLostError: not all of them have done it.
        """

    def _watch(self, optimizer: torch.optim.Optimizer, rate: Rate) -> None:
        """Make an optimizer's ``step()`` a part of the training step; the first one commits it."""

        def before(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if self._step is None and makes_state(optimizer):
                return None
            closure, loss = [*arguments[1:], options.get("closure")][0], None
            if closure is not None:
                if isinstance(optimizer, torch.optim.LBFGS):
                    raise TypeError(_CLOSURE)
                with torch.enable_grad():
                    loss = closure()
            self._before_update(optimizer)
            assert self._course is not None
            rate.apply(self._course.total(self.world) / self._course.batch_size, optimizer)
            if closure is None:
                return None
            return arguments[:1], options | {"closure": lambda: loss}

        def after(*_: Any) -> None:
            if self._step is None:  # torch makes its state
                return
            self._step.stepped.append(optimizer)
            rate.restore()

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)

    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        step = self._step
        if step is None or any(optimizer is one for one in step.stepped):
            raise RuntimeError(_ONE_STEP)
        self.make_ready(step)

    def make_ready(self, step: Step) -> None:
        """Get all ranks ready for a step's commit, once; each time check its gradients."""
        self._check_gradients(step)
        if step.ready:
            return
        if step.rehearses:
            raise RehearsedError
        self._group.commit()
        step.ready = True

    def _check_gradients(self, step: Step) -> None:  # noqa: B027 - FSDP has summed them
        """Check, before an optimizer steps, that the gradients are the world's.

        Raises:
            RuntimeError: they are not, or more were computed once the step was ready.
        """

    def _check_updated(self, step: Step) -> None:
        """Check that a step which has come to its end has trained.

        Raises:
            RuntimeError: its batch would be lost if the next step were repeated.
        """
        if not step.updated:
            raise RuntimeError(_ONE_STEP)

    def _commit(self, after: Cursor) -> None:
        before, self._replica.cursor = self._replica.cursor, after
        self._peers.stepped(after.samples - before.samples, after.step)
        self._progress.stepped(self.rank == 0, self.loss)

    def _lose(self) -> None:
        """A peer was lost while the ranks trained."""
        self._await_others()

    def _await_others(self) -> None:
        if not self.changing:
            self._group.commit()  # raises the failure, as nobody else will come
        self._regroup_now = True
        self._peers.lost()

    @property
    def _group(self) -> Communicator:
        return self._peers.group


class Step:
    """One training step; afterwards ``committed`` says whether it counts or will be repeated."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.part = Part(0.0, None)  # of the samples, once it is entered
        self.stepped: list[torch.optim.Optimizer] = []  # those that have stepped, in this order
        self.ready = False  # all ranks' gradients are here: nothing but an update is left
        self.committed = False

    @property
    def weight(self) -> float:
        """The share of this rank's samples in it, from 0 to 1."""
        return self.part.weight

    @property
    def rehearses(self) -> bool:
        """Whether it is never committed: a newcomer's first steps."""
        return self.part.after is None

    @property
    def updated(self) -> bool:
        """Whether an optimizer has stepped."""
        return bool(self.stepped)

    def make_ready(self) -> None:
        """End the step here if it will be repeated; otherwise optimizer.step() will not fail.

        ``optimizer.step()`` does this by itself. It is for loops that update elsewhere, where they
        could not repeat the step any more.
        """
        self._training.make_ready(self)

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
