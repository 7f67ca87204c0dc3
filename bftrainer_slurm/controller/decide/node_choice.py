"""Which nodes Slurm gives a job that takes parts of nodes (``select/cons_tres``). Pure.

Slurm looks at nodes in the order of its table. Neighbours with enough room and the same weight form
a run. Of the runs with the lowest weight it takes one with enough nodes, and of these the one with
the fewest idle processors; in there, a job of one node gets the node with the fewest. So a job may
go to another node because room was made somewhere else. Read in ``_eval_nodes`` of 22.05 to 26.05,
and seen in the log of 22.05.8 (``DebugFlags=SelectType``). Not followed: ``CR_LLN``,
``pack_serial_at_end``, ``--spread-job``, ``--contiguous``, topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A node with enough room: its position in Slurm's table, and the processors that count.

    Those are all idle ones. If a job of GPUs says how many tasks it has, they are those it needs.
    """

    name: str
    position: int
    weight: int
    cpus: int


def runs_of(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the runs of neighbours, in the order of the table; so are the ``candidates``."""
    runs: list[list[Candidate]] = []
    position, weight = -1, 0
    for one in candidates:
        if not runs or one[1] != position + 1 or one[2] != weight:
            runs.append([])
            weight = one[2]
        position = one[1]
        runs[-1].append(one)
    return runs


def chosen(nodes: int, candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Return the nodes that a job of so many gets; none if there are too few."""
    runs, names = runs_of(candidates), list[str]()
    while runs and len(names) < nodes:
        missing = nodes - len(names)
        best = _best(runs, missing)
        runs.remove(best)
        if missing == 1:
            best = [min(best, key=lambda one: one.cpus)]
        names += (one.name for one in best[:missing])
    return tuple(names) if len(names) == nodes else ()


def _best(runs: Sequence[list[Candidate]], missing: int) -> list[Candidate]:
    """The run that Slurm takes next. A larger one that does not suffice displaces one that does."""
    best, cpus, suffices = runs[0], sum(one.cpus for one in runs[0]), len(runs[0]) >= missing
    for run in runs[1:]:
        has, enough = sum(one.cpus for one in run), len(run) >= missing
        lighter, heavier = run[0].weight < best[0].weight, run[0].weight > best[0].weight
        better = (not suffices or has < cpus) if enough else has > cpus
        if lighter or (better and not heavier):
            best, cpus, suffices = run, has, enough
    return best
