"""Runs, several at a time, each worker with a planner of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context

import numpy as np

from bftrainer_slurm.cli.simulation import ReplayOptions
from bftrainer_slurm.cli.simulation import run as replay_once
from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.drive import Outcome
from bftrainer_slurm.replay.efficiency import dedicated_samples
from bftrainer_slurm.replay.trace import Trace, holes_of
from scripts.experiments.data import trace_of_run, trainers_of_run
from scripts.experiments.methods import METHODS, Asked
from scripts.experiments.runs import DEDICATED, Result, Run


def execute(runs: Sequence[Run], jobs: int, commit: str) -> Iterator[tuple[Run, Result]]:
    """Yield each run with its result as soon as it is there.

    A caller that stops early, or is interrupted, gives up only the runs that are under way.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as executor:
        futures = {executor.submit(execute_one, run, commit): run for run in runs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def execute_one(run: Run, commit: str) -> Result:
    """Run once; the planner's child is started ahead, so that no plan waits for it."""
    begin_s = time.perf_counter()
    method = METHODS["milp" if run.method == DEDICATED else run.method]
    outcome, plan_s = None, np.zeros(1)
    with Planner() as planner:
        planner.warm_up()
        asked = Asked(planner, method)
        if run.method == DEDICATED:
            samples = _on_dedicated_nodes(run, asked)
        else:
            outcome, seconds = _replay(run, trace_of_run(run), asked)
            samples, plan_s = outcome.samples, np.array(seconds)
    return Result(
        samples=samples,
        outcome=outcome,
        plans=dict(asked.statuses),
        plan_median_s=float(np.median(plan_s)),
        plan_p95_s=float(np.quantile(plan_s, 0.95)),
        plan_max_s=float(plan_s.max()),
        seconds=time.perf_counter() - begin_s,
        commit=commit,
    )


def _replay(run: Run, trace: Trace, planner: PlanMaker) -> tuple[Outcome, Sequence[float]]:
    options = ReplayOptions(
        policy=METHODS[run.method].policy,
        at_once=run.at_once,
        forward_time_s=run.forward_time_s,
        rescale_scale=run.scale,
    )
    trainers = trainers_of_run(run)
    outcome, plan_s = replay_once(trace, trainers, options, planner)
    if outcome.trainers_done == len(trainers):
        raise ValueError(f"all {len(trainers)} trainers are done before the end: repeat them")
    return outcome, plan_s


def _on_dedicated_nodes(run: Run, planner: PlanMaker) -> float:
    trace, on_dedicated = trace_of_run(run), replace(run, method="milp")
    idle_s = sum(hole.end_s - hole.start_s for hole in holes_of(trace))
    mean_nodes = idle_s / (trace.end_s - trace.start_s)
    return dedicated_samples(
        trace, mean_nodes, lambda other: _replay(on_dedicated, other, planner)[0]
    )
