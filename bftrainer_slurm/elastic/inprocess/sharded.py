"""A trainer whose model is sharded over all ranks (FSDP2, ``fully_shard``), and rebuilt at changes.

Between two generations the whole state is in the memory of every rank that was in the first one;
in a generation each has its shards, and a copy of another rank's (``neighbours``). What is lost
with both comes from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints
from bftrainer_slurm.elastic.inprocess.collective import of_collective
from bftrainer_slurm.elastic.inprocess.neighbours import Neighbours, local, packed
from bftrainer_slurm.elastic.inprocess.peers import find_peers
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from bftrainer_slurm.elastic.inprocess.replica import Replica
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.scaling import Rate, RateRule
from bftrainer_slurm.elastic.inprocess.training import RehearsedError, Step, Training
from bftrainer_slurm.elastic.inprocess.transfer import copied
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.keeper.messages import Generation

if torch_private.missing(torch_private.SHARDING) is not None:
    raise ImportError(
        f"elastic.ShardedTrainer needs a later torch than {torch.__version__}: use FSDP2 under "
        "torchrun, which restarts the script at changes, see 'bftrainer help fsdp2'"
    )

Build = Callable[[DeviceMesh], tuple[nn.Module, torch.optim.Optimizer]]


class ShardedTrainer(Training):
    """Trains what ``build`` makes on whatever ranks there are; gloo and the CPU only.

    ``model`` and ``optimizer`` are the present generation's: ask for them in each step. Use
    ``backward(loss)`` in the place of ``loss.backward()``.

    Args:
        build: makes the model, sharded over the mesh that it is given (``fully_shard(model,
            mesh=mesh)``), and its optimizer. It is called anew in each generation.
        checkpoint: a folder that all nodes see. The loss of several nodes at once costs the steps
            since the last checkpoint there.
        checkpoint_every: steps between checkpoints.
        copy_every: steps between copies of each rank's shards to a rank on another node. The loss
            of one node costs the steps since the last copy: 1, one step at most.
        rate: what multiplies the learning rate as the global batch grows with the world: "linear",
            "sqrt", "none", or a function of how many times larger it is. None: linear for SGD,
            sqrt for others.
        rate_ramp: steps in which the rate gets there after a change.
        seed: of the order of samples, and of torch's generators in each step and rank; None
            leaves the generators to the script.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        build: Build,
        *,
        checkpoint: str | os.PathLike[str],
        checkpoint_every: int = 1000,
        copy_every: int = 1,
        rate: RateRule | None = None,
        rate_ramp: int = 0,
        seed: int | None = 0,
    ) -> None:
        if min(checkpoint_every, copy_every) < 1:
            raise ValueError("checkpoint_every and copy_every are numbers of steps, from 1 on")
        self._build = build
        self._every = checkpoint_every
        self._copy_every = copy_every
        self._neighbours = Neighbours()
        self._nodes: list[int] = []  # of each rank
        self._whole = _Whole()
        self._rate = Rate(rate, rate_ramp)
        replica = Replica(
            {"training": self._whole, "rate": self._rate}, Checkpoints(Path(checkpoint), 0.0)
        )
        peers = find_peers(os.environ, None, nccl_in_process=False, saves=True)
        super().__init__(peers, replica, seed)
        place = torch_private.missing(torch_private.FUNCTIONAL)
        if self.changing and place is not None:
            say(f"torch {torch.__version__} has no {place}: at a loss ranks may wait for 5 minutes")
        self._make(0)
        self._complete()  # the first state of all
        self._watch(self.optimizer, self._rate)

    def backward(self, loss: Tensor) -> None:
        """Compute gradients of a mean over this rank's samples, averaged over all samples."""
        if self._step is None:
            raise RuntimeError("trainer.backward(loss) belongs into 'with trainer.step():'")
        torch.autograd.backward(loss * self._step.weight)

    def regroup(self) -> None:
        """Get into the next generation, with the whole state of whoever has come furthest."""
        if self._whole.state is None and not self._regroup_now:
            try:
                self._complete()
            except PeerLostError:
                self._lose()
        super().regroup()
        self._whole.state = None

    def _take_over(self, generation: Generation) -> None:
        self._nodes = [member.task for member in generation.members]
        if self.changing:
            recovered = self._neighbours.recovered(self._group, self._replica.version)
            if recovered is not None:
                self._replica.take(recovered)
        self._replica.agree(self._group, generation.number)
        self._spread(generation.number)
        if self.changing:
            self._copy()

    def leave(self, step: Step, error: BaseException | None) -> bool:
        """Commit or give up a step; return whether ``error`` is dealt with."""
        self._step = None
        self._rate.restore()
        if (after := step.part.after) is None:
            self.optimizer.zero_grad()
            return error is None or isinstance(error, RehearsedError)
        if of_collective(error):
            self._group.fail(error)
        if self._group.failed() and (error is None or isinstance(error, Exception)):
            self._lose()
            return True
        if error is None:
            self._check_updated(step)
            self._commit(after)
            # Not if a peer was lost while it was saved or copied: then it may have to be repeated.
            step.committed = self._replica.version is not None
        return error is None

    def _begin(self, step: Step) -> None:
        self._group.begin()

    def _commit(self, after: Cursor) -> None:
        super()._commit(after)
        try:
            if after.step % self._every == 0:
                self._save()
            if self.changing and after.step % self._copy_every == 0:
                self._copy()
        except PeerLostError:
            self._lose()

    def _save(self) -> None:
        """Make a checkpoint, on rank 0."""
        with self._whole.holding(self._gathered(everywhere=False)):
            if self.rank == 0:
                self._replica.save()

    def _copy(self) -> None:
        """Give a copy of this rank's shards to a rank on another node."""
        version = self._replica.version
        assert version is not None
        model, optimizer = get_state_dict(self.model, self.optimizer)
        with self._whole.holding({"model": local(model), "optimizer": local(optimizer)}):
            own = packed(self._replica.state())
        self._neighbours.exchange(self._group, self._nodes, version, own)

    def _lose(self) -> None:
        """Give up what this rank trains on: another rank's shards are missing."""
        self._progress.ended()  # now, as the cursor goes too
        super()._lose()
        self._replica.forget()
        self._whole.state = None

    def _complete(self) -> None:
        """Have the whole state in the memory of each rank."""
        self._whole.state = self._gathered(everywhere=True)

    def _spread(self, generation: int) -> None:
        """Shard the whole state over the ranks there are."""
        self._make(generation)
        whole = copied(self._whole.state_dict())  # torch puts shards into the dictionaries
        kept = [one for state in whole["optimizer"]["state"].values() for one in state.values()]
        # torch asks for a tensor to shard in the optimizer's state: SGD without momentum has none.
        sharded = any(isinstance(one, Tensor) and one.dim() > 0 for one in kept)
        full = StateDictOptions(full_state_dict=True)
        with self._group.noting(foreign=False):
            set_model_state_dict(self.model, whole["model"], options=full)
            set_optimizer_state_dict(
                *(self.model, self.optimizer, whole["optimizer"]),
                options=full if sharded else None,
            )
            if self.cursor.step == 0:  # who loses a peer has to find a checkpoint
                if self.rank == 0:
                    self._replica.save_last()
                dist.barrier()
        # Not before its state is there: torch steps once to make it.
        self._watch(self.optimizer, self._rate)

    def _make(self, generation: int) -> None:
        # DTensor caches what it computes for a mesh, this process's part of a tensor too. As ranks
        # change, no mesh may equal an earlier one: hence the name.
        with self._group.noting(foreign=False):
            # Not init_device_mesh: where there is a GPU, that makes another group, of torch's time.
            world = dist.group.WORLD
            assert world is not None
            name = f"generation_{generation}"
            mesh = DeviceMesh.from_group(world, "cpu", mesh_dim_names=(name,))
            self.model, self.optimizer = self._build(mesh)
        # Sums: backward() has weighted each rank's part.
        if not torch_private.sum_in_python(self.model):
            raise ValueError("build has to shard its model: fully_shard(model, mesh=mesh)")

    def _gathered(self, everywhere: bool) -> dict[str, Any]:
        """Return the whole state, on rank 0 or everywhere."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=not everywhere)
        with self._group.noting(foreign=False):
            model, optimizer = get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optimizer": optimizer}


class _Whole:
    """The whole state while it is in memory, as ``Replica`` sends and saves it."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None

    @contextlib.contextmanager
    def holding(self, state: dict[str, Any]) -> Iterator[None]:
        """Have this in the place of the whole state for a while."""
        before, self.state = self.state, state
        try:
            yield
        finally:
            self.state = before

    def state_dict(self) -> dict[str, Any]:
        """Return it."""
        if self.state is None:
            raise RuntimeError("the whole state is not in memory")
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it."""
        self.state = state_dict
