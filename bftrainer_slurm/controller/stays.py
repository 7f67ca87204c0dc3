"""Which element ran where from when to when, told from one reading of Slurm to the next.

Slurm's word counts; the elements' own notes give the times more exactly than its seconds, and the
nodes of those that it took back before it was read.
"""

from __future__ import annotations

from collections.abc import Mapping

from bftrainer_slurm.controller.history import History
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import Element, ElementId, ElementState, Trainer

_NOTE_FITS_S = 60.0
_WAITING = (
    ElementState.HELD,
    ElementState.WITHHELD,
    ElementState.PENDING,
    ElementState.DELAYED,
)
_THERE = (ElementState.RUNNING, ElementState.ENDING)
_HAS_RUN = (ElementState.ENDING, ElementState.DELAYED)


class Stays:
    """Keeps the history's stays up to date."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._open = history.open_stays()
        self._came: dict[ElementId, tuple[float, str]] = {}
        self._left: dict[ElementId, float] = {}
        self._shrunk: set[ElementId] = set()
        self._updated_s = 0.0

    def take(self, numbered: NumberedNote) -> None:
        """Remember when an element said that it came or left."""
        note = numbered.note
        element = ElementId(note.array, note.task)
        if note.kind is NoteKind.UP:
            self._came[element] = (numbered.time_s, note.node)
        elif note.kind in (NoteKind.LEAVING, NoteKind.GONE):
            self._left[element] = numbered.time_s

    def shrunk(self, elements: tuple[ElementId, ...]) -> None:
        """Remember that it was us who ended these elements."""
        self._shrunk.update(elements)

    def update(
        self,
        trainers: tuple[Trainer, ...],
        now_s: float,
        came: Mapping[ElementId, tuple[str, float]],
    ) -> list[ElementId]:
        """Compare with a fresh reading of the queue; return who is gone without our doing.

        Those that have ended well are not among them. ``came``: where and when (seconds) elements
        came up since the last reading; Slurm may have taken them back before this one.
        """
        gone: list[ElementId] = []
        elements = {element.id: element for trainer in trainers for element in trainer.elements}
        for id_, (node, time_s) in came.items():
            unseen = id_ in elements and id_ not in self._open and time_s >= self._updated_s
            if unseen and elements[id_].state in _HAS_RUN:
                self._begin(id_, node, time_s)
        self._updated_s = now_s
        for id_, node in list(self._open.items()):
            element = elements.get(id_)
            if element is None or element.state not in _THERE or element.node != node:
                ended_well = element is not None and element.state is ElementState.COMPLETED
                if id_ not in self._shrunk and not ended_well:
                    gone.append(id_)
                self._end(id_, element, now_s)
        for element in elements.values():
            if element.state is ElementState.RUNNING and element.id not in self._open:
                self._see(element, now_s)
        for notes in (self._came, self._left):
            for id_ in notes.keys() - elements.keys():
                del notes[id_]
        return gone

    def _see(self, element: Element, now_s: float) -> None:
        assert element.node is not None
        time_s = element.start_s if element.start_s is not None else now_s
        told_s, node = self._came.get(element.id, (0.0, ""))
        if node == element.node and abs(told_s - time_s) < _NOTE_FITS_S:
            time_s = told_s
        self._left.pop(element.id, None)
        self._begin(element.id, element.node, time_s)

    def _begin(self, id_: ElementId, node: str, time_s: float) -> None:
        self._open[id_] = node
        self._shrunk.discard(id_)
        self._history.begin_stay(id_, node, time_s)

    def _end(self, id_: ElementId, element: Element | None, now_s: float) -> None:
        how = "ended"
        if id_ in self._shrunk:
            how = "shrank"
        elif element is not None and (element.state in _WAITING or element.state in _THERE):
            how = "reclaimed"
        told_s = self._left.pop(id_, now_s)
        time_s = told_s if now_s - told_s < _NOTE_FITS_S else now_s
        self._shrunk.discard(id_)
        del self._open[id_]
        self._history.end_stay(id_, time_s, how)
