"""Checks the controller's compiled programs on the host where the doctor runs."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, ok, shell

_PROGRAMS = {
    "bftrainer-grow": "With it growing costs slurmctld one RPC, without it two.",
    "bftrainer-look": "With it slurmctld sends only what has changed since the last look.",
}


def check(facts: Facts) -> Iterator[Finding]:
    """Check the compiled programs."""
    install = shell("make -C slurm_plugin && make install")
    for name, why in _PROGRAMS.items():
        if name in facts.host.programs:
            yield ok(name, "found, and it starts")
        else:
            yield consider(name, "not on PATH, or does not start", why, install)
