"""Builds the status that users see: one JSON document after every turn. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from heapq import nsmallest
from typing import Any

from bftrainer_slurm.controller.decide.decision import Decision
from bftrainer_slurm.controller.decide.eligibility import refusal_sentence
from bftrainer_slurm.controller.decide.planning import StandingPlan
from bftrainer_slurm.controller.observe.reports import NO_REPORT, WINDOW_S, Report
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.publish.deadline import deadline_status
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.failing_sizes import in_words
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.profiles import ReportedGroup, ReportedState, RescaleCosts
from bftrainer_slurm.controller.state.registry import TrainerRegistry
from bftrainer_slurm.controller.state.statistics import Totals, goodput, summary
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementState
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.planner.problem import Plan, Problem, gpus_of
from bftrainer_slurm.planner.reasons import reasons_of
from bftrainer_slurm.slurm.gateway import may_be_job_submit
from bftrainer_slurm.words import some

SCHEMA = 1  # of the published status
_DAY_S = 86_400.0
_SOME = 5  # how many nodes of a bar are named
_IN_A_ROW = 2  # failures in a row before users are warned; a single one may be bad luck
_JOIN_S = 60.0  # imports and steps may take long, and so may a lost node until it comes back
APART = (
    "{nodes} run, but {together}: start the training by 'srun torchrun train.py', with all its "
    "processes in one group; 'bftrainer logs {array}' has the last lines of each node. Else each "
    "may train alone into the same files"
)
_ANEW = (
    "begins at step 0 again after each change of nodes: save checkpoints, and load the newest one "
    "when the script starts (docs/frameworks/index.md); until then its size seldom changes"
)


def trainer_status(
    view: TrainerView,
    totals: Totals,
    reported: ReportedState,
    trouble: str | None,
    costs: RescaleCosts,
    terms: Mapping[str, Any] | None,
    need: Need | None,
    warning: str | None,
    now_s: float,
) -> dict[str, Any]:
    """Return what users see of one trainer.

    ``trouble`` says why it cannot grow, None if it can. ``terms`` are the reasons for its size in
    the plan, ``need`` is what its deadline needs there. ``warning``: see ``not_together``.
    """
    trainer, failing = view.trainer, view.state.failing
    left_out, noise = view.left_out(now_s), reported.noise(trainer.record.spec.noise)
    given_up, _, error = ("" if view.finishing else view.state.over or "").partition("\n")
    running, ended = view.on_since_s(), not view.live and not view.spare
    trouble = None if view.all_ended else trouble
    refusal = refusal_sentence(words) if (words := view.state.refusal_at(now_s)) else None
    notice = _ANEW if reported.loss["from_start"] else None
    return {
        "array": view.array,
        "name": trainer.name,
        "user": trainer.user,
        "state": "given up" if given_up else "running" if running else _state(view),
        "why": given_up or trouble or _cancelled(view),
        "failures": failing.in_a_row if failing else 0,
        "failed_on": list(failing.failed_on) if failing else [],
        "notice": _failing(failing)
        or _suspended(view)
        or warning
        or notice
        or (refusal if refusal != trouble else None),
        "error": (failing.text if failing else error) or None,
        **trainer.record.shown,
        "left_out": in_words(left_out) if left_out else None,
        "gpus": view.gpus,
        "submit_s": view.submit_s,
        "nodes": sorted(running),
        "starting": sorted(view.nodes - running.keys()),
        "grew": totals.grew,
        "shrank": totals.shrank,
        "reclaimed": totals.reclaimed,
        "node_s": totals.node_s,
        **_reported(reported, now_s),
        "deadline": deadline_status(
            trainer.record.spec,
            reported.samples_so_far,
            samples_per_s(reported.progress.recent, now_s),
            need,
            now_s,
        ),
        "noise": None if noise is None else asdict(noise),
        "goodput": goodput(reported.work, totals, view.submit_s, ended=ended, now_s=now_s),
        **_measured(view, reported, costs),
        "plan": terms,
    }


def not_together(
    view: TrainerView, group: ReportedGroup, joined: bool, notes_arrive: bool, now_s: float
) -> str | None:
    """Return a warning if elements have not trained with the rest of their trainer for a minute.

    Each of them may train alone, into the same files. A trainer without torch gets the same one.
    ``joined``: members have formed a group through the keeper; progress alone does not show this.
    ``notes_arrive``: whether the stream of notes is open. Then ``bad_nodes`` reports elements that
    send no notes.
    """
    nodes, most_of = group.nodes, view.sizes.up_to
    if view.over or nodes >= most_of(len(view.placed)) or view.trainer.record.max_nodes == 1:
        return None
    if joined and (nodes == 0 or group.waits):
        return None  # the script has stopped training, or has not started again yet
    going = set(_going(view, notes_arrive))
    running = {node: start_s for node, start_s in view.on_since_s().items() if node not in going}
    starts_s = sorted(start_s for start_s in running.values() if start_s is not None)
    if nodes >= most_of(len(starts_s)):
        return None
    due_s = max(starts_s[nodes], group.fell_s, group.script_s) + _JOIN_S
    if now_s < due_s or (joined and -math.inf < group.progressed_s < due_s):
        return None  # it is too early, or the whole group stands still
    together = f"only {nodes} of them train together" if nodes > 1 else "do not train together"
    return APART.format(nodes=some(sorted(running)), together=together, array=view.array)


def _going(view: TrainerView, notes_arrive: bool) -> Iterator[str]:
    """Yield the nodes of elements that are about to leave, or may never have come up."""
    for task, record in view.state.elements.items():
        asked = record.asked or record.down_s is not None or task in view.state.done
        asked |= notes_arrive and record.mute
        if record.node is not None and (asked or record.phase is Phase.LEAVING):
            yield record.node


def _reported(reported: ReportedState, now_s: float) -> dict[str, Any]:
    """Return a trainer's reported progress, and the program that started it."""
    progress = reported.progress
    report = progress.recent[-1] if progress.recent else NO_REPORT
    return {
        "samples": report.samples,
        "steps": report.steps,
        "measures": dict(report.measures),
        "samples_per_s": samples_per_s(progress.recent, now_s),
        "refused_reports": progress.refused,
        "launcher": reported.launcher or None,
    }


def _measured(view: TrainerView, reported: ReportedState, costs: RescaleCosts) -> dict[str, Any]:
    """Return what was measured of a trainer: its curve, costs, and loss by a restart."""
    fit = reported.fit
    curve, measured = fit.curve(view.trainer.record.max_nodes), frozenset(fit.sizes.tolist())
    rescale = ("up", costs.up_s, True), ("down", costs.down_s, False)
    return {
        "curve": {
            "unit": None if fit.unit is None else reported.unit,
            "points": [
                {"nodes": nodes, "rate": rate, "measured": nodes in measured}
                for nodes, rate in zip(curve.nodes[1:], curve.values[1:], strict=True)
            ],
        },
        "rescale": {
            name: {"seconds": seconds, "count": len(reported.costs(grew))}
            for name, seconds, grew in rescale
        },
        "loss": reported.loss,
    }


def samples_per_s(recent: Iterable[Report], now_s: float) -> float | None:
    """Return the mean samples/s of the last 30 s, or None if unknown."""
    known = [
        (report.time_s, report.samples)
        for report in recent
        if report.samples is not None and report.time_s >= now_s - WINDOW_S
    ]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    (first_s, before), (last_s, after) = known[0], known[-1]
    return max(0.0, after - before) / (last_s - first_s)


def cluster_status(
    snapshot: Snapshot,
    history: History,
    registry: TrainerRegistry,
    decision: Decision,
    trainers: Iterable[Mapping[str, Any]],
    faulty: Mapping[int, str],
    *,
    controller: Mapping[str, Any],
    now_s: float,
) -> dict[str, Any]:
    """Return the whole status.

    ``trainers`` come from ``trainer_status``; ``faulty`` says why some cannot be handled, by array.
    """
    standing, bars = decision.standing, barred(decision.bars, now_s)
    switch_of = snapshot.configuration.switch_of
    has = frozenset[str]().union(*(view.nodes for view in registry.views))
    used = frozenset[str]().union(*(view.running().values() for view in registry.views))
    free = decision.free.keys() - has
    malformed, private = {**snapshot.queue.malformed, **faulty}, snapshot.configuration.private
    misfits, stopped = list(snapshot.misfits), snapshot.stopped_pass
    refusals = _refused_changes(registry, now_s)
    return no_status(
        now_s, {**controller, "history": history.trouble, "slurm": misfits, "refusals": refusals}
    ) | {
        "pool": {
            "nodes": len(has) + len(free),
            "used": len(used),
            "starting": len(has - used),
            "planned": None if standing is None else len(_planned(standing.plan)),
            "free": sorted(free),
            "gpus": None if standing is None else _gpus(standing, snapshot, registry.views),
        },
        "plan": None if standing is None else _plan(standing.plan),
        "nodes": len(snapshot.all_nodes),
        "preempted": summary(history.delays(now_s - _DAY_S))
        | {"started": history.ordinary(now_s - _DAY_S)},
        "stopped_pass": stopped and {"tried": stopped.tried, "left": stopped.left},
        "counts": history.counts.shown(),
        "jobs_private": "jobs" in private,
        "private": sorted(private),
        "left_alone": dict(decision.left_alone),
        "barred": bars.get(None, []),
        "mute_nodes": registry.bad.mute_nodes(now_s),
        "malformed": {str(array): why for array, why in malformed.items()},
        "trainers": [
            {
                **one,
                "barred": bars.get(one["array"], []),
                "switches": len({switch_of[node] for node in one["nodes"] if node in switch_of}),
            }
            for one in trainers
        ],
    }


def _refused_changes(registry: TrainerRegistry, now_s: float) -> list[str]:
    """Return a sentence if the site itself refuses what the controller changes."""
    refusals = {
        view.array: view.state.refusal_at(now_s) for view in registry.views if not view.over
    }
    arrays = [array for array, words in refusals.items() if may_be_job_submit(words)]
    if not arrays:
        return []
    trainers = ", ".join(map(str, arrays[:_SOME]))
    return [f"trainer {trainers}: {refusal_sentence(refusals[arrays[0]])}"]


def _plan(plan: Plan) -> dict[str, Any]:
    """Return what users see of the whole plan."""
    reason = {"reason": plan.reason} if plan.reason else {}
    return {"objective": plan.objective, "status": plan.status, "solve_s": plan.solve_s} | reason


def _planned(plan: Plan) -> frozenset[str]:
    return frozenset[str]().union(*plan.assignment.values())


def _gpus(
    standing: StandingPlan, snapshot: Snapshot, views: Iterable[TrainerView]
) -> dict[str, int] | None:
    """Return how many GPUs of shared nodes are left, used, starting and planned.

    None: no nodes are shared.
    """
    planned = gpus_of(standing.problem, standing.plan)
    if planned is None:
        return None
    gpus = Counter[bool]()
    for view in views:
        running = view.running()
        for id_, node in view.placed.items():
            if (one := snapshot.shared.get(node)) is not None:
                gpus[id_ in running] += view.gpus or one.gpus
    return {"left": planned[0], "used": gpus[True], "starting": gpus[False], "planned": planned[1]}


def barred(bars: Iterable[Bar], now_s: float) -> dict[int | None, list[dict[str, Any]]]:
    """Return the bars of idle nodes by trainer; None: those for all trainers."""
    found: dict[int | None, list[dict[str, Any]]] = {}
    for one in bars:
        for_s = None if math.isinf(one.until_s) else max(0.0, one.until_s - now_s)
        some = {"nodes": len(one.nodes), "some": nsmallest(_SOME, one.nodes)}
        found.setdefault(one.array, []).append({"why": one.why, **some, "for_s": for_s})
    return found


def terms_of(problem: Problem, plan: Plan, planned_s: float) -> dict[str, dict[str, Any]]:
    """Return the reasons for each trainer's size in a plan, by the trainer's key."""
    return {
        key: _rounded(asdict(one)) | {"limit": one.limit.value, "time_s": planned_s}
        for key, one in reasons_of(problem, plan).items()
    }


def _rounded(value: Any) -> Any:
    """Keep six digits of each number: people read them, and there may be many."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def no_status(now_s: float, controller: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a controller that knows nothing yet."""
    return {
        "schema": SCHEMA,
        "time_s": now_s,
        "controller": dict(controller),
        "nodes": None,
        "pool": None,
        "plan": None,
        "preempted": None,
        "counts": None,
        "malformed": {},
        "trainers": [],
    }


def _failing(failing: Failing | None) -> str | None:
    if failing is None or failing.in_a_row < _IN_A_ROW:
        return None
    nodes = f" on {some(failing.failed_on)}" if failing.failed_on else ""
    return f"failed {failing.in_a_row} times in a row{nodes}: 'bftrainer show' has its last output"


def _suspended(view: TrainerView) -> str | None:
    nodes = [record.node for _, record in view.within(Phase.SUSPENDED) if record.node]
    if not nodes:
        return None
    return f"suspended on {some(nodes)}: its processes stand still (scontrol resume)"


def _cancelled(view: TrainerView) -> str | None:
    """Return a sentence if a trainer has fewer elements than its user asked for, else None."""
    most = view.trainer.record.max_nodes
    left = sum(one.state is not ElementState.CANCELLED for one in view.trainer.elements)
    if view.over or view.abandoned:
        return None
    if held := len(view.ids(Phase.WITHHELD)):
        return f"an operator holds {held} of its {most} elements (scontrol release)"
    if not 0 < left < most:
        return None
    return f"{left} of its {most} elements are left: the others were cancelled"


def _state(view: TrainerView) -> str:
    if view.finishing:
        return "finishing" if view.live else "finished"
    if view.abandoned:
        return "cancelled"
    if view.placed:
        return "starting"
    left = {view.state.of(one.id.task).phase for one in view.trainer.elements} - {Phase.DONE}
    if left - {Phase.WITHHELD}:
        return "waiting"
    return "withheld" if left else "cancelled"
