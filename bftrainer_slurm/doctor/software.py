"""The controller's own software, on the host where the doctor runs."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, ok, shell

_PROGRAMS = {
    "bftrainer-grow": "A growth costs slurmctld one RPC with it, two without.",
    "bftrainer-look": "slurmctld then sends nothing at a look where nothing has changed.",
}


def check(facts: Facts) -> Iterator[Finding]:
    """Look at the compiled programs."""
    for name, why in _PROGRAMS.items():
        if name in facts.here.programs:
            yield ok(name, "found, and it starts")
        else:
            install = shell("make plugin && make install")
            yield consider(name, "not on PATH, or does not start", why, install)
