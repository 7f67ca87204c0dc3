"""How a training process gets into its next generation: through the keeper, or once for all."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bftrainer_slurm.elastic import memory, saving, steps, torch_private
from bftrainer_slurm.elastic.changes import given_back
from bftrainer_slurm.elastic.inprocess import nccl, waits
from bftrainer_slurm.elastic.inprocess.checkpoint import Version
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from bftrainer_slurm.elastic.interface import choose_interface
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.place import FixedRank, fixed_rank, own_address, read_identity
from bftrainer_slurm.elastic.signals import Sigterm
from bftrainer_slurm.elastic.tries import NoGroupError, Tries
from bftrainer_slurm.keeper.credentials import prover_from
from bftrainer_slurm.keeper.membership import FinishedError, Membership, Notice, ReleasedError
from bftrainer_slurm.keeper.messages import Change, Dropped, Generation, Peer, Role

_WORD_S = 0.2  # rank 0 says so often whether all stop; a broadcast in each short step slows it
_MOST_STEPS = 8  # without a word of rank 0, in case steps take longer suddenly
_LEFT_OVER = "elastic.Trainer makes the process groups: remove dist.init_process_group()"
_ONE_TRAINER = (
    "a process has one elastic.Trainer: a node that comes later would begin with the script's "
    "first one while the others train with the second; write a script and a job for each, and let "
    "the second job begin with what the first has saved"
)


class Peers:
    """The processes that train together. This class is for a world that does not change.

    That world is torchrun's, srun's, or one process alone. In an element torchrun starts it again
    at each change of nodes; before a planned one all save, if there is a folder for it (``saves``).
    """

    group: Communicator
    made = False  # for this process's trainer
    changing = False  # whether this process may get into another generation
    why = ""  # why the last generation ended, in the keeper's word
    _saves = False

    def __init__(self, fixed: FixedRank, gpu: torch.device | None, saves: bool) -> None:
        self.group = Communicator(gpu)
        self._fixed = fixed
        self._saves = saves
        if fixed.world == 1:
            self.group.make_default(HashStore())
        else:
            os.environ.setdefault("MASTER_ADDR", fixed.master[0])
            os.environ.setdefault("MASTER_PORT", str(fixed.master[1]))
            torch_private.set_libuv(os.environ)
            dist.init_process_group(self.group.backend, rank=fixed.rank, world_size=fixed.world)
        self.group.rank, self.group.world = fixed.rank, fixed.world

    def form(self, version: Version | None) -> Generation:
        """Get into the next generation with this state; None: there is no state."""
        fixed = self._fixed
        return Generation(0, fixed.rank, fixed.world, False, None, (Peer(0, "", 0),) * fixed.world)

    def lost(self) -> None:
        """Say that a collective of the generation failed."""

    def boundary(self, step: int) -> bool:
        """Return whether to get into another generation now that ``step`` is complete."""
        return False

    def begin_step(self, step: int) -> None:
        """The step after ``step`` complete ones begins, which is not a rehearsal."""

    def must_save(self) -> bool:
        """Return whether to save and end, on all ranks alike: others go on from there."""
        return self._saves and saving.must_save()

    def stepped(self, samples: int, number: int) -> None:
        """Count a step for the node's agent, if there is one, with the samples of all ranks."""
        steps.of_this_process().by_trainer(samples, number)

    def progress(self, **measures: float) -> None:
        """Report how far the training has come."""

    def done(self) -> None:
        """Say that the training is complete."""


def find_peers(
    environment: Mapping[str, str], gpu: torch.device | None, nccl_in_process: bool, saves: bool
) -> Peers:
    """Return the peers of an element's process, or else a world that does not change.

    ``saves``: there is a folder for checkpoints.

    Raises:
        RuntimeError: this process has a trainer, or a process group of the script's own.
        RestartError: the processes need a restart at changes, and nobody would do it.
    """
    if Peers.made:
        raise RuntimeError(_ONE_TRAINER)
    if dist.is_initialized():
        raise RuntimeError(_LEFT_OVER)
    in_element = bool(environment.get("BFTRAINER_KEEPER"))
    why_not = _why_not_in_process(gpu, nccl_in_process)
    if in_element and why_not is None:
        peers: Peers = ElementPeers(environment, gpu)
    else:
        if in_element:
            be_restarted(environment, str(why_not), saves)
        peers = Peers(fixed_rank(environment), gpu, saves)
    Peers.made = True
    return peers


def _why_not_in_process(gpu: torch.device | None, nccl_in_process: bool) -> str | None:
    if gpu is not None and not nccl_in_process:
        return "on GPUs nccl_in_process=True asks for training in process, tried on one GPU only"
    place = torch_private.missing()
    return None if place is None else f"torch {torch.__version__} has no {place}"


def be_restarted(environment: Mapping[str, str], why: str, saves: bool) -> None:
    """Say that this script is restarted at changes, and check that torchrun does it.

    Raises:
        RestartError: it was not started by torchrun.
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        raise RestartError(f"{why}: write 'srun torchrun', which restarts the script at changes")
    if environment.get("RANK") == "0":
        own = "what it has saved itself: give the trainer checkpoint=FOLDER"
        begin = "its checkpoint" if saves else own
        say(f"{why}: at each change this script starts again from {begin}")


class RestartError(RuntimeError):
    """The script needs torchrun to restart it at changes, and torchrun did not start it."""


class ElementPeers(Peers):
    """The processes of a trainer's elements; the keeper forms their groups."""

    changing = True

    def __init__(self, environment: Mapping[str, str], gpu: torch.device | None) -> None:
        keeper = environment["BFTRAINER_KEEPER"]
        self._identity = read_identity(environment, Role.WORKER)
        self._address = own_address(environment)
        choose_interface(os.environ, self._address)
        self._gpu = gpu
        self.group = Communicator(gpu)
        self._forming = False
        # Rank 0's last word: 0: all stop after its step; else how many steps later it speaks again.
        self._word = torch.ones(1)
        self._word_at = 0  # the step of the next one
        self._heard_s = 0.0  # when rank 0 spoke last
        self._tries = Tries()
        if gpu is not None:
            os.environ.update(nccl.SETTINGS)
        waits.look_up(lambda work: self.group.check_end(work))
        if torch_private.missing(torch_private.FUNCTIONAL) is None:
            self._waiting = waits.wait_in_python()
        self._membership = Membership(
            keeper, self._identity, prover_from(environment), on_notice=self._hear
        )
        # Only one process of a node says that it is given back; under torchrun the agent does.
        others_do = self._identity.local_rank > 0 or "TORCHELASTIC_RUN_ID" in environment
        self._given_back = None if others_do else self._identity.node
        self._sigterm = Sigterm(self._leave)
        if memory.VARIABLE in environment:
            steps.of_this_process().leave_to_trainer()  # else torchrun's agent reports as well
        self.group.make_default(HashStore())
        self._membership.start()
        self._sigterm.watch()

    def form(self, version: Version | None) -> Generation:
        """Get into the next generation; ends the process if this one is to leave, or comes late.

        Raises:
            NoGroupError: it fails again and again with peers that are alive.
        """
        lineage, step = version or (0, -1)
        while True:
            self._give_up_or_pause()
            self.group.part()
            self._forming = True
            self.group.close()
            cause = "new" if version is None else "change"
            self._membership.ready(step, cause, lineage=lineage)
            try:
                generation = self._membership.wait_generation()
            except FinishedError:
                say(f"this training has finished: {self._identity.node} has nothing left to do")
                raise SystemExit(0) from None
            except ReleasedError:
                if not self._sigterm.came:
                    self._say_given_back(planned=True)
                self._sigterm.end()
            self.why = self._membership.why
            self._tries.begin(generation.members)
            self.group = Communicator(self._gpu)
            self._word, self._word_at = torch.ones(1), 0
            self._forming = False
            change = self._membership.change
            if change is not None:  # announced before there was a group that could be aborted
                self._hear(change)
            try:
                self.group.form(
                    *(generation, self._address),
                    partial(self._membership.offer_store, generation.number),
                )
            except PeerLostError:
                self.lost()
            else:
                if self._gpu is not None and version is None and generation.rank == 0:
                    say(nccl.PROVEN)
                return generation

    def lost(self) -> None:
        """Say that a collective of the generation failed, and free the peers from it."""
        if (failure := self.group.own_failure) is not None:
            self._tries.failed(str(failure))
        self.group.close()
        self._membership.broken()

    def begin_step(self, step: int) -> None:
        """Begin to hear from rank 0 where its word is due; the step's commit waits for it."""
        if step < self._word_at + int(self._word) - 1:
            return
        now_s, steps = time.monotonic(), int(self._word)
        later = min(_MOST_STEPS, max(1, int(_WORD_S * steps / max(1e-6, now_s - self._heard_s))))
        self._heard_s, self._word_at = now_s, step + 1
        self._word = torch.tensor([0.0 if self._membership.stops else float(later)])
        self.group.attempt(lambda: self.group.channel().broadcast(self._word))

    def boundary(self, step: int) -> bool:
        """Return whether the generation has ended: planned by nobody, or at rank 0's word."""
        self._tries.stepped(step)
        return self._membership.ended or not self._word

    def stepped(self, samples: int, number: int) -> None:
        """Do nothing: this process itself reports its progress."""

    def progress(self, **measures: float) -> None:
        """Report how far the training has come."""
        self._membership.progress(**measures)

    def done(self) -> None:
        """Say that the training is complete."""
        self._membership.done()

    def _give_up_or_pause(self) -> None:
        try:
            self._tries.check()
        except NoGroupError:
            self._membership.close()  # at once, as the others wait for this process
            raise
        self._tries.pause()

    def _leave(self) -> None:
        self._say_given_back(planned=False)
        self._membership.leave()

    def _say_given_back(self, planned: bool) -> None:
        node, self._given_back = self._given_back, None
        if node is not None:
            say(given_back(node, planned))

    def _hear(self, notice: Notice) -> None:
        if isinstance(notice, Dropped):
            say(f"{self._identity.node} is out of its group: {notice.why}")
        over = isinstance(notice, Dropped) or (isinstance(notice, Change) and not notice.planned)
        if over and not self._forming:
            self.group.abort(f"the keeper announces: {notice}")
