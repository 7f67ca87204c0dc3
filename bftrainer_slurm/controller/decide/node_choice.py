"""Predicts which nodes Slurm gives a job that takes parts of nodes (``select/cons_tres``). Pure.

Slurm goes through the nodes in the order of its table. Neighbours with enough room and the same
weight form a run. Of the runs with the lowest weight, Slurm takes those with enough nodes, and of
these the one with the fewest idle processors. Within it, a job of one node gets the node with the
fewest idle processors. So a job may go to another node because room was made somewhere else. From
``_eval_nodes`` of 22.05 to 26.05, and the log of 22.05.8 (``DebugFlags=SelectType``). Not covered:
``CR_LLN``, ``pack_serial_at_end``, ``--spread-job``, ``--contiguous``, topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A node with enough room for the job."""

    name: str
    position: int  # in Slurm's table
    weight: int
    cpus: int  # idle ones; for a job with GPUs and a number of tasks: those that it needs


def runs_of(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the runs of neighbours; ``candidates`` and runs are in the order of Slurm's table."""
    runs: list[list[Candidate]] = []
    position, weight = -1, 0
    for one in candidates:
        if not runs or one[1] != position + 1 or one[2] != weight:
            runs.append([])
            weight = one[2]
        position = one[1]
        runs[-1].append(one)
    return runs


def predict_nodes(nodes: int, candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Return the nodes that a job of this number of nodes gets; none if there are too few."""
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
    """Return the run that Slurm takes next.

    As in Slurm, a run that is too small but has more processors displaces one that is large enough.
    """
    best, cpus, suffices = runs[0], sum(one.cpus for one in runs[0]), len(runs[0]) >= missing
    for run in runs[1:]:
        has, enough = sum(one.cpus for one in run), len(run) >= missing
        lighter, heavier = run[0].weight < best[0].weight, run[0].weight > best[0].weight
        better = (not suffices or has < cpus) if enough else has > cpus
        if lighter or (better and not heavier):
            best, cpus, suffices = run, has, enough
    return best
