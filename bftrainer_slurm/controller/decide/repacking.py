"""Planned parts that fit on their shared node by units, but not by memory or processors. Pure.

The plan counts units only. Such a part goes to another node of the same class, which changes
nothing else in the plan. If there is none, its trainer waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from bftrainer_slurm.controller.decide.parts import Room
from bftrainer_slurm.controller.decide.reconcile import gpus_to_take
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import nodes_of
from bftrainer_slurm.planner.problem import Plan, Problem

_TRIED = 64  # nodes of a class, so that a turn stays short where nothing fits
_WHY = "other trainers leave it too few cores or too little memory"


def repack(
    plan: Plan, problem: Problem, views: tuple[TrainerView, ...], room: Room
) -> tuple[Plan, tuple[Bar, ...]]:
    """Return the plan with each such part on a node where it fits, and bars for the others."""
    bars, left = list[Bar](), Counter[str]()
    orders: dict[frozenset[str], list[str]] = {}  # of each class: nodes with most units left first
    for view in views:
        full: set[frozenset[str]] = set()  # classes without room for this trainer
        for node in _without_room(view, plan, room):
            left = left or _left(plan, problem)
            like = _same_class(problem, node)
            if like not in orders:
                orders[like] = sorted(like, key=lambda one: (-left[one], one))
            key, gpus = str(view.array), gpus_to_take(view, plan)
            units, nodes = gpus or view.trainer.demands.units, plan.assignment[key]
            out = nodes | nodes_of(view.places)
            free = (one for one in orders[like] if left[one] >= units and one not in out)
            tried = () if like in full else islice(free, _TRIED)
            other = next((one for one in tried if room.has(view, one, gpus)), None)
            if other is None:
                full.add(like)
                bars.append(Bar(_WHY, frozenset({node}), view.array))
                continue
            left.update({node: units, other: -units})
            plan = replace(plan, assignment={**plan.assignment, key: nodes - {node} | {other}})
    return plan, tuple(bars)


def _without_room(view: TrainerView, plan: Plan, room: Room) -> Iterator[str]:
    """Yield the nodes where the plan adds a part that fits by units alone."""
    target = plan.assignment.get(str(view.array))
    if target and view.trainer.demands.units and view.spare:
        gpus = gpus_to_take(view, plan)
        for node in sorted(target - nodes_of(view.places)):
            if room.has_units(view, node, gpus) and not room.has(view, node, gpus):
                yield node


def _same_class(problem: Problem, node: str) -> frozenset[str]:
    return next((one.nodes for one in problem.classes if node in one.nodes), problem.pool)


def _left(plan: Plan, problem: Problem) -> Counter[str]:
    """Return how many units of each shared node the plan gives to nobody."""
    left = Counter(problem.free)
    for one in problem.trainers:
        units = plan.gpus.get(one.key, one.gpus)
        for node in plan.assignment[one.key] & problem.free.keys():
            left[node] -= units or left[node]
    return left
