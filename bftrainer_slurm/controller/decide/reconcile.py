"""From observed and planned state to actions: what each phase needs, and moves towards a plan.

Pure. ``state.phases`` says what an element's phase means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from itertools import islice

from bftrainer_slurm.controller.decide.actions import Action, Cancel, Grow, Hold, Revive, Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import BROKEN, Phase
from bftrainer_slurm.controller.state.trainer_state import waits_in_vain
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Configuration, ElementId, Place, TimeLimit, nodes_of
from bftrainer_slurm.planner.problem import Plan

_FINISH_TIMEOUT_S = 300.0  # an elastic agent waits this long at its exit barrier
_CANCEL_AGAIN_S = 60.0
_WAITS_OR_RUNS = (Phase.WITHHELD, Phase.ASTRAY, Phase.RELEASED, Phase.RUNNING)


def patience(settings: Settings, configuration: Configuration) -> float:
    """Return how long (seconds) a released element may take to start.

    While a large job waits, only backfill starts it, and may skip it once.
    """
    return max(settings.start_timeout_s, 3 * (configuration.backfill_s or 0.0))


def keep_up(view: TrainerView, now_s: float, patience_s: float) -> list[Action]:
    """Return the actions that a trainer's elements need, whatever the plan says."""
    if view.abandoned:
        return [Cancel(view.array, "cancelled by its owner")] if view.spare else []
    if view.over and (cancel := _end(view, now_s)):
        return cancel
    actions = _holds(view, now_s, patience_s)
    running = set(view.ids(Phase.RUNNING))
    if strays := tuple(id_ for id_ in view.surplus if id_ in running):
        actions.append(Shrink(strays, "its node is another element's"))
    if (broken := view.ids(*BROKEN)) and not view.over:
        actions.append(Revive(broken, "failed"))
    return actions


def _holds(view: TrainerView, now_s: float, patience_s: float) -> list[Action]:
    """Hold pending elements that should be held; each for one reason."""
    released = dict(view.within(Phase.RELEASED))
    why = dict.fromkeys(late_elements(view, now_s, patience_s), "it has not started")
    why |= dict.fromkeys(released.keys() & set(view.surplus), "its node is taken")
    vain = (id_ for id_, record in released.items() if waits_in_vain(record.reason))
    why |= dict.fromkeys(vain, "Slurm does not start it there")
    why |= dict.fromkeys(view.ids(Phase.ASTRAY), "it was released by somebody else")
    return [
        Hold(tuple(sorted(id_ for id_ in why if why[id_] == reason)), reason)
        for reason in dict.fromkeys(why.values())
    ]


def late_elements(view: TrainerView, now_s: float, patience_s: float) -> tuple[ElementId, ...]:
    """Return the released elements that have not started in time."""
    return tuple(
        id_ for id_, record in view.within(Phase.RELEASED) if now_s - record.since_s > patience_s
    )


def late_nodes(view: TrainerView, now_s: float, patience_s: float) -> list[str]:
    """Return the nodes on which elements have not started, though these nodes are not in use."""
    late = set(late_elements(view, now_s, patience_s))
    return [place.node for id_, place in view.placed.items() if id_ in late]


def end_asked(view: TrainerView) -> list[Shrink]:
    """End elements that were asked to leave and still run: they train no more, wanted or not."""
    left = tuple(id_ for id_ in view.running() if view.state.of(id_.task).asked)
    return [Shrink(left, "it was asked to leave")] if left else []


def leave(view: TrainerView, nodes: Set[str], why: str) -> list[Shrink]:
    """End elements on these nodes."""
    there = view.running_on(nodes)
    return [Shrink(there, why)] if there else []


def towards(
    plan: Plan,
    view: TrainerView,
    free: Mapping[str, Place],
    nodes: frozenset[str],
    limits: Callable[[Iterable[Place], int | None], Mapping[TimeLimit, frozenset[Place]]],
) -> list[Action]:
    """Return the moves of a trainer towards the plan that can be made now.

    A place that another trainer still has is passed on in a later turn, when it is ``free``; these
    are given by name. ``nodes`` are all of the partition; ``limits`` gives the time limit for
    elements that start in places.
    """
    target = plan.assignment.get(str(view.array))
    if target is None:
        return []
    leaving = [id_ for id_, place in view.placed.items() if place.name not in target]
    running = view.running()
    started = tuple(id_ for id_ in leaving if id_ in running)
    waiting = tuple(id_ for id_ in leaving if id_ not in running)
    actions: list[Action] = []
    if started:
        actions.append(Shrink(started, "the plan gives its nodes to others"))
    if waiting:
        actions.append(Hold(waiting, "the plan gives its node to others"))
    spare, first = iter(view.spare), not view.live
    goals = sorted(free[name] for name in target & free.keys())[: len(view.spare)]
    for limit, onto in limits(goals, view.trainer.record.minutes).items():
        elements = tuple(islice(spare, len(onto)))
        excluded = view.trainer.demands.excluded
        others = nodes - nodes_of(onto)
        actions.append(Grow(elements, onto, others, first, limit, excluded))
        first = False
    return actions


def hold_reclaimed(view: TrainerView, actions: Collection[Action]) -> list[Action]:
    """Hold the reclaimed elements that no move uses, before Slurm starts them by itself."""
    if view.over and not view.finishing:
        return []
    used = {id_ for action in actions if isinstance(action, Grow) for id_ in action.elements}
    left = tuple(id_ for id_ in view.ids(Phase.RECLAIMED) if id_ not in used)
    return [Hold(left, "it would start by itself")] if left else []


def _end(view: TrainerView, now_s: float) -> list[Action]:
    """Cancel the rest of a trainer that is over; its running elements get time to end."""
    since_s = view.state.over_since_s if view.state.over_since_s is not None else now_s
    if view.finishing and view.live and now_s - since_s < _FINISH_TIMEOUT_S:
        return []
    left = view.spare or view.ids(*_WAITS_OR_RUNS)
    if now_s - view.state.cancelled_s < _CANCEL_AGAIN_S or not left:
        return []
    assert view.state.over is not None
    return [Cancel(view.array, view.state.over)]
