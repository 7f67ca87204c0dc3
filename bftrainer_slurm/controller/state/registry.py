"""One record for each trainer, updated by looks, notes and actions.

``decide`` decides what to do about them. Trainers that cannot be handled are recorded here, and the
controller ignores them for a turn.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import BadNodes
from bftrainer_slurm.controller.state.failing_sizes import NOTHING_TRIED, TriedSizes
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.phases import Began, ElementRecord, Ended, Event, Phase
from bftrainer_slurm.controller.state.profiles import ReportedState, reported_before
from bftrainer_slurm.controller.state.trainer_state import (
    TrainerState,
    advance,
    ask,
    differ,
    finish,
    note_failed,
)
from bftrainer_slurm.controller.state.view import TrainerView, check, views_of
from bftrainer_slurm.keeper.messages import NOBODY, Engaged
from bftrainer_slurm.model import ElementId, ElementState, Trainer
from bftrainer_slurm.slurm.gateway import GatewayError

logger = logging.getLogger(__name__)

# The shortest time from an element's end to its next start: up to Slurm 24.11 no element starts on
# a node in the same second in which it was preempted there.
REST_S = 2.0


class TrainerErrors:
    """Why the controller cannot handle some trainers (by array) in this turn."""

    def __init__(self) -> None:
        self.why: dict[int, str] = {}
        self._last_turn: dict[int, str] = {}

    def begin(self) -> None:
        """Begin a turn: every trainer gets another try."""
        self._last_turn, self.why = self.why, {}

    @contextmanager
    def of(self, array: int) -> Iterator[None]:
        """Run code for one trainer; record its exceptions, so that other trainers go on."""
        try:
            yield
        except GatewayError:
            raise
        except Exception as error:
            why = f"the controller cannot handle it: {type(error).__name__}: {error}"
            if why not in (self._last_turn.get(array), self.why.get(array)):
                logger.exception("the controller ignores trainer %d for now", array)
            self.why[array] = why


_Stay: TypeAlias = tuple[int, str, float]  # task, node, and its start: all hosts know these


@dataclass(frozen=True, slots=True)
class Asked:
    """Which elements of a trainer are asked to leave, for the next controller."""

    stays: frozenset[_Stay] = frozenset()


def _stays(trainer: Trainer) -> frozenset[_Stay]:
    there = (ElementState.RUNNING, ElementState.SUSPENDED)
    return frozenset(
        (one.id.task, one.node, one.start_s)
        for one in trainer.elements
        if one.state in there and one.node is not None and one.start_s is not None
    )


@dataclass(slots=True)
class Record:
    """All that is known about one trainer; it can be dropped in one step."""

    state: TrainerState  # what the controller knows besides Slurm's data
    view: TrainerView | None = None  # with this state; None if the last look could not handle it
    reported: ReportedState | None = None  # by its members

    def put(self, state: TrainerState) -> None:
        """Replace the trainer's state."""
        if state is not self.state:
            self.state, self.view = state, self.view and replace(self.view, state=state)


class TrainerRegistry:
    """All trainers, by array.

    ``bad`` finds nodes that trainers should avoid; ``unhandled_nodes`` are nodes of trainers that
    cannot be handled. ``replaced`` trainers have the array id of an earlier trainer.
    ``measurements`` is what trainers have written to the history file. ``gone`` are elements, with
    the nodes that they have left, and trainers, of which the keeper has not heard yet.
    """

    def __init__(
        self, history: History, settings: Settings, errors: TrainerErrors, rest_s: float = REST_S
    ) -> None:
        self.bad = BadNodes(settings)
        self.unhandled_nodes: frozenset[str] = frozenset()
        self.replaced: frozenset[int] = frozenset()
        self.measurements = Measurements(history)
        self.gone: list[tuple[ElementId, str] | int] = []
        self._history = history
        self._rest_s = rest_s
        self._errors = errors
        self._records = {array: Record(state) for array, state in _from_history(history).items()}
        self._before_s = history.looked_s()  # when the previous controller last looked

    @property
    def views(self) -> tuple[TrainerView, ...]:
        """The trainers that the last look could handle."""
        return tuple(one.view for one in self._records.values() if one.view is not None)

    def view(self, array: int) -> TrainerView | None:
        """Return a trainer's view, None if there is none."""
        record = self._records.get(array)
        return None if record is None else record.view

    def state(self, array: int) -> TrainerState:
        """Return the state of a trainer that Slurm has."""
        return self._records[array].state

    def reported(self, trainer: Trainer) -> ReportedState:
        """Return what a trainer's members have reported, including reports in the history file."""
        record = self._records[trainer.array]
        if record.reported is None:
            record.reported = reported_before(self.measurements, trainer)
        return record.reported

    def put(self, states: Mapping[int, TrainerState]) -> None:
        """Replace the states of trainers; write what the next controller has to know of them."""
        for array, state in states.items():
            record = self._records.get(array)
            if record is None:
                record = self._records[array] = Record(TrainerState())
            before = record.state
            if state.over is not None and before.over is None:
                self._history.end(array, state.over)
            if state.engaged != before.engaged:
                self.measurements.keep(array, state.engaged)
            if state.tried is not before.tried and state.tried.lasting != before.tried.lasting:
                self.measurements.keep(array, state.tried.lasting)
            record.put(state)

    def ask(self, elements: Iterable[ElementId]) -> dict[int, list[int]]:
        """Record that elements are asked to leave; return the newly asked tasks, by array."""
        new: dict[int, list[int]] = {}
        for one in elements:
            if not self.state(one.array).of(one.task).asked:
                new.setdefault(one.array, []).append(one.task)
        self._ask(new)
        return new

    def unask(self, tasks: Mapping[int, Iterable[int]]) -> None:
        """Record that these tasks (by array) were not asked to leave after all."""
        self._ask(tasks, asked=False)

    def _ask(self, tasks: Mapping[int, Iterable[int]], asked: bool = True) -> None:
        """Record who is asked to leave, before they are and Slurm is."""
        for array, these in tasks.items():
            state, view = ask(self.state(array), these, asked), self.view(array)
            self.put({array: state})
            stays = () if view is None else _stays(view.trainer)
            leave = frozenset(one for one in stays if state.of(one[0]).asked)
            self.measurements.keep(array, Asked(leave))
        if tasks:
            self._history.flush()

    def finish(self, now_s: float) -> None:
        """End trainers whose members reported their end and are already forgotten by Slurm."""
        self.put({one.array: finish(one.state, one.trainer.elements, now_s) for one in self.views})

    def look(self, snapshot: Snapshot, notes_arrive: bool = False) -> list[Event]:
        """Update all trainers; return the events of their elements since the last look.

        ``notes_arrive``: whether the stream of notes is open.
        """
        now_s, trainers = snapshot.time_s, snapshot.queue.trainers
        events = self._forget(trainers, now_s)
        self._write(events, snapshot)
        states: dict[int, TrainerState] = {}
        for trainer in trainers:
            with self._errors.of(trainer.array):
                last = self._records.get(trainer.array)
                if last is not None and last.view and last.view.is_of(trainer, last.state):
                    states[trainer.array] = last.state  # no news: the usual case
                    continue
                over = last is not None and last.state.over
                state, happened = self._follow(trainer, now_s, notes_arrive)
                states[trainer.array] = state  # whatever fails from here on, its events are over
                if over:  # the training has ended, so a start does not count
                    happened = [one for one in happened if not isinstance(one, Began)]
                self._write(happened, snapshot)
                events += happened
                trained = self.reported(trainer).trained
                states[trainer.array] = note_failed(state, trained, now_s)
        self.bad.look(notes_arrive, now_s)
        for trainer in trainers:
            if trainer.array in states:
                with self._errors.of(trainer.array):
                    states[trainer.array] = self._checked(trainer, states[trainer.array], now_s)
        self._refresh_views(snapshot, states)
        return events

    def _forget(self, trainers: Iterable[Trainer], now_s: float) -> list[Event]:
        """Forget trainers that are gone or replaced; return how their elements ended."""
        ids = {trainer.array: trainer.record.id or "" for trainer in trainers}
        known = {array: record.state.id or "" for array, record in self._records.items()}
        self.replaced = frozenset(
            array for array, id_ in ids.items() if differ(id_, known.get(array, ""))
        )
        events: list[Event] = []
        for array in (self._records.keys() - ids.keys()) | self.replaced:
            state = self._records.pop(array).state
            self.gone.append(array)
            with self._errors.of(array):
                there_s = self._before_s if state.id is None else math.inf
                events += advance(state, array, (), now_s, keep_s=0.0, there_s=there_s)[1]
        return events

    def _checked(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Return the state with the nodes that it should avoid.

        Raises:
            Exception: what a turn reads of all trainers together cannot be read of this one.
        """
        state = self.bad.avoid(trainer, state, now_s)
        last = self._records.get(trainer.array)
        if last is None or last.view is None or not last.view.is_of(trainer, state):
            check(trainer, state, now_s)
        return state

    def _follow(
        self, trainer: Trainer, now_s: float, notes_arrive: bool
    ) -> tuple[TrainerState, list[Event]]:
        array, record = trainer.array, self._records.get(trainer.array)
        met = record is None or record.state.id is None
        if record is None or met:
            record = self._restore(trainer, now_s)
        state, events = advance(
            record.state,
            array,
            trainer.elements,
            now_s,
            self._rest_s,
            notes_arrive,
            self._before_s if met else math.inf,
        )
        if met:
            asked = self.measurements.kept(array, Asked) or Asked()
            state = ask(state, [task for task, *_ in _stays(trainer) & asked.stays])
        # Set the id only now: if this fails before, the next look restores the trainer again.
        return replace(state, id=trainer.record.id or ""), events

    def _restore(self, trainer: Trainer, now_s: float) -> Record:
        """Begin a trainer's record with what the history knows about it."""
        array, id_, history = trainer.array, trainer.record.id or "", self._history
        if history.knows_another(array, id_):
            self._records.pop(array, None)
        record = self._records.setdefault(array, Record(TrainerState()))
        over, submit_s = history.meet(trainer, now_s)
        totals = history.totals(array, now_s)
        known = replace(
            record.state,
            over=over,
            finished_s=now_s,
            submit_s=submit_s,
            begun=totals.grew > 0 or history.trouble is not None,  # then the file cannot tell
            had_nodes_s=totals.last_s or 0.0,
            tried=self.measurements.kept(array, TriedSizes) or NOTHING_TRIED,
            engaged=self.measurements.kept(array, Engaged) or NOBODY,
        )
        record.put(known)
        return record

    def _write(self, events: Sequence[Event], snapshot: Snapshot) -> None:
        self.gone += ((one.element, one.node) for one in events if isinstance(one, Ended))
        for event in events:
            if isinstance(event, Began):
                node = snapshot.shared.get(event.node)
                part = (event.gpus, 0 if node is None else node.gpus)
                self._history.begin_allocation(event.element, event.node, event.time_s, *part)
            else:
                self._history.end_allocation(event.element, event.time_s, event.how)

    def _refresh_views(self, snapshot: Snapshot, states: Mapping[int, TrainerState]) -> None:
        trainers, faulty = snapshot.queue.trainers, self._errors.why
        known = [(one, states[one.array]) for one in trainers if one.array not in faulty]
        rested_s = snapshot.time_s - self._rest_s
        ordinary = snapshot.queue.ordinary_nodes
        last = {view.array: view for view in self.views}
        views = {view.array: view for view in views_of(known, ordinary, rested_s, last)}
        self.put(states)
        for array, record in self._records.items():
            record.view = views.get(array)
        # Use Slurm's order, so that nothing depends on which trainer was seen first.
        self._records = {
            one.array: self._records[one.array] for one in trainers if one.array in self._records
        }
        unseen = [one for one in trainers if one.array in faulty]
        theirs = {element.node for one in unseen for element in one.elements if element.node}
        before = (self.state(one.array).nodes for one in unseen if one.array in self._records)
        self.unhandled_nodes = frozenset(theirs).union(*before)


def _from_history(history: History) -> dict[int, TrainerState]:
    """Return the states that the previous controller left: its running elements may still run."""
    states: dict[int, TrainerState] = {}
    for id_, (node, start_s) in history.open_allocations().items():
        record = ElementRecord(Phase.RUNNING, float("-inf"), node, start_s)
        state = states.get(id_.array, TrainerState())
        states[id_.array] = replace(state, elements={**state.elements, id_.task: record})
    return states
