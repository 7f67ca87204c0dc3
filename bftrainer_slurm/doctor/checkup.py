"""All checks, in the order in which an admin sets a site up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bftrainer_slurm.doctor import (
    account,
    elements,
    job_table,
    limits,
    network,
    partition,
    plugin,
    power,
    preemption,
    scheduling,
    sharing,
    software,
)
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding

_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    partition.check,
    preemption.check,
    scheduling.check,
    power.check,
    job_table.check,
    limits.check,
    elements.check,
    sharing.check,
    plugin.check,
    account.check,
    network.check,
    software.check,
)


def checkup(facts: Facts) -> list[Finding]:
    """Return the findings of all checks."""
    return [finding for check in _CHECKS for finding in check(facts)]
