"""The status that users see: one JSON document, made after every turn. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer_slurm.controller.history import Tally
from bftrainer_slurm.controller.progress import ProgressBook
from bftrainer_slurm.controller.view import Memory, TrainerView
from bftrainer_slurm.model import ElementState
from bftrainer_slurm.planner.problem import Plan


def trainer_status(
    view: TrainerView,
    came: Mapping[str, float],
    tally: Tally,
    progress: ProgressBook,
    memory: Memory,
    stuck: str | None,
    known: Mapping[str, Any],
    now_s: float,
) -> dict[str, Any]:
    """Return what users are shown of one trainer.

    ``came`` says since when (Unix seconds) an element runs on a node, for those that have said so
    since the last look at Slurm; ``stuck`` why it cannot grow, if so; ``known`` what is known of
    its throughput and its costs.
    """
    trainer = view.trainer
    given_up, _, error = memory.given_up.get(view.array, "").partition("\n")
    failing = memory.failing.get(view.array)
    running: dict[str, float | None] = {
        element.node: element.start_s
        for element in view.with_state(ElementState.RUNNING)
        if element.node is not None
    }
    running |= came
    report = progress.last(view.array)
    return {
        "array": view.array,
        "name": trainer.name,
        "user": trainer.user,
        "state": "given up" if given_up else "running" if running else _state(view),
        "why": given_up or stuck,
        "failures": failing.count if failing else 0,
        "failed_on": list(failing.nodes) if failing else [],
        "error": (failing.text if failing else error) or None,
        "min_nodes": trainer.record.min_nodes,
        "max_nodes": trainer.record.max_nodes,
        "weight": trainer.record.spec.weight,
        "grace_s": trainer.record.spec.grace_s,
        "submit_s": trainer.submit_s,
        "nodes": sorted(running),
        "starting": sorted(node for node in view.placed if node not in running),
        "grew": tally.grew,
        "shrank": tally.shrank,
        "reclaimed": tally.reclaimed,
        "node_s": tally.node_s
        + sum(max(0.0, now_s - start_s) for start_s in running.values() if start_s is not None),
        "samples": report.samples if report else None,
        "steps": report.steps if report else None,
        "measures": dict(report.measures) if report else {},
        "samples_per_s": progress.samples_per_s(view.array, now_s),
        "refused_reports": progress.refused(view.array),
        **known,
    }


def cluster_status(
    *,
    now_s: float,
    controller: dict[str, Any],
    views: tuple[TrainerView, ...],
    free: frozenset[str],
    trainers: list[dict[str, Any]],
    plan: Plan | None,
    malformed: int,
) -> dict[str, Any]:
    """Return the whole status; ``free`` are the nodes of the pool that no trainer has."""
    used = {node for view in views for node in view.placed}
    return {
        "time_s": now_s,
        "controller": controller,
        "pool": {"nodes": len(used | free), "used": len(used), "free": sorted(free)},
        "plan": None
        if plan is None
        else {"objective": plan.objective, "status": plan.status, "solve_s": plan.solve_s}
        | ({"reason": plan.reason} if plan.reason else {}),
        "malformed": malformed,
        "trainers": trainers,
    }


def _state(view: TrainerView) -> str:
    if view.finishing:
        return "finishing" if view.live else "finished"
    if view.placed:
        return "starting"
    if view.spare or view.live:
        return "waiting"
    return "withheld" if any(view.with_state(ElementState.WITHHELD)) else "cancelled"
