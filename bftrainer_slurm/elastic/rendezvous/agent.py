"""torchrun's rendezvous in an element: the keeper says who trains together, and from when on.

Ranks, changes and losses come from ``keeper.membership``; this module passes them to torchrun's
agent. Facts about the agent: torch 2.13, torch/distributed/elastic/agent/server/api.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import MutableMapping
from datetime import timedelta
from typing import NoReturn

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from bftrainer_slurm.elastic import snapshot, torch_private
from bftrainer_slurm.elastic.interface import choose_interface
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from bftrainer_slurm.elastic.place import address_towards, read_identity
from bftrainer_slurm.elastic.processes import adopt_orphans, below, end_within, wait_for_end
from bftrainer_slurm.elastic.progress import Progress
from bftrainer_slurm.elastic.rendezvous import warm
from bftrainer_slurm.elastic.rendezvous.command_line import BACKEND, launcher_of
from bftrainer_slurm.elastic.rendezvous.failures import LastFailure, cause_of
from bftrainer_slurm.elastic.rendezvous.generation_store import GenerationStore
from bftrainer_slurm.elastic.rendezvous.reaching import reached
from bftrainer_slurm.elastic.saving import Asking
from bftrainer_slurm.elastic.signals import on_signals, wait_for_the_end
from bftrainer_slurm.keeper.credentials import JOB_SECRET
from bftrainer_slurm.keeper.membership import (
    FinishedError,
    Membership,
    Notice,
    ReleasedError,
)
from bftrainer_slurm.keeper.messages import Finished, Generation, Role
from bftrainer_slurm.keeper.protocol import LAUNCHERS, parse_address

_STORE = timedelta(minutes=5)  # torch's own
_SIGNALLED = 1  # torchrun's exit code after a signal, which it turns into an exception
_LEAST_S = 2.0  # what a process has after SIGTERM; torchrun gives it 30 s, in which all wait


class AgentRendezvous(RendezvousHandler):
    """The handler of one torchrun."""

    def __init__(
        self, parameters: RendezvousParameters, environment: MutableMapping[str, str]
    ) -> None:
        self._run_id = parameters.run_id
        try:
            keeper = environment["BFTRAINER_KEEPER"]
            # Not the host's name, which torchrun uses: on many nodes it cannot be resolved.
            self._address = parameters.local_addr or address_towards(keeper)
            identity = read_identity(environment, Role.AGENT)
        except (KeyError, ValueError) as error:
            raise RendezvousConnectionError(
                "the rendezvous 'bftrainer' is for elements of BFTrainer's trainers only"
            ) from error
        self._memory = Memory.made()
        environment[VARIABLE] = self._memory.path  # workers inherit it
        environment[snapshot.VARIABLE] = snapshot.made()
        torch_private.set_libuv(environment)
        choose_interface(environment, self._address)
        adopt_orphans()  # what workers leave behind
        self._launchers = below(os.getpid())  # what this process has started before
        self._origin: warm.Origin | None = None
        if not any(word.replace("_", "-") == "--no-python" for word in sys.argv[1:]):
            # torch.cuda.is_available() must not initialise CUDA in what workers are forked from.
            environment.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
            self._origin = warm.start()
        self._failure = LastFailure()
        self._node = identity.node
        self._is_given_back = False
        self._store: GenerationStore | None = None
        launcher = launcher_of(sys.orig_argv, environment)
        self._membership = Membership(
            *(keeper, identity, environment.get(JOB_SECRET, "").encode(), self._hear),
            launcher=launcher if launcher in LAUNCHERS else "",
        )
        self._membership.start()
        self._progress = Progress(self._memory, self._membership.progress)
        self._progress.follow()
        self._end_s = max(_LEAST_S, float(environment.get("BFTRAINER_GRACE", 0)))
        self._asking = Asking(self._memory, self._end_s)
        torch_private.end_workers_within(self._end_s, self._about_to_end_workers)
        on_signals(_ending_signals(environment), self._leave)

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the generation's store as well, as it is there before them.

        Not without libuv: there torch asks for libuv, whatever the settings are (seen in 2.6).
        """
        return torch_private.has_libuv()

    def get_backend(self) -> str:
        """Return our name."""
        return BACKEND

    def get_run_id(self) -> str:
        """Return the run id that the element was given."""
        return self._run_id

    def is_closed(self) -> bool:
        """Return False: a trainer ends when its elements end."""
        return False

    def set_closed(self) -> None:
        """Do nothing, for the same reason."""

    def num_nodes_waiting(self) -> int:
        """Return 1 when this node has to end its generation; torchrun then stops its workers."""
        change = self._membership.change
        return int(change is not None and self._asking.is_over(change.why, change.planned))

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next generation, and return this node's place in it.

        Raises:
            RendezvousConnectionError: this element reaches no other.
        """
        cause, error = self._why_again()
        self._end_generation()
        self._end_left_over()
        self._asking.begin()
        while True:
            self._membership.ready(cause, error)
            try:
                generation = self._membership.wait_generation()
            except ReleasedError:
                self._say_given_back("as the plan says")
                wait_for_the_end()
            except FinishedError as finished:
                self._end_finished(finished.code, failed=cause == "failed")
            info = self._enter(generation)
            if info is not None:
                return info
            cause, error = "change", ""

    def shutdown(self) -> bool:
        """Leave the keeper: the training is done, unless torchrun is ending with an exception."""
        self._progress.ended()
        if sys.exc_info()[0] is None:
            self._membership.done()
        else:
            self._membership.leave()  # its workers have ended: nobody need wait for this node
            self._membership.close()
        self._end_generation()
        return True

    def _leave(self) -> None:
        """Leave the group, and end as soon as this node's other processes have.

        Slurm has signalled all of them. The teardown of torch's modules would take half a second of
        processor time, in which an ordinary job waits.
        """
        self._say_given_back("to an ordinary job, unless somebody cancelled this one")
        self._membership.leave()
        wait_for_end(self._started(), 2 * self._end_s)  # in between torchrun kills who is left
        self._membership.close()
        os._exit(_SIGNALLED)

    def _say_given_back(self, to: str) -> None:
        """Say once that this is no failure, as torch's own messages look like one."""
        if not self._is_given_back:
            self._is_given_back = True
            say(f"{self._node} is given back {to}; this is no failure")

    def _hear(self, notice: Notice) -> None:
        if isinstance(notice, Finished) and self._store is None:
            self._end_finished(notice.code)  # nothing has begun here: it may be getting warm

    def _end_finished(self, code: int, failed: bool = False) -> NoReturn:
        """End without another generation: this node has come late, or would begin again."""
        if code:
            say(f"{self._node} fails since the script's node was lost: its script runs again")
            os._exit(code)
        what = "does not start again what failed there" if failed else "has nothing left to do"
        say(f"this training has finished: {self._node} {what}")
        os._exit(_SIGNALLED if failed else 0)

    def _about_to_end_workers(self) -> None:
        # At a signal Slurm has signalled them too, and they have the grace. torchrun may be here
        # before the thread that notices signals has said so.
        if not isinstance(sys.exc_info()[1], SignalException):
            self._memory.present.ending = True

    def _why_again(self) -> tuple[str, str]:
        if self._store is None:
            if self._origin is not None:
                self._origin.wait()
            return "new", ""
        return cause_of(self._failure.take(), self._membership.over)

    def _end_generation(self) -> None:
        self._progress.ended()
        if self._store is not None:
            self._store.close()

    def _end_left_over(self) -> None:
        """End what the last generation's processes have left behind, as their helpers.

        They would add up on a node whose script starts again and again.
        """
        if self._store is not None:
            end_within(_LEAST_S, self._started())

    def _started(self) -> list[int]:
        """Return the workers, and all that they have started and is still there."""
        origin = self._origin.pid if self._origin is not None else 0
        return [one for one in below(os.getpid(), spare=self._launchers) if one != origin]

    def _enter(self, generation: Generation) -> RendezvousInfo | None:
        """Return the agent's place in a generation, or None if the generation has ended already."""
        if generation.rank == 0:
            store = torch_private.open_store("localhost", 0, hosts=True, timeout=_STORE)
            host, port = self._address, store.port
            self._membership.offer_store(generation.number, f"{host}:{port}")
        else:
            host, port = parse_address(generation.store or "")
            found = reached(host, port, self._membership)
            if found is None:
                return None
            store = found
        self._store = GenerationStore(
            store,
            self._has_ended if generation.world > 1 else lambda: False,
            self._membership.finishing,
            generation.world - 1 if generation.rank == 0 else 0,
        )
        why, tells = self._membership.why, generation.rank == 0
        self._progress.began(generation.number, generation.members, why, tells)
        self._memory.past.generation = generation.number
        self._memory.tell_nodes([one.node for one in generation.members])
        workers = RendezvousStoreInfo(host, port)
        if not self.use_agent_store:
            try:
                workers = RendezvousStoreInfo.build(generation.rank, self._store, self._address)
            except ValueError:  # the answer is not a port: the generation has ended
                return None
        return RendezvousInfo(self._store, generation.rank, generation.world, workers)

    def _has_ended(self) -> bool:
        """Whether agents of this generation may be gone, so that nobody should wait for them."""
        return self._membership.change is not None


def _ending_signals(environment: MutableMapping[str, str]) -> set[int]:
    names = environment.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    numbers = (getattr(signal, name.strip(), None) for name in names.split(","))
    return {int(number) for number in numbers if number is not None}
