"""The trainer: a script's model and optimizer on ranks that come and go while it trains.

How ranks find each other is in ``peers``, what they send each other in ``collective``, their
shared state in ``replica``, which samples they train in ``sampler``. Here a step is committed or
repeated.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints
from bftrainer_slurm.elastic.inprocess.collective import of_collective
from bftrainer_slurm.elastic.inprocess.gradients import Gradients
from bftrainer_slurm.elastic.inprocess.peers import find_peers
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from bftrainer_slurm.elastic.inprocess.replica import Replica
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.scaling import Rate, RateRule
from bftrainer_slurm.elastic.inprocess.training import RehearsedError, Step, Training
from bftrainer_slurm.elastic.inprocess.transfer import share_tensors
from bftrainer_slurm.elastic.torch_private import group_of_one, was_used, without_buffers
from bftrainer_slurm.keeper.messages import Generation

_UNUSED = (
    "all ranks must use the same parameters: those that a model never uses get "
    "requires_grad_(False) before the trainer is made, others a part in the loss, 0 * p.sum()"
)
_NOT_AVERAGED = (
    "gradients were not averaged, or not all of them: compute with trainer.ddp, not the model; add "
    "losses up for one backward(); let the last part of a batch not be under no_sync(). Where that "
    f"is so, some parameters were not used: {_UNUSED}"
)
_NOT_THE_MODELS = (
    "an optimizer has a parameter that trainer.ddp does not average: put it into the model, and "
    "give it requires_grad_(True), before the trainer is made"
)
_GRADIENTS_FIRST = (
    "gradients were computed after the first optimizer.step() of a step, which is its commit: "
    "write all backward() before it; networks that train in turns, as a GAN's, do not fit"
)
_EACH_STEPS = "each of a trainer's optimizers steps once in a step, also where it changes little"
_SCALER = (
    "a gradient scaler was handed over and is not used: write scaler.scale(loss).backward(), "
    "scaler.step(optimizer), scaler.update(), or leave it out"
)


class ModelsDifferError(Exception):
    """This rank's gradients have other shapes than rank 0's."""


class Trainer(Training):
    """Trains ``model`` with one optimizer or several on the ranks that there are.

    In an element of BFTrainer ranks come and go between steps; elsewhere the world is torchrun's,
    srun's, or this process alone. ``ddp`` is the model wrapped for it.

    Args:
        model: on the device that it trains on.
        optimizer: the one whose ``step()`` commits a training step, or several. Each of them steps
            once in a training step, and the first to do so commits it.
        rate: how the learning rate grows with the global batch: "linear", "sqrt", "none", or a
            function of how many times larger the batch is. None: linear for SGD, sqrt for others.
        rate_ramp: in how many steps the rate gets to its new value after a change.
        seed: for the order of samples, and for torch's generators in each step and rank; None
            leaves the generators to the script.
        checkpoint: a folder that all nodes see; None writes no checkpoints.
        checkpoint_every_s: seconds between checkpoints.
        broadcast_buffers: give each step rank 0's buffers, as DDP does.
        ddp: further options of DistributedDataParallel.
        nccl_in_process: train in process on GPUs too; docs/limits.md says on what that was tried.
            Without it torchrun restarts a script on GPUs at each change.
        others: further objects with ``state_dict`` and ``load_state_dict``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        rate: RateRule | None = None,
        rate_ramp: int = 0,
        seed: int | None = 0,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every_s: float = 300.0,
        broadcast_buffers: bool = True,
        ddp: Mapping[str, Any] | None = None,
        nccl_in_process: bool = False,
        **others: Stateful,
    ) -> None:
        options = dict(ddp or {})
        self._optimizers = _optimizers(optimizer)
        _check(options, others)
        self._model = model
        self._rates = [Rate(rate, rate_ramp) for _ in self._optimizers]
        self._stateful: dict[str, Any] = {
            "model": model,
            **_numbered("optimizer", self._optimizers),
            **_numbered("rate", self._rates),
            **others,
        }
        self._buffers = list(model.buffers()) if broadcast_buffers else []
        kept = None if checkpoint is None else Checkpoints(Path(checkpoint), checkpoint_every_s)
        peers = find_peers(os.environ, gpu_of(model), nccl_in_process, kept is not None)
        super().__init__(peers, Replica(self._stateful, kept), seed)
        kinds = {parameter.device.type for parameter in model.parameters()} | {"cpu"}
        self.ddp = DistributedDataParallel(
            model,
            # Of only this process, so that a change needs no new DDP; None: of all, as usual.
            process_group=group_of_one(kinds) if self.changing else None,
            **without_buffers(),  # a step begins with them, in the current generation
            **options,
        )
        self._gradients = Gradients(model.parameters())
        self.ddp.register_comm_hook(
            None, lambda _, bucket: self._gradients.average(bucket, self._group)
        )
        for one, its_rate in zip(self._optimizers, self._rates, strict=True):
            self._watch(one, its_rate)
        self._kept: list[Tensor] = []
        self._scales: list[float] = []  # of the gradient scalers as the step began
        self._layout: list[tuple[int, ...]] = []

    def _take_over(self, generation: Generation) -> None:
        if self.changing:
            self._check_layout()
        self._replica.agree(self._group, generation.number)

    def leave(self, step: Step, error: BaseException | None) -> bool:
        """Commit or give up a step; return whether ``error`` is dealt with."""
        if isinstance(error, RuntimeError) and "unused parameter" in str(error):  # DDP's advice
            error.args = (f"{error}\nbftrainer: {_UNUSED}",)  # Python 3.10 has no notes
        self._step = None
        for one in self._rates:
            one.restore()
        if (after := step.part.after) is None:
            return self._leave_rehearsal(error)
        if error is None and not step.updated:  # a gradient scaler may skip an update
            try:
                self._group.commit()
            except PeerLostError as failure:
                error = failure
        ours = error is None or isinstance(error, PeerLostError)
        if of_collective(error):  # one of the script's own
            self._group.fail(error)
            ours = True
        # Before the update, the script may have failed because of wrong gradients.
        follows = isinstance(error, Exception) and not step.updated
        lost = self._group.failed() and (ours or follows)
        if error is not None and step.updated and not self._all_stepped(step):
            return False  # half an update: no other rank has this state
        if error is None and not lost:
            self._check_updated(step)
        if error is None or (step.updated and lost):
            self._commit(after)
            step.committed = True
        if not lost:
            return error is None
        self._lose()
        if not step.committed:
            self._forget_gradients()
        return True

    def _begin(self, step: Step) -> None:
        self._group.begin()
        self._gradients.begin(step.weight)
        self._scales = self._present_scales()
        if step.rehearses:
            self._kept = [buffer.clone() for buffer in self._model.buffers()]
        else:
            self._group.attempt(self._share_buffers)

    def _complete(self) -> None:
        self._group.attempt(self._share_buffers)

    def _check_gradients(self, step: Step) -> None:
        if step.ready:
            if self._gradients.added:
                raise RuntimeError(_GRADIENTS_FIRST)
            return
        groups = [group for one in self._optimizers for group in one.param_groups]
        own = self._gradients.own(chain.from_iterable(group["params"] for group in groups))
        if not self._gradients.known.issuperset(own):
            raise RuntimeError(_NOT_THE_MODELS)
        if own or not self._gradients.averaged:
            raise RuntimeError(_NOT_AVERAGED)
        if any(not was_used(one) for one in self._scalers()):
            raise RuntimeError(_SCALER)
        self._gradients.added = False

    def _check_updated(self, step: Step) -> None:
        if not self._all_stepped(step):
            super()._check_updated(step)
            raise RuntimeError(_EACH_STEPS)

    def _all_stepped(self, step: Step) -> bool:
        if len(step.stepped) == len(self._optimizers):
            return True
        now = self._present_scales()  # one falls where its scaler passes over an update
        passed_over = any(one < before for one, before in zip(now, self._scales, strict=True))
        return passed_over and (step.updated or bool(self._gradients.averaged))

    def _leave_rehearsal(self, error: BaseException | None) -> bool:
        for buffer, kept in zip(self._model.buffers(), self._kept, strict=True):
            buffer.copy_(kept)
        self._kept = []
        self._forget_gradients()
        self._layout = self._gradients.layout()
        return error is None or isinstance(error, RehearsedError)

    def _forget_gradients(self) -> None:
        """Clear what a step left that will be repeated, wherever the script calls zero_grad()."""
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        for one in self._scalers():
            one.update(one.get_scale())  # it remembers that it has unscaled gradients

    def _scalers(self) -> list[torch.amp.GradScaler]:
        given = self._stateful.values()
        return [one for one in given if isinstance(one, torch.amp.GradScaler) and one.is_enabled()]

    def _present_scales(self) -> list[float]:
        return [one.get_scale() for one in self._scalers()]

    def _share_buffers(self) -> None:
        if self._buffers:
            share_tensors(self._buffers, self.rank == 0, self._group.channel())

    def _commit(self, after: Cursor) -> None:
        super()._commit(after)
        if self.rank == 0:
            self._replica.save_if_due()

    def _check_layout(self) -> None:
        """Compare the gradients with the other ranks': different sizes would end the processes.

        Raises:
            ModelsDifferError: they are not those of one model.
        """
        model = [(one.requires_grad, tuple(one.shape)) for one in self._model.parameters()]
        all_ranks = self._group.all_gather([_digest(model), _digest(self._layout)]).tolist()
        if all_ranks[0][0] != _digest(model):
            raise ModelsDifferError("this rank's model has other parameters than rank 0's")
        self._gradients.sum_in_order(any(layout != all_ranks[0][1] for _, layout in all_ranks))


def gpu_of(model: nn.Module) -> torch.device | None:
    """Return the GPU that a model is on; None: it is on the CPU."""
    return next((one.device for one in model.parameters() if one.is_cuda), None)


def _digest(value: object) -> int:
    """Return a number of 64 bits that is another one for another value."""
    digest = hashlib.sha256(repr(value).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _optimizers(given: object) -> list[torch.optim.Optimizer]:
    given = given if isinstance(given, list | tuple) else [given]
    found = [one for one in given if isinstance(one, torch.optim.Optimizer)]
    if not found or len(found) < len(given):
        kinds = ", ".join(type(one).__name__ for one in given) or "nothing"
        raise TypeError(f"an optimizer is one of torch.optim's, or a list of them, not {kinds}")
    if any(isinstance(getattr(one, "optimizer", None), torch.optim.Optimizer) for one in found):
        raise TypeError("give torch's own optimizer, not one that accelerate has wrapped")
    return found


def _numbered(name: str, objects: Sequence[Any]) -> dict[str, Any]:
    """Return objects by name. The first has no number, as in checkpoints with only one."""
    return {f"{name}-{place}" if place else name: one for place, one in enumerate(objects)}


def _check(options: dict[str, Any], others: dict[str, Stateful]) -> None:
    """Check the other arguments of a script.

    Raises:
        ValueError: one is not allowed; the message says what to write.
    """
    if options.get("find_unused_parameters"):
        raise ValueError(f"find_unused_parameters: {_UNUSED}")
    for name, one in others.items():
        if isinstance(one, torch.optim.Optimizer):
            raise ValueError(f"{name}: write Trainer(model, [optimizer, {name}])")
