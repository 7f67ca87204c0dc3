"""Who has nodes for itself, on Slurms whose squeue needs a second question for it.

From 26.05 on squeue's ``%h`` says whether a job oversubscribes processors, and says the same of
jobs that have whole nodes and of jobs that have parts; the new field ``Exclusive`` tells them
apart. No format letter prints it, and ``--Format`` cuts off comments; so it is asked for by
itself, with a job id only: nothing there can be forged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from bftrainer_slurm.slurm.records import element_state
from bftrainer_slurm.slurm.rows import JobRow
from bftrainer_slurm.slurm.run import SlurmRunner

_SINCE = (26, 5)
_VERSION = re.compile(r"slurm\S* (\d+)\.(\d+)")
_ASK = ("squeue", "--local", "--all", "--states=all", "--noheader")
_FIELDS = "--Format=ArrayJobID:20,Exclusive:20"


class ExclusiveJobs:
    """Writes into job records whether jobs have whole nodes; asks about new jobs only."""

    def __init__(self, runner: SlurmRunner) -> None:
        self._runner = runner
        self._asks: bool | None = None  # None: not known yet
        self._known: dict[int, str] = {}  # ArrayJobID: what JobRow.shared has for it

    def told(self, rows: Sequence[JobRow | str]) -> list[JobRow | str]:
        """Return the records; a job that Slurm tells nothing about stays as it is.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            GatewayError: squeue failed for another reason.
        """
        if self._asks is None:
            self._asks = _tells_apart(self._runner.read("squeue", "--version"))
        if not self._asks:
            return list(rows)
        arrays = {
            row.array for row in rows if isinstance(row, JobRow) and not element_state(row).over
        }
        self._known = {array: said for array, said in self._known.items() if array in arrays}
        if not arrays <= self._known.keys():
            self._known = _shared(self._runner.read(*_ASK, _FIELDS))
        return [
            replace(row, shared=self._known[row.array])
            if isinstance(row, JobRow) and row.array in self._known
            else row
            for row in rows
        ]


def _tells_apart(version: str) -> bool:
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= _SINCE


def _shared(text: str) -> dict[int, str]:
    """Read lines of a job id and NO, NODE, USER, MCS or TOPO; NO if all tasks of an array share."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        job, _, exclusive = line.strip().partition(" ")
        if job.isdecimal() and exclusive:
            whole = exclusive.strip() != "NO" or found.get(int(job)) == "NO"
            found[int(job)] = "NO" if whole else "OK"
    return found
