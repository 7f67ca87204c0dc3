"""How a training process gets into its next generation: through the keeper, or once and for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bftrainer_slurm.elastic import steps, torch_private
from bftrainer_slurm.elastic.changes import given_back
from bftrainer_slurm.elastic.inprocess import functional, waits
from bftrainer_slurm.elastic.inprocess.checkpoint import Version
from bftrainer_slurm.elastic.inprocess.collective import (
    Communicator,
    PeerLostError,
    alone_group,
    make_default,
    outlive_lost_peers,
)
from bftrainer_slurm.elastic.inprocess.leaving import Leaving
from bftrainer_slurm.elastic.place import StaticWorld, static_world, worker_identity
from bftrainer_slurm.keeper.credentials import prover_from
from bftrainer_slurm.keeper.membership import (
    Change,
    Dropped,
    Event,
    Generation,
    Membership,
    Peer,
    ReleasedError,
)
from bftrainer_slurm.keeper.protocol import parse_addresses


class Members(Protocol):
    """Who trains together with this process."""

    group: Communicator
    changing: bool  # whether this process may find itself in another generation
    why: str  # the last generation has ended, in the keeper's word

    def ddp_group(self, model: nn.Module) -> dist.ProcessGroup:
        """Return the group that the model is wrapped with, for as long as it lives."""

    def form(self, version: Version | None) -> Generation:
        """Get into the next generation with this state; None: there is no state."""

    def lost(self) -> None:
        """Say that a collective of the generation failed."""

    def boundary(self, step: int) -> bool:
        """Return whether to get into another generation now that ``step`` is complete."""

    def progress(self, **measures: float) -> None:
        """Tell how far the training has come."""

    def done(self) -> None:
        """Say that the training is complete."""


def find_members(environment: Mapping[str, str], backend: str, nccl_in_process: bool) -> Members:
    """Return the trainer's members in an element, else a world that does not change.

    Raises:
        RestartError: the processes are to be restarted at changes, and nobody would do it.
    """
    if environment.get("BFTRAINER_KEEPER"):
        why_not = _why_not_in_process(backend, nccl_in_process)
        if why_not is None:
            return ElementMembers(environment, backend)
        be_restarted(environment, why_not)
    return FixedMembers(static_world(environment), backend)


def _why_not_in_process(backend: str, nccl_in_process: bool) -> str | None:
    if "nccl" in backend and not nccl_in_process:
        return "on GPUs training in process has never been shown to work (nccl_in_process=True)"
    place = torch_private.missing()
    return None if place is None else f"torch {torch.__version__} has no {place}"


def be_restarted(environment: Mapping[str, str], why: str) -> None:
    """Say that this script is restarted at changes, and check that torchrun does it.

    Raises:
        RestartError: it was not started by torchrun.
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        raise RestartError(f"{why}: write 'srun torchrun', which restarts the script at changes")
    if environment.get("RANK") == "0":
        print(
            f"bftrainer: {why}: at each change this script starts again from its checkpoint",
            file=sys.stderr,
        )


class RestartError(RuntimeError):
    """The world would not change, and other elements would train beside it."""


class ElementMembers:
    """The processes of a trainer's elements, as the keeper brings them together."""

    changing = True

    def __init__(self, environment: Mapping[str, str], backend: str) -> None:
        keeper = environment["BFTRAINER_KEEPER"]
        self._keeper_ports = [port for _, port in parse_addresses(keeper)]
        self._identity = worker_identity(environment)
        self._backend = backend
        self.group = Communicator(self._keeper_ports)
        self.why = ""
        self._forming = False
        outlive_lost_peers(backend)
        if "gloo" in backend:  # beside NCCL it carries flags and what of the state is on the CPU
            waits.look_up(lambda work: self.group.check_end(work))
            if torch_private.missing(torch_private.FUNCTIONAL) is None:
                self._waiting = functional.wait_in_python()
        self._membership = Membership(
            keeper, self._identity, prover_from(environment), on_event=self._hear
        )
        # One process of a node says so; under torchrun the agent does.
        others_do = self._identity.local_rank > 0 or "TORCHELASTIC_RUN_ID" in environment
        word = None if others_do else partial(given_back, self._identity.node)
        self._leaving = Leaving(self._membership.leave, word)
        if steps.VARIABLE in environment:
            steps.of_this_process().leave_to_trainer()  # else torchrun's agent reports as well
        make_default(backend, HashStore(), 0, 1)
        self._membership.start()
        self._leaving.watch()

    def ddp_group(self, model: nn.Module) -> dist.ProcessGroup:
        """Return a group of this process alone: a change then needs no new wrapping."""
        return alone_group(model)

    def form(self, version: Version | None) -> Generation:
        """Get into the next generation; ends the process if this one is to leave."""
        lineage, step = version or (0, -1)
        while True:
            self._forming = True
            self.group.close()
            cause = "new" if version is None else "change"
            self._membership.ready(step, cause, lineage=lineage)
            try:
                generation = self._membership.wait_generation()
            except ReleasedError:
                self._leaving.end()
            self.group = Communicator(self._keeper_ports)
            self._forming = False
            change = self._membership.change
            if change is not None:  # announced before there was a group to abort
                self._hear(change)
            try:
                self.group.form(
                    *(generation, self._backend, self._identity.address),
                    partial(self._membership.offer_store, generation.number),
                )
            except PeerLostError:
                self.lost()
            else:
                return generation

    def lost(self) -> None:
        """Say that a collective of the generation failed, and free the peers from it."""
        self.group.close()
        self._membership.broken()

    def boundary(self, step: int) -> bool:
        """Return whether all stop now."""
        return self._membership.boundary(step)

    def progress(self, **measures: float) -> None:
        """Tell how far the training has come."""
        self._membership.progress(**measures)

    def done(self) -> None:
        """Say that the training is complete."""
        self._membership.done()

    def _hear(self, event: Event) -> None:
        if isinstance(event, Change | Dropped):
            self.why = event.why if isinstance(event, Change) else "loss"
        over = isinstance(event, Dropped) or (isinstance(event, Change) and not event.planned)
        if over and not self._forming:
            self.group.abort(f"the keeper announces: {event}")


class FixedMembers:
    """A world that does not change: torchrun's, srun's, or one process alone."""

    changing = False
    why = ""

    def __init__(self, place: StaticWorld, backend: str) -> None:
        self.group = Communicator()
        self._place = place
        if place.world == 1:
            make_default(backend, HashStore(), 0, 1)
        else:
            if dist.is_initialized():
                raise RuntimeError(
                    "elastic.Trainer makes the process groups: remove dist.init_process_group()"
                )
            os.environ.setdefault("MASTER_ADDR", place.master[0])
            os.environ.setdefault("MASTER_PORT", str(place.master[1]))
            torch_private.set_libuv(os.environ)
            dist.init_process_group(backend, rank=place.rank, world_size=place.world)
        self.group.rank, self.group.world = place.rank, place.world

    def ddp_group(self, model: nn.Module) -> dist.ProcessGroup:
        """Return the whole world, so that DDP agrees on its buckets as ever."""
        group = dist.group.WORLD
        assert group is not None
        return group

    def form(self, version: Version | None) -> Generation:
        """Return the world, which is there already."""
        place, step = self._place, -1 if version is None else version.step
        members = tuple(Peer(0, "", 0, step) for _ in range(place.world))
        return Generation(0, place.rank, place.world, False, None, members)

    def lost(self) -> None:
        """Nobody comes in the place of a lost peer."""

    def boundary(self, step: int) -> bool:
        """Nobody comes or goes."""
        return False

    def progress(self, **measures: float) -> None:
        """Nobody asks."""

    def done(self) -> None:
        """Nobody waits."""
