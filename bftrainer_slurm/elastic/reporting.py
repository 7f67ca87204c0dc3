"""Reports of progress to the keeper: what the progress memory says, once a second.

From torchrun's agent under our rendezvous; from the training process itself under stock c10d.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer_slurm.elastic.changes import ChangeLog
from bftrainer_slurm.elastic.place import read_identity
from bftrainer_slurm.elastic.steps import Counts, Memory
from bftrainer_slurm.keeper.credentials import prover_from
from bftrainer_slurm.keeper.membership import Membership, Role

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Era:
    """A time in which the same nodes train: one generation, as its first node reports it."""

    generation: int
    nodes: int
    before: Counts  # when it began


class Reporting:
    """A thread that reports an agent's memory while this node is the first of its generation."""

    def __init__(
        self, memory: Memory, membership: Membership, changes: ChangeLog | None = None
    ) -> None:
        self._memory = memory
        self._changes = changes
        self._membership = membership
        self._era: Era | None = None
        self._reported: Counts | None = None
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="bftrainer-progress", daemon=True).start()

    def begin(self, generation: int, nodes: int) -> None:
        """Report from now on; no process trains at this moment."""
        self._memory.expect_first()
        self._era = Era(generation, nodes, self._memory.read())

    def pause(self) -> None:
        """Tell the last of this generation, and no more until the next begins."""
        self._tell()
        self._era = None

    def stop(self) -> None:
        """Tell the last, and end the thread."""
        self.pause()
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            self._tell()

    def _tell(self) -> None:
        era, now = self._era, self._memory.read()
        if era is None or now.in_process or now.first_s == 0 or now == self._reported:
            return
        self._reported = now
        if self._changes is not None:
            self._changes.trained(now)
        self._membership.progress(**measures(era, now))


def measures(era: Era, now: Counts) -> dict[str, float]:
    """Return what a report says; what is not known is left out."""
    found = {"steps": float(now.steps), "nodes": float(era.nodes), "generation": era.generation}
    if now.samples is not None:
        found["samples"] = now.samples
    if era.before.last_s > 0:
        found["pause_s"] = max(0.0, now.first_s - era.before.last_s)
    return found


def report_from_here(environment: Mapping[str, str]) -> Memory:
    """Report this process's own steps, where no agent of ours does (stock c10d).

    Returns the memory to count them in. A generation is numbered by the Unix second in which it
    began, as c10d has no numbers for them; how long the pause before it was is not known.

    Raises:
        KeyError, ValueError: the environment is not an element's.
    """
    identity = read_identity(environment, Role.REPORTER)
    membership = Membership(environment["BFTRAINER_KEEPER"], identity, prover_from(environment))
    membership.start()
    memory = Memory.made()
    nodes = int(environment.get("WORLD_SIZE", "1")) // int(environment.get("LOCAL_WORLD_SIZE", "1"))
    Reporting(memory, membership).begin(int(time.time()), nodes)
    return memory
