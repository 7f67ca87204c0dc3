"""Finds jobs with whole nodes, on Slurms whose squeue must be asked separately for that.

From 26.05 on squeue's ``%h`` says whether a job oversubscribes processors. It is the same for jobs
with whole nodes and with parts of nodes; only the new field ``Exclusive`` differs. No format letter
prints this field, and ``--Format`` cuts off comments. So a squeue of its own asks for it, with the
job id only: users cannot forge that.
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
    """Marks job records whose jobs have whole nodes; asks Slurm only if there are new jobs."""

    def __init__(self, runner: SlurmRunner) -> None:
        self._runner = runner
        self._needed: bool | None = None  # None: not known yet
        self._known: dict[int, str] = {}  # ArrayJobID: what JobRow.shared has for it

    def mark(self, rows: Sequence[JobRow | str]) -> list[JobRow | str]:
        """Return the records with ``shared`` set; unchanged for jobs that Slurm does not list.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            GatewayError: squeue failed for another reason.
        """
        if self._needed is None:
            self._needed = _has_exclusive_field(self._runner.read("squeue", "--version"))
        if not self._needed:
            return list(rows)
        arrays = {
            row.array for row in rows if isinstance(row, JobRow) and not element_state(row).over
        }
        self._known = {array: shared for array, shared in self._known.items() if array in arrays}
        if not arrays <= self._known.keys():
            self._known = _parse_exclusive(self._runner.read(*_ASK, _FIELDS))
        return [
            replace(row, shared=self._known[row.array])
            if isinstance(row, JobRow) and row.array in self._known
            else row
            for row in rows
        ]


def _has_exclusive_field(version: str) -> bool:
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= _SINCE


def _parse_exclusive(text: str) -> dict[int, str]:
    """Read lines of a job id and NO (it shares nodes), NODE, USER, MCS or TOPO."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        job, _, exclusive = line.strip().partition(" ")
        if job.isdecimal() and exclusive:
            whole = exclusive.strip() != "NO" or found.get(int(job)) == "NO"
            found[int(job)] = "NO" if whole else "OK"
    return found
