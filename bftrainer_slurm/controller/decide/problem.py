"""From the views of the trainers to the planning problem. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bftrainer_slurm.controller.decide.eligibility import Eligibility
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.controller.state.profiles import Appraisal, Appraiser
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Place, ThroughputCurve, nodes_of
from bftrainer_slurm.planner.objectives import Facts, Objective, curves_of
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem
from bftrainer_slurm.sizes import ANY

# A start takes time too. Without this cost a trainer that stands still for a moment would lose its
# last node to one that would start there. It is at most half of the forward time, so that a node
# that no other trainer wants is always worth a start.
_MOST_OF_FORWARD = 0.5


def problem_of(
    picture: Picture,
    free: frozenset[Place],
    objective: Objective,
    appraiser: Appraiser,
    hardware: Mapping[str, str],
    eligible: Eligibility,
    exploring: bool = True,
) -> Problem:
    """Return the planning problem: every trainer that can use nodes, over all available places.

    ``hardware`` is by node, empty if kinds are not told apart. Trainers may have optimistic curves,
    unless exploring is off.
    """
    now_s = picture.now_s
    views = (
        replace(view, spare=()) if view.array in eligible.stuck else view for view in picture.views
    )
    chosen = [view for view in views if _can_use_nodes(view, now_s)]
    appraisals = appraiser.appraise(chosen, now_s)
    if not exploring:
        appraisals = [replace(one, curve=one.expected or one.curve) for one in appraisals]
    facts = [
        _facts(view, appraisal, now_s) for view, appraisal in zip(chosen, appraisals, strict=True)
    ]
    curves = curves_of(objective, facts)
    pool = free.union(*(view.places for view in chosen))
    nodes = nodes_of(pool)
    all_barred = eligible.barred
    barred = {
        view.array: out
        for view in chosen
        if (out := all_barred.get(view.array, frozenset()) & nodes)
    }
    classes = _classes(pool, hardware, barred)
    trainers = tuple(
        _planned_trainer(view, appraisal, curve, picture, classes)
        for view, appraisal, curve in zip(chosen, appraisals, curves, strict=True)
    )
    life_s = picture.life_s
    return Problem(
        frozenset(place.name for place in pool),
        picture.forward_time_s,
        trainers,
        costs=Costs.PAUSE,
        life_s={place.name: life_s[place.node] for place in pool if place.node in life_s},
        since_s={
            place.name: start_s for view in chosen for place, start_s in view.starts_s().items()
        },
        classes=tuple(classes),
    )


def _classes(
    pool: frozenset[Place], hardware: Mapping[str, str], barred: Mapping[int, frozenset[str]]
) -> dict[NodeClass, tuple[int, ...]]:
    """Split the pool by kind of hardware, and by the trainers that cannot have a node."""
    parts: dict[tuple[str, tuple[int, ...]], set[str]] = {}
    for place in pool if hardware or barred else ():
        kept_out = tuple(array for array, out in barred.items() if place.node in out)
        parts.setdefault((hardware.get(place.node, ""), kept_out), set()).add(place.name)
    return {
        NodeClass(
            " not ".join([kind or "other", *map(str, kept_out)]), frozenset(names), kind
        ): kept_out
        for (kind, kept_out), names in sorted(parts.items())
    }


def _facts(view: TrainerView, appraisal: Appraisal, now_s: float) -> Facts:
    record = view.trainer.record
    last_s = max(view.submit_s, view.state.trained_s)
    return Facts(
        curve=appraisal.curve,
        min_nodes=record.min_nodes,
        max_nodes=record.max_nodes,
        weight=record.spec.weight,
        user=view.trainer.user,
        nodes=len(view.placed),
        waited_s=0.0 if view.placed else max(0.0, now_s - last_s),
        done=appraisal.done,
    )


def _planned_trainer(
    view: TrainerView,
    appraisal: Appraisal,
    curve: ThroughputCurve,
    picture: Picture,
    classes: Mapping[NodeClass, tuple[int, ...]],
) -> PlannedTrainer:
    record, costs = view.trainer.record, appraisal.costs
    start_s = min(costs.start_s, _MOST_OF_FORWARD * picture.forward_time_s)
    least, most = record.min_nodes, min(record.max_nodes, _elements(view))
    allowed = view.sizes_now(picture.now_s)
    sizes = () if allowed == ANY else allowed.between(least, most)
    if sizes:
        least, most = sizes[0], sizes[-1]
    return PlannedTrainer(
        key=str(view.array),
        min_nodes=least,
        max_nodes=most,
        current=frozenset(place.name for place in view.places),
        curve=curve,
        rescale_up_s=costs.up_s,
        rescale_down_s=costs.down_s,
        paused_s=max(0.0, view.state.paused_until_s - picture.now_s),
        start_cost=start_s * curve.at(least),
        loss_s=appraisal.loss_s,
        barred=frozenset(one.name for one, out in classes.items() if view.array in out),
        sizes=sizes,
    )


def _can_use_nodes(view: TrainerView, now_s: float) -> bool:
    if view.over or view.abandoned or view.state.rests_until_s > now_s:
        return False
    return view.sizes_now(now_s).up_to(_elements(view)) >= view.trainer.record.min_nodes


def _elements(view: TrainerView) -> int:
    """How many of its elements can have a node."""
    return len(view.placed) + len(view.spare)
