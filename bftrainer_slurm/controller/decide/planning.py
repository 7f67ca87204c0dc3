"""The plan that stands, with the question that it answers: planned anew if the question changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.planner.instance import document_of
from bftrainer_slurm.planner.problem import Plan, PlanMaker, PlannedTrainer, Problem

logger = logging.getLogger(__name__)

_GREEDY_S = 60.0  # how long a plan without the solver stands: a try may take seconds
# Smaller differences of rescaling costs are noise, and make no new plan.
_SAME_S = 1.0
_SAME_SHARE = 1 / 3
_SAME_LOSS_S = 30.0
_SAME_LOSS_SHARE = 1 / 2


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, the problem that it solves, and when it was made (Unix seconds).

    ``question`` is what was asked: another problem if a trainer would have stopped to explore.
    """

    plan: Plan
    problem: Problem
    time_s: float
    question: Problem


@dataclass(slots=True)
class Planning:
    """Answers question after question; ``trouble`` says why the last one has no plan."""

    planner: PlanMaker
    history: History
    made: Made | None = None
    trouble: str | None = None

    def answer(self, build: Callable[..., Problem], now_s: float) -> Made | None:
        """Return the plan that stands, None if none can be made: then no element moves.

        ``build`` returns the problem, also one in which no trainer explores.
        """
        question, self.trouble = build(), None
        try:
            if self.made is None or not stands(self.made, question, now_s):
                self.made = self._plan(question, build, now_s)
        except Exception as error:
            logger.exception("no plan")
            self.made, self.trouble = None, f"no plan: {type(error).__name__}: {error}"
        return self.made

    def _plan(self, question: Problem, build: Callable[..., Problem], now_s: float) -> Made:
        """Make a new plan, and note it; no trainer stops for exploration."""
        problem, plan = question, self.planner.plan(question)
        if stops_a_trainer(problem, plan) and (other := build(exploring=False)) != problem:
            problem, plan = other, self.planner.plan(other)
        pool, used = len(problem.pool), sum(map(len, plan.assignment.values()))
        self.history.add_plan(now_s, pool, used, plan.objective, plan.status, plan.solve_s)
        self.history.add_problem(now_s, partial(document_of, problem))
        return Made(plan, problem, now_s, question)


def stands(made: Made, question: Problem, now_s: float) -> bool:
    """Whether a plan still answers the question."""
    if made.plan.status == "greedy" and now_s >= made.time_s + _GREEDY_S:
        return False
    return same_question(question, made.question)


def same_question(problem: Problem, other: Problem) -> bool:
    """Whether the plan for one problem still stands for another.

    It stands as long as the same trainers want the same nodes at about the same cost of rescaling:
    other changes are moves towards that plan, and the passing of time.
    """
    if _wanted(problem) != _wanted(other):
        return False
    pairs = zip(problem.trainers, other.trainers, strict=True)
    forward_s = problem.forward_time_s
    return all(
        _costs_alike(one, before) and _losses_alike(one.loss_s, before.loss_s, forward_s)
        for one, before in pairs
    )


def stops_a_trainer(problem: Problem, plan: Plan) -> bool:
    """Whether a plan takes all nodes of a trainer that has some."""
    return any(one.current and not plan.assignment[one.key] for one in problem.trainers)


def _costs_alike(one: PlannedTrainer, other: PlannedTrainer) -> bool:
    pairs = (
        (one.rescale_up_s, other.rescale_up_s),
        (one.rescale_down_s, other.rescale_down_s),
    )
    return all(abs(a - b) <= max(_SAME_S, _SAME_SHARE * max(a, b)) for a, b in pairs)


def _losses_alike(loss_s: float, before_s: float, forward_s: float) -> bool:
    """Whether a loss has not changed much; one beyond the forward time just goes on growing."""
    if min(loss_s, before_s) >= forward_s:
        return True
    return abs(loss_s - before_s) <= max(_SAME_LOSS_S, _SAME_LOSS_SHARE * max(loss_s, before_s))


def _wanted(problem: Problem) -> tuple[object, ...]:
    trainers = [
        (one.key, one.min_nodes, one.max_nodes, one.sizes, one.curve, one.barred)
        for one in problem.trainers
    ]
    return problem.pool, trainers, problem.classes
