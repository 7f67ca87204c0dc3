"""One turn of the controller: observe, update the state, decide, act. Used by daemon and replay.

The caller provides gateway, planner, keeper's groups, history and clock. The loop never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from bftrainer_slurm.controller.act import MOST_ACTIONS, SILENT_S, Groups, execute
from bftrainer_slurm.controller.decide.actions import Action, Grow, Shrink, Tell, elements_of
from bftrainer_slurm.controller.decide.decision import Decider, Decision
from bftrainer_slurm.controller.decide.planning import StandingPlan
from bftrainer_slurm.controller.observe.schedule import Schedule
from bftrainer_slurm.controller.observe.snapshot import Snapshot, read
from bftrainer_slurm.controller.publish.status import (
    cluster_status,
    not_together,
    terms_of,
    trainer_status,
)
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.failing_sizes import in_words
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.member_notes import OF_MEMBERS, MemberNotes
from bftrainer_slurm.controller.state.phases import OCCUPIES, VACATES, Event, Phase
from bftrainer_slurm.controller.state.profiles import PerformanceModel
from bftrainer_slurm.controller.state.registry import REST_S, TrainerErrors, TrainerRegistry
from bftrainer_slurm.controller.state.trainer_state import apply_note
from bftrainer_slurm.controller.state.view import TrainerView, note_rescale
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId, Trainer
from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.slurm.gateway import Gateway

_DAY_S = 86400.0
_SURE_S = 3600.0  # before the first tidying: a clock that was wrong at boot is right by then


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the loop works with."""

    gateway: Gateway
    planner: PlanMaker
    history: History
    groups: Groups
    clock: Callable[[], float]
    mine: Callable[[Trainer], bool]  # whether this controller runs the trainer
    notes_arrive: Callable[[], bool] = lambda: False  # whether the stream of notes is open
    performance: PerformanceModel | None = None  # None: a model that learns from reports
    most_actions: float = MOST_ACTIONS  # a turn
    rest_s: float = REST_S  # from an element's end to its next start


class Controller:
    """The loop and its state. It can be replaced at any time: Slurm and the history have the rest.

    Notes that arrive before the first look (``looked``) wait for it. ``registry`` has the trainers,
    ``performance`` their throughput and costs, and ``decision`` is the last one.
    """

    def __init__(self, deps: Dependencies, settings: Settings) -> None:
        self.deps = deps
        self.schedule = Schedule(settings, deps.clock())
        self.looked = False
        self._early: list[NumberedNote] = []
        self._errors = TrainerErrors()
        self._snapshot = Snapshot(deps.clock(), settings=settings)
        self.decision = Decision()
        self._explained: tuple[StandingPlan | None, Mapping[str, Any]] = (None, {})
        self.registry = TrainerRegistry(deps.history, settings, self._errors, deps.rest_s)
        self.performance = deps.performance or PerformanceModel(self.registry.reported)
        self._members = MemberNotes(self.registry.measurements)
        self._cluster = ClusterState(deps.history)
        self._decider = Decider(
            deps.planner, self.performance, deps.history, settings, self._errors
        )
        self._tidy_s = deps.clock() + _SURE_S

    def take(self, notes: Iterable[NumberedNote]) -> None:
        """Handle notes; they may bring the next look forward."""
        if not self.looked:
            self._early += notes
            return
        now_s = self.deps.clock()
        with self.deps.history.together():
            for numbered in notes:
                with self._errors.of(numbered.note.array):
                    self._take(numbered, self.registry.view(numbered.note.array), now_s)

    def turn(self) -> None:
        """Read Slurm, update the state, schedule the next looks, decide, and act.

        Raises:
            GatewayError: Slurm did not answer, or its answer makes no sense.
            Exception: any other failure. In all cases the schedule says when to try again, and
                nothing is lost.
        """
        try:
            with self.deps.history.together():
                self._turn()
        except Exception:
            self.schedule.failed(self.deps.clock())
            raise
        self.schedule.succeeded()

    def _turn(self) -> None:
        began_s = self.deps.clock()
        forecast = self._cluster.forecast(self._snapshot, began_s)
        asks = forecast.asks or self._wait_for_a_pass()
        judged = asks and began_s >= forecast.sure_s
        due = self.schedule.also_due(began_s) | ({"pass"} if judged else set())
        self._snapshot = read(self.deps.gateway, self._snapshot, began_s, due, self.deps.mine)
        looked_s = self.deps.clock()
        events = self._follow(began_s, looked_s)
        self._cluster.look(self._snapshot, self.registry.views, events, looked_s)
        self._schedule_looks(due, began_s, looked_s)
        self.introduce()  # before all that takes time: no member can join before it
        self._report_gone(looked_s)
        self.looked, early, self._early = True, self._early, []
        self.take(early)
        if early:  # some may report ends of trainers
            self.registry.finish(self._snapshot.time_s)
        cluster = self._cluster.view(self._snapshot, self.registry)
        self.decision = self._decider.decide(cluster)
        self.registry.bad.evidence = self.decision.bad
        self.registry.put(self.decision.states)
        self.introduce()
        notices = self._notify_trainers(set(elements_of(Shrink, self.decision.actions)))
        self._act((*self.decision.actions, *notices))

    def _wait_for_a_pass(self) -> bool:
        """Whether elements wait to start, perhaps in vain: passes may not come to them."""
        for view in self.registry.views:
            with self._errors.of(view.array):
                if any(view.within(Phase.RELEASED)):
                    return True
        return False

    def introduce(self) -> None:
        """Tell the keeper who owns each trainer, and how many nodes the plan gives it."""
        plan, now_s = self.decision.plan, self.deps.clock()
        for view in self.registry.views:
            with self._errors.of(view.array):
                planned = plan.assignment.get(str(view.array)) if plan is not None else None
                want = len(view.placed if planned is None else planned)
                user, sizes, state = view.trainer.user, view.sizes_now(now_s), view.state
                self.deps.groups.own(view.array, user, want, sizes, state.still_engaged)

    def status(self, controller: dict[str, Any]) -> dict[str, Any]:
        """Return the status to publish; ``controller`` describes this process."""
        now_s, standing = self.deps.clock(), self.decision.standing
        if standing is not self._explained[0]:
            self._explained = standing, {}  # if ``terms_of`` fails, do not try it again
            if standing is not None:
                terms = terms_of(standing.problem, standing.plan, standing.time_s)
                self._explained = standing, terms
        trainers = []
        for view in self.registry.views:
            with self._errors.of(view.array):
                trainers.append(self._shown(view, now_s))
        return cluster_status(
            *(self._snapshot, self.deps.history, self.registry, self.decision),
            *(trainers, self._errors.why),
            controller=controller,
            now_s=now_s,
        )

    def _shown(self, view: TrainerView, now_s: float) -> dict[str, Any]:
        deps, array, standing = self.deps, view.array, self.decision.standing
        return trainer_status(
            view,
            deps.history.totals(array, now_s),
            self.registry.reported(view.trainer),
            self._errors.why.get(array) or self.decision.stuck.get(array),
            self.performance.costs(view, now_s),
            self._explained[1].get(str(array)),
            None if standing is None else standing.problem.needs.get(str(array)),
            self._not_together(view, now_s),
            now_s,
        )

    def _follow(self, began_s: float, looked_s: float) -> list[Event]:
        """Update each trainer's record; return the events of elements."""
        self.deps.history.counts.looks.add(max(0.0, looked_s - began_s))
        self._errors.begin()
        before = {view.array: view.nodes for view in self.registry.views}
        events = self.registry.look(self._snapshot, self.deps.notes_arrive())
        self._note_pauses(before, began_s)
        return events

    def _schedule_looks(self, due: frozenset[str], began_s: float, looked_s: float) -> None:
        """Schedule the next looks.

        Soon while elements end, or jobs are about to start; after a backoff; before a pass.
        """
        ending = any(view.ids(*VACATES) for view in self.registry.views)
        ending |= self.decision.as_they_come and bool(self._snapshot.queue.asking)
        self.schedule.looked(looked_s, due, ending, max(0.0, looked_s - began_s))
        rest_s = self.deps.rest_s
        for view in self.registry.views:
            with self._errors.of(view.array):
                if view.rests(began_s - rest_s):
                    self.schedule.look_by(looked_s + rest_s)
                if view.state.rests_until_s > looked_s and not view.over:
                    self.schedule.look_by(view.state.rests_until_s)
        if self._snapshot.queue.asking and any(view.running() for view in self.registry.views):
            found = self._cluster.forecast(self._snapshot, began_s)
            self.schedule.expect_pass(found, began_s, self._cluster.lead_s)

    def _report_gone(self, now_s: float) -> None:
        """Report gone elements and trainers to the keeper; retry until it answers or they return.

        Also forget the trainers that are gone, and once a day drop old data.
        """
        deps, registry = self.deps, self.registry
        arrays = frozenset(one.array for one in self._snapshot.queue.trainers)
        kept = arrays - registry.replaced
        gone = [one for one in dict.fromkeys(registry.gone) if not self._is_back(one, kept)]
        say, lost = deps.groups.say, deps.groups.lost
        registry.gone = [
            one for one in gone if not (say(one, "ended") if isinstance(one, int) else lost(*one))
        ]
        if registry.gone:
            self.schedule.look_by(now_s + SILENT_S)
        if now_s >= self._tidy_s:
            self._tidy_s = now_s + _DAY_S
            deps.history.forget_old(now_s, arrays)

    def _is_back(self, gone: tuple[ElementId, str] | int, kept: frozenset[int]) -> bool:
        """Whether the element, or the trainer, is there again, or the whole trainer is gone.

        Of an element that has a node again the keeper hears from there. A word about its last node
        could be taken for one about this: a new keeper does not know where members were.
        """
        if isinstance(gone, int):
            return gone in kept
        (array, task), _ = gone
        view, back = self.registry.view(array), (Phase.RELEASED, *OCCUPIES)
        there = view is not None and view.state.of(task).phase in back
        return there or array not in kept

    def _note_pauses(self, before: Mapping[int, Set[str]], now_s: float) -> None:
        """Record how long trainers pause, if their nodes differ from ``before``."""
        for view in self.registry.views:
            with self._errors.of(view.array):
                costs, had = self.performance.costs(view, now_s), before.get(view.array, set())
                state = note_rescale(view, had, costs.up_s, costs.down_s, now_s)
                self.registry.put({view.array: state})

    def _act(self, actions: Iterable[Action]) -> None:
        deps, registry, actions = self.deps, self.registry, tuple(actions)
        began_s = deps.clock()
        asked = registry.ask(elements_of(Shrink, actions))
        registry.unask(deps.groups.part(asked))
        grown: list[ElementId] = []

        def note(action: Action, refused: str) -> None:
            if isinstance(action, Grow) and not refused:
                grown.extend(action.elements)
            state = action.after(registry.state(action.array), refused, deps.clock())
            registry.put({action.array: state})

        again_in_s = execute(
            *(actions, deps.gateway, deps.clock, deps.groups, began_s, note, deps.most_actions),
            of=self._errors.of,
        )
        if again_in_s is not None:
            self.schedule.look_by(deps.clock() + again_in_s)
        self.schedule.grew(len(grown), deps.clock())

    def _notify_trainers(self, ended: Set[ElementId]) -> Iterator[Tell]:
        """Write a notice into a trainer's output, once.

        It says that the elements do not train together, or which sizes are left out.
        Elements that ``ended`` in this turn get no notice.
        """
        now_s = self.deps.clock()
        for view in self.registry.views:
            with self._errors.of(view.array):
                if view.state.notified or view.over:
                    continue
                left_out, running = view.left_out(now_s), view.running().keys() - ended
                notice = f"left out: {in_words(left_out)}" if left_out else None
                notice = notice or self._not_together(view, now_s)
                if running and notice is not None:
                    yield Tell((min(running),), f"bftrainer: {notice}")

    def _not_together(self, view: TrainerView, now_s: float) -> str | None:
        joined, group = self.performance.joined(view), self.registry.reported(view.trainer).group
        return not_together(view, group, joined, self.deps.notes_arrive(), now_s)

    def _take(self, numbered: NumberedNote, view: TrainerView | None, now_s: float) -> None:
        note = numbered.note
        if note.kind not in OF_MEMBERS:
            self._take_hint(numbered, view, now_s)
        elif view is not None:
            reported = self.registry.reported(view.trainer)
            state = self._members.take(view, reported, numbered, now_s)
            self.registry.put({view.array: state})
            cut = note.kind is NoteKind.CUT
            if cut and note.node:  # the next look shows whether it has a node
                self.registry.gone.append((ElementId(note.array, note.task), note.node))
            left = note.kind is NoteKind.LEFT and state is not view.state
            if cut or left or note.kind is NoteKind.FAILED:
                self.schedule.hint(note.kind, now_s)

    def _take_hint(self, numbered: NumberedNote, view: TrainerView | None, now_s: float) -> None:
        note = numbered.note
        if note.kind is NoteKind.UP:
            self.registry.bad.is_up(note.node)
        if view is not None:
            record = view.state.of(note.task)
            self.registry.put({view.array: apply_note(view.state, numbered)})
            if note.kind is NoteKind.UP and record.may_start_on(note.node):
                return  # the element came up where it was sent, so no look is needed
        self.schedule.hint(note.kind, now_s, self.decision.as_they_come)
