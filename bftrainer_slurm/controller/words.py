"""What members of trainers' groups say, on its way to who needs it.

They have proven to the keeper whose they are, but what they say is still only a user's word.
"""

from __future__ import annotations

import json

from bftrainer_slurm.controller.appraisal import Appraiser
from bftrainer_slurm.controller.failures import failed, progressed
from bftrainer_slurm.controller.history import History
from bftrainer_slurm.controller.progress import ProgressBook, Report, read_reform, read_report
from bftrainer_slurm.controller.view import Memory, TrainerView
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId

OF_MEMBERS = (NoteKind.PROGRESS, NoteKind.REFORMED, NoteKind.FAILED)

_TRAINS_S = 10.0  # progress so long after a start, or a failure: it really trains
_SAVE_EVERY_S = 5.0
_SAVE_SHARE = 0.01  # of a trainer's age: so a few hundred rows tell all of its life


class Words:
    """Keeps the progress of all trainers; the appraiser learns from it, the history shows it."""

    def __init__(self, history: History, appraiser: Appraiser) -> None:
        self.progress = ProgressBook(history.samples)
        self._history = history
        self._appraiser = appraiser
        self._saved_s: dict[int, float] = {}
        self._began_s: dict[int, float] = {}  # when a trainer last formed a group, or failed
        self._trained: dict[int, bool] = {}  # asked of the history once, then known here

    def take(self, view: TrainerView, numbered: NumberedNote, memory: Memory) -> Memory:
        """Hear a note of a trainer's member; return the memory with the failures it tells of."""
        array, now_s = view.array, numbered.time_s
        match numbered.note.kind:
            case NoteKind.PROGRESS:
                return self._take_progress(view, numbered, memory)
            case NoteKind.REFORMED if (reform := read_reform(numbered)) is not None:
                self._began_s[array] = now_s
                self._appraiser.reformed(view, reform)
            case NoteKind.FAILED:
                self._began_s[array] = now_s
                node, trained = _own_node(view, numbered.note), self.has_trained(array)
                return failed(memory, array, node, numbered.note.text, trained, now_s)
        return memory

    def has_trained(self, array: int) -> bool:
        """Whether a trainer has trained for a while, at some time."""
        if array not in self._trained:
            self._trained[array] = self._history.has_trained(array)
        return self._trained[array]

    def forget(self, keep: frozenset[int]) -> None:
        """Drop trainers that are not among ``keep``."""
        self.progress.forget(keep)
        for kept in (self._trained, self._saved_s, self._began_s):
            for array in kept.keys() - keep:
                del kept[array]

    def _take_progress(self, view: TrainerView, numbered: NumberedNote, memory: Memory) -> Memory:
        array, now_s = view.array, numbered.time_s
        said = read_report(numbered, view.trainer.record.max_nodes)
        if said is None:
            self.progress.refuse(array)
            return memory
        self._appraiser.progressed(view, said)
        self._save(view, self.progress.add(array, said))
        if now_s - self._began_s.setdefault(array, now_s) < _TRAINS_S:
            return memory
        self._trained[array] = True
        return progressed(memory, array)

    def _save(self, view: TrainerView, report: Report) -> None:
        saved_s = self._saved_s.get(view.array, float("-inf"))
        gap_s = max(_SAVE_EVERY_S, _SAVE_SHARE * (report.time_s - view.trainer.submit_s))
        if report.samples is None or report.time_s - saved_s < gap_s:
            return
        self._saved_s[view.array] = report.time_s
        measures = json.dumps(dict(report.measures))
        self._history.add_progress(view.array, report.time_s, report.samples, measures)


def _own_node(view: TrainerView, note: Note) -> str | None:
    """The node that it speaks of, where its element is there; of others it has nothing to say."""
    mine = view.placed.get(note.node) == ElementId(note.array, note.task)
    return note.node if mine else None
