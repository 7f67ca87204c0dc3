"""Takes notes from members of trainers' groups into what is reported, the state and the history.

Members have authenticated to the keeper, but their notes are still only a user's claims.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Set
from dataclasses import replace
from typing import Any

from bftrainer_slurm.controller.observe.reports import (
    Report,
    add_report,
    read_reform,
    read_report,
    read_script,
    read_size,
)
from bftrainer_slurm.controller.state.failing import add_failure, after_progress
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.profiles import ReportedState
from bftrainer_slurm.controller.state.stopwatch import Rescale
from bftrainer_slurm.controller.state.trainer_state import TrainerState, note_cut, note_left
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId

logger = logging.getLogger(__name__)

OF_MEMBERS = (
    *(NoteKind.PROGRESS, NoteKind.REFORMED, NoteKind.FAILED, NoteKind.FINISHED),
    *(NoteKind.LEFT, NoteKind.SCRIPT, NoteKind.CUT, NoteKind.BACK),
)

_TRAINS_S = 10.0  # new progress this long after a start or a failure shows that training works
_NEWS_S = 60.0
_SAVE_EVERY_S = 5.0
_SAVE_SHARE = 0.01  # of a trainer's age, so that a few hundred rows cover its whole life


class MemberNotes:
    """Handles members' notes, and writes what they say to the file."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        self._ahead_logged = False

    def take(
        self, view: TrainerView, reported: ReportedState, numbered: NumberedNote, now_s: float
    ) -> TrainerState:
        """Add a member's note to what the trainer has ``reported``; return the trainer's new state.

        A failure counts only while it is new: the keeper repeats old notes, and the trainer may
        have recovered long ago. Progress from the future does not count: the clock was set back, or
        the clock of the keeper's host differs.
        """
        state = view.state
        self._compare_clocks(numbered.time_s - now_s)
        match numbered.note.kind:
            case NoteKind.PROGRESS if numbered.time_s - now_s < _NEWS_S:
                return self._take_progress(view, reported, numbered)
            case NoteKind.REFORMED if (reform := read_reform(numbered)) is not None:
                reported.begins(state.failing, numbered.time_s)
                reported.launcher = reform.launcher or reported.launcher
                reported.group.formed(reform.nodes, reform.time_s)
                about = {"generation": reform.generation, "tasks": reform.tasks}
                return _engage(replace(state, begun=True), **about)
            case NoteKind.SCRIPT if (script := read_script(numbered)) is not None:
                leader, trains = script
                reported.group.waits, reported.group.script_s = not trains, numbered.time_s
                return _engage(state, leader=leader)
            case NoteKind.LEFT:
                return note_left(_without(state, numbered.note.task), numbered.note)
            case NoteKind.CUT | NoteKind.BACK:
                return note_cut(state, numbered.note)
            case NoteKind.FINISHED:
                state = _without(state, numbered.note.task)
                return replace(state, done=state.done | {numbered.note.task})
            case NoteKind.FAILED if abs(now_s - numbered.time_s) < _NEWS_S:
                reported.began_s = numbered.time_s
                return _failed(view, numbered, reported.trained, now_s)
        return state

    def _compare_clocks(self, ahead_s: float) -> None:
        if ahead_s < _NEWS_S or self._ahead_logged:
            return
        self._ahead_logged = True
        logger.warning(
            "the keeper's clock is %.0f s ahead of the controller's: trainers' reports are "
            "ignored; synchronise both hosts' clocks (NTP)",
            ahead_s,
        )

    def _take_progress(
        self, view: TrainerView, reported: ReportedState, numbered: NumberedNote
    ) -> TrainerState:
        now_s = numbered.time_s
        report = read_report(numbered, view.trainer.record.max_nodes)
        if report is None:
            reported.progress.refused += 1
            return view.state
        reported.group.progressed(1 if report.alone else report.nodes or 1, now_s)
        measure(self._measurements, view, reported, report)
        self._save(view, reported, reported.progress.add(report))
        reported.began_s = now_s if reported.began_s is None else reported.began_s
        if now_s - reported.began_s < _TRAINS_S:
            return view.state
        reported.trained = True
        state, on = view.state, _nodes_in(view, report, reported.began_s)
        left = state.failing
        if left is not None and reported.is_beyond(report):
            left = after_progress(left, on, now_s)
        tried = state.tried.trains(0 if report.alone else report.nodes or 0, on)
        if left == state.failing and tried is state.tried:
            return state
        return replace(state, failing=left, tried=tried)

    def _save(self, view: TrainerView, reported: ReportedState, report: Report) -> None:
        gap_s = max(_SAVE_EVERY_S, _SAVE_SHARE * (report.time_s - view.submit_s))
        if report.time_s - reported.saved_s < gap_s:
            return
        reported.saved_s = report.time_s
        if reported.work is not None:
            self._measurements.keep(view.array, reported.work)
        if report.samples is not None:
            self._measurements.add_progress(view.array, report.time_s, report.samples)


def _engage(state: TrainerState, **changed: Any) -> TrainerState:
    """Return the state with a change of who is engaged, as a new keeper has to know."""
    engaged = replace(state.engaged, **changed)
    return state if engaged == state.engaged else replace(state, engaged=engaged)


def _without(state: TrainerState, task: int) -> TrainerState:
    """Return the state after a task has ended its part in the group."""
    return _engage(state, tasks=state.engaged.tasks - {task})


def measure(
    measured: Measurements, view: TrainerView, reported: ReportedState, report: Report
) -> None:
    """Record the work, the throughput and the pause of a rescale that a report completes.

    The keeper repeats old notes after a restart of the controller; these count once.
    """
    nodes, before = report.nodes or len(view.placed), reported.work
    report = replace(report, nodes=nodes)
    work = reported.work = add_report(before, report, view.submit_s, view.since_s)
    throughput = reported.stopwatch.report(report)
    if throughput is not None and (of_size := reported.add(throughput)):
        measured.set_curve(reported.job, of_size)
    if before is None or (pause_s := work.rescaling_s - before.rescaling_s) <= 0:
        return
    reported.saved_s = -math.inf  # save the work at once, so that the pause counts once
    rescale = Rescale(nodes > before.nodes, report.time_s, pause_s)
    is_new = before.nodes not in (0, nodes) and reported.add_rescale(rescale)
    pause = report.time_s, nodes, pause_s, rescale.grew if is_new else None
    measured.add_pause(reported.job, view.array, *pause)


def _failed(view: TrainerView, numbered: NumberedNote, trained: bool, now_s: float) -> TrainerState:
    """Return the state after a member has reported that its script failed."""
    state, note = view.state, numbered.note
    nodes, time_s = _own_nodes(view, note), numbered.time_s
    size = read_size(numbered, view.trainer.record.max_nodes)
    tried = state.tried.fails(size, nodes, note.text, now_s)
    if tried.left_out(now_s).keys() - view.left_out(now_s).keys():
        return replace(state, failing=None, tried=tried, notified=False)  # that was the reason
    failing = add_failure(state.failing, nodes, note.text, trained, time_s)
    return replace(state, failing=failing, tried=tried)


def _nodes_in(view: TrainerView, report: Report, began_s: float) -> Set[str]:
    """Return the nodes of the generation that began at ``began_s``; empty if they are not known.

    Elements that started later, or hang, are not in it.
    """
    starts = view.starts_s().items()
    nodes = frozenset(node for node, start_s in starts if start_s <= began_s)
    return nodes if report.nodes in (None, len(nodes)) else frozenset()


def _own_nodes(view: TrainerView, note: Note) -> tuple[str, ...]:
    """Return the node that a note names, if the note's element is placed there.

    Another element may have failed at the same time with the same words.
    """
    node = view.placed.get(ElementId(note.array, note.task))
    if node != note.node:
        return ()
    also = dict(note.measures).get("also", -1.0)
    other = view.placed.get(ElementId(note.array, int(also)))
    return (node,) if other in (None, node) else (node, other)
