"""Builds the planning problem from the trainers' views, and keeps the plan that solves it.

A plan stays in force until its problem changes.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bftrainer_slurm.controller.decide.eligibility import Eligibility, asks_of
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import OCCUPIES
from bftrainer_slurm.controller.state.profiles import Estimate, PerformanceModel
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Resources, ThroughputCurve
from bftrainer_slurm.planner.instance import document_of
from bftrainer_slurm.planner.objectives import Deadline, Facts, Objective, curves_of
from bftrainer_slurm.planner.objectives.deadlines import needs_of, with_deadlines
from bftrainer_slurm.planner.problem import (
    Costs,
    NodeClass,
    Plan,
    PlanMaker,
    PlannedTrainer,
    Problem,
    stops_a_trainer,
)
from bftrainer_slurm.sizes import ANY
from bftrainer_slurm.spec import Spec
from bftrainer_slurm.words import counted

logger = logging.getLogger(__name__)

# A start takes time too. Without this cost, a trainer that stands still for a moment would lose its
# last node to a trainer that would start there. The cost is at most half of the forward time, so
# that a start on a node that no other trainer wants always pays off.
_MOST_OF_FORWARD = 0.5
_RATE_STEP = 1.05  # between the rates that deadlines may need
_NOISE_STEP = 1.25  # between noise scales: one that grows with the training makes few new plans
_DONE_STEPS = 20  # in which a trainer's share that is done is counted


def problem_of(
    cluster: ClusterView,
    free: Mapping[str, int],
    objective: Objective,
    performance: PerformanceModel,
    hardware: Mapping[str, str],
    eligible: Eligibility,
    exploring: bool = True,
    deadline_share: float = 1.0,
    cross_switch: float = 1.0,
) -> Problem:
    """Return the planning problem: every trainer that can use nodes, over all available nodes.

    ``free`` are the units that trainers may grow into. ``hardware`` is each node's kind, empty if
    the site has no kinds. If ``exploring``, trainers may have optimistic curves. Deadlines may take
    ``deadline_share`` of the nodes. ``cross_switch`` is how fast a training is on nodes under more
    than one switch, beside one switch.
    """
    now_s, life_s = cluster.now_s, cluster.life_s
    chosen = _who_can_use_nodes(cluster, eligible)
    estimates = performance.estimates(chosen, now_s)
    if not exploring:
        estimates = [replace(one, curve=one.expected or one.curve) for one in estimates]
    units, shared = offered(cluster, chosen, free), cluster.snapshot.shared
    names = frozenset(units)
    switch_of = _switches(names, cluster.snapshot.configuration.switch_of)
    if switch_of and cross_switch < 1:
        alone = max(Counter(switch_of.values()).values())
        estimates = [_crossing(one, alone, cross_switch) for one in estimates]
    parts = {node: units[node] for node in names & shared.keys() if shared[node].gpus}
    gpus = {node: max(shared[node].gpus, has) for node, has in parts.items()}
    most = max(gpus.values(), default=1)
    facts = [
        _facts(view, estimate, most, now_s)
        for view, estimate in zip(chosen, estimates, strict=True)
    ]
    needs = needs_of(facts, deadline_share * len(names))
    curves = with_deadlines(curves_of(objective, facts), needs)
    classes = _classes(names, hardware, _barred(chosen, eligible, names), gpus)
    trainers = tuple(
        _planned_trainer(view, estimate, curve, cluster, classes)
        for view, estimate, curve in zip(chosen, estimates, curves, strict=True)
    )
    return Problem(
        names,
        cluster.forward_time_s,
        trainers,
        costs=Costs.PAUSE,
        life_s={name: life_s[name] for name in names if name in life_s},
        since_s={node: start_s for view in chosen for node, start_s in view.starts_s().items()},
        classes=tuple(classes),
        free=parts,
        switch_of=switch_of,
        needs={trainers[index].key: need for index, need in needs.items()},
    )


def _switches(names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the switch of each of these nodes; none if all are under one."""
    found = {name: known[name] for name in names if name in known}
    return found if len(set(found.values())) > 1 else {}


def _crossing(one: Estimate, alone: int, factor: float) -> Estimate:
    """Return an estimate whose curve is lower by this factor on more than ``alone`` nodes."""
    sizes = sorted({*one.curve.nodes, alone, alone + 1})
    rates = (one.curve.at(size) * (1.0 if size <= alone else factor) for size in sizes)
    return replace(one, curve=ThroughputCurve(tuple(sizes), tuple(rates)))


def offered(
    cluster: ClusterView, planned: Iterable[TrainerView], free: Mapping[str, int]
) -> dict[str, int]:
    """Return how many units of each node the ``planned`` trainers may have: theirs, and free ones.

    A free GPU does not count if ordinary jobs leave it too few processors or too little memory.
    """
    snapshot, planned = cluster.snapshot, tuple(planned)
    have = Counter[str]()
    for view in planned:
        for node in view.nodes:
            have[node] += view.gpus or snapshot.units(node)
    out = Counter(have)
    out.update(free)
    least = _least(planned, snapshot)
    memory_mb = defaultdict[str | None, float](float)
    for view in cluster.views if snapshot.shared else ():
        asks = asks_of(view.trainer, snapshot.configuration)
        for _, record in view.within(*OCCUPIES):  # others have no memory there yet
            memory_mb[record.node] += asks.memory_mb
    for node in free.keys() & snapshot.shared.keys():
        if (one := snapshot.shared[node]).gpus:
            useless = one.free.gpus - _usable(one, memory_mb[node], least)
            out[node] = have[node] + max(0, free[node] - useless)
    return +out


def _usable(one: SharedNode, memory_mb: float, least: Resources) -> int:
    """Return how many GPUs elements can use: each GPU needs processors and memory too.

    ``memory_mb`` is what elements have there; ``least`` is the least that any takes with a GPU.
    """
    by_memory = (one.left.memory_mb + memory_mb) / least.memory_mb if least.memory_mb else one.gpus
    return min(one.free.gpus, one.free.cpus // max(1, least.cpus), int(by_memory))


def _least(planned: Iterable[TrainerView], snapshot: Snapshot) -> Resources:
    """Return the least memory and processors that any trainer's element takes with a GPU."""
    parts = [
        (asks_of(view.trainer, snapshot.configuration), view.gpus) for view in planned if view.gpus
    ]
    return Resources(
        min((asks.memory_mb / gpus for asks, gpus in parts), default=0.0),
        min((asks.cpus // gpus for asks, gpus in parts), default=0),
    )


def _who_can_use_nodes(cluster: ClusterView, eligible: Eligibility) -> list[TrainerView]:
    """Return the trainers that can use nodes; stuck trainers can only keep what they have."""
    views = (
        replace(view, spare=()) if view.array in eligible.stuck else view for view in cluster.views
    )
    return [view for view in views if _can_use_nodes(view, cluster.now_s)]


def _barred(
    views: Iterable[TrainerView], eligible: Eligibility, nodes: frozenset[str]
) -> dict[int, frozenset[str]]:
    """Return which of these nodes are barred for each trainer, if any are."""
    barred = eligible.barred
    return {one.array: out for one in views if (out := barred.get(one.array, frozenset()) & nodes)}


def _classes(
    pool: frozenset[str],
    hardware: Mapping[str, str],
    barred: Mapping[int, frozenset[str]],
    gpus: Mapping[str, int],
) -> dict[NodeClass, tuple[int, ...]]:
    """Split the pool into classes by hardware, shared GPUs, and the trainers that are barred."""
    parts: dict[tuple[str, tuple[int, ...], int], set[str]] = {}
    for node in pool if hardware or barred or gpus else ():
        kept_out = tuple(array for array, out in barred.items() if node in out)
        kind = hardware.get(node, "")
        parts.setdefault((kind, kept_out, gpus.get(node, 0)), set()).add(node)
    return {
        NodeClass(_class_name(kind, kept_out, of), frozenset(names), kind, of): kept_out
        for (kind, kept_out, of), names in sorted(parts.items())
    }


def _class_name(kind: str, kept_out: Iterable[int], gpus: int) -> str:
    name = kind or "other"
    return " not ".join(
        [f"{name} of {counted(gpus, 'GPU')}" if gpus else name, *map(str, kept_out)]
    )


def _facts(view: TrainerView, estimate: Estimate, gpus: int, now_s: float) -> Facts:
    """Return what an objective knows of a trainer; ``gpus`` are those of a node."""
    record = view.trainer.record
    last_s = max(view.submit_s, view.state.had_nodes_s)
    return Facts(
        curve=estimate.curve,
        min_nodes=record.min_nodes,
        max_nodes=record.max_nodes,
        weight=record.spec.weight,
        user=view.trainer.user,
        nodes=len(view.placed),
        waited_s=0.0 if view.placed else max(0.0, now_s - last_s),
        done=_done(record.spec.samples, estimate),
        share=min(1.0, view.gpus / gpus) if view.gpus else 1.0,
        deadline=_deadline(record.spec, estimate, now_s),
        noise=_noise(estimate.noise),
    )


def _deadline(spec: Spec, estimate: Estimate, now_s: float) -> Deadline | None:
    """Return a trainer's deadline and the rate that it needs; None: it has none, or it is over.

    A new one needs its least nodes, to be measured; one that reports no samples has no deadline.
    """
    rate = spec.rate_needed(estimate.samples or 0.0, now_s)
    if rate is None or spec.by_s is None:
        return None
    if not estimate.measured:
        return Deadline(spec.by_s, 0.0)
    if estimate.samples is None:
        return None
    steps = math.ceil(math.log(rate, _RATE_STEP))  # so that passing time alone makes no new plan
    stepped, most = _RATE_STEP**steps, max(estimate.curve.values)
    return Deadline(spec.by_s, stepped if stepped <= most else rate)


def _noise(batches: float) -> float:
    """Return a noise scale in steps."""
    if not 0 < batches < math.inf:
        return batches
    return _NOISE_STEP ** round(math.log(batches, _NOISE_STEP))


def _done(wanted: float | None, estimate: Estimate) -> float | None:
    """Return the share of its samples that is done, in steps; None: unknown."""
    if wanted is None or estimate.samples is None:
        return estimate.done
    return min(1.0, int(_DONE_STEPS * estimate.samples / wanted) / _DONE_STEPS)


def _planned_trainer(
    view: TrainerView,
    estimate: Estimate,
    curve: ThroughputCurve,
    cluster: ClusterView,
    classes: Mapping[NodeClass, tuple[int, ...]],
) -> PlannedTrainer:
    record, costs = view.trainer.record, estimate.costs
    start_s = min(costs.start_s, _MOST_OF_FORWARD * cluster.forward_time_s)
    least, most = record.min_nodes, min(record.max_nodes, _elements(view))
    allowed = view.sizes_now(cluster.now_s)
    sizes = () if allowed == ANY else allowed.between(least, most)
    if sizes:
        least, most = sizes[0], sizes[-1]
    return PlannedTrainer(
        key=str(view.array),
        min_nodes=least,
        max_nodes=most,
        current=view.nodes,
        curve=curve,
        rescale_up_s=costs.up_s,
        rescale_down_s=costs.down_s,
        paused_s=max(0.0, view.state.paused_until_s - cluster.now_s),
        start_cost=start_s * curve.at(least),
        loss_s=estimate.loss_s,
        barred=frozenset(one.name for one, out in classes.items() if view.array in out),
        sizes=sizes,
        gpus=view.gpus,
    )


def _can_use_nodes(view: TrainerView, now_s: float) -> bool:
    if view.over or view.abandoned or view.state.rests_until_s > now_s:
        return False
    return view.sizes_now(now_s).up_to(_elements(view)) >= view.trainer.record.min_nodes


def _elements(view: TrainerView) -> int:
    """Return how many of a trainer's elements can have a node."""
    return len(view.placed) + len(view.spare)


_GREEDY_S = 60.0  # how long a greedy plan stands: another try of the solver may take seconds
# Smaller differences of rescaling costs are noise, and cause no new plan.
_SAME_S = 1.0
_SAME_SHARE = 1 / 3
_SAME_LOSS_S = 30.0
_SAME_LOSS_SHARE = 1 / 2


@dataclass(frozen=True, slots=True)
class StandingPlan:
    """The plan in force."""

    plan: Plan
    problem: Problem  # which the plan solves
    time_s: float  # when it was made (Unix seconds)
    question: Problem  # as asked; ``problem`` differs if exploring would have stopped a trainer


@dataclass(slots=True)
class Planning:
    """Keeps a plan up to date; ``trouble`` says why there is none."""

    planner: PlanMaker
    history: History
    standing: StandingPlan | None = None
    trouble: str | None = None

    def answer(self, build: Callable[..., Problem], now_s: float) -> StandingPlan | None:
        """Return the plan in force; None if no plan can be made, and then no element moves.

        ``build`` returns the problem; with ``exploring=False``, one in which no trainer explores.
        """
        question, self.trouble = build(), None
        try:
            if self.standing is None or not still_answers(self.standing, question, now_s):
                self.standing = self._plan(question, build, now_s)
        except Exception as error:
            logger.exception("no plan")
            self.standing, self.trouble = None, f"no plan: {type(error).__name__}: {error}"
        return self.standing

    def _plan(self, question: Problem, build: Callable[..., Problem], now_s: float) -> StandingPlan:
        """Make and record a new plan; no trainer loses all its nodes so that others can explore."""
        problem, plan = question, self.planner.plan(question)
        if stops_a_trainer(problem, plan) and (other := build(exploring=False)) != problem:
            problem, plan = other, self.planner.plan(other)
        self.history.counts.plans[plan.status] += 1
        self.history.counts.solving.add(plan.solve_s)
        self.history.add_problem(now_s, partial(document_of, problem))
        return StandingPlan(plan, problem, now_s, question)


def still_answers(standing: StandingPlan, question: Problem, now_s: float) -> bool:
    """Whether a plan is still valid for the problem."""
    if standing.plan.status == "greedy" and now_s >= standing.time_s + _GREEDY_S:
        return False
    return same_question(question, standing.question)


def same_question(problem: Problem, other: Problem) -> bool:
    """Whether the plan for one problem is still valid for another.

    It is valid if the same trainers want the same nodes at about the same costs of rescaling. Other
    changes are moves towards that plan, and the passing of time.
    """
    if _wanted(problem) != _wanted(other):
        return False
    pairs = zip(problem.trainers, other.trainers, strict=True)
    forward_s = problem.forward_time_s
    return all(
        _costs_alike(one, before) and _losses_alike(one.loss_s, before.loss_s, forward_s)
        for one, before in pairs
    )


def _costs_alike(one: PlannedTrainer, other: PlannedTrainer) -> bool:
    pairs = (
        (one.rescale_up_s, other.rescale_up_s),
        (one.rescale_down_s, other.rescale_down_s),
    )
    return all(abs(a - b) <= max(_SAME_S, _SAME_SHARE * max(a, b)) for a, b in pairs)


def _losses_alike(loss_s: float, before_s: float, forward_s: float) -> bool:
    """Whether a loss has changed little. Above the forward time, its size no longer matters."""
    if min(loss_s, before_s) >= forward_s:
        return True
    return abs(loss_s - before_s) <= max(_SAME_LOSS_S, _SAME_LOSS_SHARE * max(loss_s, before_s))


def _wanted(problem: Problem) -> tuple[object, ...]:
    trainers = [
        (one.key, one.min_nodes, one.max_nodes, one.sizes, one.curve, one.barred, one.gpus)
        for one in problem.trainers
    ]
    return problem.pool, trainers, problem.classes, problem.free, problem.needs
