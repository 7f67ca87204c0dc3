"""Reports of progress to the keeper: what the progress memory says, once a second.

Under our rendezvous torchrun's agent reports. Under stock c10d the training process itself does,
and also where it trains in process (``inprocess.training``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer_slurm.elastic.changes import ChangeLog
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.elastic.place import read_identity
from bftrainer_slurm.keeper.credentials import prover_from
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Role

INTERVAL_S = 1.0
_LONGEST_PAUSE_S = 3600.0  # the controller refuses a report with a longer one


@dataclass(frozen=True, slots=True)
class Era:
    """A time in which the same nodes train: one generation, as its first node reports it."""

    generation: int
    nodes: int
    before: StepCounts  # when it began


class Reporting:
    """A thread that reports an agent's memory while this node is the first of its generation."""

    def __init__(
        self, memory: Memory, membership: Membership, changes: ChangeLog | None = None
    ) -> None:
        self._memory = memory
        self._changes = changes
        self._membership = membership
        self._era: Era | None = None
        self._reported: StepCounts | None = None
        threading.Thread(target=self._run, name="bftrainer-progress", daemon=True).start()

    def begin(self, generation: int, nodes: int) -> None:
        """Report from now on; no process trains at this moment."""
        self._memory.expect_first()
        self._era = Era(generation, nodes, self._memory.read())

    def pause(self) -> None:
        """Send this generation's last report; no more until the next one begins."""
        self._tell()
        self._era = None

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            self._tell()

    def _tell(self) -> None:
        era, now = self._era, self._memory.read()
        if era is None or now.in_process or now.first_s == 0 or now == self._reported:
            return
        self._reported = now
        if self._changes is not None:
            self._changes.trained(now)
        self._membership.progress(**measures(era, now))


def measures(era: Era, now: StepCounts) -> dict[str, float]:
    """Return the measures of a report; what is not known is left out."""
    found = {"steps": float(now.steps), "nodes": float(era.nodes), "generation": era.generation}
    if now.samples is not None:
        found["samples"] = now.samples
    if now.alone:
        found["alone"] = 1.0
    elif now.from_start is not None:
        found["from_start"] = now.from_start
        begun_s = max(now.again_s or now.first_s, now.kept_s)
        if now.from_start == 0 and now.kept_s > 0:
            found["unsaved_s"] = max(0.0, now.last_s - begun_s)
    if era.before.last_s > 0 and now.first_s > 0:
        pause_s = max(0.0, now.first_s - era.before.last_s)
        found["pause_s"] = min(_LONGEST_PAUSE_S, pause_s)
        if now.again_s > 0:
            stood_s = now.again_s - era.before.last_s
            found["again_s"] = max(0.0, found["pause_s"] - stood_s)
    if now.other_ranks:
        found["other_ranks"] = 1.0  # the last: a report that is full goes without it
    return found


def report_from_here(environment: Mapping[str, str], memory: Memory) -> None:
    """Report what this process counts in its memory, where no agent of ours does it (stock c10d).

    c10d does not number generations, so the number is the Unix second in which this one began.

    Raises:
        KeyError, ValueError: the environment is not an element's.
    """
    identity = read_identity(environment, Role.REPORTER)
    membership = Membership(environment["BFTRAINER_KEEPER"], identity, prover_from(environment))
    membership.start()
    nodes = int(environment.get("WORLD_SIZE", "1")) // int(environment.get("LOCAL_WORLD_SIZE", "1"))
    Reporting(memory, membership).begin(int(time.time()), nodes)
