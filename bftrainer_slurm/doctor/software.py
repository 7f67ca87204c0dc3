"""The controller's own software, on the host where the doctor runs."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Change, Finding, consider, must, ok

_TORCH = (2, 13)
_PROGRAMS = {
    "bftrainer-grow": "A growth costs slurmctld one RPC with it, two without.",
    "bftrainer-look": "slurmctld then sends nothing at a look where nothing has changed.",
}


def check(facts: Facts) -> Iterator[Finding]:
    """Look at torch and the compiled programs."""
    yield _torch(facts)
    for name, why in _PROGRAMS.items():
        if name in facts.here.programs:
            yield ok(name, "found, and it starts")
        else:
            install = Change("shell", "make plugin && make install", "")
            yield consider(name, "not on PATH, or does not start", why, install)


def _torch(facts: Facts) -> Finding:
    found, title = facts.here.torch, "keeper's torch"
    install = Change("shell", "pip install 'bftrainer-slurm[controller,elastic]'", "")
    if found is None:
        why = (
            "The keeper hosts torch's stores. (On other hosts than the keeper's it is not needed.)"
        )
        return consider(title, "not in this Python", why, install)
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < _TORCH:
        return must(title, found, "2.13 is the oldest that is supported.", install)
    return ok(title, found)
